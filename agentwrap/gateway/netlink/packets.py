"""Packets that the filter refused, as the kernel shows them (NFLOG, linux/netfilter/nfnetlink_log.h).

Reading is the caller's: recv(2) on the subscribed socket, `decode` what it gives. ENOBUFS from recv says that rows were
lost; the filter's counters and the gaps in `sequence` say how many.
"""

import socket
import struct

import msgspec

from agentwrap.gateway.netlink import channel
from agentwrap.gateway.netlink import messages as nl

COPY_BYTES = 128
"""So much of each packet is shown: two headers with room for options."""

_SUBSYSTEM = 4 << 8
_PACKET, _CONFIG = _SUBSYSTEM | 0, _SUBSYSTEM | 1
_BIND, _COPY_PACKET, _SEQUENCE_NUMBERS = 1, 2, 1
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h
_PAYLOAD, _PREFIX, _UID, _SEQUENCE = 9, 10, 11, 12
_WITH_PORTS = {6, 17, 33, 132, 136}  # TCP, UDP, DCCP, SCTP, UDP-Lite: two ports come first
# IPv6 headers that say what follows, RFC 8200 4: hop-by-hop, routing, destination options.
_EXTENSIONS, _FRAGMENT = {0, 43, 60}, 44


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A refused packet. `family` 4 or 6; `protocol`: IP's number; ports are 0 where the protocol has none.

    `uid`: the sender, as numbered in the user namespace of the socket's maker, -1 where the kernel does not know.
    `prefix`: which rule refused it. `sequence`: counts all rows of the group, also those that were lost; -1 unknown.
    """

    family: int
    protocol: int
    src: str
    dst: str
    sport: int = 0
    dport: int = 0
    uid: int = -1
    prefix: str = ""
    sequence: int = -1


def subscribe(sock: socket.socket, group: int, buffer_bytes: int) -> None:
    """Have the packets that are logged to `group` sent to `sock`, a NETFILTER socket used for nothing else.

    The group is that of the namespace the socket was made in. `buffer_bytes`: how much may wait to be read; without
    root the kernel gives at most net.core.rmem_max. Raises OSError: EBUSY when another has the group.
    """
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, buffer_bytes)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    head = struct.pack("=BB", 0, 0) + nl.be16(group)  # struct nfgenmsg
    mode = struct.pack("!IBx", COPY_BYTES, _COPY_PACKET)  # struct nfulnl_msg_config_mode
    for what, setting in (
        ("bind", nl.attribute(1, bytes([_BIND]))),
        ("mode", nl.attribute(2, mode)),
        ("flags", nl.attribute(6, nl.be16(_SEQUENCE_NUMBERS))),
    ):
        channel.ask(sock, [(_CONFIG, nl.ACK, head + setting, f"NFLOG group {group} {what}")])


def decode(data: bytes) -> list[Refused]:
    """The rows in one datagram. What is no row of a packet, or is cut off, is left out."""
    rows = []
    try:
        for kind, _, _, body in nl.messages(data):
            if kind == _PACKET and (row := _row(body)):
                rows.append(row)
    except ValueError:
        pass
    return rows


def _row(body: bytes) -> Refused | None:
    try:
        told = nl.attributes(body[4:])
    except ValueError:
        return None
    packet = told.get(_PAYLOAD, b"")
    where = _ipv4(packet) if packet[:1] and packet[0] >> 4 == 4 else _ipv6(packet)
    if where is None:
        return None
    family, protocol, src, dst, at = where
    ports = packet[at : at + 4] if at and protocol in _WITH_PORTS else b""
    sport, dport = struct.unpack("!HH", ports) if len(ports) == 4 else (0, 0)
    return Refused(
        family=family,
        protocol=protocol,
        src=src,
        dst=dst,
        sport=sport,
        dport=dport,
        uid=_number(told.get(_UID)),
        prefix=told.get(_PREFIX, b"").rstrip(b"\0").decode("ascii", "replace"),
        sequence=_number(told.get(_SEQUENCE)),
    )


def _number(data: bytes | None) -> int:
    return int.from_bytes(data, "big") if data and len(data) == 4 else -1


def _ipv4(packet: bytes) -> tuple[int, int, str, str, int] | None:
    """Family, protocol, both addresses, where the transport header begins (0: not in this packet). RFC 791 3.1."""
    if len(packet) < 20:
        return None
    header_bytes, protocol = (packet[0] & 15) * 4, packet[9]
    later_fragment = struct.unpack_from("!H", packet, 6)[0] & 0x1FFF
    src, dst = (socket.inet_ntop(socket.AF_INET, packet[at : at + 4]) for at in (12, 16))
    return 4, protocol, src, dst, 0 if later_fragment or header_bytes < 20 else header_bytes


def _ipv6(packet: bytes) -> tuple[int, int, str, str, int] | None:
    """As `_ipv4`, extension headers skipped. RFC 8200 3 and 4."""
    if len(packet) < 40 or packet[0] >> 4 != 6:
        return None
    src, dst = (socket.inet_ntop(socket.AF_INET6, packet[at : at + 16]) for at in (8, 24))
    following, at = packet[6], 40
    while at and at + 8 <= len(packet):
        if following in _EXTENSIONS:
            following, at = packet[at], at + (packet[at + 1] + 1) * 8
        elif following == _FRAGMENT:
            later_fragment = struct.unpack_from("!H", packet, at + 2)[0] & 0xFFF8
            following, at = packet[at], 0 if later_fragment else at + 8
        else:
            break
    return 6, following, src, dst, at
