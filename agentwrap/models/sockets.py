"""Model calls over one WebSocket, in turn: a message up asks, the messages down to the last one are the answer."""

import msgspec

from agentwrap.events.exchange import ExchangeEnded, ExchangeMessage
from agentwrap.models.calls import Call, Calls
from agentwrap.models.passing import Passing
from agentwrap.models.shape import Shape
from agentwrap.models.stream import LINES

_LAST = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled", "error"})


class _Typed(msgspec.Struct):
    type: str = ""


_type_of = msgspec.json.Decoder(_Typed).decode


class SocketCalls:
    """The calls of one connection that was upgraded."""

    def __init__(self, passing: Passing, shape: Shape, calls: Calls) -> None:
        self._passing = passing
        self._shape = shape
        self._calls = calls
        self._call: Call | None = None

    def message(self, news: ExchangeMessage) -> None:
        """Take a message of either direction."""
        kind = _kind(news.data)
        if news.up:
            if kind == "response.create":
                self._finish(news.at_ns, "complete")
                self._passing.up.clear()
                self._passing.down.clear()
                self._passing.up.add(news.data, news.at_ns)
                self._call = self._calls.asked(self._passing, self._shape, at_ns=news.at_ns)
            return
        if self._call is None:
            return
        self._passing.down.add(news.data + b"\n", news.at_ns)
        if kind in _LAST:
            self._finish(news.at_ns, "complete")

    def end(self, ended: ExchangeEnded) -> None:
        """The connection is over."""
        self._finish(ended.at_ns, ended.ending, ended.detail)

    def _finish(self, at_ns: int, ending: str, detail: bytes = b"") -> None:
        if self._call is None:
            return
        call, self._call = self._call, None
        over = ExchangeEnded(self._passing.began.exchange, at_ns, ending, detail)  # type: ignore[arg-type]
        self._calls.answered(call, self._passing, over, media=LINES)


def _kind(data: bytes) -> str:
    try:
        return _type_of(data).type
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        return ""
