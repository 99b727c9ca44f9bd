"""Message headers of both ABIs, against the layout that the C compiler has for them."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.tracing.guard import messages

WIDE = pytest.mark.parametrize("wide", [True, False])


@WIDE
@given(data=st.binary(max_size=80))
def test_any_bytes_are_a_header_or_none(wide: bool, data: bytes) -> None:
    found = messages.header(data, wide=wide)
    assert (found is None) == (len(data) < messages.header_size(wide=wide))
    assert len(messages.buffers(data, wide=wide)) == len(data) // messages.buffer_size(wide=wide)


def test_the_places_of_the_fields() -> None:
    # struct msghdr on x86-64: name, namelen, iov, iovlen, control, controllen, flags at 0, 8, 16, 24, 32, 40, 48
    raw = bytearray(56)
    for at, layout, value in ((0, "Q", 1), (8, "I", 2), (16, "Q", 3), (24, "Q", 4), (32, "Q", 5), (40, "Q", 6)):
        struct.pack_into("=" + layout, raw, at, value)
    struct.pack_into("=I", raw, messages.FLAGS_AT[True], 7)
    assert messages.header(bytes(raw), wide=True) == (1, 2, 3, 4, 5, 6, 7)
    assert messages.header(struct.pack("=7I", *range(1, 8)), wide=False) == (1, 2, 3, 4, 5, 6, 7)
    assert (messages.NAME_SIZE_AT, messages.CONTROL_SIZE_AT) == ({True: 8, False: 4}, {True: 40, False: 20})
    assert (messages.many_size(wide=True), messages.many_size(wide=False)) == (64, 32)


@given(data=st.binary(max_size=300), sizes=st.lists(st.integers(0, 90), max_size=8))
def test_scattered_bytes_are_the_same_bytes(data: bytes, sizes: list[int]) -> None:
    buffers = [(1000 * i, size) for i, size in enumerate(sizes)]
    pieces = messages.scatter(data, buffers)
    assert b"".join(piece for _address, piece in pieces) == data[: sum(sizes)]
    room = dict(buffers)
    assert all(0 < len(piece) <= room[address] for address, piece in pieces)


controls = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300), st.binary(max_size=40)), max_size=5)


@WIDE
@given(controls=controls, room=st.integers(0, 300))
def test_control_data_fits_and_says_what_did_not(wide: bool, controls: list[messages.Control], room: int) -> None:
    packed, cut = messages.control(controls, room, wide=wide)
    assert len(packed) <= room
    head, unit, layout = (16, 8, "=Qii") if wide else (12, 4, "=Iii")
    at, read = 0, []
    while at + head <= len(packed):
        size, level, kind = struct.unpack_from(layout, packed, at)
        read.append((level, kind, packed[at + head : at + size]))
        at += (size + unit - 1) & -unit
    assert read == controls[: len(read)]
    assert cut == (len(read) < len(controls))


@WIDE
@given(controls=controls)
def test_control_data_is_read_as_it_was_written(wide: bool, controls: list[messages.Control]) -> None:
    packed, _cut = messages.control(controls, 4096, wide=wide)
    assert messages.controls(packed, wide=wide) == controls


@WIDE
@given(data=st.binary(max_size=100))
def test_any_bytes_are_control_data_or_none(wide: bool, data: bytes) -> None:
    """As the kernel: a length below the head's own or past the end is EINVAL, too few bytes for a head are the end."""
    found = messages.controls(data, wide=wide)
    head = 16 if wide else 12
    if found is None:
        assert len(data) >= head
    else:
        assert sum(head + len(body) for _level, _kind, body in found) <= len(data)
