"""HTTP/1 requests in a stream of bytes, one at a time: each is judged before any of its bytes goes on (RFC 9112).

Knows request heads (read by h11), whom they are meant for, and where requests end. Refuses to know who may be asked.
Whatever two readers could understand in two ways (a Host twice, another Host than the target's, folded lines, a length
beside chunks, a lone line feed) is refused, not repaired.
"""

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from agentwrap.gateway.http_answers import Answers
from agentwrap.gateway.http_body import Body, BodyError, Chunked, Sized
from agentwrap.policy.hosts import HostError, parse_host
from agentwrap.text import escape

if TYPE_CHECKING:
    import h11

HEAD_MAX = 0x10000  # bytes of a request line and its fields

_BARE = re.compile(rb"(?<!\r)\n|\r(?=[^\n])|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SCHEME = re.compile(rb"(https?)://([^/?#]*)(?:[/?#].*)?", re.IGNORECASE)
_AUTHORITY = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::([0-9]{0,5}))?")
_DEFAULT_PORTS = {b"http": 80, b"https": 443}
# A second protocol whose names nobody could judge any more; a client goes on without it (RFC 9110, 7.8; RFC 9113, 3.1).
_STRIPPED = (b"h2c", b"tls")

_REASONS = {
    400: "Bad Request",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    505: "HTTP Version Not Supported",
}

State = Literal["head", "judging", "body", "switching", "tunnel"]


