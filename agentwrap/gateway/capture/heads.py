"""Heads of requests and answers: first line, fields, and what body they announce (RFC 9112).

Knows what peers agree about. Requests are read strictly, since servers differ where they are lenient; answers as all
clients do (lone line feeds, folded lines). Refuses to know bodies and connections.
"""

import re

import msgspec

from agentwrap.events.exchange import Headers
from agentwrap.gateway.capture.framing import Chunked, Framing, Sized, UnreadableError, UntilClose

HEAD_MAX = 0x10000  # bytes of a first line and its fields

_END = re.compile(rb"\n\r?\n")
_REQUEST = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}) ([\x21-\x7e\x80-\xff]+) HTTP/([0-9]\.[0-9])\r?\n")
_REQUEST_BEGINS = re.compile(rb"\r\Z|[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}(?:\Z| (?:\Z|[\x21-\x7e\x80-\xff]))")
_SIMPLE = re.compile(rb"([A-Za-z]{1,256}) ([\x21-\x7e\x80-\xff]+)\r?\n")  # RFC 1945, 4.1: HTTP/0.9
_STATUS = re.compile(rb"HTTP/(1\.[0-9]) ([1-9][0-9][0-9])(?: ([^\r\n]*))?\r?\n")
_STATUS_BEGINS = re.compile(rb"\Z|H(?:\Z|T(?:\Z|T(?:\Z|P(?:\Z|/(?:\Z|1(?:\Z|\.))))))")
_BEGIN = 512  # bytes that tell whether something is a head at all
_FIELD = re.compile(rb"^([\x21-\x39\x3b-\x7e\x80-\xff]+)[ \t]*:([^\r\n\0]*)\r?\n", re.MULTILINE)
_FOLD = re.compile(rb"\r?\n[ \t]+")
_TOKEN = b"!#$%&'*+-.^_`|~" + bytes(range(0x30, 0x3A)) + bytes(range(0x41, 0x5B)) + bytes(range(0x61, 0x7B))
_VALUE = b"\t" + bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100))
_BARE = re.compile(rb"(?<!\r)\n|\r(?!\n)")
_LENGTH = re.compile(rb"[0-9]{1,18}")


class RequestHead(msgspec.Struct, frozen=True):
    """A request's head. `upgrade`: the protocols asked for, lower case; `problem`: why it cannot be read on."""

    method: bytes = b""
    target: bytes = b""
    version: bytes = b""
    headers: Headers = ()
    upgrade: bytes = b""
    framing: Framing | None = None
    problem: bytes = b""


class AnswerHead(msgspec.Struct, frozen=True):
    """An answer's head."""

    status: int
    reason: bytes
    headers: Headers


class Gathering:
    """A head that comes in pieces. Holds HEAD_MAX bytes at most. `begins`, `line`: what starts well, see below."""

    __slots__ = ("_begins", "_line", "_line_seen", "_scanned", "held")

    def __init__(self, begins: re.Pattern[bytes], line: re.Pattern[bytes]) -> None:
        self.held = bytearray()
        self._begins = begins
        self._line = line
        self._scanned = 0
        self._line_seen = False

    def take(self, data: bytes, position: int) -> tuple[bytes | None, int]:
        """The head that begins (or goes on) at `position` if it is whole, and where it ends. Raises UnreadableError."""
        before = len(self.held)
        if not before:
            end = _END.search(data, position, position + HEAD_MAX)
            if end is not None:
                return data[position : end.end()], end.end()
        self.held += data[position : position + HEAD_MAX - before]
        end = _END.search(self.held, max(0, self._scanned - 2))
        if end is not None:
            head = bytes(self.held[: end.end()])
            self.clear()
            return head, position + len(head) - before
        self._look()
        return None, len(data)

    def clear(self) -> None:
        """Begin anew."""
        self.held.clear()
        self._scanned = 0
        self._line_seen = False

    def _look(self) -> None:
        """Whether it may still become a head: nonsense is not waited for."""
        if not self._begins.match(bytes(self.held[:_BEGIN])):
            raise UnreadableError(b"")
        if not self._line_seen and self.held.find(b"\n", self._scanned) >= 0:
            self._line_seen = True
            if not self._line.match(bytes(self.held)):
                raise UnreadableError(b"")
        if len(self.held) >= HEAD_MAX:
            raise UnreadableError(f"a head of more than {HEAD_MAX:,} bytes".encode())
        self._scanned = len(self.held)


def request_gathering() -> Gathering:
    """For the heads of requests. An UnreadableError without a detail: `request_head` knows it."""
    return Gathering(_REQUEST_BEGINS, _REQUEST)


def answer_gathering() -> Gathering:
    """For the heads of answers. An UnreadableError without a detail: `answer_head` knows it."""
    return Gathering(_STATUS_BEGINS, _STATUS)


