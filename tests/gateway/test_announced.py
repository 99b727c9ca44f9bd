"""The gateway as the guard uses it: it knows where a connection was meant to go because the tracer says so.

The test is tracer and supervisor: it announces, acknowledges, and dies.
"""

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import far_side
import pytest
from walls import ROOT, World, allow, are_few

from agentwrap.events.egress import DnsQuery, NetClosed, NetDecision
from agentwrap.gateway import dns
from agentwrap.gateway.callers import Caller, encode
from agentwrap.tracing.wire import AckWanted, FrameReader, Ready

pytestmark = pytest.mark.serial

HEAD = 'version = 1\nname = "t"\nmode = "enforce"\n'
RULES = allow("a.example", "203.0.113.2", "host.loopback:8080")


class Announced:
    """A gateway process in the world's internet. `acking`: whether events are acknowledged as they come.

    `patience_s`: so long it waits for an announcement that is late.
    """

    def __init__(self, world: World, patience_s: float = 1.0) -> None:
        self._world = world
        path = world.folder / "policy.toml"
        path.write_text(HEAD + RULES)
        listener, udp = world.internet.listen("127.0.0.1", 0), world.internet.datagrams("127.0.0.1", 0)
        self.announce, callers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.supervisor, theirs = socket.socketpair()
        ends = (listener, udp, callers, theirs)
        numbers = [one.fileno() for one in ends]
        argv = [sys.executable, str(Path(ROOT) / "announced_run.py"), str(patience_s), str(path), *map(str, numbers)]
        self.process = world.internet.popen(argv, pass_fds=numbers)
        for one in ends:
            one.close()
        self.events: list[Any] = []
        self.acking = True
        self._held: list[int] = []
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._hear)
        self._thread.start()
        ready = self.wait_for(lambda event: isinstance(event, Ready))
        self.tcp_port, self.dns_port = ready.tcp_port, ready.dns_port

    def _hear(self) -> None:
        reader = FrameReader()
        while data := self.supervisor.recv(65536):
            for items in reader.feed(data):
                with self._news:
                    self.events += items
                    for item in items:
                        if isinstance(item, AckWanted):
                            self._ack(item.number)
                    self._news.notify_all()

    def _ack(self, number: int) -> None:
        if self.acking:
            self.supervisor.sendall(b"A%d\n" % number)
        else:
            self._held.append(number)

    def ack_all(self) -> None:
        with self._news:
            self.acking = True
            for number in self._held:
                self._ack(number)

    def wait_for(self, wanted: Any) -> Any:
        with self._news:
            assert self._news.wait_for(lambda: any(map(wanted, self.events)), 300), self.events
            return next(filter(wanted, self.events))

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def connect(self, host: str, port: int, *, span: str = "p1", announced: str = "before") -> socket.socket:
        sock = self._world.internet.stream("127.0.0.1")
        sock.settimeout(300)
        caller = Caller(0, sock.getsockname()[1], 4711, span, "tcp", host, port)
        if announced == "before":
            self.announce.send(encode(caller))
        try:
            sock.connect(("127.0.0.1", self.tcp_port))
        except OSError:
            sock.close()
            raise
        if announced == "after":
            self.announce.send(encode(caller))
        return sock

    def ask(self, name: str, server: str = "192.0.2.53") -> bytes:
        sock = self._world.internet.datagrams("127.0.0.1", 0)
        sock.settimeout(300)
        with sock:
            self.announce.send(encode(Caller(0, sock.getsockname()[1], 4711, "p1", "udp", server, 53)))
            labels = b"".join(bytes([len(one)]) + one for one in name.encode().split(b"."))
            query = b"\0\7\1\0\0\1\0\0\0\0\0\0" + labels + b"\0\0\1\0\1"
            sock.sendto(query, ("127.0.0.1", self.dns_port))
            return sock.recv(4096)

    def close(self) -> None:
        """Let it leave, and hear everything that it says."""
        if self.process.poll() is None:
            self.supervisor.sendall(b"Q\n")
        assert self.process.wait(300) == 0
        self._thread.join(300)
        for one in (self.supervisor, self.announce):
            one.close()


@pytest.fixture
def gateway(world: World) -> Iterator[Announced]:
    made = Announced(world)
    yield made
    made.close()


def end_of(sock: socket.socket) -> str:
    try:
        data = sock.recv(100)
    except ConnectionResetError:
        return "reset"
    finally:
        sock.close()
    return repr(data)


def said(sock: socket.socket, word: bytes) -> str:
    """How it ends, maybe before the word is said."""
    try:
        sock.sendall(word)
    except ConnectionResetError:
        sock.close()
        return "reset"
    return end_of(sock)


def test_it_goes_where_the_announcement_says_for_whom_it_says(world: World, gateway: Announced) -> None:
    far_side.echo(world.listen("203.0.113.2", 7))
    with gateway.connect("203.0.113.2", 7, span="p9") as sock:
        sock.sendall(b"ping")
        assert sock.recv(10) == b"ping"
    closed = gateway.wait_for(lambda event: isinstance(event, NetClosed))
    [decision] = gateway.of(NetDecision)
    assert (decision.span, decision.pid, decision.by) == ("p9", 4711, "guard")
    assert (closed.span, closed.up_bytes, closed.down_bytes, closed.ending) == ("p9", 4, 4, "closed")


