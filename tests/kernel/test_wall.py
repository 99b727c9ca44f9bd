"""A run behind the wall: what is allowed arrives, what is not never does, nothing opens when something dies."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from internet import Internet
from wrapping import AGENTWRAP, environment, events

NAMES = {
    "allowed.example": ["192.0.2.1", "2001:db8::1"],
    "other.example": ["192.0.2.2"],
    "third.example": ["192.0.2.3"],
}
POLICY = """\
version = 1
name = "test"
mode = "enforce"

[network]
default = "deny"
allow = ["allowed.example:80", "192.0.2.3:8080", "host.loopback:7001"]

[files.write]
default = "allow"
"""
TIERS = ("wall", "guard")


class Sink:
    """A server that notes what it is sent on each connection, and answers it with one word."""

    def __init__(self, net: Internet, host: str, port: int) -> None:
        self._listener = net.listen(host, port)
        self.heard: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client:
                self.heard.append(b"")
                try:
                    self.heard[-1] = client.recv(4096)
                    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
                    while client.recv(4096):
                        pass
                except OSError:
                    pass

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Internet]:
    tmp_path.chmod(0o755)
    with Internet(tmp_path, NAMES) as internet:
        yield internet


def start(net: Internet, folder: Path, script: str, *options: str) -> "subprocess.Popen[bytes]":
    (folder / "policy.toml").write_text(POLICY)
    home = folder / "home"
    home.mkdir(exist_ok=True)
    argv = [*AGENTWRAP, "run", "-q", "-o", str(folder / "run.agentlog"), "--policy", str(folder / "policy.toml")]
    return net.popen(
        [*argv, *options, "--", sys.executable, "-c", script],
        env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.PIPE, cwd=folder,
    )  # fmt: skip


def finish(process: "subprocess.Popen[bytes]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, out.decode(), err.decode()


def attendants(supervisor: int) -> dict[str, int]:
    """Our processes beside the agent, by their names."""
    found = {}
    for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
        found[Path(f"/proc/{pid}/comm").read_text().strip()] = int(pid)
    return found


CONNECT = """
import socket, sys, json
def tried(host, port):
    try:
        with socket.create_connection((host, port), 300) as s:
            s.sendall(b"GET / HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n" % host.encode())
            said = b""
            while not said.endswith(b"hello") and (more := s.recv(4096)):
                said += more
            return said.decode()
    except OSError as error:
        return type(error).__name__
