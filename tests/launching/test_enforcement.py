from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from agentwrap.launching.enforcement import (
    CONNECT_TCP,
    REFER,
    SCOPE_ABSTRACT,
    SCOPE_SIGNAL,
    TRUNCATE,
    WRITE_FILE,
    Bind,
    Devices,
    EnforcementPlan,
    Hold,
    Mask,
    Private,
    Put,
    ReadOnly,
    plan,
)
from agentwrap.launching.survey import MAX_BINDS, Kind
from agentwrap.policy.layers import Layer
from agentwrap.policy.paths import Places
from tests.launching.disks import TableDisk
from tests.policy_texts import KEY, OWN, policy

CLOSED = '[files.write]\ndefault = "deny"\nallow = ["$CWD/**", "$TMP/**"]\n'
OPEN = '[files.write]\ndefault = "allow"\n'
BASE = ("/w/a.py", "/tmp/", "/home/u/", "/usr/bin/curl", "/etc/passwd", "/proc/self/", "/dev/null")


def planned(
    body: str,
    *files: str,
    kinds: Mapping[str, Kind] | None = None,
    links: Mapping[str, str] | None = None,
    mode: str = "enforce",
    uid: int = 1000,
    **more: object,
) -> EnforcementPlan:
    layers = (Layer("flags", policy(body, mode=mode)),)
    return plan(layers, TableDisk((*BASE, *files), kinds, links), uid=uid, **more)  # type: ignore[arg-type]


def over(of: EnforcementPlan) -> list[str]:
    """What is laid over paths, in order."""
    return [str(step) for step in of.mounts.steps if isinstance(step, Bind | Mask)]


def test_nothing_is_held_in_mode_observe() -> None:
    found = planned(CLOSED, "/w/.git/hooks/x", KEY, mode="observe")
    assert not found
    assert not found.mounts
    assert not found.landlock


def test_everything_is_read_only_but_what_a_rule_opens() -> None:
    found = planned(CLOSED)
    assert found.mounts.steps == (
        Private(),
        *(Hold(path) for path in ("/proc", "/tmp", "/w")),
        ReadOnly("/"),
        *(Put(path) for path in ("/proc", "/tmp", "/w")),
    )
    assert found.held("/w/x/y") == ("/w", found.holdings["/w"])
    assert found.holdings["/w"].state == "open"
    nearest = found.held("/usr/bin/curl")
    assert nearest is not None
    assert (nearest[0], nearest[1].state, nearest[1].answer.rule.where) == ("/", "closed", "files.write.default")


def test_what_is_protected_and_exists_is_closed_again_and_its_holder_pinned() -> None:
    found = planned(CLOSED, "/w/.git/hooks/x", "/w/.git/config", "/w/.git/objects/hooks/", "/w/.mcp.json", "/w/hooks/y")
    assert over(found) == [
        "bind /w/.git",
        "bind read-only /w/.git/config",
        "bind read-only /w/.git/hooks",
        "bind read-only /w/.mcp.json",
    ]
    assert found.holdings["/w/.git/hooks"].answer.rule.where == "built-in.git-hooks"


def test_where_everything_may_be_written_only_what_is_protected_is_closed() -> None:
    found = planned(OPEN, "/w/.git/hooks/x", "/home/u/.bashrc", "/etc/sudoers.d/x", "/etc/cron.daily/y", "/etc/hosts")
    assert over(found) == [
        "bind read-only /etc/cron.daily",
        "bind read-only /etc/sudoers.d",
        "bind read-only /home/u/.bashrc",
        "bind /w/.git",
        "bind read-only /w/.git/hooks",
    ]
    assert not any(isinstance(step, ReadOnly) for step in found.mounts.steps)
    assert found.held("/etc/hosts") is None


def test_a_lifted_name_is_left_open_among_its_neighbours() -> None:
    body = CLOSED.replace('"$TMP/**"', '"$TMP/**", "$CWD/.git/hooks/pre-push"')
    found = planned(body, "/w/.git/hooks/pre-push", "/w/.git/hooks/commit-msg")
    assert over(found) == ["bind /w/.git", "bind /w/.git/hooks", "bind read-only /w/.git/hooks/commit-msg"]


def test_a_denied_folder_inside_an_open_one_is_closed() -> None:
    found = planned(CLOSED + 'deny = ["$CWD/vendor/**", "**/*.lock"]\n', "/w/vendor/x", "/w/a/b.lock", "/usr/c.lock")
    assert over(found) == ["bind read-only /w/a/b.lock", "bind read-only /w/vendor"]


