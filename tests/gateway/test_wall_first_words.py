"""Connections that begin with less than a request, or with HTTP/2: held, shown or judged."""

import socket

import far_side
import pytest
from walls import World, allow

from agentwrap.events.egress import NetClosed, NetDecision
from agentwrap.gateway.first_flight import H2_PREFACE

pytestmark = pytest.mark.serial

CURL = ("curl", "-sS", "-m", "300", "--http2-prior-knowledge")


def denied(events: list[NetDecision]) -> list[bytes]:
    return [event.host for event in events if event.decision == "deny"]


def kinds_of_frames(data: bytes) -> list[int]:
    """RFC 9113, 4.1."""
    kinds, position = [], len(H2_PREFACE)
    while position + 9 <= len(data):
        kinds.append(data[position + 3])
        position += 9 + int.from_bytes(data[position : position + 3], "big")
    return kinds


def test_http2_without_tls_is_judged_request_by_request(world: World) -> None:
    heard: list[bytes] = []

    def listen(connection: socket.socket) -> None:
        while data := connection.recv(65536):
            heard.append(data)

    far_side.Server(world.listen("203.0.113.1", 80), listen)
    told = world.run(allow("a.example"), [*CURL, "-H", "Host: denied.example", "http://a.example/"])
    assert told.status != 0
    assert denied(told.of(NetDecision)) == [b"denied.example"]
    [closed] = told.of(NetClosed)
    assert (closed.protocol, closed.ending) == ("h2c", "denied")
    assert 1 not in kinds_of_frames(b"".join(heard))  # no HEADERS


def test_a_client_that_waits_for_an_answer_to_a_word_gets_it(world: World) -> None:
    def shake(connection: socket.socket) -> None:
        connection.sendall(connection.recv(100))
        connection.sendall(connection.recv(100))
        connection.sendall(connection.recv(100))

    far_side.Server(world.listen("203.0.113.1", 5005), shake)
    code = """
import socket
sock = socket.create_connection(("a.example", 5005), timeout=300)
for words in (b"JDWP-Handshake", b"more", b"\\0\\0\\0\\x0b"):
    sock.sendall(words)
    print(sock.recv(100))
"""
    told = world.python(allow("a.example:5005"), code)
    assert told.stdout.splitlines() == ["b'JDWP-Handshake'", "b'more'", "b'\\x00\\x00\\x00\\x0b'"], told.stderr
    [closed] = told.of(NetClosed)
    assert (closed.protocol, closed.ending) == ("other", "closed")


def test_a_word_that_becomes_a_request_is_cut(world: World) -> None:
    heard: list[bytes] = []

    def listen(connection: socket.socket) -> None:
        while data := connection.recv(100):
            heard.append(data)
            connection.sendall(b"yes")

    far_side.Server(world.listen("203.0.113.1", 80), listen)
    code = """
import socket
sock = socket.create_connection(("a.example", 80), timeout=300)
sock.sendall(b"GE")
print(sock.recv(100))
sock.sendall(b"T / HTTP/1.1\\r\\nHost: denied.example\\r\\n\\r\\n")
try:
    print(sock.recv(100))
except ConnectionResetError:
    print("reset")
"""
    told = world.python(allow("a.example"), code)
    assert told.stdout == "b'yes'\nreset\n", told.stderr
    assert heard == [b"GE"]
    assert denied(told.of(NetDecision)) == [b"a.example"]
