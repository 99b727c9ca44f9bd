"""Whose socket is it: one socket by its two ends, asked of the kernel (sock_diag(7), linux/inet_diag.h).

Knows the socket, not the process that holds it.
"""

import errno
import os
import socket
import struct
from typing import Literal

from agentwrap.gateway.netlink import channel
from agentwrap.gateway.netlink import messages as nl

Transport = Literal["tcp", "udp"]
End = tuple[str, int]
"""Host as text, port. An IPv4 address mapped into IPv6 is the IPv4 address."""

_SOCK_DIAG_BY_FAMILY = 20
_ANY_COOKIE = struct.pack("=II", 0xFFFFFFFF, 0xFFFFFFFF)
_LISTENING = 10  # TCP_LISTEN
_MAPPED = bytes(10) + b"\xff\xff"  # RFC 4291 2.5.5.2
_ANSWER_BYTES = 1 << 12
_port, _ports = struct.Struct("!H"), struct.Struct("!HH")
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
        own, other = _packed(local[0]), _packed(remote[0])
        first, second = (local[1], own), (remote[1], other)
        if transport == "udp":
            # net/ipv4/udp_diag.c looks up as for a packet that arrives: its source is the other end.
            first, second = second, first
        if len(own) == len(other) == 4:
            family, hosts = socket.AF_INET, first[1] + bytes(12) + second[1] + bytes(12)
        else:
            family, hosts = (
                socket.AF_INET6,
                b"".join(_MAPPED + one if len(one) == 4 else one for _, one in (first, second)),
            )
        protocol = socket.IPPROTO_TCP if transport == "tcp" else socket.IPPROTO_UDP
        # struct inet_diag_req_v2: family, protocol, extensions, pad, states; in the sockid interface 0 and no cookie.
        body = struct.pack("=BBBBI", family, protocol, 0, 0, 0xFFFFFFFF)
        body += _ports.pack(first[0], second[0]) + hosts + bytes(4) + _ANY_COOKIE
        return self._asked(transport, local[1], body)

    def _asked(self, transport: Transport, own_port: int, body: bytes) -> tuple[int, int] | None:
        """Once for every connection, so without `channel.ask`: one question has one answer, here when send returns."""
        self._sock.send(nl.message(_SOCK_DIAG_BY_FAMILY, nl.REQUEST, 0, body))
        for kind, flags, _, answer in nl.messages(self._sock.recv(_ANSWER_BYTES, socket.MSG_DONTWAIT)):
            if kind == nl.ERROR:
                number = nl.outcome(flags, answer)[0]
                if number == errno.ENOENT:
                    return None
                raise OSError(number, "socket diagnosis: " + os.strerror(number))
            return _owner(transport, own_port, answer)
        return None

    def listening(self) -> list[End]:
        """Every end on which TCP is listened to, in both families. Raises OSError when the kernel refuses to tell."""
        found: list[End] = []
        for family, size in ((socket.AF_INET, 4), (socket.AF_INET6, 16)):
            body = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, 1 << _LISTENING) + bytes(48)
            for answer in channel.ask(self._sock, [(_SOCK_DIAG_BY_FAMILY, nl.DUMP, body, "socket diagnosis")]):
                if len(answer) >= _UID_AT and answer[1] == _LISTENING:
                    (port,) = _port.unpack_from(answer, _HEAD)
                    found.append((socket.inet_ntop(family, answer[_HEAD + 4 : _HEAD + 4 + size]), port))
        return found


def _packed(host: str) -> bytes:
    """Four bytes, or sixteen for an IPv6 address that is no mapped IPv4 address."""
    try:
        if ":" not in host:
            return socket.inet_pton(socket.AF_INET, host)
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except OSError as error:
        raise ValueError(f"no address: {host}") from error
    return packed[12:] if packed.startswith(_MAPPED) else packed


def _owner(transport: Transport, own_port: int, answer: bytes) -> tuple[int, int] | None:
    if len(answer) < _UID_AT + 8:
        return None
    (port,) = struct.unpack_from("!H", answer, _HEAD)
    # With no such connection the kernel finds a listener on the same port.
    if port != own_port or (transport == "tcp" and answer[1] == _LISTENING):
        return None
    uid, inode = struct.unpack_from("=II", answer, _UID_AT)
    return (uid, inode) if inode else None
