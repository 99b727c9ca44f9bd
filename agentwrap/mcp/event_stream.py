"""Server-sent events as they come (WHATWG HTML, 9.2): each with its bytes as they were, whatever pieces they come in.

Knows lines, fields and where an event ends. Refuses to know what the data says, and to hold more than it is told to.
"""

import re
from collections.abc import Iterator

import msgspec

_BORDER = re.compile(rb"(?>\r\n|\n|\r)(?:\r\n|\n|\r)")
_BOM = b"\xef\xbb\xbf"


class Framed(msgspec.Struct, frozen=True):
    """One event, or comments and blank lines that are none (`data` is None then).

    `raw`: all of its bytes, its end included. `type`, `id`: of its fields. `data`: its data lines, joined by line
    feeds.
    """

    raw: bytes
    data: bytes | None = None
    type: bytes = b""
    id: bytes = b""

    @property
    def message(self) -> bytes:
        """What a message says that is sent so; empty if it is none."""
        return self.data or b"" if self.type in (b"", b"message") else b""


class Events:
    """One stream. `cap`: bytes of an event that are held; one that is longer is handed out in pieces that are none.

    `over`: that has happened.
    """

    def __init__(self, cap: int) -> None:
        self.over = False
        self._cap = cap
        self._held = bytearray()
        self._scanned = 0
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[Framed]:
        """The next bytes; what is whole with them."""
        self._held += data
        start = 0
        # A line end before where it was looked for last may be the first half of a border.
        at = max(0, self._scanned - 3)
        while (border := _BORDER.search(self._held, at)) is not None:
            raw = bytes(self._held[start : border.end()])
            start = at = border.end()
            yield Framed(raw) if self._skipping else framed(raw)
            self._skipping = False
        del self._held[:start]
        self._scanned = len(self._held)
        if self._scanned > self._cap:
            self.over = self._skipping = True
            yield Framed(self.rest())

    @property
    def held_bytes(self) -> int:
        """Of an event that is not whole."""
        return len(self._held)

    def rest(self) -> bytes:
        """What is left of an event without an end; a client throws it away."""
        rest = bytes(self._held)
        self._held.clear()
        self._scanned = 0
        return rest


def framed(raw: bytes) -> Framed:
    """One event of its bytes."""
    data: list[bytes] = []
    kind = ident = b""
    # Only LF, CR and CRLF end a line of bytes: as in the standard.
    for line in raw.removeprefix(_BOM).splitlines():
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            kind = value
        elif name == b"id":
            ident = value
    return Framed(raw, b"\n".join(data) if data else None, kind, ident)
