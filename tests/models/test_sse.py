"""Events as a browser would see them, and where they lie."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.models.sse import Event, events


def told(body: bytes) -> list[tuple[bytes, bytes, bool]]:
    return [(event.type, event.data, event.complete) for event in events(body)]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_lines_may_end_in_three_ways(end: bytes) -> None:
    lines = b"event: a|data: 1||: comment|data:2|data:  3|id: 7|retry: 1||"
    body = lines.replace(b"|", end)
    assert told(body) == [(b"a", b"1", True), (b"", b"2\n 3", True)]
    second = list(events(body))[1]
    assert [body[slice(*second.lines[:2])], body[slice(*second.lines[2:])]] == [b"2", b" 3"]
    assert body[slice(*second.place(2, 4))] == b" 3"
    assert body[slice(*second.place(0, 1))] == b"2"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", []),
        (b"\n\n\n", []),
        (b"\xef\xbb\xbfdata: x\n\n", [(b"", b"x", True)]),
        (b"data: x", [(b"", b"x", False)]),
        (b"data: x\n", [(b"", b"x", False)]),
        (b"data: x\n\nevent: y\nda", [(b"", b"x", True)]),
        (b"event: a\n\ndata: x\n\n", [(b"", b"x", True)]),
        (b"data\n\n", [(b"", b"", True)]),
        (b"data:\n\n", [(b"", b"", True)]),
        (b"data: \n\n", [(b"", b"", True)]),
        (b"data:", [(b"", b"", False)]),
        (b"data\r\ndata\r\n\r\n", [(b"", b"\n", True)]),
        (b"dataset: x\n data: y\n\n", []),
        (b"event: a\nevent: b\ndata: x\n\n", [(b"b", b"x", True)]),
        (b"<html>\ndata: x\n\n", [(b"", b"x", True)]),
        (b"data: a\x0bb\x0c\x1c\x85c\n\n", [(b"", b"a\x0bb\x0c\x1c\x85c", True)]),
    ],
)
def test_odd_bodies(body: bytes, expected: list[tuple[bytes, bytes, bool]]) -> None:
    assert told(body) == expected


@given(
    st.lists(st.tuples(st.sampled_from(["", "a"]), st.lists(st.text("ab: ü", max_size=6), min_size=1, max_size=3))),
    st.sampled_from(["\n", "\r", "\r\n"]),
)
def test_what_is_written_is_read(wanted: list[tuple[str, list[str]]], end: str) -> None:
    body = b""
    for kind, lines in wanted:
        fields = ([f"event:{kind}"] if kind else []) + [f"data: {line}" for line in lines]
        body += "".join(field + end for field in [*fields, ""]).encode()
    assert told(body) == [(kind.encode(), "\n".join(lines).encode(), True) for kind, lines in wanted]


@given(st.lists(st.sampled_from([b"data", b":", b" ", b"x", b"\r", b"\n", b"event", b"\xef\xbb\xbf"])).map(b"".join))
def test_places_are_where_the_data_is(body: bytes) -> None:
    last = 0
    for event in events(body):
        assert event.start >= last
        pieces = [body[start:end] for start, end in zip(event.lines[::2], event.lines[1::2], strict=True)]
        assert b"\n".join(pieces) == event.data
        assert event.lines[0] > event.start
        assert list(event.lines) == sorted(event.lines)
        last = event.lines[-1]


def test_a_place_in_data_of_several_lines() -> None:
    body = b'data: {"text":\ndata:   "abc",\ndata: "x": 1}\n\n'
    (event,) = events(body)
    assert json.loads(event.data) == {"text": "abc", "x": 1}
    start = event.data.index(b"abc")
    assert body[slice(*event.place(start, start + 3))] == b"abc"
    assert Event(b"", b"", 0, (3, 4, 6, 7)).place(50, 60) == (7, 7)
