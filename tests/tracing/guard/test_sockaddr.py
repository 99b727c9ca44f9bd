"""Addresses as the kernel means them: whatever is in the bytes, one endpoint, and back again."""

import socket
import struct
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.tracing.guard import sockaddr
from agentwrap.tracing.guard.sockaddr import AF_INET, AF_INET6, Endpoint

endpoints = st.builds(Endpoint, st.ip_addresses(), st.integers(0, 65_535), st.just(0))


@given(st.binary(max_size=200))
def test_any_bytes_are_an_address_or_none(raw: bytes) -> None:
    family = sockaddr.family_of(raw)
    assert (family is None) == (len(raw) < 2)
    assert (sockaddr.inet(raw) is None) == (len(raw) < 16)
    assert (sockaddr.inet6(raw) is None) == (len(raw) < 24)
    found = sockaddr.decode(raw)
    assert found is None or family in (AF_INET, AF_INET6)


@given(endpoints)
def test_what_is_written_is_read_again(endpoint: Endpoint) -> None:
    six = sockaddr.encode(endpoint, AF_INET6)
    assert len(six) == 28
    read = sockaddr.decode(six)
    assert read is not None
    assert (read.plain, read.port) == (endpoint.plain, endpoint.port)
    if endpoint.plain.version == 4:
        four = sockaddr.encode(endpoint, AF_INET)
        assert len(four) == 16
        assert sockaddr.decode(four) == Endpoint(endpoint.plain, endpoint.port)
    else:
        with pytest.raises(ValueError, match="no IPv4"):
            sockaddr.encode(endpoint, AF_INET)


@given(endpoints)
def test_the_text_is_an_address_that_python_reads_as_the_same(endpoint: Endpoint) -> None:
    assert ip_address(endpoint.host) == endpoint.ip


def test_the_kernel_writes_the_same_bytes() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    assert sockaddr.encode(Endpoint(IPv4Address("127.0.0.1"), port), AF_INET) == (
        struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + b"\x7f\0\0\1" + bytes(8)
    )


@pytest.mark.parametrize(
    ("host", "inside"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("0.0.0.0", True),
        ("::1", True),
        ("::", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:0.0.0.0", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("2001:db8::1", False),
        ("64:ff9b::7f00:1", False),  # goes to a translator, which is elsewhere
    ],
)
def test_what_stays_in_the_machine(host: str, inside: bool) -> None:
    assert Endpoint(ip_address(host), 1).is_loopback is inside


def test_a_mapped_address_is_told_with_dots_and_a_scope_is_kept() -> None:
    assert Endpoint(IPv6Address("::ffff:192.0.2.1"), 1).host == "::ffff:192.0.2.1"
    raw = sockaddr.encode(Endpoint(IPv6Address("fe80::1"), 1, 7), AF_INET6)
    assert sockaddr.inet6(raw) == Endpoint(IPv6Address("fe80::1"), 1, 7)
    assert sockaddr.inet6(raw[:24]) == Endpoint(IPv6Address("fe80::1"), 1)


@pytest.mark.parametrize(
    ("kind", "words"),
    [((2, 3, 1), "inet raw icmp"), ((17, 3, 768), "packet raw"), ((99, 77, 0), "family 99 type 77")],
)
def test_kinds_of_sockets_in_words(kind: tuple[int, int, int], words: str) -> None:
    assert sockaddr.socket_words(*kind) == words
