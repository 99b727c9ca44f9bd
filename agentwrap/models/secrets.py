"""Credentials in the heads of an exchange, for the redactor to know before anything of it is stored. Pure."""

from collections.abc import Iterable
from urllib.parse import parse_qsl

from agentwrap.events import Secrets
from agentwrap.events.exchange import Headers

_WHOLE = frozenset({b"x-api-key", b"api-key", b"x-goog-api-key", b"x-auth-token", b"x-amz-security-token"})
_SCHEMES = frozenset({b"authorization", b"proxy-authorization"})
_QUERY = frozenset({"key", "api_key", "apikey", "access_token", "token", "sig", "signature"})
_COOKIE_BYTES = 16
NAME = b"MODEL_AUTH_TOKEN"


def of_head(headers: Headers, target: bytes) -> Secrets | None:
    """The secrets of one head, or None."""
    found = [value for value in _found(headers, target) if value]
    return Secrets(tuple((NAME, value) for value in dict.fromkeys(found))) if found else None


def _found(headers: Headers, target: bytes) -> Iterable[bytes]:
    for name, value in headers:
        lower = name.lower()
        if lower in _WHOLE:
            yield value.strip()
        elif lower in _SCHEMES:
            yield value.strip().partition(b" ")[2].strip() or value.strip()
        elif lower in (b"cookie", b"set-cookie"):
            for pair in value.split(b";") if lower == b"cookie" else [value.partition(b";")[0]]:
                worth = pair.partition(b"=")[2].strip()
                if len(worth) >= _COOKIE_BYTES:
                    yield worth
    query = target.partition(b"?")[2]
    if query:
        for key, text in parse_qsl(query.decode("latin-1"), max_num_fields=None):
            if key.lower() in _QUERY:
                yield text.encode("latin-1", "replace")
