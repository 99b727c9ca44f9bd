"""Whether an exchange is one of MCP's where its head alone does not say so: its news wait until a body has begun.

Knows news and beginnings of bodies. Refuses to know bytes on the wire; who is known to be a server is asked elsewhere.
"""

import msgspec

from agentwrap.events.exchange import (
    ExchangeBegan,
    ExchangeNews,
    ExchangeReceived,
    ExchangeRequested,
    ExchangeResponded,
    ExchangeSent,
    OfMcp,
)
from agentwrap.mcp.http import BEGINNING_MAX, Maybe, Place, Recognition, answer_says, is_stream, place_of, request_says


class Sniff:
    """Of one exchange. `wanted`: its bodies are told, or may be; `over`: nothing is looked for any more."""

    def __init__(
        self, recognition: Recognition, place: Place, of: OfMcp | None, maybe: Maybe | None, *, wanted: bool
    ) -> None:
        self.over = False
        self.wanted = True
        self._wanted_anyway = wanted
        self._recognition = recognition
        self._place = place
        self._of = of
        self._maybe = maybe
        self._held: list[ExchangeNews] | None = None if of is not None else []
        self._beginning = b""

    @property
    def found(self) -> bool:
        """It is one of MCP's."""
        return self._of is not None

    def take(self, news: ExchangeNews) -> list[ExchangeNews]:
        """The next news of this exchange; what may be told now."""
        if isinstance(news, ExchangeBegan) and self._of is not None:
            self.over = self._maybe is None
            return [msgspec.structs.replace(news, mcp=self._of)]
        if self._held is not None:
            self._held.append(news)
        if not isinstance(news, ExchangeBegan):
            self._look(news)
        if self._held is None:
            return [news]
        return self._released() if self.over else []

    def _look(self, news: ExchangeNews) -> None:
        side = self._maybe.side if self._maybe is not None else ""
        if side == "request" and isinstance(news, ExchangeSent):
            self._begin(news.data)
            says = request_says(self._beginning, whole=False)
        elif side == "request":
            says = request_says(self._beginning, whole=True)
        elif isinstance(news, ExchangeSent | ExchangeRequested):
            return
        elif isinstance(news, ExchangeResponded):
            says = None if is_stream(news.headers) else False
        elif isinstance(news, ExchangeReceived):
            self._begin(news.data)
            found = answer_says(self._beginning, whole=False)
            says = found if found is None else self._is_endpoint(found)
        else:
            says = False
        if says is None:
            return
        self.over = True
        if says and self._of is None:
            self._of = self._recognition.seen(self._place)

    def _is_endpoint(self, found: bytes | bool) -> bool:
        if not isinstance(found, bytes):
            return False
        self._of = self._of or self._recognition.seen(self._place)
        self._recognition.endpoint(self._place, found, self._of)
        return True

    def _begin(self, data: bytes) -> None:
        self._beginning += data[: BEGINNING_MAX - len(self._beginning)]

    def _released(self) -> list[ExchangeNews]:
        held, self._held = self._held or [], None
        self.wanted = self._wanted_anyway or self._of is not None
        told: list[ExchangeNews] = []
        for one in held:
            if isinstance(one, ExchangeBegan):
                told.append(msgspec.structs.replace(one, mcp=self._of))
            elif self.wanted or not isinstance(one, ExchangeSent | ExchangeReceived):
                told.append(one)
        return told


def sniffing(recognition: Recognition, began: ExchangeBegan, *, wanted: bool) -> Sniff | None:
    """What is to be found out about an exchange, or told with it; None if it is none of MCP's."""
    place = place_of(began.target, began.host, began.port)
    found = recognition.of_head(began.method, place, began.headers)
    if found is None:
        return None
    if isinstance(found, Maybe):
        return Sniff(recognition, place, None, found, wanted=wanted)
    # Where an old server wants messages to be sent is in the first event of its stream.
    maybe = Maybe("answer") if began.method == b"GET" else None
    return Sniff(recognition, place, found, maybe, wanted=wanted)
