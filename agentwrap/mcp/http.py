"""Which HTTP exchanges belong to MCP, and to which server: by what is declared, by heads, by how bodies begin. Pure.

Knows heads and beginnings (Streamable HTTP of 2025-03-26 and later, HTTP with SSE of 2024-11-05). Refuses to read
messages: who must not be fooled judges whole bodies.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from json import detect_encoding
from typing import Literal
from urllib.parse import unquote_to_bytes

import msgspec

from agentwrap.events.exchange import Headers, OfMcp
from agentwrap.mcp.declared import Declared
from agentwrap.policy.hosts import HostError, parse_host, special

BEGINNING_MAX = 4096  # bytes of a body that say what it is
_KNOWN_MAX = 10_000

_PORTS = {b"http": 80, b"https": 443}
_URL = re.compile(
    rb"(https?)://(?:[^/?#@]*@)?(\[[0-9A-Fa-f:.]+\]|[^:/?#\[\]]+)(?::([0-9]{1,5}))?(/[^?#]*)?(?:[?#].*)?",
    re.IGNORECASE | re.DOTALL,
)
_VERSION = re.compile(rb'"jsonrpc"\s*:\s*"2\.0"')
# Methods that are MCP's alone; other protocols over JSON-RPC have `tasks/get`, too.
_METHOD = re.compile(
    rb'"method"\s*:\s*"(?:initialize|ping|server/discover'
    rb'|(?:tools|prompts|resources|completion|logging|notifications|roots|sampling|elicitation|subscriptions)/[^"]*)"'
)
_CHARSET = re.compile(rb"charset[*0-9]*[ \t]*=([^;,]*)", re.IGNORECASE)
_ASCII = re.compile(rb"utf-?8|us-ascii|ascii|iso-?8859-?[0-9]+|latin-?[0-9]|windows-125[0-9]|", re.IGNORECASE)
_STREAM = b"text/event-stream"
_JSON = b"application/json"
_SKIPPED = (b":", b"id:", b"retry:")
_BOM = b"\xef\xbb\xbf"

Side = Literal["request", "answer"]


class Place(msgspec.Struct, frozen=True):
    """Where a request goes. `host`: a name in lower case or an address as text; `path` without query."""

    host: bytes
    port: int
    path: bytes


class HttpServer(msgspec.Struct, frozen=True):
    """A declared server behind a URL."""

    name: bytes
    place: Place
    config: bytes = b""


class Maybe(msgspec.Struct, frozen=True):
    """The head alone does not say it; how the body of `side` begins does."""

    side: Side


def http_servers(declared: Iterable[Declared]) -> tuple[HttpServer, ...]:
    """Those that have a URL which can be read; texts with placeholders for a host or port have none."""
    found = []
    for one in declared:
        place = place_of_url(one.url) if one.url else None
        if place is not None:
            found.append(HttpServer(one.name, place, one.config))
    return tuple(found)


def place_of_url(url: bytes) -> Place | None:
    """Host (in normal form), port and path of a URL; None if it is none."""
    match = _URL.fullmatch(url.strip())
    if match is None:
        return None
    scheme, host, port, path = match.groups()
    number = int(port) if port else _PORTS[scheme.lower()]
    return Place(_normal(host), number, path or b"/") if 0 < number < 0x10000 else None


def place_of(target: bytes, host: bytes, port: int) -> Place:
    """Where a request with this target goes; `host` and `port` are the connection's, for targets without their own."""
    if target[:1] != b"/" and (absolute := place_of_url(target)) is not None:
        return absolute
    return Place(_normal(host), port, target.partition(b"?")[0])


def asked_at(target: bytes, host: bytes, port: int) -> bytes:
    """Where a request goes, with its query: in that the old transport has its session."""
    place = place_of(target, host, port)
    return b"%b:%d%b?%b" % (place.host, place.port, place.path, target.partition(b"?")[2])


def stated_at(place: Place, stated: bytes) -> bytes:
    """The same for a reference in the stream from `place` (RFC 3986, 5.2, as far as servers use it)."""
    there = place_of_url(stated)
    path, _, query = stated.partition(b"#")[0].partition(b"?")
    if there is None:
        whole = path if path.startswith(b"/") else place.path[: place.path.rfind(b"/") + 1] + path
        there = Place(place.host, place.port, whole)
    return b"%b:%d%b?%b" % (there.host, there.port, there.path, query)


