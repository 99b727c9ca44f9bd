"""Internet addresses as the kernel reads them out of a sockaddr, and as it writes them back. Pure.

Which address family a call may name depends on the socket and on the call (net/ipv4/udp.c, net/ipv6/udp.c): a datagram
sent from an AF_INET socket to an AF_UNSPEC address goes to the AF_INET address in its bytes.
"""

import struct
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

AF_UNSPEC, AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 0, 1, 2, 10, 16
SIZE_INET, SIZE_INET6, LEAST_INET6 = 16, 28, 24  # SIN6_LEN_RFC2133
STORAGE = 128
# linux/socket.h, linux/net.h, linux/in.h: what a program may ask for and does not get
_FAMILY_WORDS = {AF_INET: "inet", AF_INET6: "inet6", 17: "packet", 29: "can", 30: "tipc", 31: "bluetooth", 38: "alg"}
_FAMILY_WORDS |= {40: "vsock", 43: "smc", 44: "xdp", 21: "rds", 41: "kcm"}
_KIND_WORDS = {1: "stream", 2: "datagram", 3: "raw", 4: "rdm", 5: "seqpacket", 10: "packet"}
_PROTOCOL_WORDS = {1: "icmp", 6: "tcp", 17: "udp", 33: "dccp", 58: "icmpv6", 132: "sctp", 136: "udplite", 255: "raw"}
_PROTOCOL_WORDS |= {262: "mptcp"}
ANY: dict[int, "Ip"] = {AF_INET: IPv4Address(0), AF_INET6: IPv6Address(0)}
_MAPPED = bytes(10) + b"\xff\xff"
Ip = IPv4Address | IPv6Address


class Endpoint(NamedTuple):
    """An address and port; `scope` is the interface of a link-local IPv6 address."""

    ip: Ip
    port: int
    scope: int = 0

    @property
    def plain(self) -> Ip:
        """The address without its IPv4-mapped form."""
        mapped = self.ip.ipv4_mapped if isinstance(self.ip, IPv6Address) else None
        return self.ip if mapped is None else mapped

    @property
    def host(self) -> str:
        """The address as text, an IPv4-mapped one with dots."""
        plain = self.plain
        return str(plain) if plain is self.ip else f"::ffff:{plain}"

    @property
    def is_loopback(self) -> bool:
        """Whether the kernel keeps it in the machine: 127/8, ::1, and the unspecified address (ip(7), ipv6(7))."""
        plain = self.plain
        return plain.is_loopback or plain.is_unspecified


def socket_words(family: int, kind: int, protocol: int) -> str:
    """A kind of socket in words: `inet raw icmp`."""
    words = [_FAMILY_WORDS.get(family, f"family {family}"), _KIND_WORDS.get(kind, f"type {kind}")]
    if family in (AF_INET, AF_INET6) and protocol:
        words.append(_PROTOCOL_WORDS.get(protocol, f"protocol {protocol}"))
    return " ".join(words)


def family_of(raw: bytes) -> int | None:
    """The family in a sockaddr; None when it is too short to have one."""
    return int(struct.unpack_from("=H", raw)[0]) if len(raw) >= 2 else None


def inet(raw: bytes) -> Endpoint | None:
    """The IPv4 address in `raw`, whatever its family says; None when it is too short (EINVAL)."""
    if len(raw) < SIZE_INET:
        return None
    return Endpoint(IPv4Address(raw[4:8]), struct.unpack_from("!H", raw, 2)[0])


def inet6(raw: bytes) -> Endpoint | None:
    """The IPv6 address in `raw`, whatever its family says; None when it is too short (EINVAL)."""
    if len(raw) < LEAST_INET6:
        return None
    scope = struct.unpack_from("=I", raw, 24)[0] if len(raw) >= SIZE_INET6 else 0
    return Endpoint(IPv6Address(raw[8:24]), struct.unpack_from("!H", raw, 2)[0], scope)


def encode(endpoint: Endpoint, family: int) -> bytes:
    """The sockaddr for a socket of `family`: an IPv4 address is mapped for AF_INET6.

    Raises ValueError for an IPv6 address and AF_INET.
    """
    if family == AF_INET:
        plain = endpoint.plain
        if not isinstance(plain, IPv4Address):
            raise ValueError(f"{plain} is no IPv4 address")
        return struct.pack("=H", AF_INET) + struct.pack("!H", endpoint.port) + plain.packed + bytes(8)
    packed = endpoint.ip.packed if isinstance(endpoint.ip, IPv6Address) else _MAPPED + endpoint.ip.packed
    return (
        struct.pack("=H", AF_INET6) + struct.pack("!HI", endpoint.port, 0) + packed + struct.pack("=I", endpoint.scope)
    )


def decode(raw: bytes) -> Endpoint | None:
    """The address that the kernel wrote; None for another family or too few bytes."""
    family = family_of(raw)
    return inet(raw) if family == AF_INET else inet6(raw) if family == AF_INET6 else None
