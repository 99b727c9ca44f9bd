"""Sessions over HTTP: messages, judgements and ends, put into the run's sessions."""

import json
from typing import Any

import pytest

from agentwrap.events import (
    ExchangeBegan,
    ExchangeEnded,
    ExchangeReceived,
    ExchangeRequested,
    ExchangeResponded,
    ExchangeSent,
    Item,
    McpCall,
    McpDecision,
    McpEnded,
    McpJudged,
    McpMessage,
    McpResult,
    McpSaid,
    McpSession,
)
from agentwrap.events.exchange import OfMcp
from agentwrap.mcp.decoder import McpDecoder

JSON = ((b"content-type", b"application/json"),)
STREAM = ((b"content-type", b"text/event-stream"),)


class Http:
    def __init__(self) -> None:
        self.items: list[Item] = []
        self.decoder = McpDecoder(self.items.append)
        self.at_ns = 0

    def now(self) -> int:
        self.at_ns += 1000
        return self.at_ns

    def post(self, number: int, message: Any, *headers: tuple[bytes, bytes], of: OfMcp | None = None) -> None:
        began = ExchangeBegan(
            exchange=number, at_ns=self.now(), connection=f"c{number}", span="p1", pid=7, scheme="https",
            host=b"mcp.example.com", port=443, method=b"POST", target=b"/mcp", version=b"HTTP/1.1",
            headers=(*JSON, *headers), mcp=of or OfMcp(b"remote", "config", b".mcp.json"),
        )  # fmt: skip
        assert self.decoder.exchange(began)
        self.decoder.exchange(ExchangeSent(number, self.now(), json.dumps(message).encode()))
        self.decoder.exchange(ExchangeRequested(number, self.now()))

    def call(self, number: int, ident: object, tool: str, *headers: tuple[bytes, bytes]) -> None:
        self.post(number, {"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": {"name": tool}}, *headers)

    def answer(
        self, number: int, *messages: Any, status: int = 200, stream: bool = False, end: Any = "complete"
    ) -> None:
        self.decoder.exchange(ExchangeResponded(number, self.now(), status, b"", STREAM if stream else JSON))
        for message in messages:
            data = json.dumps(message).encode()
            self.decoder.exchange(ExchangeReceived(number, self.now(), b"data: %b\n\n" % data if stream else data))
        if end:
            self.decoder.exchange(ExchangeEnded(number, self.now(), end))

    def of(self, *kinds: type) -> list[Any]:
        return [item for item in self.items if isinstance(item, kinds)]

    def ends(self) -> list[tuple[str, str]]:
        return [(one.call, one.ending) for one in self.of(McpResult)]


def result(ident: object, text: str = "ok") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": ident, "result": {"content": [{"type": "text", "text": text}]}}


def test_calls_of_one_client_are_one_session() -> None:
    http = Http()
    http.call(1, 1, "a")
    http.answer(1, result(1))
    http.call(2, 2, "b")
    http.answer(2, {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}, result(2), stream=True)
    http.decoder.finish(http.now())
    (session,), (ended,) = http.of(McpSession), http.of(McpEnded)
    assert (session.server, session.transport, session.span) == (b"remote", "http", "p1")
    assert session.url == b"https://mcp.example.com/mcp"
    assert http.ends() == [("k1", "complete"), ("k2", "complete")]
    assert [(one.exchange, one.up, one.sort) for one in http.of(McpMessage)] == [
        ("h1", True, "request"),
        ("h1", False, "response"),
        ("h2", True, "request"),
        ("h2", False, "notification"),
        ("h2", False, "response"),
    ]
    assert (ended.messages, ended.ending) == (5, "run-ended")


def test_answers_belong_to_the_request_of_their_exchange() -> None:
    http = Http()
    http.call(1, 7, "a")
    http.call(2, 7, "b")
    http.answer(2, result(7))
    http.answer(1, result(7))
    assert http.ends() == [("k2", "complete"), ("k1", "complete")]


@pytest.mark.parametrize(
    ("status", "end", "ending", "error"),
    [
        (404, "complete", "error", b"HTTP 404"),
        (200, "cut-by-client", "cancelled", b""),
        (200, "cut-by-server", "unanswered", b""),
    ],
)
def test_an_exchange_that_ends_without_an_answer(status: int, end: Any, ending: str, error: bytes) -> None:
    http = Http()
    http.call(1, 1, "a")
    http.answer(1, status=status, end=end)
    assert (http.ends(), http.of(McpResult)[0].error) == ([("k1", ending)], error)


def test_verdicts_come_before_what_they_are_about() -> None:
    http = Http()
    judged = {"exchange": 1, "up": True, "rule": b"r", "tool": b"a", "method": b"tools/call"}
    http.decoder.feed(McpJudged(at_ns=http.now(), verdict="deny", **judged))
    http.call(1, 1, "a")
    said = json.dumps(result(1, "denied")).encode()
    http.decoder.feed(McpSaid(exchange=1, at_ns=http.now(), up=False, data=said))
    http.decoder.exchange(ExchangeResponded(1, http.now(), 200, b"", JSON))
    http.decoder.exchange(ExchangeReceived(1, http.now(), said))
    http.decoder.exchange(ExchangeEnded(1, http.now(), "complete"))
    assert http.ends() == [("k1", "denied")]
    assert [(one.passed, one.ours) for one in http.of(McpMessage)] == [(False, False), (True, True)]
    (decision,) = http.of(McpDecision)
    assert (decision.verdict, decision.by, decision.call) == ("deny", "wall", "k1")


def test_a_held_call_is_decided_later() -> None:
    http = Http()
    judged = {"exchange": 1, "up": True, "rule": b"r", "ask": "a1"}
    http.decoder.feed(McpJudged(at_ns=http.now(), verdict="hold", **judged))
    http.call(1, 1, "a")
    assert http.of(McpDecision) == []
    http.decoder.feed(McpJudged(at_ns=http.now(), verdict="approved", **judged))
    http.answer(1, result(1))
    assert [(one.verdict, one.ask) for one in http.of(McpDecision)] == [("allow", "a1")]
    assert http.ends() == [("k1", "complete")]


def test_messages_of_a_stream_are_judged_one_by_one() -> None:
    http = Http()
    http.call(1, 1, "a")
    sampling = {"jsonrpc": "2.0", "id": 9, "method": "sampling/createMessage", "params": {}}
    http.answer(1, stream=True, end="")
    for verdict, message in (("allow", {"jsonrpc": "2.0", "method": "notifications/x"}), ("deny", sampling)):
        http.decoder.feed(McpJudged(exchange=1, at_ns=http.now(), up=False, verdict=verdict, rule=b"r"))  # type: ignore[arg-type]
        data = b"data: %b\n\n" % json.dumps(message).encode()
        http.decoder.exchange(ExchangeReceived(1, http.now(), data))
    assert [(one.verdict, one.call, one.up) for one in http.of(McpDecision)] == [
        ("allow", "", False),
        ("deny", "k2", False),
    ]
    assert [one.passed for one in http.of(McpMessage)] == [True, True, False]
    assert [one.up for one in http.of(McpCall)] == [True, False]


def test_what_is_no_mcp_is_left_to_others() -> None:
    decoder = McpDecoder(lambda _item: None)
    began = ExchangeBegan(
        exchange=1, at_ns=1, connection="c1", span="p1", pid=7, scheme="https", host=b"example.com", port=443,
        method=b"GET", target=b"/", version=b"HTTP/1.1", headers=(),
    )  # fmt: skip
    assert not decoder.exchange(began)
    assert not decoder.exchange(ExchangeEnded(1, 2, "complete"))
