"""A machine with one allowed host, one that is not, and programs confined to the first; what was recorded of them."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import far_side
from internet import Internet
from wrapping import AGENTWRAP, Event, environment, events

NAMES: Mapping[str, Sequence[str]] = {
    "allowed.example": ["192.0.2.1", "2001:db8::1"],
    "second.example": ["192.0.2.2"],
    "http2.example": ["192.0.2.3"],
    "four.example": ["192.0.2.4"],
    "six.example": ["2001:db8::6"],
    "denied.example": ["192.0.2.9", "2001:db8::9"],
}
DENIED, DENIED_6 = "192.0.2.9", "[2001:db8::9]"
PORTS = (22, 80, 443)
POLICY = """\
version = 1
name = "clients"
mode = "enforce"
require = ["{tier}"]

[network]
default = "deny"
allow = [
  "allowed.example", "second.example", "http2.example", "four.example", "six.example", "host.loopback:7001",
]

[files.write]
default = "allow"
"""
TIERS = ("wall", "guard")
PYTHON = Path(sys.executable).name


@dataclass(frozen=True)
class Ran:
    """A finished run; `rows` is what was recorded."""

    status: int
    out: bytes
    err: bytes
    rows: tuple[Event, ...]

    def of(self, *kinds: str, verdict: str = "") -> list[Event]:
        return [row for row in self.rows if row.kind in kinds and verdict in ("", row.verdict)]

    def program(self, row: Event) -> str:
        """The name of the program that the process of this row was running.

        By the time: rows of the gateway and of the tracer come each in their own order.
        """
        ran = [e for e in self.rows if e.kind == "process.exec" and e.span == row.span and e.at_ns <= row.at_ns]
        if not ran:
            return ""
        last = max(ran, key=lambda e: e.at_ns).data
        return os.path.basename(last["exe"] if last["argv"][0] == "/proc/self/exe" else last["argv"][0])

    def refused(self) -> set[tuple[str, str]]:
        """What was denied, and to which program."""
        kinds = ("net.decision", "net.refused", "dns.query")
        return {(row.subject, self.program(row)) for row in self.of(*kinds, verdict="deny")}

    def whole(self) -> None:
        """No gap, nothing refused but hosts, and no row about the network without its process."""
        assert [(row.subject, row.data.get("rule")) for row in self.of("act.denied")] == []
        assert [(row.data["cause"], row.data.get("detail")) for row in self.of("gap")] == []
        assert [row for row in self.of("net.decision", "dns.query") if not (row.span.startswith("p") and row.pid)] == []


class Place:
    """The machine: servers listen in `net`, `names` is its name server, nobody may reach `hidden`."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir()
        self.home = folder / "home"
        self.home.mkdir()
        self.net = Internet(folder, NAMES)
        # Names are asked of a name server: what stands in the hosts file is known to everybody from the start.
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {socket.gethostname()}\n")
        (folder / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:30 attempts:5\n")
        self.names = far_side.Names(self.net.datagrams("127.0.0.1", 53), NAMES)
        self._servers: list[far_side.Server] = []
        self._helpers: list[subprocess.Popen[bytes]] = []
        self._started: list[subprocess.Popen[bytes]] = []
        self.hidden = [
            self.serve(self.net.listen(address, port), lambda _: None)
            for address in NAMES["denied.example"]
            for port in PORTS
        ]

    def serve(self, listener: socket.socket, talk: far_side.Talk) -> far_side.Server:
        """Have `talk` with whoever connects, until the end of the test."""
        server = far_side.Server(listener, talk)
        self._servers.append(server)
        return server

    def helper(self, *argv: str, **options: object) -> "subprocess.Popen[bytes]":
        """A server program on this machine, not confined; it has said `ready` on its standard output."""
        process = self.net.popen(argv, stdout=subprocess.PIPE, stdin=subprocess.PIPE, cwd=self.folder, **options)
        self._helpers.append(process)
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"ready"
        return process

    def start(
        self, argv: Sequence[str], tier: str, *options: str, env: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """The command under the policy, in the folder `work`."""
        policy = self.folder / "policy.toml"
        policy.write_text(POLICY.format(tier=tier))
        command = [*AGENTWRAP, "run", "-q", "-o", str(self.folder / "run.agentlog"), "--policy", str(policy)]
        process = self.net.popen(
            [*command, "--tier", tier, *options, "--", *argv],
            env=environment(self.home, **(env or {})), cwd=self.work,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        self._started.append(process)
        return process

    def finish(self, process: "subprocess.Popen[bytes]", timeout_s: float = 300) -> Ran:
        """Wait for its end."""
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.terminate()
            out, err = process.communicate()
            raise AssertionError(f"still running:\n{out[-2000:]!r}\n{err[-2000:]!r}") from None
        recording = self.folder / "run.agentlog"
        assert recording.exists(), err.decode()
        return Ran(process.returncode, out, err, tuple(events(recording)))

    def run(self, argv: Sequence[str], tier: str, *options: str, env: Mapping[str, str] | None = None) -> Ran:
        """Start and finish."""
        return self.finish(self.start(argv, tier, *options, env=env))

    def trusting(self, **more: str) -> dict[str, str]:
        """An environment by which most clients trust the servers of `sites.context`."""
        trusted = str(self.folder / "ca.pem")
        return {"SSL_CERT_FILE": trusted, "NODE_EXTRA_CA_CERTS": trusted, **more}

    def untouched(self) -> None:
        """Nothing reached the hidden host, not even a question for its name."""
        assert [server.peers for server in self.hidden] == [0] * len(self.hidden)
        assert [name for name in self.names.asked if "denied" in name.lower()] == []

    def close(self) -> None:
        # What a test that failed has left running would fail the one in which it is collected.
        for process in [*self._helpers, *(one for one in self._started if one.returncode is None)]:
            process.kill()
            process.communicate()
        for server in self._servers:
            server.close()
        self.names.close()
        self.net.close()
