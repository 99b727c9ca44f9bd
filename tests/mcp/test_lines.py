"""One side cut into lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.mcp import lines
from agentwrap.mcp.lines import Line, Lines

BYTES = st.lists(st.sampled_from([b"a", b"\n", b"\r", "\u2028".encode(), b"{}", b"\x85", b" ", b'",'])).map(b"".join)


def whole(found: list[Line]) -> bytes:
    return b"".join(line.data + (b"\n" if line.ended and line.last else b"") for line in found)


@given(BYTES, st.lists(st.integers(1, 5)))
def test_lines_joined_are_the_bytes(data: bytes, sizes: list[int]) -> None:
    side, found, at = Lines(), [], 0
    for size in [*sizes, len(data)]:
        found += list(side.feed(data[at : at + size])) if at < len(data) else []
        at += size
    found += list(side.finish())
    assert whole(found) == data
    assert [line.data for line in found] == data.split(b"\n")[: len(found)]
    assert [line.number for line in found] == list(range(1, len(found) + 1))
    assert (side.bytes, side.held_bytes) == (len(data), 0)


@given(BYTES, st.lists(st.integers(1, 9)))
def test_long_lines_come_in_pieces(data: bytes, sizes: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "LINE_MAX_BYTES", 8)
        patch.setattr(lines, "PIECE_BYTES", 4)
        side, found, at = Lines(), [], 0
        for size in [*sizes, len(data)]:
            found += list(side.feed(data[at : at + size])) if at < len(data) else []
            assert side.held_bytes <= (8 + 4) * 129
            at += size
        found += list(side.finish())
    assert whole(found) == data
    for line in found:
        assert len(line.data) <= (4 if line.piece else 8)
    numbers = [line.number for line in found if line.last]
    assert numbers == list(range(1, len(numbers) + 1))


def test_pieces_are_counted_and_end_behind_what_is_in_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_MAX_BYTES", 20)
    monkeypatch.setattr(lines, "PIECE_BYTES", 10)
    side = Lines()
    found = list(side.feed(b'{"a":"bc","d":"efghijklm"}\nx\n'))
    assert [(line.data, line.number, line.piece, line.last) for line in found] == [
        (b'{"a":"bc",', 1, 1, False),
        (b'"d":"', 1, 2, False),
        (b'efghijklm"', 1, 3, False),
        (b"}", 1, 4, True),
        (b"x", 2, 0, True),
    ]


def test_a_line_is_given_up_where_there_is_no_room() -> None:
    side = Lines()
    assert list(side.feed(b"begun")) == []
    assert [(line.data, line.piece) for line in side.give_up()] == [(b"begun", 1)]
    assert side.held_bytes == 0
    assert [(line.data, line.piece, line.last) for line in side.feed(b" and ended\n")] == [(b" and ended", 2, True)]


def test_single_bytes_cost_little() -> None:
    side = Lines()
    for _ in range(100_000):
        list(side.feed(b"x"))
    assert side.held_bytes < 1_000_000
    assert [len(line.data) for line in side.feed(b"\n")] == [100_000]
