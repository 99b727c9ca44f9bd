"""HTTP as it is on the wire, made into MCP sessions and messages."""

import gzip
from itertools import count
from typing import Any

import pytest
from gateway.capture.listening import ABOUT
from hypothesis import given
from hypothesis import strategies as st
from mcp_wire import ASKS, CALL, INITIALIZE, RESULT, answer, post, stream

from agentwrap.events.exchange import ExchangeNews
from agentwrap.events.mcp_news import McpSaid
from agentwrap.gateway.capture.tap import Tap
from agentwrap.mcp.http import Recognition
from agentwrap.mcp.http_exchanges import HttpClosed, HttpExchanges, HttpMessage, HttpNews, HttpOpened, HttpOver


class Wire:
    """Connections of processes, and what becomes of their bytes."""

    def __init__(self) -> None:
        self.exchanges = HttpExchanges()
        self.told: list[HttpNews] = []
        self.last = 0
        self._recognition = Recognition()
        self._clock, self._numbers = count(1), count(1)

    def connect(self, span: str = "p1") -> Tap:
        about = type(ABOUT)(connection="n1", span=span, pid=7, scheme="http", host=b"mcp.example", port=80)
        return Tap(about, self._put, lambda: next(self._clock), self._number, lambda *_: False, self._recognition)

    def _number(self) -> int:
        self.last = next(self._numbers)
        return self.last

    def _put(self, news: ExchangeNews) -> None:
        self.told += self.exchanges.feed(news)

    def of(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.told if isinstance(one, kind)]

    @property
    def messages(self) -> list[tuple[int, bool, bytes]]:
        return [(one.session, one.up, one.data) for one in self.of(HttpMessage)]


@pytest.mark.parametrize("step", [1, 5, 1 << 20])
def test_a_session_with_an_id(step: int) -> None:
    wire = Wire()
    tap = wire.connect()
    post(tap, INITIALIZE, step=step)
    answer(tap, RESULT, b"Content-Type: application/json\r\nMcp-Session-Id: s-1\r\n")
    post(tap, b'{"jsonrpc":"2.0","method":"notifications/initialized"}', b"Mcp-Session-Id: s-1\r\n", step=step)
    answer(tap, b"", status=202)
    other = wire.connect("p2")  # another process of the same client
    other.up(b"GET /mcp HTTP/1.1\r\nHost: mcp.example\r\nAccept: text/event-stream\r\nMcp-Session-Id: s-1\r\n\r\n")
    stream(other, b"id: 1\ndata: \n\n", b": alive\n\nevent: message\ndata: ", ASKS + b"\n\n", end=False, step=step)
    post(tap, CALL, b"Mcp-Session-Id: s-1\r\n", step=step)
    stream(tap, b"data: " + RESULT + b"\n\n", step=step)
    tap.up(b"DELETE /mcp HTTP/1.1\r\nHost: mcp.example\r\nMcp-Session-Id: s-1\r\n\r\n")
    answer(tap, b"")
    (opened,) = wire.of(HttpOpened)
    assert (opened.server, opened.how, opened.url) == (b"mcp.example:80", "traffic", b"http://mcp.example/mcp")
    assert (opened.span, opened.pid, opened.transport) == ("p1", 7, "http")
    assert [(up, data) for _, up, data in wire.messages] == [
        (True, INITIALIZE),
        (False, RESULT),
        (True, b'{"jsonrpc":"2.0","method":"notifications/initialized"}'),
        (False, ASKS),
        (True, CALL),
        (False, RESULT),
    ]
    (closed,) = wire.of(HttpClosed)
    assert (closed.ending, closed.detail) == ("client-closed", b"DELETE")
    assert [(one.exchange, one.status, one.ending) for one in wire.of(HttpOver)] == [
        (1, 200, "complete"), (2, 202, "complete"), (4, 200, "complete"), (5, 200, "complete"),
    ]  # fmt: skip


def test_stateless_sessions_are_of_a_process_and_a_url() -> None:
    wire = Wire()
    for span, path in (("p1", b"/a"), ("p1", b"/a"), ("p1", b"/b"), ("p2", b"/a")):
        tap = wire.connect(span)
        post(tap, CALL, b"Mcp-Method: tools/call\r\n", path)
        answer(tap, RESULT)
    assert [one.session for one in wire.of(HttpMessage)] == [1, 1, 1, 1, 2, 2, 3, 3]
    told = wire.exchanges.finish(99)
    assert [(one.session, one.ending) for one in told if isinstance(one, HttpClosed)] == [
        (1, "run-ended"), (2, "run-ended"), (3, "run-ended"),
    ]  # fmt: skip


def test_a_probe_before_it_is_part_of_a_session_and_the_next_client_has_its_own() -> None:
    wire = Wire()
    for number in (1, 2):
        tap = wire.connect()
        post(tap, CALL.replace(b"tools/call", b"server/discover"))
        answer(tap, b"no such thing", b"Content-Type: text/plain\r\n", status=400)
        post(tap, INITIALIZE)
        answer(tap, RESULT, b"Content-Type: application/json\r\nMcp-Session-Id: %d\r\n" % number)
    assert [one.session for one in wire.of(HttpMessage)] == [1, 1, 1, 2, 2, 2]
    assert [one.status for one in wire.of(HttpOver)] == [400, 200, 400, 200]