"""


@pytest.mark.parametrize("tier", TIERS)
def test_what_is_allowed_arrives_and_nothing_else_does(net: Internet, tmp_path: Path, tier: str) -> None:
    sinks = {host: Sink(net, address, 80) for host, address in (("a", "192.0.2.1"), ("o", "192.0.2.2"))}
    listed = Sink(net, "192.0.2.3", 8080)
    script = CONNECT + (
        "print(json.dumps([tried(*one) for one in [('allowed.example', 80), ('other.example', 80), ('192.0.2.2', 80),"
        "('192.0.2.3', 8080), ('192.0.2.3', 80), ('no.such.example', 80)]]))"
    )
    status, out, err = finish(start(net, tmp_path, script, "--tier", tier))
    assert (status, err) == (0, "")
    allowed, other, bare, block, wrong_port, nobody = json.loads(out)
    assert allowed.endswith("hello")
    assert block.endswith("hello")
    assert nobody == "gaierror"
    for refused in (other, bare, wrong_port):
        assert refused in ("ConnectionRefusedError", "ConnectionResetError") or "403" in refused
    assert sinks["o"].heard == []
    assert sinks["a"].heard == [b"GET / HTTP/1.1\r\nHost: allowed.example\r\n\r\n"]
    assert len(listed.heard) == 1
    kinds = ("net.decision", "net.refused", "net.closed", "dns.query", "coverage", "gap")
    rows = events(tmp_path / "run.agentlog", *kinds)
    denied = {row.subject for row in rows if row.kind in ("net.decision", "net.refused") and row.verdict == "deny"}
    # The machine's hosts file gives these addresses their names.
    assert denied & {"192.0.2.3:80", "third.example:80"}
    assert denied & {"192.0.2.2:80", "other.example:80"}
    (name,) = {row.subject for row in rows if row.kind == "dns.query" and row.verdict == "deny"}
    assert name == "no.such.example"
    (ended,) = [row for row in rows if row.kind == "net.closed" and row.subject == "allowed.example:80"]
    assert ended.data["down_bytes"] > 60
    assert [row.data["tier"] for row in rows if row.kind == "coverage" and row.data["what"] == "connect"] == [tier]
    assert all(row.span.startswith("p") and row.pid for row in rows if row.kind in ("net.decision", "dns.query"))
    assert [row for row in rows if row.kind == "gap"] == []


@pytest.mark.parametrize("tier", TIERS)
def test_a_server_of_its_own_and_the_machines_own(net: Internet, tmp_path: Path, tier: str) -> None:
    """Inner services win; a service of the machine is reached on the ports that a rule names, and on no other."""
    machine, hidden = Sink(net, "127.0.0.1", 7001), Sink(net, "127.0.0.1", 7002)
    script = CONNECT + (
        "import threading, time\n"
        "own = socket.create_server(('127.0.0.1', 0)); port = own.getsockname()[1]\n"
        "def serve():\n  c, _ = own.accept(); c.recv(4096); c.sendall(b'mine'); c.close()\n"
        "threading.Thread(target=serve, daemon=True).start()\n"
        "deadline = time.monotonic() + 300\n"
        "while (there := tried('localhost', 7001)) == 'ConnectionRefusedError' and time.monotonic() < deadline: pass\n"
        "print(json.dumps([tried('localhost', port), there, tried('127.0.0.1', 7002), tried('127.0.0.1', 7003)]))"
    )
    status, out, err = finish(start(net, tmp_path, script, "--tier", tier))
    assert (status, err) == (0, "")
    mine, named, unnamed, nobody = json.loads(out)
    assert mine == "mine"
    assert named.endswith("hello")
    assert unnamed in ("ConnectionRefusedError", "ConnectionResetError") or "403" in unnamed
    assert nobody in ("ConnectionRefusedError", "ConnectionResetError") or "403" in nobody
    assert len(machine.heard) == 1
    assert hidden.heard == []


def test_a_port_is_published(net: Internet, tmp_path: Path) -> None:
    port = 7100  # of a network of the test's own, and below those that the kernel hands out
    script = (
        "import socket, sys\n"
        "own = socket.create_server(('127.0.0.1', 3000)); print('up', flush=True)\n"
        "c, _ = own.accept(); c.sendall(b'inside ' + c.recv(100)); c.close()\n"
    )
    process = start(net, tmp_path, script, "-p", f"{port}:3000")
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    client = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); "
    client += "s.sendall(b'out'); print(s.recv(100).decode())"
    asked = net.run([sys.executable, "-c", client, str(port)], capture_output=True, timeout=300)
    assert asked.stdout == b"inside out\n", asked.stderr
    assert finish(process)[0] == 0


# -- nothing opens

WAITING = CONNECT + (
    "print('before', tried('allowed.example', 80)[-5:], flush=True)\nsys.stdin.readline()\n"
    "print(json.dumps([tried('allowed.example', 80), tried('192.0.2.2', 80), tried('192.0.2.3', 8080)]))"
)


@pytest.mark.parametrize("tier", TIERS)
def test_a_dead_gateway_lets_nothing_through(net: Internet, tmp_path: Path, tier: str) -> None:
    sink, other = Sink(net, "192.0.2.1", 80), Sink(net, "192.0.2.2", 80)
    process = start(net, tmp_path, WAITING, "--tier", tier)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"before hello\n"
    os.kill(attendants(process.pid)["aw-gateway"], signal.SIGKILL)
    process.stdin.write(b"\n")
    status, out, err = finish(process)
    assert status == 0, err
    answers = json.loads(out.splitlines()[0])
    assert set(answers) <= {"ConnectionRefusedError", "ConnectionResetError"}, answers
    assert "the gateway died" in err
    assert len(sink.heard) == 1
    assert other.heard == []
    assert [row.data["cause"] for row in events(tmp_path / "run.agentlog", "gap")] == ["gateway-lost"]


def test_a_dead_connector_opens_nothing(net: Internet, tmp_path: Path) -> None:
    sink, other = Sink(net, "192.0.2.1", 80), Sink(net, "192.0.2.2", 80)
    process = start(net, tmp_path, WAITING)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"before hello\n"
    os.kill(attendants(process.pid)["aw-connector"], signal.SIGKILL)
    process.stdin.write(b"\n")
    status, out, err = finish(process)
    assert (status, err) == (0, "")
    assert json.loads(out.splitlines()[0])[0].endswith("hello")
    assert len(sink.heard) == 2
    assert other.heard == []


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("victim", ["supervisor", "aw-tracer"])
def test_the_tree_ends_with_whoever_watches_it(net: Internet, tmp_path: Path, tier: str, victim: str) -> None:
    sink = Sink(net, "192.0.2.1", 80)
    process = start(net, tmp_path, WAITING, "--tier", tier)
    assert process.stdout is not None
    assert process.stdout.readline() == b"before hello\n"
    ours = attendants(process.pid)
    os.kill(process.pid if victim == "supervisor" else ours[victim], signal.SIGKILL)
    deadline = time.monotonic() + 300
    # Its end of the pipe closes when the last process of the tree is gone.
    assert process.stdout.read() == b""
    assert time.monotonic() < deadline
    assert process.wait(300) == (-signal.SIGKILL if victim == "supervisor" else 125)
    assert len(sink.heard) == 1
    process.communicate()


def test_no_namespaces_left_is_the_guard_or_a_refusal(net: Internet, tmp_path: Path) -> None:
    """ENOSPC (user_namespaces(7)): made in a namespace of the test's own, whose limit is nobody else's."""
    Sink(net, "192.0.2.1", 80)
    (tmp_path / "policy.toml").write_text(POLICY)
    (tmp_path / "home").mkdir()
    script = CONNECT + "print(tried('allowed.example', 80)[-5:])"
    (tmp_path / "script.py").write_text(script)
    run = f"{' '.join(AGENTWRAP)} run -q --policy {tmp_path}/policy.toml"
    limited = ["unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c"]
    # A plain user has the right to set the limit until the next program that does not inherit it.
    limit = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --ambient-caps=-all --inh-caps=-all "
    for tier, expected in (("wall", 125), ("auto", 0)):
        command = f"{run} -o {tmp_path}/{tier}.agentlog --tier {tier} -- {sys.executable} {tmp_path}/script.py"
        result = net.run(
            [*limited, limit + command], capture_output=True, env=environment(tmp_path / "home"), timeout=300
        )
        assert result.returncode == expected, result.stderr
        if tier == "wall":
            assert b"user namespace" in result.stderr
            assert b"max_user_namespaces" in result.stderr
        else:
            assert result.stdout == b"hello\n"
            kinds = events(tmp_path / "auto.agentlog", "coverage")
            assert [row.data["tier"] for row in kinds if row.data["what"] == "connect"] == ["guard"]


def test_a_folder_that_is_handed_over_is_behind_the_mounts_too(net: Internet, tmp_path: Path) -> None:
    """A descriptor remembers the mount it was opened through: it is opened anew inside (openat(2))."""
    policy = tmp_path / "closed.toml"
    policy.write_text(POLICY.replace('[files.write]\ndefault = "allow"', '[files.write]\ndefault = "deny"'))
    (tmp_path / "outside").mkdir()
    script = (
        "import os, sys\n"
        "for fd in (8, 9):\n"
        "    try: os.close(os.open('new', os.O_CREAT | os.O_WRONLY, dir_fd=fd)); print('made', flush=True)\n"
        "    except OSError as error: print(error.errno, flush=True)\n"
    )
    words = [*AGENTWRAP, "run", "-q", "-o", str(tmp_path / "run.agentlog"), "--policy", str(policy)]
    words += ["--keep-fd", "8", "--keep-fd", "9"]
    (tmp_path / "home").mkdir()
    inner = subprocess.list2cmdline([*words, "--", sys.executable, "-c"])
    shell = f'exec {inner} "$0" 8< {tmp_path}/outside 9< {tmp_path}/outside'
    result = net.run(["sh", "-c", shell, script], env=environment(tmp_path / "home"), capture_output=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert set(result.stdout.split()) <= {b"13", b"30"}, result.stdout
    assert os.listdir(tmp_path / "outside") == []
