"""The containers are what they say, and in each of them doctor promises the mode that a run then has."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from containers import PROFILES, Container

pytestmark = pytest.mark.container

TRY = """
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
def tried(number, *arguments):
    return 0 if libc.syscall(number, *arguments) >= 0 else ctypes.get_errno()
def traced():
    # By our own child: traced by runc, which hands on even the SIGURG of its own runtime, we would stop for ever.
    child = os.fork()
    if not child:
        os._exit(tried(101, 0, 0, 0, 0))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps({
    "uid": os.getuid(),
    "ptrace": traced(),
    "seccomp": tried(317, 2, 0, ctypes.byref(ctypes.c_uint32(0x7FFF0000))),
    "unshare": tried(272, 0x10000000),
    "interfaces": sorted(os.listdir("/sys/class/net")),
}))
"""
EPERM, ENOSYS = 1, 38
REFUSED = {
    "docker": {"ptrace": 0, "seccomp": 0, "unshare": EPERM, "uid": 0},
    "podman": {"ptrace": 0, "seccomp": 0, "uid": 0},
    "drop-all": {"ptrace": 0, "seccomp": 0, "unshare": EPERM, "uid": 1000},
    "no-ptrace": {"ptrace": EPERM, "seccomp": 0, "unshare": EPERM, "uid": 0},
    "gvisor-like": {"ptrace": EPERM, "seccomp": ENOSYS, "unshare": EPERM, "uid": 0},
}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_refuses_what_it_says(container: Callable[[str], Container], profile: str) -> None:
    found = json.loads(container(profile).run(["python3", "-c", TRY], env={"PATH": "/usr/bin:/bin"}).stdout)
    assert {name: found[name] for name in REFUSED[profile]} == REFUSED[profile]
    assert found["interfaces"] == ["lo"]


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that were made meanwhile: others on this machine may make some and mount something, too."""
    found: list[Path] = []
    make = tempfile.mkdtemp

    def kept(*arguments: str | None, **keywords: str | None) -> str:
        found.append(Path(make(*arguments, **keywords)))
        return str(found[-1])

    monkeypatch.setattr(tempfile, "mkdtemp", kept)
    return found


def test_nothing_of_a_container_stays(container: Callable[[str], Container], folders: list[Path]) -> None:
    made = container("docker")
    folders.clear()
    done = made.run(["sh", "-c", "touch /left-behind; exit 7"])
    assert done.returncode == 7
    assert not Path("/left-behind").exists()
    (folder,) = folders
    assert folder.parent == Path("/dev/shm")
    assert (folder.exists(), str(folder) in Path("/proc/self/mounts").read_text()) == (False, False)


def test_a_container_that_hangs_is_ended(container: Callable[[str], Container], folders: list[Path]) -> None:
    made = container("docker")
    folders.clear()
    with pytest.raises(subprocess.TimeoutExpired):
        made.run(["sleep", "1000"], timeout=1)
    (folder,) = folders
    assert str(folder) not in Path("/proc/self/mounts").read_text()


BOTH = """
import json, os, sqlite3, subprocess, sys
agentwrap = [sys.executable, "-B", "-m", "agentwrap"]
doctor = subprocess.run([*agentwrap, "doctor", "--json"], capture_output=True, text=True)
plain = subprocess.run([*agentwrap, "run", "-q", "--", "true"], capture_output=True, text=True)
command = ["sh", "-c", "echo x > /tmp/made"]
run = subprocess.run([*agentwrap, "run", "-q", "--best-effort", "-o", "/tmp/run.agentlog", "--", *command])
with sqlite3.connect("/tmp/run.agentlog") as db:
    (mode,) = db.execute("SELECT data ->> 'mode' FROM event WHERE kind = 'run.start'").fetchone()
    edits = [path for (path,) in db.execute("SELECT path FROM file_edit")]
    gaps = [what for (what,) in db.execute("SELECT what FROM gap")]
print(json.dumps({
    "doctor": json.loads(doctor.stdout)["mode"]["name"], "plain": plain.returncode, "error": plain.stderr,
    "status": run.returncode, "mode": mode, "edits": edits, "gaps": gaps,
}))
"""


@pytest.mark.parametrize("profile", PROFILES)
def test_doctor_promises_the_mode_that_a_run_has(container: Callable[[str], Container], profile: str) -> None:
    env = {"XDG_STATE_HOME": "/tmp/state", "XDG_CONFIG_HOME": "/tmp/config"}
    done = container(profile).run([sys.executable, "-c", BOTH], env=env)
    assert done.stdout, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["status"] == 0
    assert told["doctor"] == told["mode"]
    if profile == "gvisor-like":
        assert told["plain"] == 125
        assert "error: this machine does not let agentwrap see" in told["error"]
        assert {"exec", "file-write", "connect"} <= set(told["gaps"])
    else:
        assert told["plain"] == 0
        assert "/tmp/made" in told["edits"]
