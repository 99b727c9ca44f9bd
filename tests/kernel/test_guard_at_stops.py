"""A run that can have neither namespaces nor a listener of its own: the guard works at ptrace's stops, and it holds."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import far_side
import pytest
from internet import Internet
from wrapping import AGENTWRAP, environment, events

NAMES = {"api.example": ["192.0.2.1"], "telemetry.example": ["192.0.2.2"]}
# A filter above whose listener is asked about a call that nobody makes: there can be no second one (EBUSY).
UNDER_A_LISTENER = """
import subprocess, sys
from agentwrap.launching import doctor_calls, probes
doctor_calls.filter_one("getpgid", doctor_calls.SECCOMP_RET_USER_NOTIF, probes.NEW_LISTENER)
sys.exit(subprocess.run(sys.argv[1:]).returncode)
"""
PROGRAM = """
import os, signal, socket, sys, threading, urllib.error, urllib.request
def tried(host, port=80):
    try:
        with socket.create_connection((host, port), 300) as s:
            s.sendall(b"GET / HTTP/1.1\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n" % host.encode())
            return s.recv(12).decode()
    except OSError as error:
        return type(error).__name__
print(tried("api.example"), tried("telemetry.example"), tried("192.0.2.2"))
try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.2", 443))
except OSError as error: print(type(error).__name__)
found = []
threads = [threading.Thread(target=lambda: found.append(tried("api.example"))) for _ in range(20)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(set(found), len(found))
server = socket.create_server(("127.0.0.1", 0))
with socket.create_connection(server.getsockname()) as c: server.accept()[0].send(b"inner"); print(c.recv(9))
def on_alarm(*_): print("interrupted", flush=True)
signal.signal(signal.SIGALRM, on_alarm); signal.setitimer(signal.ITIMER_REAL, 0.1)
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); asking.sendto(b"x", ("192.0.2.9", 53)); asking.settimeout(1)
try: asking.recvfrom(100)
except TimeoutError: print("timed out")
sys.stdout.flush()
os.kill(os.getpid(), getattr(signal, sys.argv[1])) if sys.argv[1:] else sys.exit(7)
"""
TOLD = [
    "HTTP/1.1 200 gaierror HTTP/1.1 403",
    "ConnectionRefusedError",
    "{'HTTP/1.1 200'} 20",
    "b'inner'",
    "interrupted",
    "timed out",
]
OPTIONS = ("--tier", "guard", "--allow", "api.example:80", "--allow", "idle.example")


class World:
    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir()
        self.net = Internet(folder, NAMES)
        (folder / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
        self.servers = [
            far_side.Names(self.net.datagrams("127.0.0.1", 53), NAMES),
            far_side.http(self.net.listen("192.0.2.1", 80), "api"),
            far_side.http(self.net.listen("192.0.2.2", 80), "telemetry"),
        ]

    def run(self, *words: str, under: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
        argv = [*under, *AGENTWRAP, "run", "-q", "-o", str(self.recording), *words]
        return self.net.run(
            argv, env=environment(self.home), cwd=self.folder, capture_output=True, text=True, timeout=300
        )  # type: ignore[return-value]

    @property
    def recording(self) -> Path:
        return self.folder / "run.agentlog"

    def close(self) -> None:
        for server in self.servers:
            server.close()
        self.net.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


WAYS = {
    "a filter of its own": ((), ("--follow", "trace"), "ptrace+trace"),
    "every call": ((), ("--follow", "calls"), "ptrace+calls"),
    "under a listener": ((sys.executable, "-c", UNDER_A_LISTENER), (), "ptrace+calls"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_policy_is_enforced_without_a_listener(world: World, way: str) -> None:
    under, follow, mode = WAYS[way]
    done = world.run(*OPTIONS, *follow, "--", sys.executable, "-c", PROGRAM, under=under)
    assert (done.stdout.splitlines(), done.returncode) == (TOLD, 7), done.stderr
    [start] = events(world.recording, "run.start")
    assert start.data["mode"] == mode
    means = "ptrace at every call" if mode == "ptrace+calls" else "ptrace"
    held = {row.data["what"]: (row.data["tier"], row.data["mechanism"]) for row in events(world.recording, "coverage")}
    expected = ("guard", f"connections made by the tracer ({means}), and gateway")
    assert {held[what] for what in ("connect", "dns", "udp")} == {expected}
    assert "no-wall" not in [row.data["cause"] for row in events(world.recording, "gap")]
    told = events(world.recording, "net.decision", "net.refused", "dns.query")
    decided = {(row.subject, row.verdict) for row in told}
    assert decided >= {
        ("api.example:80", "allow"),
        ("telemetry.example", "deny"),
        ("192.0.2.2:80", "deny"),
        ("192.0.2.2:443", "deny"),
    }
    assert "" not in {row.span for row in told if row.verdict == "deny"}


WITHOUT_TAKING = """
import errno, os, sys
from agentwrap.launching import doctor_calls
doctor_calls.filter_one("pidfd_getfd", doctor_calls.SECCOMP_RET_ERRNO | errno.EPERM)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_where_sockets_cannot_be_taken_nothing_is_started(world: World) -> None:
    """In Docker's profile pidfd_getfd(2) is refused: there the guard needs its listener."""
    under = (sys.executable, "-c", WITHOUT_TAKING)
    mark = world.folder / "mark"
    command = ("--", sys.executable, "-c", f"open({str(mark)!r}, 'w')")
    done = world.run(*OPTIONS, "--follow", "trace", *command, under=under)
    assert done.returncode == 125
    assert "taking a program's sockets" in done.stderr
    assert "EPERM" in done.stderr
    assert "\nhint: " in done.stderr
    assert not mark.exists()
    assert not world.recording.exists()
    loosely = world.run(*OPTIONS, "--follow", "trace", "--best-effort", *command, under=under)
    assert loosely.returncode == 0
    assert mark.exists()
    assert "no-wall" in [row.data["cause"] for row in events(world.recording, "gap")]
    held = {row.data["what"]: row.data["tier"] for row in events(world.recording, "coverage")}
    assert held["connect"] == "witness"


@pytest.mark.parametrize("follow", ["trace", "calls"])
def test_a_deadly_signal_is_the_runs_own_end(world: World, follow: str) -> None:
    done = world.run(*OPTIONS, "--follow", follow, "--", sys.executable, "-c", PROGRAM, "SIGKILL")
    assert (done.stdout.splitlines(), done.returncode) == (TOLD, -signal.SIGKILL), done.stderr


def test_a_run_inside_a_run_confines_what_it_runs(world: World) -> None:
    """The one above only listens (--debuggable): then ptrace is free for the one below."""
    own = ["env", f"XDG_STATE_HOME={world.folder}/state", f"XDG_CONFIG_HOME={world.folder}/config"]
    inner = world.folder / "inner.agentlog"
    command = [*own, *AGENTWRAP, "run", "-q", "-o", str(inner), *OPTIONS, "--", sys.executable, "-c", PROGRAM]
    done = world.run("--debuggable", "--no-intercept", "--", *command)
    assert (done.stdout.splitlines(), done.returncode) == (TOLD, 7), done.stderr
    assert [row.data["mode"] for row in events(inner, "run.start")] == ["ptrace+calls"]
    assert os.path.exists(world.recording)
