"""Where the body of an exchange ends, and which of its bytes are its own (RFC 9112, 6 and 7).

Knows lengths, chunks and trailers. Refuses to know heads and content, and to guess: what two readers could take in two
ways is UnreadableError. Of an answer's chunks a lone line feed ends a line, as all clients have it.
"""

import re
from typing import Protocol

CHUNK_LINE_MAX = 4096
TRAILERS_MAX = 16_384
DETAIL_MAX = 200

_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_FIELD_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})\r\n")
_TOO_LONG = b"a chunk that is longer than its size"


class UnreadableError(ValueError):
    """Bytes that cannot be read on. `detail`: why, in words; it may end with foreign bytes, and is cut off."""

    def __init__(self, detail: bytes) -> None:
        super().__init__(detail)
        self.detail = detail[:DETAIL_MAX]


class Framing(Protocol):
    """A body that is being read. `done`: its end has been seen."""

    done: bool

    def take(self, data: bytes, position: int, pieces: list[bytes] | None) -> tuple[int, int]:
        """Read `data` from `position`: where the body's part of it ends, and how many bytes of content were in it.

        These are added to `pieces`, unless nobody wants them. Raises UnreadableError.
        """
        ...


class Sized:
    """As many bytes as were announced."""

    __slots__ = ("_left", "done")

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = not length

    def take(self, data: bytes, position: int, pieces: list[bytes] | None) -> tuple[int, int]:
        """As Framing.take."""
        count = min(len(data) - position, self._left)
        self._left -= count
        self.done = not self._left
        if pieces is not None and count:
            pieces.append(data[position : position + count])  # the whole of a bytes object is no copy
        return position + count, count


class UntilClose:
    """Everything that comes."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = False

    def take(self, data: bytes, position: int, pieces: list[bytes] | None) -> tuple[int, int]:
        """As Framing.take."""
        if pieces is not None:
            pieces.append(data[position:])
        return len(data), len(data) - position


class Chunked:
    """Chunks and trailers (RFC 9112, 7.1). Holds a line at most. `lenient`: of an answer."""

    __slots__ = ("_held", "_left", "_lenient", "_part", "_trailer_bytes", "done")

    def __init__(self, *, lenient: bool) -> None:
        self.done = False
        self._lenient = lenient
        self._left = 0  # bytes of the chunk
        self._part = "size"
        self._held = b""
        self._trailer_bytes = 0

    def take(self, data: bytes, position: int, pieces: list[bytes] | None) -> tuple[int, int]:
        """As Framing.take."""
        content = 0
        while position < len(data) and not self.done:
            if self._part == "size" and not self._held:
                position, count = _whole_chunks(data, position, pieces)
                content += count
                if position == len(data):
                    break
            if self._left:
                end = min(len(data), position + self._left)
                if pieces is not None:
                    pieces.append(data[position:end])
                content += end - position
                self._left -= end - position
                position = end
                if not self._left:
                    self._part = "end"
            else:
                position = self._line(data, position)
        return position, content

    def _line(self, data: bytes, position: int) -> int:
        """Behind the line at `position`, which is read if it is whole, else held."""
        longest = 1 if self._part == "end" else CHUNK_LINE_MAX
        end = data.find(b"\n", position, position + longest + 1)
        line = self._held + data[position : end if end >= 0 else position + longest + 1]
        if len(line) > longest:
            raise UnreadableError(_TOO_LONG if self._part == "end" else b"an endless chunk line")
        if end < 0:
            self._held = line
            return len(data)
        self._held = b""
        if line.endswith(b"\r"):
            line = line[:-1]
        elif not self._lenient:
            raise UnreadableError(b"a lone line feed between chunks")
        self._read(line)
        return end + 1

    def _read(self, line: bytes) -> None:
        if self._part == "end":
            if line:
                raise UnreadableError(_TOO_LONG)
            self._part = "size"
        elif self._part == "size":
            match = _CHUNK_LINE.fullmatch(line)
            if match is None:
                raise UnreadableError(b"a broken chunk size")
            self._left = int(match[1], 16)
            self._part = "data" if self._left else "trailers"
        elif line:
            self._trailer_bytes += len(line)
            if not _FIELD_LINE.fullmatch(line) or self._trailer_bytes > TRAILERS_MAX:
                raise UnreadableError(b"broken or too many trailers")
        else:
            self.done = True


def _whole_chunks(data: bytes, position: int, pieces: list[bytes] | None) -> tuple[int, int]:
    """As Framing.take, for as many chunks as are whole and of the plain form, which events come in."""
    content = 0
    while (plain := _CHUNK.match(data, position)) is not None:
        start, size = plain.end(), int(plain[1], 16)
        end = start + size
        if not size or data[end : end + 2] != b"\r\n":
            break
        if pieces is not None:
            pieces.append(data[start:end])
        content += size
        position = end + 2
    return position, content
