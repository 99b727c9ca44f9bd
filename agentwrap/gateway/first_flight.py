"""What a client begins with: TLS, HTTP/1, HTTP/2 without TLS, or something else.

Knows how these begin, and what pretends to be one of them. Refuses to know what may follow: the bytes are kept for who
reads on. Whatever a lenient web server would take for HTTP is taken for HTTP here.
"""

import re
from typing import Literal

import msgspec

from agentwrap.gateway.client_hello import NEED_MORE, Hello, HelloReader, NeedMore, TlsError

METHOD_MAX = 256  # bytes of a method: more than any server takes
FLIGHT_MAX = 0x18000  # bytes; a ClientHello in tiny records has six times its own
LINE_MAX = 8192  # bytes of a first line that is no usual method's, until its end says whether it is HTTP
H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # RFC 9113, 3.4

# OPTIONS is not among them: RTSP and SIP begin with it, too.
_METHODS = frozenset(b"GET HEAD POST PUT DELETE CONNECT TRACE PATCH PROPFIND PROPPATCH MKCOL COPY MOVE LOCK "
                     b"UNLOCK REPORT SEARCH QUERY".split())  # fmt: skip
_START = re.compile(rb"[ \t-\r]*([!#$%&'*+.^_`|~0-9A-Za-z-]{1,256})[ \t\x0b\x0c]")  # RFC 9110, 5.6.2 and RFC 9112, 2.2
_PARTIAL = re.compile(rb"[ \t-\r]*[!#$%&'*+.^_`|~0-9A-Za-z-]*")
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_BLANK = b" \t\n\x0b\x0c\r"
_BLANK_MAX = 16  # bytes of empty lines or spaces before a request: none belong there, some servers skip them

Kind = Literal["empty", "ssh", "text", "binary"]


class Tls(msgspec.Struct, frozen=True):
    """A ClientHello."""

    hello: Hello


class Http(msgspec.Struct, frozen=True):
    """The start of an HTTP/1 request, to be read by `http_head.RequestStream`."""


class H2PriorKnowledge(msgspec.Struct, frozen=True):
    """HTTP/2 without TLS (RFC 9113, 3.3)."""


class Other(msgspec.Struct, frozen=True):
    """None of these. `reason`: `empty` (closed without a byte), `ssh`, `text`, `binary`."""

    reason: Kind


class Malformed(msgspec.Struct, frozen=True):
    """It begins like TLS or HTTP and is none that can be judged: to be refused, not relayed. `why` in words."""

    protocol: Literal["tls", "http"]
    why: str


Flight = NeedMore | Tls | Http | H2PriorKnowledge | Other | Malformed


class FirstFlight:
    """Takes a client's first bytes as they come. `data`: all of them, to be forwarded or read on.

    Holds at most FLIGHT_MAX and the last piece.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self._hello: HelloReader | None = None

    @property
    def harmless(self) -> bool:
        """Whether what has come (and is NeedMore) may be shown to a server already: no first line is complete in it.

        For clients that wait for an answer after a word (the Java debugger's `JDWP-Handshake`). Whoever does that feeds
        on, and cuts the connection unless it turns out to be Other.
        """
        return self._hello is None and self.data[:1] != b"\x16"

    def feed(self, data: bytes) -> Flight:
        """More bytes. To be called until it does not say NeedMore."""
        self.data += data
        if self._hello is not None:
            return self._tls(data)
        if not self.data:
            return NEED_MORE
        first = self.data[0]
        if first == 0x16:
            if len(self.data) < 2:
                return NEED_MORE
            if self.data[1] == 3:
                self._hello = HelloReader()
                return self._tls(bytes(self.data))
            return Other("binary")
        if first & 0x80:
            return self._sslv2()
        return self._text()

    def eof(self) -> Flight:
        """The client sends nothing more (it may still read). Never NeedMore."""
        if not self.data:
            return Other("empty")
        if self._hello is not None or self.data[0] == 0x16:
            return Malformed("tls", "the ClientHello ends early")
        if self.data[0] & 0x80:
            return Other("binary")
        return Other("text")

    def _tls(self, data: bytes) -> Flight:
        assert self._hello is not None
        try:
            hello = self._hello.feed(data)
        except TlsError as error:
            return Malformed("tls", str(error))
        if not isinstance(hello, NeedMore):
            return Tls(hello)
        return hello if len(self.data) <= FLIGHT_MAX else Malformed("tls", "a ClientHello in too many pieces")

    def _sslv2(self) -> Flight:
        """RFC 5246, E.2: a two-byte length, type 1, a version. It has no name in it, and some servers still answer."""
        head = bytes(self.data[:5])
        if (head[2:3] or b"\1") != b"\1" or (head[3:4] or b"\3") not in (b"\0", b"\3"):
            return Other("binary")
        if len(head) < 5:
            return NEED_MORE
        if head[3] == 3 or head[4] == 2:
            return Malformed("tls", "an SSL 2.0 hello")
        return Other("binary")

    def _text(self) -> Flight:
        data = bytes(self.data[: LINE_MAX + 1])
        if data.startswith(b"SSH-"):  # RFC 4253, 4.2
            return Other("ssh")
        if b"SSH-".startswith(data):
            return NEED_MORE
        if data.startswith(H2_PREFACE):
            return H2PriorKnowledge()
        if H2_PREFACE.startswith(data):
            return NEED_MORE
        if len(data) - len(data.lstrip(_BLANK)) > _BLANK_MAX:
            return Malformed("http", "nothing but blanks")
        start = _START.match(data)
        if start is not None:
            return self._method(start[1], data)
        partial = _PARTIAL.match(data)
        assert partial is not None
        if partial.end() < len(data):
            return Other("binary" if _CONTROL.search(data) else "text")
        return NEED_MORE if len(data) <= METHOD_MAX + _BLANK_MAX else Other("text")

    def _method(self, method: bytes, data: bytes) -> Flight:
        """A word and a space: HTTP by its method, or by its whole first line (IRC, git and others begin alike)."""
        if _usual(method):
            return Http()
        line, end, _ = data.lstrip(_BLANK).partition(b"\n")
        if b"HTTP/" in line.upper():
            return Http()
        if end or _CONTROL.search(line):
            return Other("binary" if _CONTROL.search(line) else "text")
        return NEED_MORE if len(data) <= LINE_MAX else Malformed("http", "an endless first line")


def _usual(method: bytes) -> bool:
    return method.upper() in _METHODS
