"""What we answer to an MCP request ourselves, as HTTP; also beginnings, events and ends of a stream of ours. Pure.

Sources: MCP, transports (Streamable HTTP); RFC 9112, 7.1.
"""

import re

from agentwrap.events.exchange import Headers
from agentwrap.gateway.capture.heads import RequestHead
from agentwrap.mcp.http import value_of

_STREAM = b"text/event-stream"
_JSON = b"application/json"
_LINES = re.compile(rb"\r\n|\r|\n")
_REASONS = {200: b"OK", 202: b"Accepted", 400: b"Bad Request"}
# What says who a client is, and which session it means.
_KEPT = frozenset({
    b"host", b"authorization", b"cookie", b"user-agent", b"origin", b"mcp-session-id", b"mcp-protocol-version", b"dpop",
})  # fmt: skip
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
END = b"0\r\n\r\n"
ALIVE = b": waiting\n\n"


def takes_stream(headers: Headers) -> bool:
    """Whether a client reads streams of events."""
    return _STREAM in value_of(headers, b"accept").lower()


def takes_json(headers: Headers) -> bool:
    """Whether a client reads plain answers."""
    accept = value_of(headers, b"accept").lower()
    return not accept or _JSON in accept or b"*/*" in accept or b"application/*" in accept


def closes(version: bytes, headers: Headers) -> bool:
    """Whether the connection ends with this request (RFC 9112, 9.3)."""
    words = {word.strip().lower() for word in value_of(headers, b"connection").split(b",")}
    return b"close" in words or (version == b"1.0" and b"keep-alive" not in words)


def answer(message: bytes, headers: Headers, *, close: bool, status: int = 200) -> bytes:
    """A message as a whole answer; without one, that the request was taken (202)."""
    if not message and status == 200:
        return _head(202, (b"Content-Length: 0",), close=close)
    kind = _JSON
    if status == 200 and not takes_json(headers) and takes_stream(headers):
        kind, message = _STREAM, event(message)
    return _head(status, (b"Content-Type: " + kind, b"Content-Length: %d" % len(message)), close=close) + message


def posted(head: RequestHead, target: bytes, message: bytes) -> bytes:
    """A message of a client whose last request had this head, to its target or another; the connection ends with it."""
    kept = [(name, value) for name, value in head.headers if name.lower() in _KEPT]
    lines = [b"POST %b HTTP/1.1" % (target or head.target), *(name + b": " + value for name, value in kept)]
    lines += [b"Content-Type: " + _JSON, b"Accept: application/json, " + _STREAM, b"Connection: close"]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(message), b"", b""]) + message


def stream_head(*, close: bool) -> bytes:
    """The head of a stream of ours, in chunks."""
    fields = (b"Content-Type: " + _STREAM, b"Transfer-Encoding: chunked", b"X-Accel-Buffering: no")
    return _head(200, fields, close=close)


def event(message: bytes, ident: bytes = b"") -> bytes:
    """A message as an event."""
    lines = b"".join(b"data: " + line + b"\n" for line in _LINES.split(message))
    return b"event: message\n" + (b"id: " + ident + b"\n" if ident else b"") + lines + b"\n"


def chunk(data: bytes) -> bytes:
    """Bytes as one chunk, nothing for none: an empty one would be the end."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def _head(status: int, fields: tuple[bytes, ...], *, close: bool) -> bytes:
    lines = [b"HTTP/1.1 %d %b" % (status, _REASONS[status]), *fields, b"Cache-Control: no-store"]
    lines += [b"Connection: close"] if close else []
    return b"\r\n".join([*lines, b"", b""])
