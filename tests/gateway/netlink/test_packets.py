"""Rows of refused packets: what the kernel sends is tried in test_rules; here, what anybody else could have written."""

import struct
from ipaddress import IPv4Address, IPv6Address

from hypothesis import given
from hypothesis import strategies as st

from agentwrap.gateway.netlink import messages as nl
from agentwrap.gateway.netlink import packets

ports = st.integers(0, 65535)


def row(packet: bytes, *more: bytes) -> bytes:
    head = struct.pack("=BB", 2, 0) + nl.be16(5)
    attributes = [nl.attribute(1, bytes(4)), nl.attribute(10, "aw-udp"), nl.attribute(9, packet), *more]
    return nl.message(4 << 8, 0, 0, head + b"".join(attributes))


def ipv4(protocol: int, rest: bytes, options: bytes = b"", fragment: int = 0) -> bytes:
    head = struct.pack(
        "!BBHHHBBH", 0x45 + len(options) // 4, 0, 20 + len(options) + len(rest), 7, fragment, 64, protocol, 0
    )
    return head + IPv4Address("10.200.0.2").packed + IPv4Address("8.8.8.8").packed + options + rest


def ipv6(following: int, rest: bytes) -> bytes:
    head = struct.pack("!IHBB", 6 << 28, len(rest), following, 64)
    return head + IPv6Address("fd00::2").packed + IPv6Address("2001:db8::1").packed + rest


@given(st.binary(max_size=400))
def test_any_bytes_decode_to_rows(data: bytes) -> None:
    assert all(type(one) is packets.Refused for one in packets.decode(data))


@given(st.binary(max_size=160))
def test_any_packet_is_a_row_or_left_out(packet: bytes) -> None:
    rows = packets.decode(row(packet))
    long_enough = packet[:1] and (
        (packet[0] >> 4 == 4 and len(packet) >= 20) or (packet[0] >> 4 == 6 and len(packet) >= 40)
    )
    assert len(rows) == bool(long_enough)


@given(ports, ports, st.sampled_from([6, 17, 132, 136]), st.integers(0, 10), st.integers(0, 2**32 - 1))
def test_an_ipv4_row_has_what_was_sent(sport: int, dport: int, protocol: int, options: int, uid: int) -> None:
    packet = ipv4(protocol, struct.pack("!HH", sport, dport) + bytes(9), bytes(4 * options))
    (found,) = packets.decode(row(packet, nl.attribute(11, nl.be32(uid)), nl.attribute(12, nl.be32(9))))
    assert found == packets.Refused(
        family=4,
        protocol=protocol,
        src="10.200.0.2",
        dst="8.8.8.8",
        sport=sport,
        dport=dport,
        uid=uid,
        prefix="aw-udp",
        sequence=9,
    )


@given(ports, ports, st.lists(st.tuples(st.sampled_from([0, 43, 60, 44]), st.integers(0, 3)), max_size=4))
def test_an_ipv6_row_has_what_was_sent_behind_its_extension_headers(
    sport: int, dport: int, chain: list[tuple[int, int]]
) -> None:
    following, rest = 17, struct.pack("!HH", sport, dport) + bytes(8)
    for kind, units in chain:
        extra = 0 if kind == 44 else units
        rest = bytes([following, extra]) + bytes(6 + 8 * extra) + rest
        following = kind
    (found,) = packets.decode(row(ipv6(following, rest)))
    assert found == packets.Refused(
        family=6, protocol=17, src="fd00::2", dst="2001:db8::1", sport=sport, dport=dport, prefix="aw-udp"
    )


def test_what_has_no_ports_has_none() -> None:
    for packet in (
        ipv4(1, b"\x08\0\0\0\1\2\3\4"),
        ipv4(17, b"\1\2\3"),
        ipv4(17, b"\1\2\3\4", fragment=100),
        ipv6(58, b"\x80\0\0\0\1\2\3\4"),
        ipv6(44, bytes([17, 0, 1, 0, 0, 0, 0, 0]) + b"\1\2\3\4"),
        ipv6(0, b"\x11"),
    ):
        (found,) = packets.decode(row(packet))
        assert (found.sport, found.dport) == (0, 0)


def test_several_rows_in_one_datagram_and_foreign_messages_between_them() -> None:
    one, other = row(ipv4(17, bytes(4))), row(ipv6(17, bytes(4)))
    foreign = nl.message(nl.ERROR, 0, 3, bytes(20))
    assert [found.family for found in packets.decode(one + foreign + other + other[:30])] == [4, 6]
