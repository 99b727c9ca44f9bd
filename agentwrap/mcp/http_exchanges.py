"""News of HTTP exchanges in; MCP sessions and their messages out, as the bytes that were said. Pure.

Knows both HTTP transports (Streamable HTTP; HTTP with SSE of 2024-11-05) and what makes a session: its id, or, where
there is none, the client's process and the URL. Refuses to read messages. Nothing foreign makes it raise.
"""

import re
from typing import Literal

import msgspec

from agentwrap.events.exchange import (
    ExchangeBegan,
    ExchangeEnded,
    ExchangeEnding,
    ExchangeNews,
    ExchangeReceived,
    ExchangeRequested,
    ExchangeResponded,
    ExchangeSent,
    OfMcp,
)
from agentwrap.events.mcp import McpHow, McpSessionEnding
from agentwrap.events.mcp_news import McpSaid
from agentwrap.mcp.event_stream import Events
from agentwrap.mcp.http import BEGINNING_MAX, asked_at, is_stream, place_of, place_of_url, stated_at, value_of
from agentwrap.models.codings import Decoding

MESSAGE_MAX_BYTES = 64 << 20
HELD_MAX_BYTES = 256 << 20
_SESSIONS_MAX = 10_000
_OPEN_MAX = 4096
_INITIALIZE = re.compile(rb'"method"\s*:\s*"initialize"')
_SESSION = b"mcp-session-id"


class HttpOpened(msgspec.Struct, frozen=True, kw_only=True):
    """A session began. `session`: its number among those over HTTP, from 1. Fields as in `mcp.session`."""

    session: int
    at_ns: int
    span: str
    pid: int
    server: bytes
    how: McpHow
    config: bytes
    url: bytes
    transport: Literal["http", "sse"] = "http"


class HttpMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message (or batch), whole and without content coding. `exchange`: as in `exchange.began`.

    `ours`: agentwrap said it. `piece`: 0 for a whole message, else the n-th piece, from 1, of one that is too long;
    `last`: no other piece of it follows. `problem`: why it is not what was said (its coding is broken).
    """

    session: int
    exchange: int
    at_ns: int
    up: bool
    data: bytes
    ours: bool = False
    piece: int = 0
    last: bool = True
    problem: str = ""


class HttpOver(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing more comes in an exchange. What was asked in it and has no answer gets none there.

    `status`: 0 without an answer. `resumable`: its stream had event ids, so that the rest may come in another exchange
    (not after an error, and not where the client of a stateless session cut it: that cancels).
    """

    session: int
    exchange: int
    at_ns: int
    ending: ExchangeEnding
    status: int
    resumable: bool
    detail: bytes = b""


class HttpClosed(msgspec.Struct, frozen=True, kw_only=True):
    """The last of a session. Bytes: of both sides' bodies, as they came."""

    session: int
    at_ns: int
    ending: McpSessionEnding
    up_bytes: int
    down_bytes: int
    detail: bytes = b""


HttpNews = HttpOpened | HttpMessage | HttpOver | HttpClosed


class _Session:
    __slots__ = ("down_bytes", "endpoint", "initialised", "key", "number", "process", "up_bytes")

    def __init__(self, number: int) -> None:
        self.number = number
        self.key = b""  # url and session id
        self.endpoint = b""
        self.process = ("", b"")  # span and url, where there is no session id
        self.initialised = False
        self.up_bytes = self.down_bytes = 0


class _Body:
    """A body as it comes: without its content coding, within a bound."""

    def __init__(self, encodings: bytes) -> None:
        self.size = 0
        self.pieces: list[bytes] = []
        self.held_bytes = 0
        self.piece = 0
        self.decoding = Decoding(encodings, 1 << 40) if encodings else None

    def decoded(self, data: bytes) -> bytes:
        self.size += len(data)
        return self.decoding.feed(data) if self.decoding is not None else data

    def keep(self, data: bytes) -> None:
        self.pieces.append(data)
        self.held_bytes += len(data) + 128  # of an object around it

    def taken(self) -> bytes:
        data = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
        self.pieces, self.held_bytes = [], 0
        return data

    @property
    def problem(self) -> str:
        if self.decoding is None:
            return ""
        self.decoding.end()
        return self.decoding.problem


