"""A request that is kept until it was judged: its bytes as they came, and what its body says. Pure.

Knows heads, framings and content codings. Refuses to judge.
"""

from agentwrap.events.exchange import Headers
from agentwrap.gateway.capture.framing import UnreadableError
from agentwrap.gateway.capture.heads import RequestHead, request_head
from agentwrap.mcp.http import as_utf8, odd_charset, value_of
from agentwrap.models.codings import decode

BODY_MAX_BYTES = 64 << 20
_BEGINNING = 4096


class HeldRequest:
    """One request. `done`: its body is whole. `problem`: why it cannot be read, empty if it can."""

    def __init__(self, raw: bytes) -> None:
        """`raw`: the head."""
        self.raw = raw
        self.head: RequestHead = request_head(raw)
        self.problem = self.head.problem.decode("utf-8", "replace")
        self._is_odd = odd_charset(self.head.headers)
        self._framing = self.head.framing
        self._bytes: list[bytes] = []
        self._content: list[bytes] = []
        self._size = 0

    @property
    def headers(self) -> Headers:
        """Of the head."""
        return self.head.headers

    @property
    def done(self) -> bool:
        """Whether nothing more of it comes, or it is not read on."""
        return bool(self.problem) or self._framing is None or self._framing.done

    @property
    def waits(self) -> bool:
        """Whether its client wants a word before it sends the body (RFC 9110, 10.1.1)."""
        return value_of(self.headers, b"expect").lower() == b"100-continue" and not self._bytes and not self.done

    @property
    def body(self) -> bytes:
        """The body's bytes as they came, chunks and all."""
        return b"".join(self._bytes)

    def add(self, data: bytes) -> None:
        """The next bytes of the body."""
        self._bytes.append(data)
        if self._framing is None or self.done:
            return
        pieces: list[bytes] = []
        try:
            _position, count = self._framing.take(data, 0, pieces)
        except UnreadableError as error:
            self.problem = error.detail.decode("utf-8", "replace")
            return
        self._content += pieces
        self._size += count
        if self._size > BODY_MAX_BYTES:
            self.problem = f"its body has more than {BODY_MAX_BYTES >> 20} MiB"

    def begins_otherwise(self) -> bool:
        """Whether what has come cannot be the beginning of JSON: an object or an array."""
        if self._is_odd or value_of(self.headers, b"content-encoding"):
            return False
        return _first(b"".join(self._content)[:_BEGINNING]) not in (b"", b"{", b"[")

    def content(self) -> bytes:
        """What the body says, without codings; `problem` is set where that cannot be told."""
        data = raw = b"".join(self._content)
        codings = value_of(self.headers, b"content-encoding")
        if codings and not self.problem:
            data, problem = decode(data, codings, BODY_MAX_BYTES)
            self.problem = problem
            if data != raw and _is_json(raw):
                self.problem = problem or "who knows no content codings reads it otherwise"
        if self._is_odd and data.strip():
            self.problem = self.problem or "it is in letters that are read in more ways than one"
        return data


def _first(text: bytes) -> bytes:
    return as_utf8(text).lstrip(b" \t\r\n\xef\xbb\xbf")[:1]


def _is_json(data: bytes) -> bool:
    """Whether bytes may be JSON as they are: what is compressed is no text."""
    if _first(data[:_BEGINNING]) not in (b"{", b"["):
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