def name_of(place: Place) -> bytes:
    """What a server is called that nobody declared."""
    return (b"[%b]:%d" if b":" in place.host else b"%b:%d") % (place.host, place.port)


class Recognition:
    """One run's: declared servers, and what was seen to be one. `servers`: declared first wins."""

    def __init__(self, servers: Sequence[HttpServer] = ()) -> None:
        self._declared = tuple(servers)
        self._seen: dict[Place, OfMcp] = {}

    def declared(self, place: Place, headers: Headers = ()) -> OfMcp | None:
        """The declared server at a place. One that Host names counts as well: where it leads to, a name was for."""
        places = {place}
        named = value_of(headers, b"host")
        if named and (stated := place_of_url(b"http://" + named)) is not None:
            places.add(Place(stated.host, place.port, place.path))
        for server in self._declared:
            if any(_same(server.place, one) for one in places):
                return OfMcp(server.name, "config", server.config)
        return None

    def every(self, places: Iterable[Place], headers: Headers = (), also: Iterable[bytes] = ()) -> tuple[OfMcp, ...]:
        """All declared servers that a request may be for, wherever it says, and its connection, that it goes.

        At a host and port where none is declared for the path, each one of other paths: servers read paths in more
        ways than one. `also`: other names of the host, which count where the first ones are nobody's.
        """
        named = value_of(headers, b"host")
        stated = place_of_url(b"http://" + named) if named else None
        known = list(dict.fromkeys(places))
        if stated is not None:
            known += [Place(stated.host, place.port, place.path) for place in known]
        found = self._declared_at(known)
        return found or self._declared_at([Place(_normal(host), one.port, one.path) for one in known for host in also])

    def _declared_at(self, places: Iterable[Place]) -> tuple[OfMcp, ...]:
        found: dict[OfMcp, None] = {}
        for place in places:
            there = [one for one in self._declared if _same(one.place, place)]
            there = there[:1] or [
                one for one in self._declared if _same(msgspec.structs.replace(one.place, path=place.path), place)
            ]
            found.update({OfMcp(one.name, "config", one.config): None for one in there})
        return tuple(found)

    def is_declared(self, host: bytes, port: int) -> bool:
        """Whether some declared server is at this host, as it is called there."""
        return bool(self._declared_at([Place(_normal(host), port, b"?")]))

    def hosts_at(self, port: int) -> tuple[str, ...]:
        """Hosts of declared servers at a port: names, and addresses as text."""
        hosts = [one.place.host for one in self._declared if one.place.port == port]
        return tuple(dict.fromkeys(one.decode() for one in hosts if one.isascii()))

    def of_head(self, method: bytes, place: Place, headers: Headers) -> OfMcp | Maybe | None:
        """What a request's head says."""
        known = self.declared(place, headers) or self._seen.get(place)
        if known is not None:
            return known if method in (b"POST", b"GET", b"DELETE") else None
        accepts = value_of(headers, b"accept").lower()
        if method == b"DELETE":
            return self._new(place) if value_of(headers, b"mcp-session-id") else None
        if method == b"GET" and _STREAM in accepts:
            # Clients send the version with the discovery of an authority, too, but accept no stream there.
            marked = value_of(headers, b"mcp-session-id") or value_of(headers, b"mcp-protocol-version")
            return self._new(place) if marked else Maybe("answer")
        if method == b"POST" and _JSON in value_of(headers, b"content-type").lower():
            if any(value_of(headers, name) for name in (b"mcp-session-id", b"mcp-method", b"mcp-protocol-version")):
                return self._new(place)
            return Maybe("request") if _STREAM in accepts and _JSON in accepts else None
        return None

    def seen(self, place: Place) -> OfMcp:
        """The body has said it: from now on the place is known."""
        return self._remember(place, self._new(place))

    def endpoint(self, place: Place, stated: bytes, of: OfMcp) -> None:
        """An old server at `place` said where messages are to be sent: a URL, or a part of one (RFC 3986, 5.2)."""
        where = place_of_url(stated)
        if where is None:
            path = stated.partition(b"?")[0].partition(b"#")[0]
            if not path.startswith(b"/"):
                path = place.path[: place.path.rfind(b"/") + 1] + path
            where = Place(place.host, place.port, path)
        self._remember(where, OfMcp(of.server, of.how, of.config, endpoint=True))

    def _new(self, place: Place) -> OfMcp:
        return OfMcp(name_of(place))

    def _remember(self, place: Place, of: OfMcp) -> OfMcp:
        if len(self._seen) < _KNOWN_MAX:
            self._seen[place] = of
        return of


