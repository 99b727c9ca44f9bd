from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.gateway.http_body import CHUNK_LINE_MAX, TRAILERS_MAX, Body, BodyError, Chunked, Sized, UntilClose

FORMS = [
    b"0\r\n\r\n",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"00A\r\n0123456789\r\n1;ext=1\r\nx\r\n0;last\r\nTrailer: yes\r\nEmpty:\r\n\r\n",
    b"2 \r\n\r\n\r\n0\r\n\r\n",
    b'1\t;a="b c"\r\n\n\r\n0\r\n\r\n',
]


def read(body: Body, *pieces: bytes) -> tuple[bytes, bytes]:
    """What was taken and what is left, with the rest given again each time."""
    taken, held = b"", b""
    for piece in pieces:
        held += piece
        if body.done:
            continue
        length = body.take(held)
        taken, held = taken + held[:length], held[length:]
    return taken, held


@pytest.mark.parametrize("form", FORMS)
def test_chunks_split_anywhere(form: bytes) -> None:
    data = form + b"GET /next"
    for cut in range(len(data) + 1):
        body = Chunked()
        assert read(body, data[:cut], data[cut:]) == (form, b"GET /next"), cut
        assert body.done
    body = Chunked()
    assert read(body, *(data[at : at + 1] for at in range(len(data)))) == (form, b"GET /next")


def test_a_line_is_taken_whole_or_not_at_all() -> None:
    """Else half of a size, ended by a lone line feed, would reach a server that takes it for a whole one."""
    body = Chunked()
    assert read(body, b"0;ext") == (b"", b"0;ext")
    with pytest.raises(BodyError):
        read(body, b"0;ext\n\nGET / HTTP/1.1\n")


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n",
        b"x\r\n",
        b"-1\r\n",
        b"+1\r\n",
        b"0x1\r\n",
        b" 1\r\n",
        b"1_0\r\n",
        b"1\nx\r\n",
        b"1;a\nx\r\n",
        b"1;a\rb\r\nx\r\n",
        b"1;\0\r\nx\r\n",
        b"1 2\r\nx\r\n",
        b"11111111111111111\r\n",
        b"1\r\nxy\r\n",
        b"1\r\nx\n",
        b"1\r\nx\ry",
        b"1\r\nxGET",
        b"0\r\n\n",
        b"0\r\nno trailer\r\n\r\n",
        b"0\r\na: b\r\n folded\r\n\r\n",
        b"0\r\nspace : b\r\n\r\n",
        b"0\r\n: b\r\n\r\n",
        b"0\r\na: \0\r\n\r\n",
        b"0\r\na: b\n\r\n",
        b"1" * (CHUNK_LINE_MAX + 2),
        b"1;" + b"a" * CHUNK_LINE_MAX + b"\r\n",
        b"0\r\n" + b"a: " + b"b" * CHUNK_LINE_MAX,
        b"0\r\n" + b"a: 4567\r\n" * (TRAILERS_MAX // 7 + 1),
    ],
)
def test_broken_chunks(data: bytes) -> None:
    with pytest.raises(BodyError):
        read(Chunked(), data)
    with pytest.raises(BodyError):
        read(Chunked(), *(data[at : at + 1] for at in range(len(data))))


def test_a_sized_body() -> None:
    body = Sized(5)
    assert read(body, b"he", b"", b"llo", b"GET") == (b"hello", b"GET")
    assert body.done
    assert Sized(0).done
    assert Sized(3).take(b"abcdef") == 3


def test_a_body_until_the_end() -> None:
    body = UntilClose()
    assert read(body, b"a", b"b") == (b"ab", b"")
    assert not body.done


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=6), st.binary(max_size=20), st.lists(st.integers(0, 400)))
def test_chunks_of_any_content(chunks: list[bytes], after: bytes, cuts: list[int]) -> None:
    form = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    data = form + after
    edges = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    pieces = [data[start:end] for start, end in pairwise(edges)]
    assert read(Chunked(), *pieces) == (form, after)


@given(st.text("0123456789abcdefABCDEF;= \t\r\n\0x:", max_size=60), st.integers(0, 60))
def test_pieces_make_no_difference(text: str, cut: int) -> None:
    data = text.encode()
    told: list[object] = []
    for pieces in ((data,), (data[:cut], data[cut:])):
        try:
            told.append(read(Chunked(), *pieces))
        except BodyError:
            told.append("broken")
    assert told[0] == told[1]
