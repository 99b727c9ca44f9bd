"""Message headers, buffers and control data of sendmsg and recvmsg in a tracee's memory. Pure.

`wide` is the 64-bit layout, else that of i386 (include/net/compat.h).
"""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

MAX_BUFFERS = 1024  # UIO_MAXIOV
MAX_BYTES = 0x7FFFF000  # MAX_RW_COUNT
_WIDE, _NARROW = struct.Struct("=QI4xQQQQI4x"), struct.Struct("=IIIIIII")
_BUFFER_WIDE, _BUFFER_NARROW = struct.Struct("=QQ"), struct.Struct("=II")
Buffer = tuple[int, int]
Control = tuple[int, int, bytes]
NAME_SIZE_AT = {True: 8, False: 4}
CONTROL_SIZE_AT = {True: 40, False: 20}
FLAGS_AT = {True: 48, False: 24}
CONTROL_TRUNCATED = 8  # MSG_CTRUNC


class Header(NamedTuple):
    """struct msghdr: pointers and sizes."""

    name: int
    name_size: int
    vector: int
    vector_count: int
    control: int
    control_size: int
    flags: int


def header_size(*, wide: bool) -> int:
    """sizeof(struct msghdr)."""
    return _WIDE.size if wide else _NARROW.size


def many_size(*, wide: bool) -> int:
    """sizeof(struct mmsghdr); the length that the kernel fills in lies right after the header."""
    return 64 if wide else 32


def header(data: bytes, *, wide: bool) -> Header | None:
    """The header in `data`, None if it is too short."""
    layout = _WIDE if wide else _NARROW
    return Header(*layout.unpack_from(data)) if len(data) >= layout.size else None


def buffer_size(*, wide: bool) -> int:
    """sizeof(struct iovec)."""
    return _BUFFER_WIDE.size if wide else _BUFFER_NARROW.size


def buffers(data: bytes, *, wide: bool) -> list[Buffer]:
    """The (address, size) pairs of an iovec array."""
    layout = _BUFFER_WIDE if wide else _BUFFER_NARROW
    return [(address, size) for address, size in layout.iter_unpack(data[: len(data) // layout.size * layout.size])]


def scatter(data: bytes, into: Iterable[Buffer]) -> list[tuple[int, bytes]]:
    """Which bytes go to which address; what does not fit is left out."""
    out, at = [], 0
    for address, size in into:
        if at >= len(data):
            break
        piece = data[at : at + size]
        if piece:
            out.append((address, piece))
        at += len(piece)
    return out


def controls(data: bytes, *, wide: bool) -> list[Control] | None:
    """The control messages in `data`, None if one of them has no proper length (cmsg(3), include/linux/socket.h)."""
    layout, unit = (struct.Struct("=Qii"), 8) if wide else (struct.Struct("=Iii"), 4)
    out: list[Control] = []
    at = 0
    while len(data) - at >= layout.size:
        length, level, kind = layout.unpack_from(data, at)
        if not layout.size <= length <= len(data) - at:
            return None
        out.append((level, kind, data[at + layout.size : at + length]))
        at += length + -length % unit
    return out


def control(messages: Sequence[Control], room: int, *, wide: bool) -> tuple[bytes, bool]:
    """Control messages as recvmsg(2) writes them into `room` bytes (cmsg(3)), and whether some did not fit."""
    size_of, unit = (16, 8) if wide else (12, 4)
    out = b""
    for level, kind, data in messages:
        length = size_of + len(data)
        if len(out) + length > room:
            return out, True
        out += struct.pack("=Qii" if wide else "=Iii", length, level, kind) + data
        out += bytes(min(-len(data) % unit, room - len(out)))
    return out, False
