"""Exchanges that may be MCP's: told as such, or as if nobody had looked at them."""

from itertools import count

import pytest
from gateway.capture.listening import ABOUT

from agentwrap.events.exchange import (
    ExchangeBegan,
    ExchangeEnded,
    ExchangeNews,
    ExchangeReceived,
    ExchangeRequested,
    ExchangeSent,
    OfMcp,
)
from agentwrap.gateway.capture.tap import Tap
from agentwrap.mcp.http import Recognition

MESSAGE = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}'
ACCEPT = b"Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
OF = OfMcp(b"api.example:443")


class Tapped:
    def __init__(self, *, wanted: bool = False, recognition: Recognition | None = None) -> None:
        self.news: list[ExchangeNews] = []
        clock, numbers = count(1), count(1)
        known = recognition or Recognition()
        self.tap = Tap(
            ABOUT, self.news.append, lambda: next(clock), lambda: next(numbers), lambda *_: wanted, known
        )

    def post(self, body: bytes, *, head: bytes = ACCEPT, path: bytes = b"/mcp", step: int = 0) -> "Tapped":
        raw = b"POST %b HTTP/1.1\r\nHost: api.example\r\n%bContent-Length: %d\r\n\r\n" % (path, head, len(body)) + body
        for at in range(0, len(raw), step or len(raw)):
            self.tap.up(raw[at : at + (step or len(raw))])
        return self

    def answer(self, body: bytes = b"{}", content_type: bytes = b"application/json") -> "Tapped":
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (content_type, len(body))
        self.tap.down(head + body)
        return self

    @property
    def began(self) -> list[OfMcp | None]:
        return [one.mcp for one in self.news if isinstance(one, ExchangeBegan)]

    def body(self, kind: type[ExchangeSent | ExchangeReceived]) -> bytes:
        return b"".join(one.data for one in self.news if isinstance(one, kind))


@pytest.mark.parametrize("step", [0, 1, 7])
@pytest.mark.parametrize("wanted", [False, True])
def test_a_message_in_the_body_tells(step: int, wanted: bool) -> None:
    tapped = Tapped(wanted=wanted).post(MESSAGE, step=step)
    assert tapped.began == [OF]
    assert [type(one) for one in tapped.news][-1] is ExchangeRequested
    tapped.answer(b'{"jsonrpc":"2.0","id":0,"result":{}}')
    assert tapped.body(ExchangeSent) == MESSAGE
    assert tapped.body(ExchangeReceived) == b'{"jsonrpc":"2.0","id":0,"result":{}}'
    tapped.post(b"junk", head=b"")  # the place is known now
    assert tapped.began == [OF, OF]


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("body", [b'{"jsonrpc":"2.0","method":"message/send"}', b"x", b'{"a":"' + b"b" * 9000 + b'"}'])
def test_something_else_is_told_as_ever(body: bytes, step: int) -> None:
    tapped = Tapped().post(body, step=step).answer()
    assert tapped.began == [None]
    assert (tapped.body(ExchangeSent), tapped.body(ExchangeReceived)) == (b"", b"")
    last = tapped.news[-1]
    assert isinstance(last, ExchangeEnded)
    assert (last.sent_bytes, last.received_bytes) == (len(body), 2)
    wanted = Tapped(wanted=True).post(body, step=step).answer()
    assert (wanted.body(ExchangeSent), wanted.body(ExchangeReceived)) == (body, b"{}")


@pytest.mark.parametrize("step", [1000, 1])
def test_an_old_stream_names_its_endpoint(step: int) -> None:
    recognition = Recognition()
    tapped = Tapped(recognition=recognition)
    tapped.tap.up(b"GET /sse HTTP/1.1\r\nHost: api.example\r\nAccept: text/event-stream\r\n\r\n")
    assert tapped.news == []
    stream = b"event: endpoint\ndata: /messages?id=1\n\nevent: message\ndata: {}\n\n"
    tapped.tap.down(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
    for at in range(0, len(stream), step):
        tapped.tap.down(stream[at : at + step])
    assert tapped.began == [OF]
    assert tapped.body(ExchangeReceived) == stream
    other = Tapped(recognition=recognition).post(MESSAGE, head=b"", path=b"/messages?id=1")
    assert other.began == [OfMcp(b"api.example:443", endpoint=True)]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: x\n\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\nevent: endpoint\ndata: x\n\n",
        b"",
    ],
)
def test_another_stream_is_none(answer: bytes) -> None:
    tapped = Tapped()
    tapped.tap.up(b"GET /news HTTP/1.1\r\nHost: api.example\r\nAccept: text/event-stream\r\n\r\n")
    tapped.tap.down(answer)
    tapped.tap.down_ended()
    assert tapped.began == [None]
    assert tapped.body(ExchangeReceived) == b""
