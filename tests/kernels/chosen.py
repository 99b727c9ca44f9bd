"""What is tried in which guest, in the order in which it can be: a setting that a distribution may have, and a user.

Everything in one guest is emulated, some fifteen times slower than here, and all of `tests/kernel` under every setting
would take hours. So each kernel gets a part as root and another part as a plain user, together most of what depends on
a kernel: every way to make a process and to change a file, the wall and the guard from end to end, file rules by mounts
and by Landlock, what is asked, and what ends a run. `AGENTWRAP_KERNEL_TESTS=all` tries the whole folder instead.
"""

YAMA, NAMESPACES = "kernel/yama/ptrace_scope", "user/max_user_namespaces"
SYSCTLS: dict[str, dict[str, str]] = {
    "stock": {},
    "no user namespaces": {NAMESPACES: "0"},
    "Yama 1": {YAMA: "1"},
    "Yama 2": {YAMA: "2"},
    "Yama 2, no user namespaces": {YAMA: "2", NAMESPACES: "0"},
    "Yama 3": {YAMA: "3"},
}
# Rows of the adversary's table. (setting, user): what keeps connections, how the tree is followed; nothing where a run
# refuses to start. Yama 2 leaves ptrace to whoever has CAP_SYS_PTRACE over the tree, as the owner of its user namespace
# has; Yama 3 to nobody.
EXPECTED = {
    ("stock", "root"): ("wall", "ptrace+notify"),
    ("stock", "user"): ("wall", "ptrace+notify"),
    ("no user namespaces", "root"): ("guard", "ptrace+notify"),
    ("no user namespaces", "user"): ("guard", "ptrace+notify"),
    ("Yama 2", "user"): ("wall", "ptrace+notify"),
    ("Yama 2, no user namespaces", "user"): ("", ""),
    ("Yama 3", "root"): ("", ""),
    ("Yama 3", "user"): ("", ""),
}
TESTS = "tests"
"""Not a row of the table but tests of `tests/kernel`, as a step."""

STEPS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "oldest": (
        ("rows", "stock", "user"),
        (TESTS, "stock", "root"),
        ("rows", "no user namespaces", "user"),
        (TESTS, "Yama 1", "user"),
        ("rows", "Yama 2", "user"),
        ("rows", "Yama 2, no user namespaces", "user"),
        ("rows", "Yama 3", "user"),
    ),
    "newest": (
        ("rows", "stock", "root"),
        (TESTS, "stock", "root"),
        ("rows", "no user namespaces", "root"),
        (TESTS, "Yama 1", "user"),
        ("rows", "Yama 3", "root"),
    ),
}
K = "tests/kernel/test_"
# One half of the tests as root on the older kernel and as a plain user on the newer one, the other half the other way.
HALVES: tuple[tuple[str, ...], tuple[str, ...]] = (
    (
        f"{K}follow.py",
        f"{K}sockets.py",
        f"{K}wall.py::test_what_is_allowed_arrives_and_nothing_else_does[wall]",
        f"{K}wall.py::test_a_server_of_its_own_and_the_machines_own[guard]",
        f"{K}file_policy.py::test_writes_outside_of_what_is_open_are_refused_and_told",
        f"{K}file_policy.py::test_reads_are_refused_and_the_rest_of_reading_is_not_recorded[guard]",
        f"{K}file_policy.py::test_a_service_of_the_machine_is_out_of_reach_and_the_runs_own_is_not[wall]",
        f"{K}file_policy.py::test_signals_and_memory_of_others_are_out_of_reach",
        f"{K}launch.py::test_a_killed_tracer_takes_the_tree_with_it_and_the_file_says_so[options1]",
        f"{K}adversary_spine.py::test_a_set_id_program_gains_nothing_for_a_plain_user_and_that_is_told",
    ),
    (
        f"{K}file_routes.py",
        f"{K}blindspots.py::test_a_service_outside_the_tree_is_a_gap",
        f"{K}blindspots.py::test_the_memory_of_another_process_is_told",
        f"{K}blindspots.py::test_a_file_opened_by_handle_is_a_gap",
        f"{K}wall.py::test_what_is_allowed_arrives_and_nothing_else_does[guard]",
        f"{K}wall.py::test_a_server_of_its_own_and_the_machines_own[wall]",
        f"{K}wall.py::test_a_dead_gateway_lets_nothing_through[guard]",
        f"{K}file_policy.py::test_what_is_protected_is_refused_whether_it_exists_or_not",
        f"{K}file_policy.py::test_reads_are_refused_and_the_rest_of_reading_is_not_recorded[wall]",
        f"{K}file_policy.py::test_programs_are_refused_by_name_in_every_way_of_following[auto]",
        f"{K}ask.py::test_once_is_once_and_a_denial_is_told[wall]",
        f"{K}adversary_spine.py::test_a_32_bit_program",
    ),
)
# Of tests that are there for every way of following, one is enough: with ptrace as root, without as a plain user.
FOLLOWED = {"root": "default", "user": "debuggable"}
EVERY_WAY = "test_follow or test_sockets or test_file_routes or adversary_spine"


def tests(which: str, user: str) -> tuple[str, ...]:
    """Arguments for pytest."""
    # Without ptrace a file is told of when it has been at rest for a moment: an emulated program takes longer than that
    # from its last write to the rename behind it.
    timed = " and not test_file_routes" if user == "user" else ""
    words = f"({FOLLOWED[user]} or not ({EVERY_WAY})){timed}"
    return (*HALVES[(which == "oldest") != (user == "root")], "-k", words)