def request_says(beginning: bytes, *, whole: bool) -> bool | None:
    """Whether a request's body is a message of MCP; None while more of it may tell."""
    if _VERSION.search(beginning) and _METHOD.search(beginning):
        return True
    if whole or len(beginning) >= BEGINNING_MAX or beginning.lstrip(b" \t\r\n")[:1] not in (b"", b"{", b"["):
        return False
    return None


def answer_says(beginning: bytes, *, whole: bool) -> bytes | bool | None:
    """Where a stream of an old server says that messages go; False if it is none, None while more of it may tell."""
    lines = beginning.removeprefix(_BOM).splitlines(keepends=True)
    event = False
    for line in lines:
        ended = line[-1:] in (b"\n", b"\r")
        text = line.rstrip(b"\r\n")
        if not ended:
            break
        if event and text.startswith(b"data:"):
            return text[5:].strip()
        if text in (b"event:endpoint", b"event: endpoint"):
            event = True
        elif text and (event or not text.startswith(_SKIPPED)):
            return False
    return False if whole or len(beginning) >= BEGINNING_MAX else None


def odd_charset(headers: Headers) -> bool:
    """Whether JSON is said to be in letters that are not ASCII's: frameworks decode what they are told (UTF-7)."""
    stated = value_of(headers, b"content-type").replace(b"\\", b"")
    named = [one.strip(b" \t\"'") for one in _CHARSET.findall(stated)] if b"json" in stated.lower() else []
    return not all(_ASCII.fullmatch(one) for one in named)


def as_utf8(text: bytes) -> bytes:
    """JSON in UTF-16 or UTF-32 as UTF-8, for it is read, too (json.loads(bytes)); everything else as it is."""
    coding = detect_encoding(text[:4])
    if coding.startswith("utf-8"):
        return text
    return text.decode(coding, "ignore").encode("utf-8", "ignore")


def is_stream(headers: Headers) -> bool:
    """Whether an answer is a stream of events."""
    return value_of(headers, b"content-type").lower().startswith(_STREAM)


def value_of(headers: Headers, name: bytes) -> bytes:
    """The value of a field, several joined with commas; empty if there is none. `name` in lower case."""
    return b", ".join([value for key, value in headers if key.lower() == name])


def _same(one: Place, other: Place) -> bool:
    """The same server; a slash at the end makes no difference, and one machine's loopback has three names."""
    if one.port != other.port or _path(one.path) != _path(other.path):
        return False
    return one.host == other.host or (is_loopback(one.host) and is_loopback(other.host))


@lru_cache(maxsize=1024)
def _path(path: bytes) -> bytes:
    """What servers read in a path, whatever way it is written: `//a/./%62/` is `/a/b`."""
    parts: list[bytes] = []
    for part in unquote_to_bytes(path).split(b"/"):
        if part == b"..":
            parts = parts[:-1]
        elif part not in (b"", b"."):
            parts.append(part)
    return b"/".join(parts)


@lru_cache(maxsize=1024)
def _normal(host: bytes) -> bytes:
    text = host.decode("ascii", "replace").strip("[]")
    try:
        return str(parse_host(text)).encode()
    except HostError:
        return host.lower()


@lru_cache(maxsize=1024)
def is_loopback(host: bytes) -> bool:
    """Whether a host in normal form is this machine, as seen from itself."""
    try:
        known = parse_host(host.decode("ascii", "replace"))
    except HostError:
        return False
    if known.address is None:
        return known.name == "localhost"
    return special(known) == "loopback"
