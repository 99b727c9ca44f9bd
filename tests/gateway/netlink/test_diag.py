"""The kernel's answer about a socket is the socket's own inode, for every way in which it can have been made."""

import os
import socket

import pytest
from namespaces import inside
from walled import OWN4, OWN6, Wall

from agentwrap.gateway.netlink import channel
from agentwrap.gateway.netlink.diag import Diag


def diag() -> Diag:
    return Diag(channel.open_socket(channel.SOCK_DIAG))


def owner(sock: socket.socket) -> tuple[int, int]:
    return os.geteuid(), os.fstat(sock.fileno()).st_ino


@pytest.mark.parametrize("host", ["1.2.3.4", "2001:db8::1", "::ffff:1.2.3.4"])
def test_a_connection_by_the_ends_that_the_gateway_reads(who: str, host: str) -> None:
    def body() -> None:
        wall, asked = Wall(open_addresses=True), diag()
        others = [wall.connect(host, 443) for _ in range(5)]
        tried = wall.connect(host, 443)
        assert asked.lookup("tcp", tried.end(ours=True), tried.end()) == owner(tried.sock)
        assert asked.lookup("tcp", tried.sock.getsockname()[:2], (host, 443)) == owner(tried.sock)
        for one in others:
            assert asked.lookup("tcp", one.end(ours=True), one.end()) == owner(one.sock)
        # the gateway's own end
        assert tried.reached
        assert asked.lookup("tcp", tried.end(), tried.end(ours=True)) == owner(tried.reached)

    inside(body, who)


def test_a_connection_over_the_loopback(who: str) -> None:
    def body() -> None:
        wall, asked = Wall(host_ports=[5432]), diag()
        tried = wall.connect("127.0.0.1", 5432)
        assert asked.lookup("tcp", tried.end(ours=True), tried.end()) == owner(tried.sock)

    inside(body, who)


def test_nobody_is_nobody_and_a_listener_is_not_a_connection(who: str) -> None:
    def body() -> None:
        wall, asked = Wall(open_addresses=True), diag()
        assert asked.lookup("tcp", (OWN4, 40000), ("1.2.3.4", 443)) is None
        assert asked.lookup("udp", (OWN4, 40000), ("1.2.3.4", 443)) is None
        with socket.create_server(("0.0.0.0", 40000)):
            assert asked.lookup("tcp", (OWN4, 40000), ("1.2.3.4", 443)) is None
        tried = wall.connect("1.2.3.4", 443)
        ends = tried.end(ours=True), tried.end()
        tried.sock.close()
        assert asked.lookup("tcp", *ends) is None

    inside(body, who)


@pytest.mark.parametrize("connected", [True, False])
@pytest.mark.parametrize(
    ("family", "resolver", "own"),
    [
        (socket.AF_INET, "8.8.8.8", OWN4),
        (socket.AF_INET6, "2001:db8::53", OWN6),
        (socket.AF_INET6, "::ffff:8.8.8.8", OWN4),
        (socket.AF_INET, "127.0.0.53", "127.0.0.1"),
    ],
)
def test_the_socket_that_asked_a_resolver(who: str, family: int, resolver: str, own: str, connected: bool) -> None:
    def body() -> None:
        Wall()
        asked = diag()
        with socket.socket(family, socket.SOCK_DGRAM) as sock, socket.socket(family, socket.SOCK_DGRAM) as other:
            for one in (other, sock):
                if connected:
                    one.connect((resolver, 53))
                    one.send(b"x")
                else:
                    one.sendto(b"x", (resolver, 53))
            for one in (sock, other):
                assert asked.lookup("udp", (own, one.getsockname()[1]), (resolver, 53)) == owner(one)

    inside(body, who)


def test_a_host_that_is_no_address_is_an_error() -> None:
    with channel.open_socket(channel.SOCK_DIAG) as sock, pytest.raises(ValueError, match="example"):
        Diag(sock).lookup("tcp", ("127.0.0.1", 1), ("example.org", 2))
