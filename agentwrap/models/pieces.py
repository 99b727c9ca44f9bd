"""A request cut into slices, so that what is sent again is the same slice again and further turns cost what is new.

Few and large slices: small values stay with what is before them, and what joins two values (commas, keys) goes with the
second. Pure.
"""

from collections.abc import Mapping

from agentwrap.models.json_slices import Place, elements, members
from agentwrap.models.remembered import Remembered

# A slice of its own costs a digest and a row: less than this many bytes are not worth one.
WORTH_BYTES = 256
PIECES_MAX = 50_000
_INNER_BYTES = 1024  # within a block of a message
_ALONE_BYTES = 4096  # a string of that size is also worth a cut before it: a file that was read twice
_CLOSING_BYTES = 16  # brackets behind a slice go with what follows
_TOOLS_BYTES = 4096
_DEPTH_MAX = 6
_QUOTE = ord(b'"')


class Cuts:
    """Where a body is cut, from its start to its end."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._ends: list[int] = []

    def at(self, offset: int, least: int = 1) -> None:
        """Cut before this offset, if at least so many bytes lie between it and the cut before."""
        if offset >= (self._ends[-1] if self._ends else 0) + least and len(self._ends) < PIECES_MAX:
            self._ends.append(offset)

    def divide(self, place: Place, alone: int = _ALONE_BYTES, depth: int = 0) -> None:
        """Cut behind what is large in a value, and in that again; before strings of at least `alone` bytes, too."""
        start, end = place
        worth = WORTH_BYTES if depth < 2 else _INNER_BYTES
        if end - start < worth or depth == _DEPTH_MAX:
            return
        last = 0
        for child in _children(self._body, start, end):
            if child[1] - child[0] >= worth:
                if child[1] - child[0] >= alone and self._body[child[0]] == _QUOTE:
                    self.at(last)
                self.divide(child, alone, depth + 1)
                self.at(child[1], _CLOSING_BYTES)
            last = child[1]

    def pieces(self) -> tuple[Place, ...]:
        """Slices that cover the body."""
        if self._body and self._ends[-1:] != [len(self._body)]:
            self._ends.append(len(self._body))
        return tuple(zip((0, *self._ends), self._ends, strict=False))


class _Wishes(Cuts):
    """Where a value would be cut, wherever it lies in a body."""

    def __init__(self, value: bytes) -> None:
        super().__init__(value)
        self.wanted: list[tuple[int, int]] = []

    def at(self, offset: int, least: int = 1) -> None:
        self.wanted.append((offset, least))


def _wishes_of(value: bytes) -> tuple[tuple[int, int], ...]:
    wishes = _Wishes(value)
    wishes.divide((0, len(value)))
    return tuple(wishes.wanted)


_wishes = Remembered(_wishes_of)


def cut(body: bytes, top: Mapping[str, Place] | None, turns: str, messages: list[Place]) -> tuple[Place, ...]:
    """Slices of a request with the members `top`, whose member `turns` holds `messages`."""
    cuts = Cuts(body)
    last = 0
    for name, (start, end) in (top or {}).items():
        if name == turns and messages:
            cuts.at(last)
            for message in messages:
                if message[1] - message[0] >= WORTH_BYTES:
                    for offset, least in _wishes.of(body[message[0] : message[1]]):
                        cuts.at(message[0] + offset, least)
                cuts.at(message[1])
        elif name == "tools" and end - start >= WORTH_BYTES:
            cuts.at(last)
            for tool in (elements(body, start, end) or ()) if end - start > _TOOLS_BYTES else ():
                cuts.at(tool[1])
            cuts.at(end)
        elif end - start >= WORTH_BYTES:
            cuts.at(last)
            cuts.divide((start, end), WORTH_BYTES)
            cuts.at(end, _CLOSING_BYTES)
        last = end
    return cuts.pieces()


def _children(body: bytes, start: int, end: int) -> list[Place]:
    first = body[start : start + 1]
    if first == b"{":
        return list((members(body, start, end) or {}).values())
    return (elements(body, start, end) or []) if first == b"[" else []
