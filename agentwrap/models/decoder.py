"""News of exchanges in, items for the recorder out: secrets, contents, events. Pure.

What is no call of a known API is told as a plain exchange. Nothing foreign makes it raise: what cannot be read is
stored as it came, and the event says so.
"""

from collections.abc import Callable

from agentwrap.events import ExchangeNews, Gap, Item
from agentwrap.events.exchange import (
    ExchangeBegan,
    ExchangeEnded,
    ExchangeMessage,
    ExchangeReceived,
    ExchangeRequested,
    ExchangeResponded,
    ExchangeSent,
)
from agentwrap.models import plain_http, secrets
from agentwrap.models.calls import Call, Calls
from agentwrap.models.conversations import Conversations
from agentwrap.models.passing import Passing
from agentwrap.models.prices import Pricing, unknown
from agentwrap.models.shape import Shape
from agentwrap.models.shapes import recognise
from agentwrap.models.sockets import SocketCalls

HELD_MAX_BYTES = 256 << 20
_OPEN_MAX = 4096
_TOLD_MAX = 1000


class _Open:
    """An exchange under way, and what is being made of it."""

    __slots__ = ("call", "passing", "shape", "socket")

    def __init__(self, passing: Passing, shape: Shape | None) -> None:
        self.passing = passing
        self.shape = shape
        self.call: Call | None = None
        self.socket: SocketCalls | None = None


class Decoder:
    """All exchanges of one run. `emit` takes what is made, in order."""

    def __init__(self, emit: Callable[[Item], None], pricing: Pricing = unknown) -> None:
        self._emit = emit
        self._calls = Calls(emit, Conversations(), pricing)
        self._open: dict[int, _Open] = {}
        self._held = 0
        self._told: set[tuple[bytes, int, bytes]] = set()

    def feed(self, news: ExchangeNews) -> None:
        """Take the next news."""
        if isinstance(news, ExchangeBegan):
            self._begin(news)
            return
        one = self._open.get(news.exchange)
        if one is None:
            return
        before = one.passing.held_bytes
        self._take(one, news)
        if news.exchange in self._open:
            self._held += one.passing.held_bytes - before
            self._make_room()

    def _take(self, one: _Open, news: ExchangeNews) -> None:
        match news:
            case ExchangeSent():
                one.passing.up.add(news.data, news.at_ns)
                if one.passing.request_is_whole():
                    self._ask(one)
            case ExchangeRequested():
                self._ask(one)
            case ExchangeResponded():
                self._respond(one, news)
            case ExchangeReceived():
                self._ask(one)
                one.passing.down.add(news.data, news.at_ns)
            case ExchangeMessage():
                if one.socket is not None:
                    one.socket.message(news)
            case ExchangeEnded():
                self._finish(news.exchange, news)
                self._unread(one.passing.began, news)

    def finish(self, at_ns: int, *, lost: bool = False) -> None:
        """Nothing more will come: what is still open is told with what came. `lost`: it went on unseen."""
        for number in list(self._open):
            if lost:
                self._finish(number, ExchangeEnded(number, at_ns, "unreadable", b"the gateway died"))
            else:
                self.feed(ExchangeEnded(number, at_ns, "cut-by-client", b"the run ended"))

    def _finish(self, number: int, ended: ExchangeEnded) -> None:
        one = self._open.pop(number)
        self._held -= one.passing.held_bytes
        self._end(one, ended)

    def _begin(self, began: ExchangeBegan) -> None:
        found = secrets.of_head(began.headers, began.target)
        if found is not None:
            self._emit(found)
        passing = Passing(began)
        wants_socket = began.method == b"GET" and passing.header(b"upgrade").lower() == b"websocket"
        is_call = wants_socket or began.method != b"GET"
        one = _Open(passing, recognise(began.method, began.host, passing.path) if is_call else None)
        passing.is_socket = wants_socket
        self._open[began.exchange] = one
        if len(self._open) > _OPEN_MAX:
            oldest = next(iter(self._open))
            self.feed(ExchangeEnded(oldest, began.at_ns, "unreadable", b"too many exchanges at once"))

    def _make_room(self) -> None:
        """Bodies that are under way cost no more than HELD_MAX_BYTES: the largest are not kept."""
        while self._held > HELD_MAX_BYTES:
            sides = [side for one in self._open.values() for side in (one.passing.up, one.passing.down)]
            largest = max(sides, key=lambda side: side.held_bytes)
            self._held -= largest.held_bytes
            largest.drop()

    def _unread(self, began: ExchangeBegan, ended: ExchangeEnded) -> None:
        """What a connection says after something that could not be read is not read either."""
        told = (began.host, began.port, ended.detail)
        if ended.ending != "unreadable" or told in self._told or len(self._told) >= _TOLD_MAX:
            return
        self._told.add(told)
        self._emit(
            Gap(
                at_ns=ended.at_ns,
                span=began.span,
                pid=began.pid,
                what="model",
                cause="unreadable",
                could_hide="model calls of this connection from then on: nothing more of it was read",
                from_ns=ended.at_ns,
                detail=b"%b:%d: %b" % (began.host, began.port, ended.detail),
            )
        )

    def _ask(self, one: _Open) -> None:
        if one.shape is None or one.passing.told or one.passing.is_socket:
            return
        one.passing.told = True
        one.call = self._calls.asked(one.passing, one.shape)

    def _respond(self, one: _Open, responded: ExchangeResponded) -> None:
        found = secrets.of_head(responded.headers, b"")
        if found is not None:
            self._emit(found)
        one.passing.responded = responded
        if one.passing.is_socket and one.shape is not None and responded.status == 101:
            one.socket = SocketCalls(one.passing, one.shape, self._calls)
        elif one.passing.request_is_whole() or not one.passing.up.size:
            self._ask(one)

    def _end(self, one: _Open, ended: ExchangeEnded) -> None:
        if one.socket is not None:
            one.socket.end(ended)
            return
        self._ask(one)
        if one.call is not None:
            self._calls.answered(one.call, one.passing, ended)
            return
        plain_http.tell(f"h{one.passing.began.exchange}", one.passing, ended, self._emit)
