"""MCP over HTTP as events: calls and results, across connections and streams."""

from itertools import count
from typing import Any

import pytest
from gateway.capture.listening import ABOUT
from mcp_wire import ASKS, CALL, INITIALIZE, RESULT, answer, post, stream

from agentwrap.events import Item, McpCall, McpDecision, McpMessage, McpResult, McpSession
from agentwrap.events.exchange import ExchangeBegan, ExchangeNews
from agentwrap.events.mcp_news import McpJudged, McpSaid
from agentwrap.gateway.capture.tap import Tap
from agentwrap.mcp.decoder import McpDecoder
from agentwrap.mcp.http import Recognition

DENIED = b'{"jsonrpc":"2.0","id":1,"result":{"isError":true,"content":[]}}'


class Run:
    def __init__(self) -> None:
        self.items: list[Item] = []
        self.decoder = McpDecoder(self.items.append)
        self.judges = False
        self._recognition = Recognition()
        self._clock, self._numbers = count(1), count(1)

    def connect(self) -> Tap:
        about = type(ABOUT)(connection="n1", span="p1", pid=7, scheme="http", host=b"mcp.example", port=80)
        clock, numbers = self._clock, self._numbers
        return Tap(about, self._put, clock.__next__, numbers.__next__, lambda *_: False, self._recognition)

    def _put(self, news: ExchangeNews) -> None:
        self.decoder.exchange(news)
        if self.judges and isinstance(news, ExchangeBegan):
            self.judge("deny", news.exchange)

    def judge(self, verdict: Any, exchange: int) -> None:
        self.decoder.feed(McpJudged(exchange=exchange, at_ns=next(self._clock), up=True, verdict=verdict, rule=b"r"))

    def of(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.items if isinstance(one, kind)]


def test_calls_and_results() -> None:
    run = Run()
    tap = run.connect()
    post(tap, INITIALIZE)
    answer(tap, RESULT.replace(b'"id":1', b'"id":0'), b"Content-Type: application/json\r\nMcp-Session-Id: s\r\n")
    post(tap, CALL, b"Mcp-Session-Id: s\r\n")
    stream(tap, b"data: " + ASKS + b"\n\n", b"data: " + RESULT + b"\n\n")
    post(tap, ASKS.replace(b'"method":"sampling/createMessage","params"', b'"result"'), b"Mcp-Session-Id: s\r\n")
    answer(tap, b"", status=202)
    assert [(one.transport, one.server) for one in run.of(McpSession)] == [("http", b"mcp.example:80")]
    assert [(one.method, one.up) for one in run.of(McpCall)] == [
        (b"initialize", True), (b"tools/call", True), (b"sampling/createMessage", False),
    ]  # fmt: skip
    assert sorted((one.method, one.ending) for one in run.of(McpResult)) == [
        (b"initialize", "complete"), (b"sampling/createMessage", "complete"), (b"tools/call", "complete"),
    ]  # fmt: skip
    assert [one.exchange for one in run.of(McpMessage)] == ["h1", "h1", "h2", "h2", "h2", "h3"]


def test_what_gets_no_answer() -> None:
    run = Run()
    tap = run.connect()
    post(tap, CALL, b"Mcp-Session-Id: s\r\n")
    answer(tap, b"", status=500)
    assert [one.ending for one in run.of(McpResult)] == ["error"]


def test_closing_cancels_where_there_is_no_session() -> None:
    run = Run()
    tap = run.connect()
    post(tap, CALL)
    stream(tap, b": alive\n\n", end=False)
    tap.cut("client")
    assert [one.ending for one in run.of(McpResult)] == ["cancelled"]


def test_an_answer_in_a_stream_that_is_resumed() -> None:
    run = Run()
    tap = run.connect()
    post(tap, CALL, b"Mcp-Session-Id: s\r\n")
    stream(tap, b"id: 1\ndata:\n\n")
    assert run.of(McpResult) == []
    again = run.connect()
    again.up(
        b"GET /mcp HTTP/1.1\r\nHost: mcp.example\r\nAccept: text/event-stream\r\nMcp-Session-Id: s\r\n"
        b"Last-Event-ID: 1\r\n\r\n"
    )
    stream(again, b"id: 2\ndata: " + RESULT + b"\n\n")
    assert [one.ending for one in run.of(McpResult)] == ["complete"]


@pytest.mark.parametrize("verdict", ["deny", "hold"])
def test_verdicts_and_our_own_words(verdict: Any) -> None:
    run = Run()
    tap = run.connect()
    run.judges = verdict == "deny"
    post(tap, CALL, b"Mcp-Session-Id: s\r\n")
    if verdict == "hold":
        run.judge("refused", 1)
    run.decoder.feed(McpSaid(exchange=1, at_ns=9, up=False, data=DENIED))
    answer(tap, DENIED)
    first, second = run.of(McpMessage)
    assert (first.ours, first.passed, second.ours) == (False, verdict == "hold", True)
    assert [(one.decision, one.rule) for one in run.of(McpDecision)] == [("deny", b"r")]
    assert [one.ending for one in run.of(McpResult)] == ["denied"]
