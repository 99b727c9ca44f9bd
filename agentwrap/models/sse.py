"""Server-sent events (WHATWG HTML, 9.2): a whole body, or what came of it, as events with places.

Knows lines and fields. Refuses to know what the data says.
"""

from collections.abc import Iterator

import msgspec

_BLOCK_BYTES = 1 << 20
_BLANK = frozenset((b"\n", b"\r\n", b"\r"))
_BOM = b"\xef\xbb\xbf"


class Event(msgspec.Struct, frozen=True, gc=False):
    """One message of a stream. `type`: of the `event` field; `data`: its data lines, joined by line feeds.

    `start`: offset of its first byte in the body; `lines`: start, end, ... of each data line's value there. `complete`:
    its end was seen.
    """

    type: bytes
    data: bytes
    start: int
    lines: tuple[int, ...]
    complete: bool = True

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Where data[start:end] lies in the body; it must be within one line."""
        if len(self.lines) == 2:
            return self.lines[0] + start, self.lines[0] + end
        before = 0
        for first, last in zip(self.lines[::2], self.lines[1::2], strict=True):
            if start <= before + last - first:
                return first + start - before, first + end - before
            before += last - first + 1
        return self.lines[-1], self.lines[-1]


def events(body: bytes) -> Iterator[Event]:
    """The events of a body in order; one without its blank line comes last and is not complete. Never raises."""
    at = start = len(_BOM) if body.startswith(_BOM) else 0
    kind = b""
    values: list[bytes] = []
    lines: list[int] = []
    for line in _lines(body, at):
        if line.startswith(b"data:"):
            skipped = 6 if line.startswith(b"data: ") else 5
            value = line[skipped:].rstrip(b"\r\n")
            values.append(value)
            lines += (at + skipped, at + skipped + len(value))
        elif line in _BLANK:
            if values:
                yield Event(kind, b"\n".join(values), start, tuple(lines))
                values, lines = [], []
            kind, start = b"", at + len(line)
        elif line.startswith(b"event:"):
            kind = line[6:].rstrip(b"\r\n").removeprefix(b" ")
        elif line.rstrip(b"\r\n") == b"data":
            values.append(b"")
            lines += (at + 4, at + 4)
        at += len(line)
    if values:
        yield Event(kind, b"\n".join(values), start, tuple(lines), complete=False)


def _lines(body: bytes, at: int) -> Iterator[bytes]:
    """The lines of a body with their ends, of one block at a time: many short lines take more memory than the body."""
    while at < len(body):
        end = at + _BLOCK_BYTES
        if end < len(body):
            end = max(body.rfind(b"\n", at, end), body.rfind(b"\r", at, end)) + 1 or _line_end(body, end)
            end += body[end - 1 : end + 1] == b"\r\n"
        # Only LF, CR and CRLF end a line of bytes: as in the standard.
        yield from body[at:end].splitlines(keepends=True)
        at = end


def _line_end(body: bytes, at: int) -> int:
    found = [place for place in (body.find(b"\n", at), body.find(b"\r", at)) if place >= 0]
    return min(found) + 1 if found else len(body)
