r"""One side of a session cut into lines, with bounded memory. Pure; knows no JSON.

A line ends with `\n` and with nothing else (MCP, transports, stdio). One that grows past a bound is handed out in
pieces; they end where no secret can lie across two of them, where there is such a place.
"""

from collections.abc import Iterator

import msgspec

LINE_MAX_BYTES = 64 << 20
PIECE_BYTES = 8 << 20
_PIECE_COST = 128  # of an object around what was read at once
_SAFE_BYTES = 64 << 10
_JOIN_PIECES = 4096


class Line(msgspec.Struct, frozen=True):
    """A line without its end, or a piece of one. `number`: from 1. `piece`: 0 for a whole line, else from 1.

    `last`: no other piece of it follows. `ended`: its end came (the last bytes of a side may lack it).
    """

    data: bytes
    number: int
    piece: int = 0
    last: bool = True
    ended: bool = True


class Lines:
    """What one side has said since its last line ended."""

    def __init__(self) -> None:
        self.number = 1
        self.bytes = 0
        """All that came."""
        self.held_bytes = 0
        """What the line under way costs."""
        self._held: list[bytes] = []
        self._size = 0
        self._piece = 0

    def feed(self, data: bytes) -> Iterator[Line]:
        """Take the next bytes; every line that ends with them, and pieces of one that is too long."""
        self.bytes += len(data)
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            rest = data[start:end] if start or end + 1 < len(data) else data[:end]
            start = end + 1
            if not self._held and not self._piece and len(rest) <= LINE_MAX_BYTES:
                yield Line(rest, self.number)
            else:
                self._keep(rest)
                yield from self._cut(LINE_MAX_BYTES)
                yield self._end(ended=True)
            self.number += 1
        if start < len(data):
            self._keep(data[start:])
            yield from self._cut(LINE_MAX_BYTES)

    def give_up(self) -> Iterator[Line]:
        """There is no room for the line under way: hand out most of it in pieces."""
        yield from self._cut(0)

    def finish(self) -> Iterator[Line]:
        """Nothing more will come: what has no end."""
        if self._held or self._piece:
            yield self._end(ended=False)
            self.number += 1

    def _keep(self, data: bytes) -> None:
        self._held.append(data)
        self._size += len(data)
        self.held_bytes += len(data) + _PIECE_COST
        if len(self._held) > _JOIN_PIECES and self._size < len(self._held) * _PIECE_COST:
            # Bytes that come one by one would cost a hundred times what they are.
            self._joined()

    def _joined(self) -> bytes:
        if len(self._held) > 1:
            self._held[:] = [b"".join(self._held)]
            self.held_bytes = self._size + _PIECE_COST
        return self._held[0] if self._held else b""

    def _cut(self, most: int) -> Iterator[Line]:
        """Pieces of a line that is longer than `most` (or was cut before)."""
        most = min(most, PIECE_BYTES) if self._piece else most
        if self._size <= most:
            return
        data = self._joined()
        at = 0
        while len(data) - at > PIECE_BYTES or (most == 0 and at < len(data)):
            end = _safe_end(data, at, min(at + PIECE_BYTES, len(data)))
            self._piece += 1
            yield Line(data[at:end], self.number, self._piece, last=False)
            at = end
        rest = data[at:]
        self._held, self._size, self.held_bytes = [], 0, 0
        if rest:
            self._keep(rest)

    def _end(self, *, ended: bool) -> Line:
        data, piece = self._joined(), self._piece + 1 if self._piece else 0
        self._held, self._size, self.held_bytes, self._piece = [], 0, 0, 0
        return Line(data, self.number, piece, ended=ended)


def _safe_end(data: bytes, start: int, end: int) -> int:
    """Where to cut before `end`: behind a character that is in no secret, if there is one near it."""
    for mark in (b'",', b",", b" ", b'"'):
        found = data.rfind(mark, max(start, end - _SAFE_BYTES), end)
        if found >= 0:
            return found + len(mark)
    return end
