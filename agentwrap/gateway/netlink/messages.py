"""How netlink lays out bytes (netlink(7)): messages, attributes, answers. Knows no protocol and holds no socket."""

import struct
from collections.abc import Iterator

Request = tuple[int, int, bytes, str]
"""Type, flags, body, and what it is for in words."""

REQUEST, ACK, DUMP, EXCLUSIVE, CREATE, APPEND = 0x1, 0x4, 0x300, 0x200, 0x400, 0x800
ERROR, DONE = 2, 3

_header = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence, port
_attribute = struct.Struct("=HH")  # struct nlattr: length, type
_NESTED, _TYPE_MASK = 0x8000, 0x3FFF
_ANSWERED_TO_BYTES = 4 + _header.size  # struct nlmsgerr, with NETLINK_CAP_ACK
_HAS_ATTRIBUTES = 0x200  # NLM_F_ACK_TLVS
_TEXT, _OFFSET = 1, 2  # NLMSGERR_ATTR_MSG, NLMSGERR_ATTR_OFFS


def be16(value: int) -> bytes:
    """Two bytes in network order."""
    return struct.pack("!H", value)


def be32(value: int) -> bytes:
    """Four bytes in network order; negative numbers as two's complement."""
    return struct.pack("!I", value & 0xFFFFFFFF)


def attribute(kind: int, data: bytes | str) -> bytes:
    """One attribute, padded to four bytes. Text gets the zero that the kernel wants at its end.

    Raises struct.error for more than 65531 bytes: the length has 16 bits.
    """
    raw = data.encode() + b"\0" if isinstance(data, str) else data
    return _attribute.pack(_attribute.size + len(raw), kind) + raw + bytes(-len(raw) % 4)


def nested(kind: int, *attributes: bytes) -> bytes:
    """An attribute that holds attributes."""
    return attribute(kind | _NESTED, b"".join(attributes))


def message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    """One whole message; the port is the kernel's to fill in."""
    return _header.pack(_header.size + len(body), kind, flags, sequence, 0) + body


def attributes(data: bytes) -> dict[int, bytes]:
    """The attributes in `data` by type, the last of a type wins. Raises ValueError where a length cannot be."""
    found, at = {}, 0
    while at + _attribute.size <= len(data):
        length, kind = _attribute.unpack_from(data, at)
        if length < _attribute.size or at + length > len(data):
            raise ValueError(f"netlink attribute of {length} bytes at {at} of {len(data)}")
        found[kind & _TYPE_MASK] = data[at + _attribute.size : at + length]
        at += (length + 3) & ~3
    return found


def messages(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Every message in one datagram: (type, flags, sequence, body). Raises ValueError where a length cannot be."""
    at = 0
    while at + _header.size <= len(data):
        length, kind, flags, sequence, _ = _header.unpack_from(data, at)
        if length < _header.size or at + length > len(data):
            raise ValueError(f"netlink message of {length} bytes at {at} of {len(data)}")
        yield kind, flags, sequence, data[at + _header.size : at + length]
        at += (length + 3) & ~3


def outcome(flags: int, body: bytes) -> tuple[int, str, int]:
    """An ERROR message: errno (0 for an acknowledgement), the kernel's words, offset in the request that it minds.

    The last two are empty and 0 where the kernel does not tell. Raises ValueError for a body that is too short.
    """
    if len(body) < _ANSWERED_TO_BYTES:
        raise ValueError(f"netlink answer of {len(body)} bytes")
    (number,) = struct.unpack_from("=i", body)
    told = attributes(body[_ANSWERED_TO_BYTES:]) if flags & _HAS_ATTRIBUTES else {}
    offset = told.get(_OFFSET, b"")
    text = told.get(_TEXT, b"").rstrip(b"\0").decode("ascii", "replace")
    return -number, text, struct.unpack("=I", offset)[0] if len(offset) == 4 else 0
