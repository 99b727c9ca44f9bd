"""HTTP/1 exchanges and WebSocket messages of one connection, read in passing (RFC 9112, RFC 6455).

Knows both directions of one connection. Refuses to alter, to hold back or to judge: it is given copies, and what it
cannot read it says in words, and reads no more.
"""

from agentwrap.gateway.capture.about import About, Now, Number, Put, Side, Wanted


class Tap:
    """Both directions of one connection, without its TLS. Nothing here raises or waits.

    Call `up` with every piece that the client sent before, or in the same step as, it goes on to the server; `down`
    with every piece that the server sent. An answer must never be told before the request that it answers.

    `put` is given the news in order; `now` the clock in nanoseconds; `number` the next exchange's number in the run.
    `wanted(method, host, path)` is asked once for each request (path without query; host as the connection's, or the
    target's own if that is an absolute one): whether its bodies are told, too. Heads and the end always are.
    `active`: False once nothing will ever be told again of this connection, so copies may stop.
    """

    def __init__(self, about: About, put: Put, now: Now, number: Number, wanted: Wanted) -> None:
        self.active = True
        self._about, self._put, self._now, self._number, self._wanted = about, put, now, number, wanted

    def up(self, data: bytes) -> None:
        """Bytes from the client."""

    def down(self, data: bytes) -> None:
        """Bytes from the server."""

    def up_ended(self) -> None:
        """The client says nothing more; it may still read."""

    def down_ended(self) -> None:
        """The server says nothing more: what is open ends here."""
        self.active = False

    def cut(self, by: Side) -> None:  # noqa: ARG002
        """The connection was reset, by whom."""
        self.active = False