def test_a_name_that_does_not_exist_yet_keeps_its_folder_writable_and_closes_the_neighbours() -> None:
    body = CLOSED.replace('"$TMP/**"', '"$TMP/**", "~/.tool/**"')
    found = planned(body, "/home/u/.bashrc", "/home/u/notes/n", links={"/home/u/link": "/etc"})
    assert Put("/home/u") in found.mounts.steps
    assert over(found) == ["bind read-only /home/u/.bashrc", "bind read-only /home/u/notes"]
    assert any("new names in /home/u" in one for one in found.left)


def test_a_pattern_for_names_beside_a_file_keeps_both_replaceable() -> None:
    body = CLOSED.replace('"$TMP/**"', '"~/.tool.json", "~/.tool.json.*", "~/.cache/**"')
    found = planned(body, "/home/u/.tool.json", "/home/u/.tool.json.1", "/home/u/.cache/x", "/home/u/.profile")
    assert over(found) == ["bind read-only /home/u/.profile"]
    puts = [step.path for step in found.mounts.steps if isinstance(step, Put)]
    assert puts == ["/home/u", "/home/u/.cache", "/proc", "/w"]


def test_a_single_file_is_opened_alone() -> None:
    found = planned(CLOSED.replace('"$TMP/**"', '"/etc/motd"'), "/etc/motd")
    assert Put("/etc/motd") in found.mounts.steps
    assert Put("/tmp") not in found.mounts.steps


def test_a_pattern_that_fits_anywhere_leaves_writing_to_the_stop_and_says_so() -> None:
    found = planned(CLOSED.replace('"$TMP/**"', '"**/build/**"'), "/w/.git/hooks/x")
    assert not any(isinstance(step, ReadOnly) for step in found.mounts.steps)
    assert over(found) == ["bind /w/.git", "bind read-only /w/.git/hooks"]
    assert any("fits anywhere" in one for one in found.left)


def test_a_link_is_followed_to_what_it_opens() -> None:
    found = planned(CLOSED, "/data/w/x", links={"/w": "/data/w"})
    assert Put("/data/w") in found.mounts.steps


def test_too_many_neighbours_are_left_to_the_stop_and_that_is_said() -> None:
    body = CLOSED.replace('"$TMP/**"', '"~/.tool/**"')
    found = planned(body, *(f"/home/u/f{number}" for number in range(MAX_BINDS + 5)))
    assert len(over(found)) == MAX_BINDS
    assert any(f"more than {MAX_BINDS}" in one for one in found.left)


def test_what_may_not_be_read_is_masked_with_our_key_and_our_recordings() -> None:
    body = OPEN + '[files.read]\ndefault = "allow"\ndeny = ["~/.ssh/**", "~/.netrc", "**/.env", "~/.gone"]\n'
    found = planned(body, "/home/u/.ssh/id", "/home/u/.netrc", "/w/sub/.env", KEY, OWN + "/runs/x")
    masks = [step.path for step in found.mounts.steps if isinstance(step, Mask)]
    assert masks == [KEY, OWN, "/home/u/.netrc", "/home/u/.ssh", "/w/sub/.env"]
    assert found.reads
    assert found.holdings["/home/u/.ssh"].answer.rule.text == "~/.ssh/**"


def test_our_own_folder_with_a_policy_in_it_can_be_read() -> None:
    layer = Layer("flags", policy(OPEN))
    layers = (Layer("user", replace(layer.policy, file=OWN + "/policy.toml")),)
    found = plan(layers, TableDisk((*BASE, OWN + "/policy.toml")), uid=1000)
    assert over(found) == [f"bind read-only {OWN}"]


def test_ways_out_are_masked_unless_a_rule_names_them() -> None:
    sockets: dict[str, Kind] = dict.fromkeys(
        (
            "/run/docker.sock",
            "/run/dbus/system_bus_socket",
            "/run/systemd/private",
            "/run/user/1000/bus",
            "/tmp/ssh-abc/agent.1",
            "/home/u/.ssh/mux",
        ),
        "socket",
    )
    files = ("/run/systemd/resolve/resolv.conf", "/home/u/.ssh/id")
    found = planned(OPEN, *files, kinds=sockets)
    masked = [one.removeprefix("mask ") for one in over(found) if one.startswith("mask")]
    assert masked == sorted({*sockets, "/run/dbus"} - {"/run/dbus/system_bus_socket"})
    named = planned(OPEN + '[network]\ndefault = "allow"\nunix = ["/run/docker.sock"]\n', *files, kinds=sockets)
    assert "mask /run/docker.sock" not in over(named)


