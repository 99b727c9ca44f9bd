"""The claims socket: programs speak, the kernel says who, and nobody can do harm with it."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentwrap import emit as emitter
from agentwrap.claims import server
from agentwrap.claims.lines import LINE_BYTES
from agentwrap.claims.server import BURST, MAX_CONNECTIONS, ClaimsServer
from agentwrap.events import Claim, Gap, Item


class Taken:
    def __init__(self) -> None:
        self.items: list[Item] = []
        self.server = ClaimsServer(lambda: 5)
        self.server.start(self.items.extend, lambda pid: f"p{pid}")

    def end(self) -> tuple[list[Claim], dict[str, bytes]]:
        """Claims, and what was dropped by its cause."""
        self.server.close()
        claims = [one for one in self.items if isinstance(one, Claim)]
        return claims, {one.cause: one.detail for one in self.items if isinstance(one, Gap)}

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(self.server.path))
        return sock

    def say(self, data: bytes) -> None:
        with self.connect() as sock:
            sock.sendall(data)


@pytest.fixture
def taken(_no_channel: None) -> Iterator[Taken]:
    made = Taken()
    yield made
    made.server.close()


@pytest.fixture(autouse=True)
def _no_channel(monkeypatch: pytest.MonkeyPatch, short_path: Path) -> Iterator[None]:
    monkeypatch.delenv(emitter.VARIABLE, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(short_path))
    yield
    emitter.close()


def line(**fields: object) -> bytes:
    return json.dumps({"event": "log", **fields}).encode() + b"\n"


def test_whoever_waits_at_the_end_is_heard() -> None:
    server = ClaimsServer(lambda: 5)
    items: list[Item] = []
    for number in range(MAX_CONNECTIONS):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(server.path))
            sock.sendall(line(message=str(number)))
    server.start(items.extend, lambda pid: f"p{pid}")
    server.close()
    assert [type(one) for one in items] == [Claim] * MAX_CONNECTIONS


def test_a_program_is_heard_as_who_it_is(taken: Taken) -> None:
    script = "from agentwrap.emit import emit, span\nwith span('plan', goal='x'):\n    assert emit('decision', 'go')\n"
    environment = {**os.environ, emitter.VARIABLE: str(taken.server.path)}
    child = subprocess.Popen([sys.executable, "-c", script], env=environment)
    assert child.wait(300) == 0
    claims, dropped = taken.end()
    assert [(one.said, one.name, one.status) for one in claims] == [
        ("span.start", b"plan", b""),
        ("decision", b"go", b""),
        ("span.end", b"plan", b"ok"),
    ]
    assert {one.pid for one in claims} == {child.pid}
    assert {one.span for one in claims} == {f"p{child.pid}"}
    assert dropped == {}


def test_a_span_that_breaks_says_so(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(emitter.VARIABLE, str(taken.server.path))
    with pytest.raises(ValueError, match="no"), emitter.span("plan"):
        raise ValueError("no")
    claims, _ = taken.end()
    assert [one.status for one in claims] == [b"", b"error"]


def test_outside_of_a_run_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    assert emitter.emit("log", "x") is False
    monkeypatch.setenv(emitter.VARIABLE, "/nonexistent/socket")
    assert emitter.emit("log", "x") is False
    assert emitter.emit("log", "x", data={1: 2}) is False


def test_lines_may_come_in_any_pieces(taken: Taken) -> None:
    with taken.connect() as sock:
        for byte in line(name="slow") * 2:
            sock.send(bytes([byte]))
    claims, _ = taken.end()
    assert [one.name for one in claims] == [b"slow", b"slow"]


def test_what_is_no_claim_is_counted(taken: Taken) -> None:
    taken.say(b"\xff\n" + line(name="good") + b"[]\n\n" + b"half a line")
    claims, dropped = taken.end()
    assert [one.name for one in claims] == [b"good"]
    assert dropped == {"claims-malformed": b"3 not taken"}


def test_a_line_without_end_costs_a_bounded_buffer(taken: Taken) -> None:
    taken.say(b"x" * (LINE_BYTES * 20) + b"\n" + line(name="after"))
    claims, dropped = taken.end()
    assert [one.name for one in claims] == [b"after"]
    assert dropped == {"claims-malformed": b"1 not taken"}


def test_a_flood_is_counted(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "RATE_PER_S", 0)  # or a thread that is held up for long may take them all
    taken.say(line(name="x") * (BURST * 2))
    claims, dropped = taken.end()
    assert len(claims) == BURST
    assert dropped == {"claims-flood": b"%d not taken" % BURST}


def test_too_many_peers_are_sent_away(taken: Taken) -> None:
    kept = [taken.connect() for _ in range(MAX_CONNECTIONS)]
    with taken.connect() as one_more:
        assert one_more.recv(1) == b""  # the thread takes connections in order
    for sock in kept:
        sock.close()
    _, dropped = taken.end()
    assert dropped == {"claims-too-many": b"1 not taken"}


def test_nothing_is_left_behind(taken: Taken) -> None:
    folder = Path(taken.server.path).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    taken.server.close()
    assert not folder.exists()


def test_where_the_path_of_a_socket_would_be_too_long_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("x" * 120)  # unix(7): 108 bytes
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with pytest.raises(OSError, match="too long"):
        ClaimsServer(lambda: 5)
    assert list(folder.iterdir()) == []