def request_head(raw: bytes) -> RequestHead:
    """A whole head, or the beginning of one as far as it says something. Does not raise."""
    first = _REQUEST.match(raw)
    if first is None:
        return _first_line(raw)
    method, target, version = first.groups()
    headers = _strict_fields(raw, first.end())
    if headers is None:
        return RequestHead(method, target, version, _lenient_fields(raw, first.end())[0], problem=_what_is_wrong(raw))
    lengths, codings, upgrades = _announced(raw, headers)
    problem = b"" if version in (b"1.0", b"1.1") else b"HTTP/" + version
    framing: Framing = Sized(0)
    if codings:
        if lengths:
            problem = problem or b"a length beside a transfer encoding"
        elif version == b"1.0":
            problem = problem or b"a transfer encoding in HTTP/1.0"
        elif len(codings) > 1 or codings[0].lower() != b"chunked":
            problem = problem or b"a transfer encoding that is not understood: " + b", ".join(codings)
        framing = Chunked(lenient=False)
    elif lengths:
        if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
            problem = problem or b"not exactly one length: " + b", ".join(lengths)
        else:
            framing = Sized(int(lengths[0]))
    upgrade = b",".join(upgrades).lower() if version == b"1.1" else b""
    return RequestHead(method, target, version, headers, upgrade, framing, problem)


def answer_head(raw: bytes) -> AnswerHead:
    """A whole head. Raises UnreadableError."""
    first = _STATUS.match(raw)
    if first is None:
        raise UnreadableError(b"a broken status line" if raw.startswith(b"HTTP/1.") else b"no HTTP/1 answer")
    headers = _strict_fields(raw, first.end())
    if headers is None:
        headers, every = _lenient_fields(raw, first.end())
        if not every:
            raise UnreadableError(b"a line in an answer's head that is no field")
    return AnswerHead(int(first[2]), first[3] or b"", headers)


def answer_framing(head: AnswerHead, method: bytes) -> Framing:
    """How the body goes on that follows this head (RFC 9112, 6.3). Raises UnreadableError."""
    if method == b"HEAD" or head.status in (204, 304):
        return Sized(0)
    lengths, codings = values(head.headers, b"content-length"), values(head.headers, b"transfer-encoding")
    if codings:
        if lengths:
            raise UnreadableError(b"a length beside a transfer encoding in an answer")
        if len(codings) > 1 or codings[0].lower() != b"chunked":
            raise UnreadableError(b"a transfer encoding that is not understood in an answer: " + b", ".join(codings))
        return Chunked(lenient=True)
    stated = {one.strip() for one in b",".join(lengths).split(b",")} if lengths else set()
    if not stated:
        return UntilClose()
    length = stated.pop()
    if stated or not _LENGTH.fullmatch(length):  # RFC 9110, 8.6: the same one several times is one
        raise UnreadableError(b"not exactly one length in an answer: " + b", ".join(lengths))
    return Sized(int(length))


def values(headers: Headers, name: bytes) -> list[bytes]:
    """All values of a field; `name` in lower case."""
    size = len(name)
    return [value for key, value in headers if len(key) == size and key.lower() == name]


def _strict_fields(raw: bytes, start: int) -> Headers | None:
    """The fields of a head as RFC 9112, 5 has them, None if anything is otherwise. By few passes over all of them."""
    if raw[start - 2 : start] != b"\r\n" or raw[-4:] != b"\r\n\r\n":
        return None
    if start == len(raw) - 2:
        return ()
    lines = raw[start:-4].split(b"\r\n")
    try:
        headers = tuple([(name, value.strip(b" \t")) for name, value in [line.split(b":", 1) for line in lines]])
    except ValueError:
        return None
    names = [name for name, _ in headers]
    if b"" in names or b"".join(names).translate(None, _TOKEN) or b"".join(lines).translate(None, _VALUE):
        return None
    return headers


def _lenient_fields(raw: bytes, start: int) -> tuple[Headers, bool]:
    """What all clients read in an answer, and whether every line is such a field."""
    if b"\n " in raw or b"\n\t" in raw:
        raw, start = _FOLD.sub(b" ", raw[start:]), 0  # RFC 9112, 5.2: a user agent reads a fold as a space
    found = _FIELD.findall(raw, start)
    every = len(found) == raw.count(b"\n", start) - 1
    return tuple([(name, value.strip(b" \t")) for name, value in found]), every


def _announced(raw: bytes, headers: Headers) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Values of Content-Length, Transfer-Encoding and Upgrade; most heads do not have a word of them."""
    low = raw.lower()
    lengths = values(headers, b"content-length") if b"content-length" in low else []
    codings = values(headers, b"transfer-encoding") if b"transfer-encoding" in low else []
    return lengths, codings, values(headers, b"upgrade") if b"upgrade" in low else []


def _first_line(raw: bytes) -> RequestHead:
    """What a first line says that is not one of HTTP/1."""
    if (simple := _SIMPLE.match(raw)) is not None:
        return RequestHead(simple[1], simple[2], b"0.9", problem=b"HTTP/0.9")
    return RequestHead(problem=b"a broken request line" if _REQUEST_BEGINS.match(raw[:_BEGIN]) else b"no HTTP request")


def _what_is_wrong(raw: bytes) -> bytes:
    if _BARE.search(raw):
        return b"a lone carriage return or line feed in a request's head"
    if b"\n " in raw or b"\n\t" in raw:
        return b"a folded line in a request's head"
    return b"a line in a request's head that is no field"
