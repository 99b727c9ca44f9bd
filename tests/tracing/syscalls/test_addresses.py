"""Socket addresses, message headers and DNS questions: any bytes are an answer or None, true ones stay."""

import ipaddress
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.tracing.syscalls.addresses import Address, decode, dns_question, first_buffer, message_header


@given(st.binary(max_size=140))
def test_any_bytes_are_an_address_or_none(data: bytes) -> None:
    found = decode(data)
    assert found is None or isinstance(found, Address)


@given(st.sampled_from([0, 1, 2, 10, 16, 17, 40, 999]), st.binary(max_size=126))
def test_any_bytes_of_every_family(family: int, rest: bytes) -> None:
    found = decode(struct.pack("=H", family) + rest)
    if found is not None and found.host and found.family in ("inet", "inet6"):
        ipaddress.ip_address(found.host.decode())


@given(st.ip_addresses(v=4), st.integers(0, 65535))
def test_ipv4(host: ipaddress.IPv4Address, port: int) -> None:
    data = struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + host.packed + bytes(8)
    assert decode(data) == Address("inet", str(host).encode(), port)


@given(st.ip_addresses(v=6), st.integers(0, 65535))
def test_ipv6(host: ipaddress.IPv6Address, port: int) -> None:
    data = struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", port, 7) + host.packed + bytes(4)
    found = decode(data)
    assert found is not None
    assert (found.family, found.port) == ("inet6", port)
    assert ipaddress.ip_address(found.host.decode()) == host


def test_an_ipv4_address_in_ipv6_clothes_reads_the_same_everywhere() -> None:
    """Python's own text for it changed in 3.13; a recording must not depend on that."""
    packed = bytes(10) + b"\xff\xff" + bytes([127, 0, 0, 1])
    data = struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", 80, 0) + packed + bytes(4)
    assert decode(data) == Address("inet6", b"::ffff:127.0.0.1", 80)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (b"/run/x\0", b"/run/x"),
        (b"/run/x", b"/run/x"),
        (b"x\0garbage", b"x"),
        (b"\0abstract", b"@abstract"),
        (b"\0with\0zero", b"@with\0zero"),
        (b"\0", b"@"),
        (b"", b""),
        (b"\xff" * 108, b"\xff" * 108),
    ],
)
def test_unix_names(name: bytes, path: bytes) -> None:
    assert decode(struct.pack("=H", socket.AF_UNIX) + name) == Address("unix", path=path)


def test_other_families() -> None:
    assert decode(struct.pack("=HxxII", 40, 1234, 3)) == Address("vsock", b"cid-3", 1234)
    assert decode(struct.pack("=HHII", 16, 0, 1, 2)) == Address("netlink")
    assert decode(struct.pack("=H", 0)) is None
    assert decode(struct.pack("=HI", 999, 1)) == Address("other")


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_wide_message_headers(name: int, size: int, vector: int, count: int) -> None:
    found = message_header(struct.pack("=QI4xQQ", name, size, vector, count), wide=True)
    assert found == (name, min(size, 128), vector, count)


@given(st.binary(max_size=40), st.booleans())
def test_headers_of_any_bytes(data: bytes, wide: bool) -> None:
    assert (message_header(data, wide=wide) is None) == (len(data) < (32 if wide else 16))
    assert (first_buffer(data, wide=wide) is None) == (len(data) < (16 if wide else 8))


def test_narrow_structs() -> None:
    assert message_header(struct.pack("=IIII", 1, 16, 2, 3), wide=False) == (1, 16, 2, 3)
    assert first_buffer(struct.pack("=II", 5, 6), wide=False) == (5, 6)


labels = st.lists(st.binary(min_size=1, max_size=63), min_size=1, max_size=4)


@given(st.binary(max_size=300))
def test_any_packet_is_a_name_or_none(data: bytes) -> None:
    name = dns_question(data)
    assert name is None or isinstance(name, bytes)


@given(labels, st.integers(0, 65535), st.binary(max_size=40))
def test_questions(parts: list[bytes], number: int, rest: bytes) -> None:
    packet = struct.pack("!6H", number, 0x0100, 1, 0, 0, 1)
    packet += b"".join(bytes([len(part)]) + part for part in parts) + b"\0" + struct.pack("!HH", 1, 1) + rest
    assert dns_question(packet) == b".".join(parts).lower()


def test_what_is_no_question() -> None:
    question = b"\3www\0" + struct.pack("!HH", 1, 1)
    assert dns_question(struct.pack("!6H", 1, 0x8180, 1, 1, 0, 0) + question) is None  # an answer
    assert dns_question(struct.pack("!6H", 1, 0x0100, 0, 0, 0, 0) + question) is None  # none asked
    assert dns_question(struct.pack("!6H", 1, 0x0100, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1") is None  # a pointer
    assert dns_question(struct.pack("!6H", 1, 0x0100, 1, 0, 0, 0) + b"\0\0\1\0\1") == b"."
