"""Credentials in the heads of HTTP messages: told by the name of a header, or of a parameter in a query. Pure.

Only places and kinds are found here; what becomes of them is the redactor's.
"""

import base64
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from agentwrap.recording.redact.names import secret_name, trivial

_HEADER = re.compile(
    rb"(?:.*-)?(?:(?P<authorization>authorization|authentication)|(?P<cookie>cookie2?)"
    rb"|api-?keys?|(?:access|auth|secret|private|subscription|functions|master|license|account|app|user)-?key"
    rb"|[a-z]*token|[a-z]*secret|password|passwd|passcode|credentials?|signature|jwt|assertion|session-?id-?token)",
)
_QUERY = re.compile(rb"(?<=[?&;#])(?P<name>[^?&;=#\s\"'<>]{1,128})=(?P<value>[^&;#\s\"'<>]{1,4096})")
_QUERY_NAMES = frozenset(
    {"sig", "signature", "hmac", "assertion", "code", "sas", "x-amz-signature", "x-goog-signature"}
)
_SIGNATURES = (b"aws4-hmac-sha256", b"digest")
_COOKIE_BYTES = 16


class InQuery(NamedTuple):
    """A value at [start, end) of a URL."""

    start: int
    end: int
    value: bytes


@lru_cache(maxsize=4096)
def header_kind(name: bytes) -> str:
    """How a header of this name is a secret: `authorization`, `cookie`, `header`, or empty: it is none."""
    match = _HEADER.fullmatch(name.strip().lower())
    if match is None:
        return ""
    return match.lastgroup or "header"


def worth_knowing(kind: str, value: bytes) -> Iterator[bytes]:
    """What of a secret header's value is a secret wherever it stands."""
    if kind == "cookie":
        for pair in value.split(b";"):
            worth = pair.partition(b"=")[2].strip()
            if len(worth) >= _COOKIE_BYTES and re.search(rb"[0-9]", worth):
                yield worth
        return
    scheme, space, rest = value.strip().partition(b" ")
    if not space:
        yield scheme
    elif kind != "authorization":
        yield value.strip()
    elif scheme.lower() == b"basic":
        yield rest.strip()
        try:
            yield base64.b64decode(rest.strip() + b"=" * (-len(rest.strip()) % 4)).partition(b":")[2]
        except ValueError:
            return
    elif scheme.lower() not in _SIGNATURES:
        yield rest.strip()


def in_query(url: bytes) -> Iterator[InQuery]:
    """Values of parameters whose names promise a secret, in the query (or fragment) of a URL or request target."""
    begin = url.find(b"?")
    if begin < 0:
        return
    for match in _QUERY.finditer(url, begin + 1):
        name = unquote_to_bytes(match["name"]).decode("latin-1").lower()
        value = match["value"]
        if (name in _QUERY_NAMES or secret_name(name)) and not trivial(unquote_to_bytes(value)):
            yield InQuery(*match.span("value"), value)
