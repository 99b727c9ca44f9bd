"""The answers of a server as they come, in parts: a head, bytes of a body with what they say, an end. Pure.

Knows where answers begin and end (RFC 9112, 6.3). Refuses to alter anything.
"""

from collections import deque
from collections.abc import Iterator
from typing import Literal

import msgspec

from agentwrap.gateway.capture.framing import Chunked, Framing, Sized, UnreadableError
from agentwrap.gateway.capture.heads import AnswerHead, answer_framing, answer_gathering, answer_head

Form = Literal["sized", "chunked", "until-close"]


class Head(msgspec.Struct, frozen=True):
    """A head, also one that only announces another (1xx). `final`: the body follows, in this `form`."""

    raw: bytes
    head: AnswerHead
    final: bool = True
    form: Form = "sized"


class Piece(msgspec.Struct, frozen=True):
    """Bytes of a body: `raw` as they came, `content` without chunks."""

    raw: bytes
    content: bytes


class End(msgspec.Struct, frozen=True):
    """The answer is whole."""


Part = Head | Piece | End


class ServerAnswers:
    """One connection's. `expect` each request before it goes on.

    `feed` raises UnreadableError (capture.framing) where nobody could tell answers apart any more.
    """

    def __init__(self) -> None:
        self._expected: deque[bytes] = deque()
        self._head = answer_gathering()
        self._framing: Framing | None = None

    def expect(self, method: bytes) -> None:
        """A request goes on."""
        self._expected.append(method)

    @property
    def held(self) -> bytes:
        """Of a head that is not whole."""
        return bytes(self._head.held)

    def feed(self, data: bytes) -> Iterator[Part]:
        """The next bytes, part by part."""
        position = 0
        while position < len(data):
            if self._framing is not None:
                start, pieces = position, list[bytes]()
                position, _count = self._framing.take(data, position, pieces)
                yield Piece(data[start:position], b"".join(pieces))
                if self._framing.done:
                    self._framing = None
                    yield End()
                continue
            raw, position = self._head.take(data, position)
            if raw is not None:
                yield from self._begin(raw)

    def end(self) -> bool:
        """The server says nothing more: whether that is the end of an answer."""
        ended = self._framing is not None and not isinstance(self._framing, Sized | Chunked)
        self._framing = None
        return ended

    def _begin(self, raw: bytes) -> Iterator[Part]:
        head = answer_head(raw)
        if 100 <= head.status < 200 and head.status != 101:
            yield Head(raw, head, final=False)
            return
        if not self._expected or head.status == 101:
            raise UnreadableError(b"an answer that nobody asked for")
        framing = answer_framing(head, self._expected.popleft())
        form: Form = "until-close"
        if isinstance(framing, Sized | Chunked):
            form = "sized" if isinstance(framing, Sized) else "chunked"
        yield Head(raw, head, form=form)
        if framing.done:
            yield End()
        else:
            self._framing = framing
