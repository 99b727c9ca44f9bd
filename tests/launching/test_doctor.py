"""Doctor by doing: every probe against the real kernel, as it is and with what it needs taken away."""

import ctypes
import errno
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from conftest import RunAs, become_plain_user
from containers import PROFILES, Container

from agentwrap.launching import doctor, doctor_calls, doctor_machine, doctor_storage, probes
from agentwrap.launching.doctor_calls import (
    PR_SET_DUMPABLE,
    SECCOMP_RET_ERRNO,
    SECCOMP_RET_USER_NOTIF,
    Refused,
    attempt,
    call,
    filter_one,
    number,
    prctl,
)
from agentwrap.launching.probes import Probe

ALL = (*doctor.FOLLOWING, *doctor.MACHINE, *doctor.PREVENTION)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe that takes long on a slow machine has not failed."""
    monkeypatch.setitem(attempt.__kwdefaults__, "timeout_s", 300.0)


def children() -> set[int]:
    """Children of this process by the kernel's own list."""
    return {int(word) for word in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def found(*missing: str) -> dict[str, Probe]:
    names = ("seccomp-filter", "user-notification", "ptrace", "seccomp-trace", "proc-mem", "subreaper", "state-folder")
    return {name: Probe(name, name not in missing, "", weight="needed") for name in names}


def old_kernel(*missing: str) -> dict[str, Probe]:
    notification = Probe("user-notification", False, f"answers calls, {probes.NOT_KILLABLE}", weight="needed")
    return found(*missing) | {"user-notification": notification}


# --- attempts --------------------------------------------------------------------------------------------------------


def test_an_attempt_returns_its_words() -> None:
    assert attempt(lambda: "all went well") == "all went well"


def test_an_attempt_tells_the_error_number_of_what_stopped_it() -> None:
    def work() -> str:
        raise OSError(errno.EXDEV, "no")

    with pytest.raises(Refused) as caught:
        attempt(work)
    assert caught.value.name == "EXDEV"


def test_an_attempt_that_hangs_is_ended_with_its_children() -> None:
    reading, writing = os.pipe()

    def work() -> str:
        os.fork()
        os.close(reading)
        signal.pause()
        return ""

    before = children()
    with pytest.raises(Refused, match="no answer in"):
        attempt(work, timeout_s=0.2)
    os.close(writing)
    assert os.read(reading, 1) == b""  # the end of the pipe: nobody holds the other side any more
    os.close(reading)
    assert children() == before


def test_an_answer_that_came_while_we_were_held_up_counts() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"0 well")
    assert doctor_calls._listen(reading, 0.0) == (b"0 well", False)
    os.close(reading)
    os.close(writing)


def test_an_attempt_that_is_killed_says_by_what() -> None:
    def work() -> str:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
        return ""

    with pytest.raises(Refused, match="killed by SIGSEGV"):
        attempt(work)