class _Open:
    """An exchange under way."""

    __slots__ = (
        *("began", "down", "events", "ids", "of", "ours", "session", "skips", "status", "stream_opened", "told", "up"),
        "url",
    )

    def __init__(self, began: ExchangeBegan, of: OfMcp) -> None:
        self.began = began
        self.of = of
        self.session: _Session | None = None
        self.up = _Body(value_of(began.headers, b"content-encoding"))
        self.down = _Body(b"")
        self.events: Events | None = None
        self.status = 0
        self.told = self.ids = self.stream_opened = self.skips = False
        self.ours: list[bytes] = []
        self.url = _url(began)

    @property
    def held_bytes(self) -> int:
        return self.up.held_bytes + self.down.held_bytes + (self.events.held_bytes if self.events is not None else 0)


class HttpExchanges:
    """All MCP exchanges of one run. `feed` and `said` in the order in which the gateway tells them."""

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}
        self._count = 0
        self._held = 0
        self._news: list[HttpNews] = []
        self._living: dict[int, _Session] = {}
        self._by_id: dict[bytes, _Session] = {}
        self._by_process: dict[tuple[str, bytes], _Session] = {}
        self._by_endpoint: dict[bytes, _Session] = {}

    def belongs(self, exchange: int) -> bool:
        """Whether an exchange that is under way is one of MCP's."""
        return exchange in self._open

    def feed(self, news: ExchangeNews) -> list[HttpNews]:
        """The next news of any exchange; what they make, nothing for those that are not MCP's."""
        if isinstance(news, ExchangeBegan):
            if news.mcp is not None:
                self._begin(news, news.mcp)
            return self._taken()
        one = self._open.get(news.exchange)
        if one is None:
            return []
        before = one.held_bytes
        match news:
            case ExchangeSent():
                one.up.keep(one.up.decoded(news.data))
                self._cut(one, one.up, news.at_ns)
            case ExchangeRequested():
                self._requested(one, news.at_ns)
            case ExchangeResponded():
                self._responded(one, news)
            case ExchangeReceived():
                self._received(one, news)
            case ExchangeEnded():
                self._ended(one, news)
        self._held += (one.held_bytes if news.exchange in self._open else 0) - before
        self._make_room(news.at_ns)
        return self._taken()

    def said(self, said: McpSaid) -> list[HttpNews]:
        """Our own words in an exchange: they are told at once, and not once more where the exchange has them."""
        one = self._open.get(said.exchange)
        if one is None:
            return []
        if not said.up:
            one.ours.append(said.data)
        if one.up.pieces:
            self._requested(one, said.at_ns)
        session = self._session(one, said.at_ns)
        self._news.append(
            HttpMessage(
                session=session.number, exchange=said.exchange, at_ns=said.at_ns, up=said.up, data=said.data, ours=True
            )
        )
        return self._taken()

    def finish(self, at_ns: int, *, lost: bool = False) -> list[HttpNews]:
        """Nothing more will come. `lost`: who told the news died, so that what is open went on unseen."""
        told: list[HttpNews] = []
        for number in list(self._open):
            ending: ExchangeEnding = "unreadable" if lost else "cut-by-client"
            detail = b"the gateway died" if lost else b"the run ended"
            told += self.feed(ExchangeEnded(number, at_ns, ending, detail))
        for session in list(self._living.values()):
            self._close(session, at_ns, "lost" if lost else "run-ended")
        return told + self._taken()

    def _taken(self) -> list[HttpNews]:
        news, self._news = self._news, []
        return news

    def _begin(self, began: ExchangeBegan, of: OfMcp) -> None:
        one = self._open[began.exchange] = _Open(began, of)
        known = value_of(began.headers, _SESSION)
        if of.endpoint:
            one.session = self._by_endpoint.get(asked_at(began.target, began.host, began.port))
        elif known:
            one.session = self._by_id.get(one.url + b" " + known)
        if len(self._open) > _OPEN_MAX:
            oldest = self._open[next(iter(self._open))]
            before = oldest.held_bytes
            self._ended(oldest, ExchangeEnded(oldest.began.exchange, began.at_ns, "unreadable", b"too many at once"))
            self._held -= before

    def _session(self, one: _Open, at_ns: int, *, initialises: bool = False) -> _Session:
        """The session that an exchange belongs to; a new one where none is known."""
        if one.session is None:
            process = one.began.span, one.url
            known = value_of(one.began.headers, _SESSION)
            found = None if known else self._by_process.get(process)
            if found is None or (initialises and found.initialised):
                found = self._new(one, at_ns, "sse" if one.of.endpoint else "http")
                if known:
                    found.key = one.url + b" " + known
                    self._by_id[found.key] = found
                else:
                    found.process = process
                    self._by_process[process] = found
            one.session = found
        one.session.initialised = one.session.initialised or initialises
        return one.session

    def _new(self, one: _Open, at_ns: int, transport: Literal["http", "sse"]) -> _Session:
        self._count += 1
        session = self._living[self._count] = _Session(self._count)
        self._news.append(
            HttpOpened(
                session=session.number,
                at_ns=at_ns,
                span=one.began.span,
                pid=one.began.pid,
                server=one.of.server,
                how=one.of.how,
                config=one.of.config,
                url=one.url,
                transport=transport,
            )
        )
        if len(self._living) > _SESSIONS_MAX:
            self._close(next(iter(self._living.values())), at_ns, "lost", b"too many at once")
        return session

    def _requested(self, one: _Open, at_ns: int) -> None:
        """The request is whole: its body is a message."""
        if one.told:
            return
        one.told = True
        if one.began.method != b"POST" or not (one.up.pieces or one.up.piece):
            return
        data = one.up.taken()
        session = self._session(one, at_ns, initialises=bool(_INITIALIZE.search(data, 0, BEGINNING_MAX)))
        session.up_bytes += one.up.size
        self._say(one, one.up, at_ns, data, up=True)

    def _say(self, one: _Open, body: _Body, at_ns: int, data: bytes, *, up: bool, last: bool = True) -> None:
        if not up and data in one.ours:
            one.ours.remove(data)
            return
        body.piece += 1 if body.piece or not last else 0
        self._news.append(
            HttpMessage(
                session=self._session(one, at_ns).number,
                exchange=one.began.exchange,
                at_ns=at_ns,
                up=up,
                data=data,
                piece=body.piece,
                last=last,
                problem=body.problem if last and one.events is None else "",
            )
        )

    def _cut(self, one: _Open, body: _Body, at_ns: int, most: int = MESSAGE_MAX_BYTES) -> None:
        """A message that is too long is told in pieces."""
        if body.held_bytes > most:
            self._say(one, body, at_ns, body.taken(), up=body is one.up, last=False)

    def _make_room(self, at_ns: int) -> None:
        while self._held > HELD_MAX_BYTES:
            largest = max(self._open.values(), key=lambda one: one.held_bytes)
            before = largest.held_bytes
            for body in (largest.up, largest.down):
                self._cut(largest, body, at_ns, 0)
            if largest.events is not None:
                largest.events.rest()
            self._held -= before - largest.held_bytes

    def _responded(self, one: _Open, responded: ExchangeResponded) -> None:
        self._requested(one, responded.at_ns)
        one.status = responded.status
        one.down = _Body(value_of(responded.headers, b"content-encoding"))
        one.events = Events(MESSAGE_MAX_BYTES) if is_stream(responded.headers) and responded.status == 200 else None
        given = value_of(responded.headers, _SESSION)
        if given and one.session is not None and not one.session.key:
            one.session.key = one.url + b" " + given
            self._by_id[one.session.key] = one.session
            self._by_process.pop((one.began.span, one.url), None)
        if one.session is not None and value_of(one.began.headers, _SESSION):
            if one.began.method == b"DELETE" and 200 <= responded.status < 300:
                self._close(one.session, responded.at_ns, "client-closed", b"DELETE")
            elif responded.status == 404 and one.began.method != b"DELETE":
                self._close(one.session, responded.at_ns, "server-closed", b"the server knows it no more (404)")

    def _received(self, one: _Open, news: ExchangeReceived) -> None:
        data = one.down.decoded(news.data)
        if one.events is None:
            if not one.down.pieces and not one.down.piece:
                one.skips = one.skips or data.lstrip()[:1] not in (b"{", b"[", b"")
            if one.skips:
                return
            one.down.keep(data)
            self._cut(one, one.down, news.at_ns)
            return
        for event in one.events.feed(data):
            one.ids = one.ids or bool(event.id)
            if event.type == b"endpoint" and event.data is not None and one.began.method == b"GET":
                self._endpoint(one, event.data, news.at_ns)
            elif event.message:
                self._say(one, one.down, news.at_ns, event.message, up=False)

    def _endpoint(self, one: _Open, stated: bytes, at_ns: int) -> None:
        """A stream of the old transport begins, and with it a session."""
        if one.stream_opened:
            return
        one.stream_opened = True
        one.session = self._new(one, at_ns, "sse")
        here = place_of(one.began.target, one.began.host, one.began.port)
        one.session.endpoint = stated_at(here, stated.strip())
        self._by_endpoint[one.session.endpoint] = one.session

    def _ended(self, one: _Open, ended: ExchangeEnded) -> None:
        number = one.began.exchange
        if ended.ending == "complete" or one.status:
            self._requested(one, ended.at_ns)
        if one.events is None and (one.down.pieces or one.down.piece):
            data = one.down.taken()
            if ended.ending == "complete" and (data.strip() or one.down.piece):
                self._say(one, one.down, ended.at_ns, data, up=False)
        del self._open[number]
        if one.session is None:
            return
        one.session.down_bytes += one.down.size
        # The old transport accepts a message here and answers in its stream.
        accepted = one.of.endpoint and 200 <= one.status < 300
        stateless = not one.session.key and not one.session.endpoint
        cancels = stateless and ended.ending == "cut-by-client"
        self._news.append(
            HttpOver(
                session=one.session.number,
                exchange=number,
                at_ns=ended.at_ns,
                ending=ended.ending,
                status=one.status,
                resumable=(one.ids and one.status == 200 and not cancels) or accepted,
                detail=ended.detail,
            )
        )
        if one.stream_opened:
            by_client = ended.ending == "cut-by-client"
            self._close(one.session, ended.at_ns, "client-closed" if by_client else "server-closed", ended.detail)

    def _close(self, session: _Session, at_ns: int, ending: McpSessionEnding, detail: bytes = b"") -> None:
        if self._living.pop(session.number, None) is None:
            return
        if session.key:
            self._by_id.pop(session.key, None)
        if session.endpoint:
            self._by_endpoint.pop(session.endpoint, None)
        if self._by_process.get(session.process) is session:
            del self._by_process[session.process]
        self._news.append(
            HttpClosed(
                session=session.number,
                at_ns=at_ns,
                ending=ending,
                up_bytes=session.up_bytes,
                down_bytes=session.down_bytes,
                detail=detail,
            )
        )


def _url(began: ExchangeBegan) -> bytes:
    """Where a request goes, by the name that its client has for it if that is all that is known."""
    place = place_of(began.target, began.host, began.port)
    scheme = began.scheme.encode()
    named = place_of_url(scheme + b"://" + value_of(began.headers, b"host"))
    host = named.host if named is not None and named.port == place.port else place.host
    host = b"[" + host + b"]" if b":" in host else host
    port = b"" if place.port == (443 if began.scheme == "https" else 80) else b":%d" % place.port
    return b"%b://%b%b%b" % (scheme, host, port, place.path)
