"""Where an HTTP/1 body ends (RFC 9112, 6 and 7), counted without keeping it.

Knows lengths, chunks and trailers, strictly: a byte counts as read only when no two readers could disagree about it, so
a line is handed on whole or not at all. Refuses to know about heads and content.
"""

import re
from typing import Protocol

CHUNK_LINE_MAX = 4096
TRAILERS_MAX = 16_384

_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_FIELD_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*")


class BodyError(ValueError):
    """Bytes that are no body of the kind that was announced."""


class Body(Protocol):
    """A body that is being read. `done`: its end has been seen."""

    done: bool

    def take(self, data: bytes) -> int:
        """How many bytes of `data` are whole parts of the body; the others come again, with more. Raises BodyError."""


class Sized:
    """As many bytes as were announced."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = not length

    def take(self, data: bytes) -> int:
        """As Body.take."""
        taken = min(len(data), self._left)
        self._left -= taken
        self.done = not self._left
        return taken


class UntilClose:
    """Everything that comes."""

    done = False

    def take(self, data: bytes) -> int:
        """As Body.take."""
        return len(data)


class Chunked:
    """Chunks and trailers (RFC 9112, 7.1)."""

    def __init__(self) -> None:
        self.done = False
        self._left = 0  # bytes of the chunk
        self._part = "size"
        self._trailer_bytes = 0

    def take(self, data: bytes) -> int:
        """As Body.take."""
        position = 0
        while not self.done:
            if self._part == "data":
                taken = min(len(data) - position, self._left)
                position += taken
                self._left -= taken
                if self._left:
                    return position
                self._part = "end"
            line = self._line(data, position)
            if line is None:
                return position
            position += len(line) + 2
            self._read(line)
        return position

    def _line(self, data: bytes, position: int) -> bytes | None:
        """The line at `position` without its CR LF, None if it is not complete."""
        longest = 2 + (0 if self._part == "end" else CHUNK_LINE_MAX)
        end = data.find(b"\n", position, position + longest)
        if end > position and data[end - 1] == 0x0D:
            return data[position : end - 1]
        if end >= 0 or len(data) - position >= longest:
            raise BodyError("a line of the chunks does not end in CR LF, or is too long")
        return None

    def _read(self, line: bytes) -> None:
        if self._part == "end":  # empty by its bound
            self._part = "size"
        elif self._part == "size":
            match = _CHUNK_LINE.fullmatch(line)
            if match is None:
                raise BodyError("a broken chunk size")
            self._left = int(match[1], 16)
            self._part = "data" if self._left else "trailers"
        elif line:
            self._trailer_bytes += len(line)
            if not _FIELD_LINE.fullmatch(line) or self._trailer_bytes > TRAILERS_MAX:
                raise BodyError("broken or too many trailers")
        else:
            self.done = True
