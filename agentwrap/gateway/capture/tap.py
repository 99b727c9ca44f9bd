"""HTTP/1 exchanges and WebSocket messages of one connection, read in passing (RFC 9112, RFC 6455).

Knows both directions of one connection. Refuses to alter, to hold back or to judge: it is given copies, and what it
cannot read it says in words, and reads no more.
"""

from agentwrap.gateway.capture.about import About, Now, Number, Put, Side, Wanted
from agentwrap.gateway.capture.answers import Answers
from agentwrap.gateway.capture.framing import UnreadableError
from agentwrap.gateway.capture.heads import AnswerHead, values
from agentwrap.gateway.capture.ledger import Exchange, Ledger
from agentwrap.gateway.capture.requests import Requests
from agentwrap.gateway.capture.websocket import Socket
from agentwrap.mcp.http import Recognition


class Tap:
    """Both directions of one connection, without its TLS. Nothing here raises or waits.

    Call `up` with every piece that the client sent before, or in the same step as, it goes on to the server; `down`
    with every piece that the server sent. An answer must never be told before the request that it answers.

    `put` is given the news in order; `now` the clock in nanoseconds; `number` the next exchange's number in the run.
    `wanted(method, host, path)` is asked once for each request (path without query; host as the connection's, or the
    target's own if that is an absolute one): whether its bodies are told, too. Heads and the end always are.
    `active`: False once nothing will ever be told again of this connection, so copies may stop.

    `recognition` knows which exchanges are MCP's: those are told with their bodies, too.

    What is no exchange at all is told as one without a method that is unreadable.
    """

    def __init__(
        self,
        about: About,
        put: Put,
        now: Now,
        number: Number,
        wanted: Wanted,
        recognition: Recognition | None = None,
    ) -> None:
        self.active = True
        self._now = now
        self._ledger = Ledger(about, put, number, wanted, recognition)
        self._requests = Requests(self._ledger)
        self._answers = Answers(self._ledger, self._requests)
        self._socket: Socket | None = None

    @property
    def newest(self) -> int:
        """The number of the exchange that began last; 0 if there was none."""
        return self._ledger.newest

    def up(self, data: bytes) -> None:
        """Bytes from the client."""
        if not self.active or not data:
            return
        self._ledger.at_ns = self._now()
        try:
            if self._socket is not None:
                self._socket.up(data)
            else:
                self._requests.feed(data)
        except UnreadableError as error:
            self._give_up(error.detail)
        self._look()

    def down(self, data: bytes) -> None:
        """Bytes from the server."""
        if not self.active or not data:
            return
        self._ledger.at_ns = self._now()
        try:
            if self._socket is not None:
                self._socket.down(data)
            else:
                read = self._answers.feed(data)
                if self._answers.switched is not None:
                    self._switch(*self._answers.switched, data[read:])
        except UnreadableError as error:
            self._give_up(error.detail)
        self._look()

    def up_ended(self) -> None:
        """The client says nothing more; it may still read."""
        if not self.active:
            return
        self._ledger.at_ns = self._now()
        self._requests.end()
        if self._socket is not None:
            self._socket.end_up()
        self._look()

    def down_ended(self) -> None:
        """The server says nothing more: what is open ends here."""
        if not self.active:
            return
        self._ledger.at_ns = self._now()
        if self._socket is not None:
            self._socket.end_down()
        else:
            self._requests.cut("server")
            self._answers.end()
        self.active = False

    def cut(self, by: Side) -> None:
        """The connection was reset, by whom."""
        if not self.active:
            return
        self._ledger.at_ns = self._now()
        if self._requests.over:
            by = "client"  # it had left before: what a server then does about it is no cut of its own
        if self._socket is not None:
            self._socket.cut(by_client=by == "client")
        else:
            self._requests.cut(by)
            self._ledger.cut_all(by, self._answers.inside)
        self.active = False

    def _switch(self, exchange: Exchange, head: AnswerHead, rest: bytes) -> None:
        """The answer changed the protocol; `rest` came behind it."""
        if exchange.method == b"CONNECT":
            self._ledger.end_all("complete", b"a tunnel")
            return
        words = b", ".join(values(head.headers, b"upgrade"))
        if words.strip().lower() != b"websocket" or exchange.method != b"GET":
            raise UnreadableError(b"a change to another protocol: " + words)
        self._socket = Socket(self._ledger, exchange, head.headers)
        if held := self._requests.taken():
            self._socket.up(held)
        if rest:
            self._socket.down(rest)

    def _give_up(self, detail: bytes) -> None:
        self._ledger.end_all("unreadable", detail)
        self.active = False

    def _look(self) -> None:
        """Whether anything can still come."""
        over = self._requests.over or self._answers.switched is not None
        if over and not self._ledger.open:
            self.active = False
