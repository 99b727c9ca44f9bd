"""Socket addresses, message headers and DNS questions in a tracee's memory. Pure; never raises on foreign bytes."""

import struct
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from agentwrap.events import Family

AF_UNSPEC, AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_VSOCK = 0, 1, 2, 10, 16, 17, 40
_FAMILIES: dict[int, Family] = {
    AF_UNIX: "unix",
    AF_INET: "inet",
    AF_INET6: "inet6",
    AF_NETLINK: "netlink",
    AF_PACKET: "packet",
    AF_VSOCK: "vsock",
}
SOCKADDR_MAX = 128  # sizeof(struct sockaddr_storage), socket(7)
DNS_PORT = 53


class Address(NamedTuple):
    """A decoded sockaddr. `host` and `port` for the internet families, `path` for unix (`@` + name when abstract)."""

    family: Family
    host: bytes = b""
    port: int = 0
    path: bytes = b""


def decode(data: bytes) -> Address | None:
    """The address in `data`; None for AF_UNSPEC (a disconnect) or for bytes that are no address (ip(7), unix(7))."""
    if len(data) < 2:
        return None
    (number,) = struct.unpack_from("=H", data)
    if number == AF_UNSPEC:
        return None
    family = _FAMILIES.get(number, "other")
    if family == "unix":
        name = data[2:]
        return Address("unix", path=b"@" + name[1:] if name[:1] == b"\0" else name.split(b"\0", 1)[0])
    if family == "inet":
        if len(data) < 8:
            return None
        return Address("inet", str(IPv4Address(data[4:8])).encode(), struct.unpack_from("!H", data, 2)[0])
    if family == "inet6":
        if len(data) < 24:
            return None
        return Address("inet6", _ipv6(data[8:24]), struct.unpack_from("!H", data, 2)[0])
    if family == "netlink":
        return Address("netlink")
    if family == "vsock" and len(data) >= 12:
        port, cid = struct.unpack_from("=II", data, 4)
        return Address("vsock", b"cid-%d" % cid, port)
    return Address(family)


def _ipv6(packed: bytes) -> bytes:
    address = IPv6Address(packed)
    mapped = address.ipv4_mapped
    # Python's own text of these changed in 3.13; RFC 5952, 5 wants the dots.
    return str(address).encode() if mapped is None else b"::ffff:" + str(mapped).encode()


class MessageHeader(NamedTuple):
    """The parts of a struct msghdr that matter: the address and the first buffer, as pointers and sizes."""

    name: int
    name_size: int
    vector: int
    vector_count: int


def message_header(data: bytes, *, wide: bool) -> MessageHeader | None:
    """The header of sendmsg(2): `wide` is the 64-bit layout."""
    if wide:
        if len(data) < 32:
            return None
        name, size, vector, count = struct.unpack_from("=QI4xQQ", data)
    else:
        if len(data) < 16:
            return None
        name, size, vector, count = struct.unpack_from("=IIII", data)
    return MessageHeader(name, min(size, SOCKADDR_MAX), vector, count)


def first_buffer(data: bytes, *, wide: bool) -> tuple[int, int] | None:
    """The address and size in a struct iovec."""
    if len(data) < (16 if wide else 8):
        return None
    address, size = struct.unpack_from("=QQ" if wide else "=II", data)
    return address, size


def dns_question(packet: bytes) -> bytes | None:
    """The first name asked in a DNS query (RFC 1035, 4.1), lower case without the final dot; None if it is none."""
    if len(packet) < 17 or packet[2] & 0x80 or packet[4:6] == b"\0\0":
        return None
    labels: list[bytes] = []
    at = 12
    while at < len(packet):
        size = packet[at]
        if size == 0:
            return b".".join(labels).lower() or b"."
        if size > 63 or at + 1 + size > len(packet):
            return None
        labels.append(packet[at + 1 : at + 1 + size])
        at += 1 + size
    return None