def test_names_are_learned_from_answers_to_announced_datagrams(world: World, gateway: Announced) -> None:
    far_side.http(world.listen("203.0.113.1", 80), "A")
    assert gateway.ask("a.example")[-4:] == bytes((203, 0, 113, 1))
    row = gateway.wait_for(lambda event: isinstance(event, DnsQuery))
    assert (row.server, row.pid, row.decision) == (b"192.0.2.53", 4711, "allow")
    with gateway.connect("203.0.113.1", 80) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        assert sock.recv(15) == b"HTTP/1.1 200 OK"
    assert gateway.ask("b.example")[3] & 15 == dns.NXDOMAIN


def test_an_announcement_may_be_a_moment_late(world: World) -> None:
    far_side.echo(world.listen("203.0.113.2", 7))
    gateway = Announced(world, patience_s=300)
    with gateway.connect("203.0.113.2", 7, announced="after") as sock:
        sock.sendall(b"ping")
        assert sock.recv(10) == b"ping"
    gateway.close()


def test_what_nobody_announced_goes_nowhere(gateway: Announced) -> None:
    assert end_of(gateway.connect("203.0.113.2", 7, announced="never")) == "reset"
    [decision] = gateway.of(NetDecision)
    assert (decision.decision, decision.rule) == ("deny", b"built-in.unannounced")


@pytest.mark.parametrize("host", ["127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0"])
def test_the_machines_loopback_needs_its_port(world: World, gateway: Announced, host: str) -> None:
    far_side.echo(world.listen("127.0.0.1", 8080))
    closed = far_side.echo(world.listen("127.0.0.1", 8081))
    with gateway.connect(host, 8080) as sock:
        sock.sendall(b"ping")
        assert sock.recv(10) == b"ping"
    assert said(gateway.connect(host, 8081), b"\0ping") == "reset"
    assert closed.peers == 0


def test_a_denial_is_on_disk_before_the_program_hears_of_it(gateway: Announced) -> None:
    gateway.acking = False
    sock = gateway.connect("203.0.113.9", 9)
    sock.sendall(b"\0")
    gateway.wait_for(lambda event: isinstance(event, AckWanted))
    sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        sock.recv(1)
    gateway.ack_all()
    sock.settimeout(300)
    assert end_of(sock) == "reset"


def test_repeats_are_denied_at_once_counted_and_told_in_few_rows(gateway: Announced) -> None:
    for _ in range(400):
        # What is denied already is reset at once, maybe before connect(2) has returned.
        with contextlib.suppress(ConnectionResetError):
            sock = gateway.connect("203.0.113.9", 9)
            assert end_of(sock) == "reset"
    gateway.close()
    rows = gateway.of(NetDecision)
    assert sum(row.count for row in rows) == 400
    assert are_few(rows)
    assert len(gateway.of(AckWanted)) == 1


def test_a_dead_supervisor_ends_it_and_nothing_opens(world: World, gateway: Announced) -> None:
    far_side.echo(world.listen("203.0.113.2", 7))
    open_one = gateway.connect("203.0.113.2", 7)
    open_one.sendall(b"ping")
    assert open_one.recv(10) == b"ping"
    gateway.supervisor.shutdown(socket.SHUT_RDWR)
    assert gateway.process.wait(300) == 0
    assert end_of(open_one) in ("reset", "b''")
    with world.internet.stream("127.0.0.1") as sock, pytest.raises(ConnectionRefusedError):
        sock.connect(("127.0.0.1", gateway.tcp_port))


def test_what_is_open_at_the_end_is_told(world: World, gateway: Announced) -> None:
    far_side.echo(world.listen("203.0.113.2", 7))
    sock = gateway.connect("203.0.113.2", 7)
    sock.sendall(b"ping")
    assert sock.recv(10) == b"ping"
    gateway.close()
    [closed] = gateway.of(NetClosed)
    assert (closed.ending, closed.up_bytes, closed.down_bytes) == ("ended", 4, 4)
    sock.close()


def test_hundreds_of_connections_at_once(world: World, gateway: Announced) -> None:
    far_side.echo(world.listen("203.0.113.2", 7))
    socks = [gateway.connect("203.0.113.2", 7) for _ in range(400)]
    for number, sock in enumerate(socks):
        sock.sendall(b"%04d" % number)
    for number, sock in enumerate(socks):
        assert sock.recv(10) == b"%04d" % number
        sock.close()
    # What is open at the end is cut: the server's ends must have come before.
    gateway.wait_for(lambda _: len(gateway.of(NetClosed)) == 400)
    gateway.close()
    assert len(gateway.of(NetClosed)) == 400
    assert {event.ending for event in gateway.of(NetClosed)} == {"closed"}


def test_bytes_that_are_no_announcement_change_nothing(world: World, gateway: Announced) -> None:
    far_side.echo(world.listen("203.0.113.2", 7))
    for data in (b"\xff" * 10, b"\x93\x01", b"x" * 5000):
        gateway.announce.send(data)
    with gateway.connect("203.0.113.2", 7) as sock:
        sock.sendall(b"ping")
        assert sock.recv(10) == b"ping"
    assert isinstance(gateway.process, subprocess.Popen)
