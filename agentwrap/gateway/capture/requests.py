"""The client's direction of a connection: requests one after the other, and what waits for an answer.

Knows where a request begins and ends. Refuses to know answers; whether one changed the protocol it is told.
"""

from typing import Literal

from agentwrap.events.exchange import ExchangeEnding
from agentwrap.gateway.capture.about import Side
from agentwrap.gateway.capture.framing import Framing, UnreadableError
from agentwrap.gateway.capture.heads import RequestHead, request_gathering, request_head
from agentwrap.gateway.capture.ledger import Exchange, Ledger

OPEN_MAX = 1000  # requests without an answer
_WAITING_MAX = 0x10000  # bytes behind a request whose answer may change the protocol


class Requests:
    """Takes the client's bytes. Holds a head, or what waits for a change of protocol. `over`: the client ended."""

    def __init__(self, ledger: Ledger) -> None:
        self.over = False
        self._ledger = ledger
        self._state: Literal["head", "body", "waiting"] = "head"
        self._head = request_gathering()
        self._began_ns = 0
        self._exchange: Exchange | None = None
        self._framing: Framing | None = None
        self._waiting = bytearray()

    def feed(self, data: bytes) -> None:
        """The next bytes. Raises UnreadableError."""
        position = 0
        while position < len(data):
            if self._state == "body":
                position = self._read_body(data, position)
            elif self._state == "head":
                position = self._read_head(data, position)
            else:
                self._waiting += data[position : position + _WAITING_MAX + 1]
                if len(self._waiting) > _WAITING_MAX:
                    raise UnreadableError(b"too much behind a request for another protocol that has no answer")
                return

    def settled(self, exchange: Exchange) -> None:
        """The answer to `exchange` keeps the protocol. Raises as `feed`."""
        if self._state == "waiting" and exchange is self._exchange:
            self._state = "head"
            self.feed(self.taken())

    def taken(self) -> bytes:
        """What waited, to be read by whoever knows the new protocol."""
        held, self._waiting = bytes(self._waiting), bytearray()
        return held

    def end(self) -> None:
        """The client says nothing more."""
        self.over = True
        if self._state == "body" and self._exchange is not None:
            self._ledger.stop(self._exchange)
        else:
            self.cut("client")

    def cut(self, by: Side) -> None:
        """The connection is over: a head that has begun will never be whole."""
        if (broken := self.broken()) is not None:
            ending: ExchangeEnding = "cut-by-client" if by == "client" else "cut-by-server"
            self._ledger.end(broken, ending, b"inside of the request's head")

    def broken(self) -> Exchange | None:
        """The head that has begun will never be whole: it begins an exchange as far as it came."""
        if not self._head.held or self._head.held == b"\r":
            self._head.clear()
            return None
        head = request_head(bytes(self._head.held))
        self._head.clear()
        return self._ledger.begin(head, self._began_ns)

    def unasked(self) -> UnreadableError:
        """An answer has come, and no request is whole that waits for one. The exchange that says so is begun."""
        simple = request_head(bytes(self._head.held)).version == b"0.9"
        if self.broken() is not None:
            return UnreadableError(b"HTTP/0.9" if simple else b"answered before the request's head was whole")
        if not self._ledger.open:
            self._ledger.begin(RequestHead(), self._ledger.at_ns)
        return UnreadableError(b"an answer that nobody asked for")

    def _read_head(self, data: bytes, position: int) -> int:
        if self._head.held == b"\r" and data.startswith(b"\n", position):
            self._head.clear()
            return position + 1
        if not self._head.held:
            if data.startswith(b"\r\n", position):  # RFC 9112, 2.2: an empty line before a request is skipped
                return position + 2
            self._began_ns = self._ledger.at_ns
        try:
            raw, position = self._head.take(data, position)
        except UnreadableError as error:
            problem = error.detail or request_head(bytes(self._head.held)).problem
            self.broken()
            raise UnreadableError(problem or b"a broken request line") from None
        if raw is not None:
            self._begin(request_head(raw))
        return position

    def _begin(self, head: RequestHead) -> None:
        exchange = self._ledger.begin(head, self._began_ns)
        if head.problem or head.framing is None:
            raise UnreadableError(head.problem)
        if len(self._ledger.open) > OPEN_MAX:
            raise UnreadableError(b"too many requests without an answer")
        self._exchange, self._framing = exchange, head.framing
        self._state = "body"
        if head.framing.done:
            self._whole(exchange)

    def _read_body(self, data: bytes, position: int) -> int:
        exchange, framing = self._exchange, self._framing
        assert exchange is not None
        assert framing is not None
        pieces: list[bytes] | None = [] if exchange.wanted else None
        try:
            position, count = framing.take(data, position, pieces)
        except UnreadableError:
            self._ledger.sent(exchange, pieces, sum(map(len, pieces or ())))
            raise
        self._ledger.sent(exchange, pieces, count)
        if framing.done:
            self._whole(exchange)
        return position

    def _whole(self, exchange: Exchange) -> None:
        self._state = "waiting" if exchange.may_switch and not exchange.answered else "head"
        self._ledger.request_ended(exchange)
