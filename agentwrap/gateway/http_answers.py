"""What a web server answers, looked at in passing: which requests are answered, and whether it changed the protocol.

Knows status lines and where answers end. Refuses to judge: what it cannot read makes it blind (`lost`), nothing else;
the bytes are relayed as they are.
"""

import re
from collections import deque

from agentwrap.gateway.http_body import Body, BodyError, Chunked, Sized, UntilClose

HEAD_MAX = 0x10000  # bytes of a status line and its fields

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9][0-9])(?: .*)?\r?\n")
_END = re.compile(rb"\r?\n\r?\n")


class Answers:
    """Takes the bytes of a server as they come. Holds a head that is not complete, never a body."""

    def __init__(self) -> None:
        self.lost = False
        self.switched: bool | None = None  # whether the last request that asked for another protocol got it
        self._expected: deque[tuple[bytes, bool]] = deque()
        self._held = b""
        self._body: Body | None = None

    def expect(self, method: bytes, *, switch: bool) -> None:
        """A request is on its way. `switch`: it asks for another protocol or a tunnel."""
        self._expected.append((method, switch))
        if switch:
            self.switched = None

    @property
    def all_given(self) -> bool:
        """Whether every expected answer is complete."""
        return not self.lost and not self._expected and self._body is None and not self._held

    def feed(self, data: bytes) -> None:
        """More bytes."""
        if self.lost or self.switched:
            return
        if isinstance(self._body, UntilClose):
            return
        data = self._held + data if self._held else data
        try:
            position = self._read(data)
        except BodyError:
            self.lost = True
            position = len(data)
        self._held = data[position:] if position else data

    def _read(self, data: bytes) -> int:
        position = 0
        while position < len(data) and not self.switched:
            if self._body is None:
                end = _END.search(data, position)
                if end is None:
                    if len(data) - position > HEAD_MAX:
                        raise BodyError("an endless head")
                    break
                self._head(data[position : end.end()])
                position = end.end()
            if self._body is not None:
                rest = data[position:] if position else data
                taken = self._body.take(rest)
                position += taken
                if self._body.done:
                    self._body = None
                elif taken < len(rest) or not rest:
                    break
        return len(data) if self.switched else position

    def _head(self, head: bytes) -> None:
        match = _STATUS.match(head)
        if match is None or not self._expected:
            raise BodyError("no answer, or one that nobody asked for")
        status = int(match[1])
        if 100 <= status < 200 and status != 101:
            return
        method, switch = self._expected.popleft()
        if switch:
            self.switched = status == 101 or (method == b"CONNECT" and 200 <= status < 300)
        elif status == 101:
            raise BodyError("another protocol that nobody asked for")
        if not self.switched and method != b"HEAD" and status not in (204, 304):
            self._body = _body(head)
            if self._body.done:
                self._body = None


def _body(head: bytes) -> Body:
    fields: dict[bytes, bytes] = {}
    for line in head.split(b"\n")[1:]:
        name, _, value = line.partition(b":")
        fields[name.strip().lower()] = value.strip()
    if b"chunked" in fields.get(b"transfer-encoding", b"").lower():
        return Chunked()
    length = fields.get(b"content-length", b"").split(b",")[0].strip()
    if length.isdigit() and len(length) < 19:
        return Sized(int(length))
    return UntilClose()