def test_a_socket_that_the_environment_names_is_a_way_out() -> None:
    places = Places("/w", "/home/u", sockets=("/opt/agent.sock",))
    layers = (Layer("flags", replace(policy(OPEN), places=places)),)
    found = plan(layers, TableDisk(BASE, {"/opt/agent.sock": "socket"}), uid=1000)
    assert over(found) == ["mask /opt/agent.sock"]


def test_a_denied_program_cannot_be_run() -> None:
    found = planned(OPEN + '[exec]\ndefault = "allow"\ndeny = ["/usr/bin/curl", "/usr/bin/gone"]\n')
    assert over(found) == ["bind not to be run /usr/bin/curl"]
    assert found.execs


def test_root_gets_few_devices_and_no_switches_of_the_kernel() -> None:
    kernel = ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/kcore", "/sys/x", "/dev/pts/0", "/dev/sda")
    found = planned(OPEN, *kernel, uid=0)
    assert Devices(("/dev/null", "/dev/pts")) in found.mounts.steps
    assert over(found) == [
        "mask /proc/kcore",
        "bind read-only /proc/sys",
        "bind read-only /proc/sysrq-trigger",
        "bind read-only /sys",
    ]
    assert over(planned(OPEN, *kernel, uid=1000)) == []
    held = {path: found.held(path) for path in ("/dev/null", "/dev/pts/0", "/dev/sda")}
    assert {path: one and one[1].state for path, one in held.items()} == {
        "/dev/null": "open", "/dev/pts/0": "open", "/dev/sda": "closed",
    }  # fmt: skip
    named = planned(OPEN.replace('"allow"', '"deny"') + 'allow = ["/dev/sda"]\n', *kernel, uid=0)
    assert Devices(("/dev/null", "/dev/pts", "/dev/sda")) in named.mounts.steps


def test_a_mask_hides_what_would_lie_under_it() -> None:
    body = OPEN + '[files.read]\ndefault = "allow"\ndeny = ["~/.config/**"]\n'
    found = planned(body, "/home/u/.config/git/config")
    assert over(found) == ["mask /home/u/.config"]


@pytest.mark.parametrize("abi", range(8))
def test_a_domain_asks_for_no_more_than_the_kernel_knows(abi: int) -> None:
    found = planned(CLOSED, tier="guard", landlock_abi=abi, restricts_network=True)
    domain = found.landlock
    assert bool(domain.handled_files & WRITE_FILE) == bool(domain.handled_files & REFER) == (abi >= 2)
    assert bool(domain.handled_files & TRUNCATE) == (abi >= 3)
    assert domain.handled_ports == (CONNECT_TCP if abi >= 4 else 0)
    assert domain.scoped == (SCOPE_ABSTRACT | SCOPE_SIGNAL if abi >= 6 else 0)
    assert found.signals  # where a scope holds them, too: a refusal is told
    assert not found.mounts
    for path, rights in domain.granted:
        assert rights & ~domain.handled_files == 0 or path.startswith(("/proc", "/dev"))


def test_the_guard_grants_what_is_open_and_says_what_it_cannot_close() -> None:
    found = planned(CLOSED, "/w/.git/hooks/x", tier="guard", landlock_abi=7)
    granted = dict(found.landlock.granted)
    assert granted["/w"] == granted["/tmp"] == found.landlock.handled_files
    assert granted["/dev/null"] == WRITE_FILE | TRUNCATE
    nearest = found.held("/etc/passwd")
    assert nearest is not None
    assert nearest[1].mechanism == "landlock"
    assert any("closed inside" in one for one in found.left)


def test_what_is_closed_is_told_in_every_tier_for_a_look_at_the_end() -> None:
    for tier in ("wall", "guard", "none"):
        found = planned(CLOSED, "/w/.git/hooks/x", tier=tier, landlock_abi=7)
        assert found.closed == ("/w/.git/hooks",)
        assert found.opened is not None
        assert found.opened.whole == ("/tmp", "/w")


def test_the_wall_has_a_domain_for_signals_alone_so_that_mounts_go_on_working() -> None:
    found = planned(CLOSED, landlock_abi=7)
    assert (found.landlock.handled_files, found.landlock.handled_ports, found.landlock.scoped) == (0, 0, SCOPE_SIGNAL)


def test_an_abstract_socket_that_a_rule_names_is_left_to_the_stop() -> None:
    body = OPEN + '[network]\ndefault = "allow"\nunix = ["@x"]\n'
    assert planned(body, tier="guard", landlock_abi=7).landlock.scoped == SCOPE_SIGNAL


def test_without_a_tier_nothing_is_mounted_and_the_stop_has_it_all() -> None:
    found = planned(CLOSED, tier="none", landlock_abi=7)
    assert found
    assert not found.mounts
    assert not found.landlock.handled_files
    assert not found.holdings
