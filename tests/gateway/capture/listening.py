"""A tap with everything that it told, and what these news say about one exchange."""

from collections.abc import Iterable
from itertools import count
from typing import Literal

import msgspec

from agentwrap.events.exchange import (
    ExchangeBegan,
    ExchangeEnded,
    ExchangeMessage,
    ExchangeNews,
    ExchangeReceived,
    ExchangeResponded,
    ExchangeSent,
)
from agentwrap.gateway.capture.about import About, Wanted
from agentwrap.gateway.capture.tap import Tap

ABOUT = About(connection="n1", span="p1", pid=7, scheme="https", host=b"api.example", port=443, intercepted=True)
Step = tuple[Literal["up", "down", "up_ended", "down_ended", "client", "server"], bytes]


class Heard(msgspec.Struct):
    """One exchange as it was told, bodies joined."""

    method: bytes
    target: bytes
    version: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    status: int = 0
    reason: bytes = b""
    answer_headers: tuple[tuple[bytes, bytes], ...] = ()
    sent: bytes = b""
    received: bytes = b""
    messages: list[tuple[str, bool, bytes]] = []
    ending: str = ""
    detail: bytes = b""
    sizes: tuple[int, int] = (0, 0)


def everything(*_: bytes) -> bool:
    return True


class Listening:
    """`news` in order; the clock goes on by one with each look."""

    def __init__(self, wanted: Wanted = everything, about: About = ABOUT) -> None:
        self.news: list[ExchangeNews] = []
        clock, numbers = count(1), count(1)
        self.tap = Tap(about, self.news.append, lambda: next(clock), lambda: next(numbers), wanted)

    def step(self, kind: str, data: bytes = b"") -> "Listening":
        if kind in ("up", "down"):
            getattr(self.tap, kind)(data)
        elif kind in ("client", "server"):
            self.tap.cut(kind)  # type: ignore[arg-type]
        else:
            getattr(self.tap, kind)()
        return self

    def steps(self, steps: Iterable[Step]) -> "Listening":
        for kind, data in steps:
            self.step(kind, data)
        return self

    @property
    def heard(self) -> list[Heard]:
        """Every exchange; what comes before its beginning or after its end fails here."""
        found: dict[int, Heard] = {}
        for one in self.news:
            if isinstance(one, ExchangeBegan):
                assert one.exchange not in found
                found[one.exchange] = Heard(one.method, one.target, one.version, one.headers)
                continue
            now = found[one.exchange]
            assert not now.ending
            match one:
                case ExchangeSent():
                    assert one.data
                    now.sent += one.data
                case ExchangeResponded():
                    assert not now.status
                    now.status, now.reason, now.answer_headers = one.status, one.reason, one.headers
                case ExchangeReceived():
                    assert one.data
                    now.received += one.data
                case ExchangeMessage():
                    now.messages.append(("up" if one.up else "down", one.text, one.data))
                case ExchangeEnded():
                    now.ending, now.detail = one.ending, one.detail
                    now.sizes = one.sent_bytes, one.received_bytes
        return list(found.values())

    @property
    def only(self) -> Heard:
        (one,) = self.heard
        return one