class HttpError(ValueError):
    """Bytes that are no request, or one that could be understood in two ways. `status`: what HTTP says to that."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Request(msgspec.Struct, frozen=True):
    """A complete head. Nothing of it may go on before `RequestStream.accept`.

    `host`: normal form of whom it is meant for (the target's authority, else Host), empty in HTTP/1.0 without one.
    `port`: as stated there, or the one of an absolute target's scheme, else None. `upgrade`: the protocols asked for,
    lower case. `raw`: the bytes to forward, as they came (without an upgrade to HTTP/2 or TLS).
    """

    method: bytes
    target: bytes
    host: str
    port: int | None
    is_connect: bool
    upgrade: bytes
    raw: bytes


class Forward(msgspec.Struct, frozen=True):
    """Bytes that may go on as they are: of the accepted request's body, or of a tunnel."""

    data: bytes


Item = Request | Forward


class RequestStream:
    """One client connection. Holds a head at most, and what came in the same piece behind it.

    `feed` the client's bytes while `wants_data`; forward what it yields; after a Request either `accept` it (forward
    its `raw`, then what `accept` yields) or end the connection. `observe` every byte that the server answers: it
    decides whether an upgrade or CONNECT became a tunnel, until when nothing more is read (`wants_data` is false).
    """

    def __init__(self) -> None:
        self.state: State = "head"
        self._held = bytearray()
        self._scanned = 0
        self._request: Request | None = None
        self._body: Body | None = None
        self._expected: Request | None = None
        self._answers = Answers()

    @property
    def wants_data(self) -> bool:
        """Whether the client may be read."""
        return self.state not in ("judging", "switching")

    @property
    def begun(self) -> bool:
        """Whether a head has begun that is not complete."""
        return self.state == "head" and bool(self._held)

    @property
    def answered(self) -> bool:
        """Whether the server answered every accepted request in full: an answer of our own may follow."""
        return self._answers.all_given

    def feed(self, data: bytes) -> list[Item]:
        """The client's next bytes. Raises HttpError (end the connection), ValueError if it may not be read now."""
        if not self.wants_data:
            raise ValueError(f"nothing is read in state {self.state}")
        if self.state == "tunnel":
            return [Forward(data)] if data else []
        if self.state == "body" and not self._held:  # large bodies are not copied
            return self._read_body(data)
        self._held += data
        return self._go_on()

    def accept(self, *, held: bool = False) -> list[Item]:
        """The request may go on: what of its body has come already, perhaps the next request. Raises as `feed`.

        `held`: it is kept, so that no answer can come before `expect` says that it has gone on.
        """
        request = self._request
        if self.state != "judging" or request is None:
            raise ValueError("no request waits")
        if held:
            self._expected = request
        else:
            self._expect(request)
        self.state = "body"
        return self._go_on()

    def rest(self) -> bytes:
        """What could not be read, for whoever passes it on unread."""
        rest, self._held = bytes(self._held), bytearray()
        return rest

    def observe(self, data: bytes) -> list[Item]:
        """The server's next bytes; what may go on because of them (a tunnel's, or a request). Raises as `feed`."""
        if self.state == "judging" and self._request is not None and self._answers.all_given:
            self._expect(self._request)  # the head was forwarded before it was accepted, and the server is quick
        self._answers.feed(data)
        return self._switch() if self.state == "switching" else []

    def expect(self, request: Request) -> None:
        """A request that was held goes on."""
        self._answers.expect(request.method, switch=False)

    def _expect(self, request: Request) -> None:
        if request is not self._expected:
            self._expected = request
            self._answers.expect(request.method, switch=request.is_connect or bool(request.upgrade))

    def _switch(self) -> list[Item]:
        """On, if the server said which protocol is spoken from here."""
        if self._answers.switched:
            self.state = "tunnel"
            held, self._held = bytes(self._held), bytearray()
            return [Forward(held)] if held else []
        if self._answers.switched is None and not self._answers.lost:
            return []
        self.state = "head"
        return self._go_on()

    def _go_on(self) -> list[Item]:
        if self.state == "head":
            request = self._head()
            return [] if request is None else [request]
        held, self._held = bytes(self._held), bytearray()
        return self._read_body(held)

    def _read_body(self, data: bytes) -> list[Item]:
        """Up to the end of the body; what is left is held."""
        assert self._body is not None
        assert self._request is not None
        try:
            taken = self._body.take(data)
        except BodyError as error:
            self._held = bytearray(data)
            raise HttpError(str(error)) from error
        if taken < len(data):
            self._held = bytearray(data[taken:])
        forward: list[Item] = [Forward(data if taken == len(data) else data[:taken])] if taken else []
        if not self._body.done:
            return forward
        self._scanned = 0
        if self._request.is_connect or self._request.upgrade:
            self.state = "switching"
            return forward + self._switch()
        self.state = "head"
        return forward + self._go_on()

    def _head(self) -> Request | None:
        while self._held[:2] == b"\r\n":  # RFC 9112, 2.2: an empty line before a request is skipped
            del self._held[:2]
            self._scanned = 0
        end = self._held.find(b"\r\n\r\n", max(0, self._scanned - 3))
        seen = self._held[: end + 4] if end >= 0 else self._held
        bad = _BARE.search(seen, max(0, self._scanned - 1))
        if bad is not None:
            raise HttpError("a lone carriage return, line feed or control character in the head")
        if len(seen) > HEAD_MAX:
            raise HttpError(f"a head of more than {HEAD_MAX:,} bytes", 431)
        line_end = seen.find(b"\r\n")
        if line_end >= 0 and seen.find(b" HTTP/", 0, line_end) < 0:  # HTTP/0.9: nothing would follow
            raise HttpError("a request line without a version")
        if end < 0:
            self._scanned = len(self._held)
            return None
        raw = bytes(seen)
        del self._held[: end + 4]
        self._request, self._body = _request(raw)
        self.state = "judging"
        return self._request


def _request(raw: bytes) -> tuple[Request, Body]:
    lines = raw[:-4].split(b"\r\n")
    if any(line[:1] in (b" ", b"\t") for line in lines):
        raise HttpError("a folded line")
    import h11  # 8 ms, for a run that speaks HTTP

    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX)
    try:
        connection.receive_data(raw)
        event = connection.next_event()
    except h11.RemoteProtocolError as error:
        raise HttpError(str(error), error.error_status_hint if error.error_status_hint in _REASONS else 400) from error
    if not isinstance(event, h11.Request):
        raise HttpError("no request")
    if event.http_version not in (b"1.0", b"1.1"):
        raise HttpError(f"HTTP/{event.http_version.decode('ascii')} in an HTTP/1 request", 505)
    host, port = _whom(event)
    body = _framing(event, lines)
    upgrade = b",".join(value for name, value in event.headers if name == b"upgrade").lower()
    if any(word.strip().startswith(_STRIPPED) for word in upgrade.split(b",")):
        upgrade, raw = b"", _without_upgrade(lines)
    is_connect = event.method == b"CONNECT"
    if is_connect and (upgrade or not body.done):
        raise HttpError("CONNECT with a body or an upgrade")
    return Request(event.method, event.target, host, port, is_connect, upgrade, raw), body


