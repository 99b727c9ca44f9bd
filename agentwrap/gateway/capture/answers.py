"""The server's direction of a connection: answers, each to the oldest request that has none.

Knows where an answer begins and ends. Refuses to know what follows once an answer has changed the protocol.
"""

from agentwrap.gateway.capture.framing import Framing, UnreadableError, UntilClose
from agentwrap.gateway.capture.heads import AnswerHead, answer_framing, answer_gathering, answer_head
from agentwrap.gateway.capture.ledger import Exchange, Ledger
from agentwrap.gateway.capture.requests import Requests


class Answers:
    """Takes the server's bytes. Holds a head at most. `switched`: the exchange that changed the protocol, and how."""

    def __init__(self, ledger: Ledger, requests: Requests) -> None:
        self.switched: tuple[Exchange, AnswerHead] | None = None
        self._ledger = ledger
        self._requests = requests
        self._head = answer_gathering()
        self._exchange: Exchange | None = None
        self._framing: Framing | None = None

    def feed(self, data: bytes) -> int:
        """The next bytes; how many were read: not all if the protocol changes behind them. Raises UnreadableError."""
        position = 0
        while position < len(data) and self.switched is None:
            read = self._read_head if self._framing is None else self._read_body
            position = read(data, position)
        return position

    @property
    def inside(self) -> bytes:
        """Of what head something has come, in words."""
        return b"inside of the answer's head" if self._head.held else b""

    def end(self) -> None:
        """The server says nothing more."""
        where = self.inside
        if isinstance(self._framing, UntilClose) and self._exchange is not None:
            self._ledger.answer_ended(self._exchange, b"the client had ended before" if self._requests.over else b"")
        self._ledger.cut_all("client" if self._requests.over else "server", where)

    def _read_head(self, data: bytes, position: int) -> int:
        exchange = self._ledger.open[0] if self._ledger.open else None
        if exchange is None or exchange.answer_whole:
            raise self._requests.unasked()
        try:
            raw, position = self._head.take(data, position)
        except UnreadableError as error:
            if error.detail:
                raise
            answer_head(bytes(self._head.held))
            raise UnreadableError(b"no HTTP/1 answer") from None
        if raw is not None:
            self._begin(exchange, answer_head(raw))
        return position

    def _begin(self, exchange: Exchange, head: AnswerHead) -> None:
        if 100 <= head.status < 200 and head.status != 101:
            return
        self._ledger.responded(exchange, head)
        tunnel = exchange.method == b"CONNECT" and 200 <= head.status < 300
        if head.status == 101 or tunnel:
            if not tunnel and not exchange.upgrade:
                raise UnreadableError(b"a change of protocol that nobody asked for")
            if not exchange.request_whole:
                raise UnreadableError(b"a change of protocol before the request had ended")
            self.switched = exchange, head
            return
        framing = answer_framing(head, exchange.method)
        if framing.done:
            self._ledger.answer_ended(exchange)
        else:
            self._exchange, self._framing = exchange, framing
        if exchange.may_switch:
            self._requests.settled(exchange)

    def _read_body(self, data: bytes, position: int) -> int:
        exchange, framing = self._exchange, self._framing
        assert exchange is not None
        assert framing is not None
        pieces: list[bytes] | None = [] if exchange.wanted else None
        try:
            position, count = framing.take(data, position, pieces)
        except UnreadableError:
            self._ledger.received(exchange, pieces, sum(map(len, pieces or ())))
            raise
        self._ledger.received(exchange, pieces, count)
        if framing.done:
            self._framing = None
            self._ledger.answer_ended(exchange)
        return position
