"""Where spans are sent: a URL and headers, as the command line and OpenTelemetry's variables give them. Pure.

`OTEL_EXPORTER_OTLP_HEADERS` and `OTEL_EXPORTER_OTLP_TRACES_HEADERS` are as opentelemetry.io/docs/specs/otel/protocol
("Specifying headers via environment variables") has them: `name=value,...`, values percent-encoded.
"""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote, urlsplit

import msgspec

from agentwrap.errors import AgentwrapError

TRACES = "/v1/traces"
_VARIABLES = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_HINT = "agentwrap export --otlp --to http://localhost:4318"


class Endpoint(msgspec.Struct, frozen=True):
    """A server: `target` is path and query. `shown`: the URL without what may be a secret, for messages."""

    host: str
    port: int
    tls: bool
    target: str
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def shown(self) -> str:
        """The URL as people are told it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.target.partition('?')[0]}"


def endpoint(url: str, given: Iterable[str], environment: Mapping[str, str]) -> Endpoint:
    """The endpoint of a URL; `/v1/traces` is put behind its path, if it is not there.

    `given`: `NAME=VALUE` each, stronger than the environment. Raises AgentwrapError `usage`.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _bad_url(url, str(error)) from error
    if parts.scheme not in ("http", "https") or not host:
        raise _bad_url(url, "it must begin with http:// or https://")
    if parts.username is not None:
        raise _bad_url(url.replace(parts.netloc, "…@" + parts.netloc.rpartition("@")[2]), "credentials are a header")
    path = parts.path.rstrip("/")
    path = path if path.endswith(TRACES) else path + TRACES
    target = f"{path}?{parts.query}" if parts.query else path
    if not target.isascii() or not target.isprintable() or " " in target or not host.isprintable():
        raise _bad_url(url, "only ASCII, other characters percent-encoded")
    tls = parts.scheme == "https"
    headers = {name.lower(): value for name, value in (*from_environment(environment), *map(_header, given))}
    return Endpoint(host, port or (443 if tls else 80), tls, target, tuple(headers.items()))


def from_environment(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Headers that OpenTelemetry's variables ask for; what is no header is left out."""
    found: list[tuple[str, str]] = []
    for variable in _VARIABLES:
        for pair in environment.get(variable, "").split(","):
            name, equals, value = pair.partition("=")
            value = unquote(value.strip())
            if equals and _NAME.fullmatch(name.strip()) and _fits(value):
                found.append((name.strip(), value))
    return found


def _header(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals or not _NAME.fullmatch(name) or not _fits(value):
        shown = name if equals else given
        raise AgentwrapError("usage", f"`{shown}` is no header", hint=f"{_HINT} --header NAME=VALUE")
    return name, value.strip()


def _fits(value: str) -> bool:
    return value.isprintable() and value.isascii()


def _bad_url(url: str, why: str) -> AgentwrapError:
    return AgentwrapError("usage", f"`{url}` is no address to send spans to", evidence=why, hint=_HINT)