def _framing(event: "h11.Request", lines: list[bytes]) -> Body:
    """RFC 9112, 6.3, without its leniency."""
    lengths = [line for line in lines[1:] if line.partition(b":")[0].lower() == b"content-length"]
    encodings = [value for name, value in event.headers if name == b"transfer-encoding"]
    if encodings:
        if lengths or event.http_version == b"1.0" or encodings != [b"chunked"]:
            raise HttpError("a transfer encoding other than chunked, beside a length, or in HTTP/1.0")
        return Chunked()
    if not lengths:
        return Sized(0)
    digits = lengths[0].partition(b":")[2].strip(b" \t")
    if len(lengths) > 1 or not digits.isdigit() or len(digits) > 18:
        raise HttpError("not exactly one length")
    return Sized(int(digits))


def _whom(event: "h11.Request") -> tuple[str, int | None]:
    """Whom the request is meant for (RFC 9112, 3.2)."""
    stated = [value for name, value in event.headers if name == b"host"]
    named = authority(stated[0]) if stated else None
    if event.method == b"CONNECT":
        meant = authority(event.target)
        if meant[1] is None:
            raise HttpError("CONNECT without a port")
        if named is not None and (named[0] != meant[0] or named[1] not in (None, meant[1])):
            raise HttpError("CONNECT to another host than Host names")
        return meant
    scheme = _SCHEME.fullmatch(event.target)
    if scheme is not None:
        default = _DEFAULT_PORTS[scheme[1].lower()]
        host, port = authority(scheme[2])
        if named is not None and (named[0], named[1] or default) != (host, port or default):
            raise HttpError("the target names another host than Host does")
        return host, port or default
    if not event.target.startswith(b"/") and (event.method, event.target) != (b"OPTIONS", b"*"):
        raise HttpError("a target that is neither a path nor an address")
    return named or ("", None)


def authority(text: bytes) -> tuple[str, int | None]:
    """`host`, `host:port`, `[v6]:port` (RFC 3986, 3.2, without user information)."""
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise HttpError("a broken host")
    try:
        host = str(parse_host(match[1].decode("ascii")))
    except (HostError, UnicodeDecodeError) as error:
        raise HttpError(f"a broken host: {error}") from error
    port = int(match[2]) if match[2] else None
    if port is not None and not 0 < port < 0x10000:
        raise HttpError("a broken port")
    return host, port


def _without_upgrade(lines: list[bytes]) -> bytes:
    """The head without Upgrade and what belongs to it; both are for the next hop, which we are (RFC 9110, 7.6.1)."""
    kept = []
    for line in lines:
        name, _, value = line.partition(b":")
        if name.lower() in (b"upgrade", b"http2-settings"):
            continue
        if name.lower() == b"connection":
            words = [word.strip() for word in value.split(b",")]
            words = [word for word in words if word.lower() not in (b"upgrade", b"http2-settings", b"")]
            if not words:
                continue
            kept.append(name + b": " + b", ".join(words))
        else:
            kept.append(line)
    return b"\r\n".join(kept) + b"\r\n\r\n"


def denied_response(text: str, *, rule: str, change: str = "", head: bool = False) -> bytes:
    """`403 Forbidden` that says that agentwrap refused, not the server. `text` is the body, `change` is put below it.

    `rule` goes into `X-Agentwrap-Denied`. `head`: the request was HEAD, so the body stays away.
    """
    return _response(403, "Forbidden", text + (f"\n{change}" if change else ""), rule, head)


def malformed_response(text: str, *, status: int = 400) -> bytes:
    """The same for a request that could not be judged; `status` as in HttpError, or 408."""
    return _response(status, _REASONS[status], text, "malformed", False)


def unreachable_response(text: str, *, head: bool = False) -> bytes:
    """`502 Bad Gateway`: allowed, and the server cannot be reached."""
    return _response(502, "Bad Gateway", text, "", head)


def _response(status: int, reason: str, text: str, denied: str, head: bool) -> bytes:
    body = (text.rstrip("\n") + "\n").encode("utf-8", "replace")
    mark = escape(denied).encode("ascii", "backslashreplace").decode("ascii")
    lines = [
        f"HTTP/1.1 {status} {reason}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    lines += [f"X-Agentwrap-Denied: {mark}"] if mark else []
    return "\r\n".join([*lines, "", ""]).encode("ascii") + (b"" if head else body)
