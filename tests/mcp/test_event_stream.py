"""Events of a stream with their bytes, in whatever pieces they come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.mcp.event_stream import Events, Framed
from agentwrap.models import sse

STREAM = (
    b'\xef\xbb\xbfevent: message\nid: 1\ndata: {"a":1}\n\n: alive\n\nid: 2\r\ndata:\r\n\r\nretry: 500\n\n'
    b"data: x\r\rdata: y\ndata: z\n\nevent: other\ndata: w\n\ndata: cut"
)


def taken(stream: bytes, cuts: list[int]) -> tuple[list[Framed], bytes]:
    events = Events(1 << 20)
    told: list[Framed] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        told += events.feed(stream[start:end])
    return told, events.rest()


def test_what_events_are() -> None:
    told, rest = taken(STREAM, [])
    assert [(one.type, one.id, one.data) for one in told if one.data is not None] == [
        (b"message", b"1", b'{"a":1}'),
        (b"", b"2", b""),
        (b"", b"", b"x"),
        (b"", b"", b"y\nz"),
        (b"other", b"", b"w"),
    ]
    assert [one.message for one in told if one.message] == [b'{"a":1}', b"x", b"y\nz"]
    assert rest == b"data: cut"


@given(st.lists(st.integers(0, len(STREAM)), max_size=8).map(sorted))
def test_pieces_make_no_difference(cuts: list[int]) -> None:
    told, rest = taken(STREAM, cuts)
    assert b"".join(one.raw for one in told) + rest == STREAM
    assert [one.message for one in told if one.message] == [b'{"a":1}', b"x", b"y\nz"]


ALPHABET = [b"\n", b"\r", b"\r\n", b":", b"data: ", b"data", b"id: 7", b"event: e", b"x", b"\xff", b"\n\n"]


@given(st.lists(st.sampled_from(ALPHABET), max_size=30).map(b"".join), st.data())
def test_as_the_reader_of_whole_bodies_has_it(stream: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=5).map(sorted))
    told, rest = taken(stream, cuts)
    assert b"".join(one.raw for one in told) + rest == stream
    expected = [(one.type, one.data) for one in sse.events(stream + b"\n\n")]
    found = [(one.type, one.data) for one in [*told, *taken(rest + b"\n\n", [])[0]] if one.data is not None]
    assert found == expected


@pytest.mark.parametrize("step", [7, 1000])
def test_a_long_one_is_handed_out_in_pieces(step: int) -> None:
    events = Events(100)
    stream = b"data: " + b"x" * 1000 + b"\n\ndata: y\n\n"
    told = [one for at in range(0, len(stream), step) for one in events.feed(stream[at : at + step])]
    assert b"".join(one.raw for one in told) + events.rest() == stream
    assert events.over
    assert [one.data for one in told if one.data is not None] == [b"y"]
