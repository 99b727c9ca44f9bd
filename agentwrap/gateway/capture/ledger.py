"""The exchanges of one connection that are open, and the news of them.

Knows who waits for what, and how an exchange ends. Refuses to know bytes on the wire.
"""

from collections import deque

from agentwrap.events.exchange import (
    ExchangeBegan,
    ExchangeEnded,
    ExchangeEnding,
    ExchangeMessage,
    ExchangeNews,
    ExchangeReceived,
    ExchangeRequested,
    ExchangeResponded,
    ExchangeSent,
)
from agentwrap.gateway.capture.about import About, Number, Put, Side, Wanted
from agentwrap.gateway.capture.heads import AnswerHead, RequestHead
from agentwrap.gateway.capture.sniffing import Sniff, sniffing
from agentwrap.mcp.http import Recognition

_EARLY = b"answered before the request had ended"


class Exchange:
    """An exchange that is open. `answered`: by a final head; `stopped`: the client ended inside of the request."""

    __slots__ = (
        *("number", "method", "upgrade", "wanted", "request_whole", "answered", "answer_whole", "stopped"),
        *("sent_bytes", "received_bytes", "sniff", "mcp"),
    )

    def __init__(self, number: int, method: bytes, upgrade: bytes, wanted: bool, sniff: Sniff | None = None) -> None:
        self.number = number
        self.sniff = sniff
        self.mcp = False
        self.method = method
        self.upgrade = upgrade
        self.wanted = wanted
        self.request_whole = self.answered = self.answer_whole = self.stopped = False
        self.sent_bytes = self.received_bytes = 0

    @property
    def may_switch(self) -> bool:
        """Whether its answer may change the protocol."""
        return bool(self.upgrade) or self.method == b"CONNECT"


class Ledger:
    """Begins and ends exchanges. `open`: in the order of the requests. `at_ns`: when the piece came that is read.

    `newest`: the number of the last one that began.
    """

    def __init__(
        self, about: About, put: Put, number: Number, wanted: Wanted, recognition: Recognition | None = None
    ) -> None:
        self.open: deque[Exchange] = deque()
        self.at_ns = 0
        self.newest = 0
        self._about = about
        self._put = put
        self._number = number
        self._wanted = wanted
        self._recognition = recognition

    def begin(self, head: RequestHead, at_ns: int) -> Exchange:
        """A head is whole, or will never be."""
        about = self._about
        number = self.newest = self._number()
        host, path = _asked(head.target, about.host)
        wanted = self._wanted(head.method, host, path)
        began = ExchangeBegan(
            exchange=number,
            at_ns=at_ns,
            connection=about.connection,
            span=about.span,
            pid=about.pid,
            scheme=about.scheme,
            host=about.host,
            port=about.port,
            method=head.method,
            target=head.target,
            version=head.version,
            headers=head.headers,
            intercepted=about.intercepted,
        )
        sniff = sniffing(self._recognition, began, wanted=wanted) if self._recognition is not None else None
        exchange = Exchange(number, head.method, head.upgrade, wanted or sniff is not None, sniff)
        self.open.append(exchange)
        self._tell(exchange, began)
        return exchange

    def _tell(self, exchange: Exchange, news: ExchangeNews) -> None:
        if exchange.sniff is None:
            self._put(news)
            return
        for one in exchange.sniff.take(news):
            self._put(one)
        exchange.wanted, exchange.mcp = exchange.sniff.wanted, exchange.sniff.found
        if exchange.sniff.over:
            exchange.sniff = None

    def sent(self, exchange: Exchange, pieces: list[bytes] | None, count: int) -> None:
        """Content of the request's body."""
        exchange.sent_bytes += count
        if pieces:
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._tell(exchange, ExchangeSent(exchange.number, self.at_ns, data))

    def request_ended(self, exchange: Exchange) -> None:
        """The request is whole."""
        exchange.request_whole = True
        if exchange.mcp or exchange.sniff is not None:
            self._tell(exchange, ExchangeRequested(exchange.number, self.at_ns))
        if exchange.answer_whole:
            self.end(exchange, "complete")

    def responded(self, exchange: Exchange, head: AnswerHead) -> None:
        """The final head."""
        exchange.answered = True
        self._tell(exchange, ExchangeResponded(exchange.number, self.at_ns, head.status, head.reason, head.headers))

    def received(self, exchange: Exchange, pieces: list[bytes] | None, count: int) -> None:
        """Content of the answer's body."""
        exchange.received_bytes += count
        if pieces:
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._tell(exchange, ExchangeReceived(exchange.number, self.at_ns, data))

    def answer_ended(self, exchange: Exchange, detail: bytes = b"") -> None:
        """The answer is whole."""
        exchange.answer_whole = True
        if exchange.stopped:
            self.end(exchange, "cut-by-client", b"inside of the request's body")
        elif exchange.request_whole:
            self.end(exchange, "complete", detail)

    def message(self, exchange: Exchange, up: bool, text: bool, data: bytes) -> None:
        """A WebSocket message."""
        self._tell(exchange, ExchangeMessage(exchange.number, self.at_ns, up, text, data))

    def stop(self, exchange: Exchange) -> None:
        """The client ended inside of the request; the server may still answer."""
        exchange.stopped = True
        if exchange.answer_whole:
            self.end(exchange, "cut-by-client", b"inside of the request's body")

    def cut_all(self, by: Side, where: bytes = b"") -> None:
        """The connection is over. `where`: what was being read of the first answer that is not whole."""
        ending: ExchangeEnding = "cut-by-client" if by == "client" else "cut-by-server"
        for exchange in list(self.open):
            if exchange.stopped:
                self.end(exchange, "cut-by-client", b"inside of the request's body")
            elif exchange.answer_whole:
                self.end(exchange, "complete", _EARLY)
            elif exchange.answered:
                self.end(exchange, ending, b"inside of the answer's body")
            else:
                self.end(exchange, ending, where or b"before an answer")
                where = b""

    def end_all(self, ending: ExchangeEnding, detail: bytes) -> None:
        """Everything that is open ends alike."""
        for exchange in list(self.open):
            self.end(exchange, ending, detail)

    def end(self, exchange: Exchange, ending: ExchangeEnding, detail: bytes = b"") -> None:
        """The last of an exchange."""
        self.open.remove(exchange)
        self._tell(
            exchange,
            ExchangeEnded(
                exchange.number, self.at_ns, ending, detail, exchange.sent_bytes, exchange.received_bytes
            ),
        )


def _asked(target: bytes, host: bytes) -> tuple[bytes, bytes]:
    """Host and path (without query) that a target asks for."""
    if target[:1] != b"/":
        scheme, mark, rest = target.partition(b"://")
        if mark and scheme.lower() in (b"http", b"https"):  # RFC 9112, 3.2.2: a target in absolute form
            rest = rest.partition(b"?")[0]
            authority, slash, path = rest.partition(b"/")
            return _without_port(authority.rpartition(b"@")[2]), slash + path or b"/"
    return host, target.partition(b"?")[0]


def _without_port(authority: bytes) -> bytes:
    name, _, port = authority.rpartition(b":")
    return name if name and port.isdigit() else authority
