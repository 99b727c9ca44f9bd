"""Answers of servers where rules speak: pieces make no difference, and what is allowed keeps its bytes."""

from collections.abc import Callable

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from policy_texts import policy

from agentwrap.gateway.capture.framing import UnreadableError
from agentwrap.gateway.gating.downward import Downward, Plan, Ruled
from agentwrap.gateway.gating.gates import Case
from agentwrap.gateway.gating.server_answers import Piece, ServerAnswers
from agentwrap.mcp.gate import Gate
from agentwrap.mcp.http import Place
from agentwrap.policy.layers import Layer

RULE = '[[mcp]]\nserver = "*"\nmethods = ["sampling/createMessage"]\ndecision = "deny"\n'
CASE = Case(Gate([Layer("flags", policy(RULE))], b"x"), Place(b"h", 80, b"/"), None, b"", up=False, down=True)
EVENTS = b'id: 1\ndata: {"a":1}\n\n: alive\n\ndata: {"b":2}\r\n\r\n'
JSON = b'{"jsonrpc":"2.0","id":1,"result":{}}'


def chunked(content: bytes, size: int) -> bytes:
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in pieces) + b"0\r\n\r\n"


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = STREAM + b"Transfer-Encoding: chunked\r\n\r\n"
ANSWERS = [
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    % (len(JSON), JSON),
    b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 204 No\r\n\r\n",
    CHUNKED + chunked(EVENTS, 7),
    STREAM + b"Content-Length: %d\r\n\r\n" % len(EVENTS) + EVENTS,
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(JSON, 5),
]


def through(stream: bytes, cuts: list[int], plans: list[Plan], judge: Callable[[bytes], Ruled]) -> bytes:
    async def judged(_plan: Plan, message: bytes) -> Ruled:
        await trio.lowlevel.checkpoint()
        return judge(message)

    async def main() -> bytes:
        down = Downward(judged, lambda _plan, _stated: None)
        down.active = True
        for plan in plans:
            down.expect(b"POST", plan)
        out = b""
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            out += await down.take(stream[start:end])
        return out + await down.end()

    return trio.run(main)


def contents(stream: bytes, count: int) -> bytes:
    reader = ServerAnswers()
    for _ in range(count):
        reader.expect(b"POST")
    return b"".join(part.content for part in reader.feed(stream) if isinstance(part, Piece))


ROWS = st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=4)
CUTS = st.lists(st.integers(0, 400), max_size=6).map(sorted)


@given(ROWS, CUTS)
def test_what_is_not_judged_passes_as_it_comes(row: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(row)
    cuts = [min(cut, len(stream)) for cut in cuts]
    assert through(stream, cuts, [Plan() for _ in row], lambda _: Ruled(False)) == stream


@given(ROWS, CUTS)
def test_what_is_allowed_says_the_same(row: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(row)
    cuts = [min(cut, len(stream)) for cut in cuts]
    out = through(stream, cuts, [Plan("work", CASE) for _ in row], lambda _: Ruled())
    assert contents(out, len(row)) == contents(stream, len(row))


@given(ROWS, CUTS)
def test_what_is_denied_says_nothing(row: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(row)
    cuts = [min(cut, len(stream)) for cut in cuts]
    out = through(stream, cuts, [Plan("work", CASE) for _ in row], lambda _: Ruled(False, b'{"no":1}'))
    assert b'"a"' not in out
    assert b'"result"' not in out
    contents(out, len(row))


@given(st.binary(max_size=200), CUTS)
def test_what_cannot_be_read_passes_where_nothing_is_judged(junk: bytes, cuts: list[int]) -> None:
    stream = ANSWERS[0] + junk
    cuts = [min(cut, len(stream)) for cut in cuts]
    out = through(stream, cuts, [Plan()], lambda _: Ruled())
    assert stream.startswith(out)
    assert len(stream) - len(out) < 120  # a head that is not whole may wait


@given(st.binary(min_size=1, max_size=200))
def test_and_is_cut_off_where_it_would_have_to_be(junk: bytes) -> None:
    try:
        out = through(b"X" + junk, [], [Plan("work", CASE)], lambda _: Ruled())
    except ConnectionResetError:
        out = b""
    assert out == b""


def test_bytes_behind_the_last_answer_are_nobodys() -> None:
    reader = ServerAnswers()
    reader.expect(b"POST")
    with pytest.raises(UnreadableError):
        list(reader.feed(ANSWERS[1] * 2))
