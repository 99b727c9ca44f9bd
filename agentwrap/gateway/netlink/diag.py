"""Whose socket is it: one socket by its two ends, asked of the kernel (sock_diag(7), linux/inet_diag.h).

Knows the socket, not the process that holds it.
"""

import errno
import socket
import struct
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Literal

from agentwrap.gateway.netlink import channel

Transport = Literal["tcp", "udp"]
End = tuple[str, int]
"""Host as text, port. An IPv4 address mapped into IPv6 is the IPv4 address."""

_SOCK_DIAG_BY_FAMILY = 20
_ANY_COOKIE = struct.pack("=II", 0xFFFFFFFF, 0xFFFFFFFF)
_LISTENING = 10  # TCP_LISTEN
_ports = struct.Struct("!HH")
_HEAD = 4  # struct inet_diag_msg: family, state, timer, retransmissions; then struct inet_diag_sockid of 48 bytes
_UID_AT = _HEAD + 48 + 12


class Diag:
    """Asks over a SOCK_DIAG socket; the answers are about the network namespace that it was made in."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def lookup(self, transport: Transport, local: End, remote: End) -> tuple[int, int] | None:
        """The owner (as numbered in our user namespace) and the inode of the socket with these ends.

        `local` is the socket's own end. None when there is none, or when no process holds it any more. A UDP socket
        is found by its own end where it is not connected. Raises OSError when the kernel refuses to tell, ValueError
        when a host is no address.
        """
        protocol = socket.IPPROTO_TCP if transport == "tcp" else socket.IPPROTO_UDP
        ends = (_end(local), _end(remote))
        family = socket.AF_INET6 if any(host.version == 6 for host, _ in ends) else socket.AF_INET
        (own, own_port), (other, other_port) = ends
        first, second = (own, own_port), (other, other_port)
        if transport == "udp":
            # net/ipv4/udp_diag.c looks up as for a packet that arrives: its source is the other end.
            first, second = second, first
        sockid = _ports.pack(first[1], second[1]) + _packed(first[0], family) + _packed(second[0], family)
        # struct inet_diag_req_v2: family, protocol, extensions, pad, states; interface 0 and no cookie in the sockid.
        body = struct.pack("=BBBBI", family, protocol, 0, 0, 0xFFFFFFFF) + sockid + bytes(4) + _ANY_COOKIE
        try:
            answers = channel.ask(self._sock, [(_SOCK_DIAG_BY_FAMILY, 0, body, "socket diagnosis")])
        except OSError as error:
            if error.errno == errno.ENOENT:
                return None
            raise
        return next((found for answer in answers if (found := _owner(transport, own_port, answer))), None)


def _end(end: End) -> tuple[IPv4Address | IPv6Address, int]:
    host, port = end
    address = ip_address(host)
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address, port


def _packed(address: IPv4Address | IPv6Address, family: int) -> bytes:
    """Sixteen bytes of a sockid. Where the other end is IPv6, an IPv4 address is the mapped one."""
    if isinstance(address, IPv6Address):
        return address.packed
    return bytes(10) + b"\xff\xff" + address.packed if family == socket.AF_INET6 else address.packed + bytes(12)


def _owner(transport: Transport, own_port: int, answer: bytes) -> tuple[int, int] | None:
    if len(answer) < _UID_AT + 8:
        return None
    (port,) = struct.unpack_from("!H", answer, _HEAD)
    # With no such connection the kernel finds a listener on the same port.
    if port != own_port or (transport == "tcp" and answer[1] == _LISTENING):
        return None
    uid, inode = struct.unpack_from("=II", answer, _UID_AT)
    return (uid, inode) if inode else None
