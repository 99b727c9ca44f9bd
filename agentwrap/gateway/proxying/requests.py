"""Whom a request to our proxy is for, and what that server is to be sent: three forms of targets. Pure.

    CONNECT host:port                       a tunnel (RFC 9110, 9.3.6)
    GET http://host/path                    absolute form (RFC 9112, 3.2.2)
    POST /+/https/host:port/path            ours: a base URL that stands for another one

Refuses requests that a web page of another site sends to a local port: those name where they come from, or were led
here under a name that is not loopback's.
"""

import re
from typing import Literal

import msgspec

from agentwrap.gateway.http_head import HttpError, Request, authority
from agentwrap.launching.environment import REVERSE_PREFIX
from agentwrap.text import escape

_REVERSE = re.compile(re.escape(REVERSE_PREFIX) + rb"(https?)/([^/?#]+)(.*)", re.DOTALL)
_ABSOLUTE = re.compile(rb"(http|https)://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_PORTS = {"http": 80, "https": 443}
_REASONS = {400: "Bad Request", 403: "Forbidden", 404: "Not Found", 502: "Bad Gateway"}
# For the next hop, which we are (RFC 9110, 7.6.1 and 11.7.1).
_HOP = (b"proxy-connection", b"proxy-authorization")


class NotForUsError(ValueError):
    """A request that is none to a proxy, or not from whom it seems to be. `status`: what HTTP says to that."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Server(msgspec.Struct, frozen=True):
    """Whom to talk to, and how."""

    scheme: Literal["http", "https"]
    host: str
    port: int


class Meant(msgspec.Struct, frozen=True):
    """A request's server and the head that it is sent; `tunnel`: none, bytes go both ways."""

    server: Server
    head: bytes = b""
    tunnel: bool = False


def meant_by(request: Request) -> Meant:
    """Whom a request is for. Raises NotForUsError."""
    try:
        if request.is_connect:
            return Meant(Server("https", request.host, request.port or 443), tunnel=True)
        match = _REVERSE.fullmatch(request.target)
        if match is not None:
            _local(request)
            server, named = _server(match[1], match[2])
            return Meant(server, _head(request, _path(match[3]), named))
        match = _ABSOLUTE.fullmatch(request.target)
        if match is not None:
            server, _ = _server(match[1].lower(), match[2])
            return Meant(server, _head(request, _path(match[3]), match[2]))
    except HttpError as error:
        raise NotForUsError(str(error), 400) from error
    raise NotForUsError("this is a proxy: it takes CONNECT, a whole URL, or a path that begins with /+/", 404)


def _server(scheme: bytes, named: bytes) -> tuple[Server, bytes]:
    word: Literal["http", "https"] = "https" if scheme == b"https" else "http"
    named = named.rpartition(b"@")[2]
    host, port = authority(named)
    return Server(word, host, port or _PORTS[word]), named


def _path(rest: bytes) -> bytes:
    return rest if rest.startswith(b"/") else b"/" + rest


def _local(request: Request) -> None:
    """A base URL of ours names loopback. Another name that leads here is somebody else's (DNS rebinding)."""
    if request.host not in _LOOPBACK_NAMES:
        raise NotForUsError("the Host of this request is not loopback's", 403)
    for line in request.raw.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"origin" and _host_of(value.strip()) not in _LOOPBACK_NAMES:
            raise NotForUsError("this request comes from a web page", 403)
        if name.lower() == b"sec-fetch-site" and value.strip().lower() not in (b"none", b"same-origin"):
            raise NotForUsError("this request comes from a web page", 403)


def _host_of(origin: bytes) -> str:
    match = _ABSOLUTE.fullmatch(origin)
    try:
        return authority(match[2])[0] if match is not None else ""
    except HttpError:
        return ""


def _head(request: Request, target: bytes, host: bytes) -> bytes:
    """The head as the server is to have it: order, case and every other field as they came."""
    first, *lines = request.raw[:-4].split(b"\r\n")
    version = first.rpartition(b" ")[2]
    fields = [(line.partition(b":")[0], line) for line in lines]
    kept = [
        name + b": " + host if name.lower() == b"host" else line
        for name, line in fields
        if name.lower() not in _HOP
    ]
    if not any(name.lower() == b"host" for name, _ in fields):
        kept.insert(0, b"Host: " + host)
    return b"\r\n".join([request.method + b" " + target + b" " + version, *kept]) + b"\r\n\r\n"


def refusal(status: int, text: str, *, head: bool = False) -> bytes:
    """An answer of ours, after which the connection ends. `head`: the request was HEAD, so the body stays away."""
    body = f"agentwrap proxy: {escape(text)}\n".encode()
    lines = [
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Refused')}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + (b"" if head else body)