def test_an_attempt_that_raises_something_else_has_no_answer(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Refused, match="ended without an answer"):
        attempt(lambda: str(1 // 0))
    assert capfd.readouterr().err == ""


def test_a_call_that_is_not_known_here_answers_as_an_old_kernel_does() -> None:
    assert number("not-a-call") == -1
    with pytest.raises(OSError, match="not implemented"):
        call("not-a-call")


# --- probes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("probe", ALL, ids=lambda probe: probe.__name__)
def test_every_probe_leaves_nothing_behind(probe: Callable[[], Probe]) -> None:
    descriptors, processes = set(os.listdir("/proc/self/fd")), children()
    result = probe()
    assert result.detail
    assert set(os.listdir("/proc/self/fd")) <= descriptors  # what an earlier test left may be collected meanwhile
    assert children() == processes


def test_names_are_unique_and_every_failure_with_weight_has_a_fix() -> None:
    results = [probe() for probe in ALL]
    assert len({result.name for result in results}) == len(results)
    assert [result.name for result in results if not result.ok and result.weight != "fact" and not result.fix] == []


def under_filter(work: Callable[[], Probe], refused: str, error: int) -> Probe:
    """The probe's result in a child where one call answers with an error."""

    def inside() -> str:
        filter_one(refused, SECCOMP_RET_ERRNO | error)
        result = work()
        return json.dumps([result.name, result.ok, result.detail, result.fix, result.weight])

    return Probe(*json.loads(attempt(inside)))


@pytest.mark.parametrize(
    ("probe", "refused"),
    [
        (probes.notification, "seccomp"),
        (probes.process_vm_readv, "process_vm_readv"),
        (probes.pidfd_open, "pidfd_open"),
        (probes.pidfd_getfd, "pidfd_getfd"),
        (doctor_machine.landlock, "landlock"),
        (doctor_machine.user_namespace, "unshare"),
        (doctor_machine.network_namespace, "unshare"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_refused_call_is_told_with_its_error(probe: Callable[[], Probe], refused: str) -> None:
    result = under_filter(probe, refused, errno.EPERM)
    assert not result.ok
    assert "EPERM" in result.detail
    assert result.fix


def test_a_listener_above_us_is_named() -> None:
    """Inside agentwrap, or any sandbox with a listener, a second one is EBUSY (seccomp_unotify(2))."""

    def inside() -> str:
        filter_one("getpgid", SECCOMP_RET_USER_NOTIF, probes.NEW_LISTENER)
        result = probes.notification()
        return f"{result.ok} {result.detail} / {result.fix}"

    said = attempt(inside)
    assert said.startswith("False EBUSY: a listener above us")
    assert "outside" in said


def test_as_a_plain_user_the_tree_can_still_be_followed() -> None:
    """The same probes in a child that has given up root, or simply is no root."""

    def inside() -> str:
        if not os.geteuid():
            become_plain_user()
            prctl(PR_SET_DUMPABLE, 1)  # changing ids clears it; the exec of a real session sets it again (prctl(2))
        results = {result.name: result for result in (probe() for probe in doctor.FOLLOWING)}
        return doctor.way(results).name

    assert attempt(inside) == probes_way_of_this_process()


def probes_way_of_this_process() -> str:
    return doctor.way({result.name: result for result in (probe() for probe in doctor.FOLLOWING)}).name


def test_no_new_privs_is_seen() -> None:
    def inside() -> str:
        prctl(38, 1)
        return doctor_machine.no_new_privs().detail

    assert attempt(inside).startswith("on already")


def test_capabilities_are_read_from_the_kernel() -> None:
    libc = ctypes.CDLL(None)
    assert probes.has_capability(19) == (libc.prctl(23, 19, 0, 0, 0) == 1 and not os.geteuid())  # PR_CAPBSET_READ


# --- storage ---------------------------------------------------------------------------------------------------------


def test_the_state_folder_is_made_private_and_named_with_its_room(tmp_path: Path) -> None:
    result = doctor_storage.state_folder(tmp_path / "a" / "b")
    assert result.ok
    assert str(tmp_path) in result.detail
    assert "free on" in result.detail
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_state_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = doctor_storage.state_folder(tmp_path / "file" / "agentwrap")
    assert (result.ok, result.weight) == (False, "needed")
    assert "XDG_STATE_HOME" in result.fix


def test_little_room_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_storage, "SPACE_WANTED_BYTES", 1 << 80)
    result = doctor_storage.state_folder(tmp_path)
    assert not result.ok
    assert "free some space" in result.fix


def test_sqlite_is_tried_on_the_folder_and_nothing_stays(tmp_path: Path) -> None:
    result = doctor_storage.sqlite(tmp_path)
    assert result.ok
    assert "WAL works" in result.detail
    assert list(tmp_path.iterdir()) == []


def test_sqlite_on_a_file_system_without_wal_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_storage, "_two_connections", lambda _: ("delete", 1))
    result = doctor_storage.sqlite(tmp_path)
    assert (result.ok, result.weight) == (False, "needed")
    assert "journal mode delete" in result.detail


@pytest.mark.parametrize(
    ("mode", "ok", "words"),
    [(None, False, "unsigned"), (0o600, True, "signing.key"), (0o644, False, "others may read")],
)
def test_the_key_is_there_and_private(tmp_path: Path, mode: int | None, ok: bool, words: str) -> None:
    key = tmp_path / "signing.key"
    if mode is not None:
        key.write_text("x")
        key.chmod(mode)
    result = doctor_storage.signing_key(key)
    assert result.ok is ok
    assert words in result.detail


# --- what it adds up to ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("results", "name", "healthy"),
    [
        (found(), "ptrace+notify", True),
        (old_kernel(), "ptrace+trace", True),
        (old_kernel("seccomp-trace"), "ptrace+calls", True),
        (found("user-notification"), "ptrace+calls", True),
        (found("seccomp-filter", "user-notification", "seccomp-trace"), "ptrace+calls", True),
        (found("ptrace", "seccomp-trace"), "notify", False),
        (old_kernel("ptrace", "seccomp-trace"), "none", False),
        (found("ptrace", "seccomp-trace", "user-notification"), "none", False),
        (found("proc-mem"), "none", False),
        (found("subreaper"), "ptrace+notify", False),
        (found("state-folder"), "ptrace+notify", False),
    ],
)
def test_the_way_is_the_strongest_that_is_left(results: dict[str, Probe], name: str, healthy: bool) -> None:
    chosen = doctor.way(results)
    assert chosen.name == name
    assert doctor.healthy(chosen, results.values()) is healthy


@pytest.mark.parametrize(
    ("lacking", "name"),
    [
        ((), "wall"),
        (("wall",), "guard"),
        (("wall", "descriptor-injection"), "none"),
        (("wall", "user-notification"), "guard"),
        (("wall", "user-notification", "seccomp-filter"), "guard"),
        (("wall", "user-notification", "pidfd-getfd"), "none"),
        (("wall", "user-notification", "ptrace"), "none"),
        (("wall", "ptrace"), "guard"),
        (("descriptor-injection",), "wall"),
    ],
)
def test_the_tier_is_the_strongest_that_is_left(lacking: tuple[str, ...], name: str) -> None:
    results = found(*lacking)
    results |= {one: Probe(one, one not in lacking, "") for one in ("wall", "descriptor-injection", "pidfd-getfd")}
    assert doctor.tier(results).name == name


def test_a_closed_road_is_no_loss_where_another_is_whole() -> None:
    results = found("user-notification")
    assert not doctor.matters(doctor.way(results), results["user-notification"])
    results = found("user-notification", "ptrace", "seccomp-trace")
    assert doctor.matters(doctor.way(results), results["user-notification"])


# --- the command -----------------------------------------------------------------------------------------------------

PATIENT = """
from agentwrap.launching import doctor_calls
doctor_calls.attempt.__kwdefaults__["timeout_s"] = 300.0
from agentwrap.__main__ import main
main()
"""
DOCTOR = [sys.executable, "-B", "-c", PATIENT, "doctor"]


def test_the_command_tells_check_result_and_way(own_places: Path) -> None:
    done = subprocess.run(DOCTOR, capture_output=True, text=True)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert [line for line in lines if line and not line.startswith(" ")][:-2] == [
        "machine",
        "following",
        "recording",
        "prevention",
        "mcp",
    ]
    assert lines[-2].startswith(("tier: wall (", "tier: guard (", "tier: none ("))
    assert lines[-1].startswith("agentwrap will follow with: ")
    assert f"{own_places}/state/agentwrap" in done.stdout
    assert max(map(len, lines)) <= 200


def test_json_has_stable_keys_and_agrees_with_the_status() -> None:
    done = subprocess.run([*DOCTOR, "--json"], capture_output=True, text=True)
    told = json.loads(done.stdout)
    assert told["schema"] == 1
    assert done.returncode == (0 if told["ok"] else 1)
    assert {frozenset(check) for check in told["checks"]} == {
        frozenset({"group", "name", "ok", "weight", "detail", "fix"})
    }
    assert told["tier"]["name"] in ("wall", "guard", "none")
    assert told["mode"]["name"] in ("ptrace+notify", "ptrace+trace", "ptrace+calls", "notify", "none")


def test_a_state_folder_that_cannot_be_made_fails_the_command(
    own_places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_places / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(own_places / "file"))
    done = subprocess.run(DOCTOR, capture_output=True, text=True)
    assert done.returncode == 1
    assert "missing  state-folder" in done.stdout
    assert "missing  sqlite" in done.stdout


def test_a_folder_name_cannot_write_to_the_terminal(own_places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", f"{own_places}/\x1b]0;owned\x07")
    done = subprocess.run(DOCTOR, capture_output=True, text=True)
    assert "\x1b" not in done.stdout
    assert "\\x1b]0;owned" in done.stdout


def test_the_command_as_a_plain_user(plain_user: RunAs) -> None:
    done = plain_user([*DOCTOR, "--json"])
    as_oneself = subprocess.run([*DOCTOR, "--json"], capture_output=True)
    assert json.loads(done.stdout)["mode"] == json.loads(as_oneself.stdout)["mode"]


WHOLE = "ptrace+notify"
WAYS = {"docker": WHOLE, "podman": WHOLE, "drop-all": WHOLE, "no-ptrace": "notify", "gvisor-like": "none"}
CONFINED = {"docker": "guard", "drop-all": "guard", "no-ptrace": "guard", "gvisor-like": "none"}


@pytest.mark.container
@pytest.mark.parametrize("profile", PROFILES)
def test_the_command_in_containers(container: Callable[[str], Container], profile: str) -> None:
    done = container(profile).run([*DOCTOR, "--json"], env={"XDG_STATE_HOME": "/tmp/state"})
    told = json.loads(done.stdout)
    checks = {check["name"]: check for check in told["checks"]}
    assert told["mode"]["name"] == WAYS[profile]
    assert done.returncode == (0 if WAYS[profile] == WHOLE else 1)
    # Also refused where the machine itself refuses it (a chroot, a sysctl).
    assert checks["user-namespace"]["ok"] is (profile == "podman" and doctor_machine.user_namespace().ok)
    assert told["tier"]["name"] == CONFINED.get(profile, "wall" if checks["wall"]["ok"] else "guard")
    assert checks["wall"]["ok"] is False or profile == "podman"
    assert checks["descriptor-injection"]["ok"] is (profile != "gvisor-like")
    assert checks["pidfd-getfd"]["ok"] is (profile == "podman")
    assert checks["landlock"]["ok"] is (profile != "gvisor-like" and doctor_machine.landlock().ok)
    assert "filter" in checks["seccomp-mode"]["detail"]


def test_inside_a_run_the_one_above_is_named(tmp_path: Path) -> None:
    outer = [*DOCTOR[:-1], "run", "-q", "-o", str(tmp_path / "outer.agentlog"), "--"]
    done = subprocess.run([*outer, *DOCTOR], capture_output=True, text=True)
    assert done.returncode == 1
    assert "EBUSY: a listener above us" in done.stdout
    assert "a tracer has this process already" in done.stdout


UNDER_A_LISTENER = """
import subprocess, sys
from agentwrap.launching import doctor_calls, probes
doctor_calls._COMMON["that nobody makes"] = 0xFFF  # one that nobody answered would keep who makes it for ever
doctor_calls.filter_one("that nobody makes", doctor_calls.SECCOMP_RET_USER_NOTIF, probes.NEW_LISTENER)
subprocess.run(sys.argv[1:], check=False)
"""


def test_under_a_listener_doctor_promises_the_mode_that_a_run_has(tmp_path: Path) -> None:
    under = [sys.executable, "-c", UNDER_A_LISTENER]
    told = json.loads(subprocess.run([*under, *DOCTOR, "--json"], capture_output=True, text=True).stdout)
    recording = tmp_path / "run.agentlog"
    subprocess.run([*under, *DOCTOR[:-1], "run", "-q", "-o", str(recording), "--", "true"], check=True)
    with closing(sqlite3.connect(recording)) as db:
        modes = db.execute("SELECT data ->> 'mode' FROM event WHERE kind = 'run.start'").fetchall()
    assert [told["mode"]["name"]] == [mode for (mode,) in modes] == ["ptrace+calls"]
    assert told["ok"]