def test_a_second_initialize_is_a_second_session() -> None:
    wire = Wire()
    tap = wire.connect()
    for _ in range(2):
        post(tap, INITIALIZE)
        answer(tap, RESULT)
    assert [one.session for one in wire.of(HttpMessage)] == [1, 1, 2, 2]


def test_a_session_that_the_server_forgot() -> None:
    wire = Wire()
    tap = wire.connect()
    post(tap, CALL, b"Mcp-Session-Id: old\r\n")
    answer(tap, b"", status=404)
    (closed,) = wire.of(HttpClosed)
    assert closed.ending == "server-closed"


@pytest.mark.parametrize("cut", ["client", "server"])
def test_a_stream_that_is_cut_may_go_on_elsewhere(cut: Any) -> None:
    wire = Wire()
    tap = wire.connect()
    post(tap, CALL, b"Mcp-Session-Id: s\r\n")
    stream(tap, b"id: 5\ndata:\n\n", end=False)
    tap.cut(cut)
    (over,) = wire.of(HttpOver)
    assert (over.ending, over.resumable) == (f"cut-by-{cut}", True)
    stateless = wire.connect("p2")
    post(stateless, CALL)
    stream(stateless, b"id: 5\ndata:\n\n", end=False)
    stateless.cut("client")
    assert not wire.of(HttpOver)[-1].resumable  # so a client cancels


@pytest.mark.parametrize("step", [1, 9, 1 << 20])
def test_the_old_transport(step: int) -> None:
    wire = Wire()
    tap = wire.connect()
    tap.up(b"GET /sse HTTP/1.1\r\nHost: mcp.example\r\nAccept: text/event-stream\r\n\r\n")
    stream(tap, b"event: endpoint\ndata: /messages?session=1\n\n", end=False, step=step)
    sender = wire.connect()
    post(sender, INITIALIZE, path=b"/messages?session=1", step=step)
    answer(sender, b"Accepted", b"Content-Type: text/plain\r\n", status=202)
    tap.down(b"%x\r\ndata: %b\n\n\r\n" % (len(RESULT) + 8, RESULT))
    tap.cut("client")
    (opened,) = wire.of(HttpOpened)
    assert (opened.transport, opened.url) == ("sse", b"http://mcp.example/sse")
    assert wire.messages == [(1, True, INITIALIZE), (1, False, RESULT)]
    assert [(one.exchange, one.resumable) for one in wire.of(HttpOver)] == [(2, True), (1, False)]
    assert [one.ending for one in wire.of(HttpClosed)] == ["client-closed"]


@pytest.mark.parametrize("problem", [False, True])
def test_content_codings_are_taken_off_for_the_record(problem: bool) -> None:
    wire = Wire()
    tap = wire.connect()
    packed = gzip.compress(CALL)
    post(tap, packed[:-9] if problem else packed, b"Mcp-Method: tools/call\r\nContent-Encoding: gzip\r\n", step=3)
    events = gzip.compress(b"data: " + RESULT + b"\n\n")
    stream(tap, events[:11], events[11:], more=b"Content-Encoding: gzip\r\n", step=3)
    first, second = wire.of(HttpMessage)
    assert first.data == CALL
    assert bool(first.problem) is problem
    assert (second.data, second.problem) == (RESULT, "")


def test_our_own_words_are_told_once() -> None:
    wire = Wire()
    tap = wire.connect()
    post(tap, CALL, b"Mcp-Session-Id: s\r\n")
    wire.told += wire.exchanges.said(McpSaid(exchange=wire.last, at_ns=5, up=False, data=RESULT))
    answer(tap, RESULT)
    assert [(one.up, one.ours) for one in wire.of(HttpMessage)] == [(True, False), (False, True)]


def test_what_is_not_of_mcp_makes_nothing() -> None:
    wire = Wire()
    tap = wire.connect()
    tap.up(b"GET /.well-known/oauth-protected-resource HTTP/1.1\r\nHost: mcp.example\r\n\r\n")
    answer(tap, b"{}")
    assert wire.told == []
    assert wire.exchanges.finish(9) == []


@given(st.lists(st.binary(max_size=60), max_size=6), st.binary(max_size=40), st.sampled_from([200, 202, 404, 500]))
def test_whatever_bodies_say(events: list[bytes], body: bytes, status: int) -> None:
    wire = Wire()
    tap = wire.connect()
    post(tap, body, b"Mcp-Session-Id: s\r\n")
    answer(tap, body, status=status)
    post(tap, CALL)
    stream(tap, *[one for one in events if one])
    tap.up(b"GET /mcp HTTP/1.1\r\nHost: mcp.example\r\nAccept: text/event-stream\r\n\r\n")
    stream(tap, b"event: endpoint\ndata: " + body.replace(b"\n", b"") + b"\n\n", *[one for one in events if one])
    wire.told += wire.exchanges.finish(99)
    opened = [one.session for one in wire.of(HttpOpened)]
    assert sorted(opened) == sorted(one.session for one in wire.of(HttpClosed))
    assert all(one.session in opened for one in wire.told)
