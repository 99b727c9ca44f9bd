"""What an environment says about model servers, and what an agent gets in its own. Pure: environment in, values out.

Knows the names that clients read: base URLs of model servers, HTTP proxies, bundles of certificate authorities. Refuses
to know whether anybody listens: the caller says where ours are.
"""

import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import NamedTuple

Environment = Mapping[bytes, bytes]

HTTPS_PORT = 443
_DEFAULT_PORTS = {b"http": 80, b"https": HTTPS_PORT}
_OLLAMA_PORT, _LM_STUDIO_PORT = 11434, 1234
# Base URLs under other names than *_BASE_URL and *_API_BASE: gemini-cli, the Azure and Ollama SDKs, litellm.
_URLS = frozenset({b"CODE_ASSIST_ENDPOINT", b"AZURE_OPENAI_ENDPOINT", b"OLLAMA_HOST"})
_SUFFIXES = (b"_BASE_URL", b"_API_BASE")
_PROXIES = frozenset({b"http_proxy", b"https_proxy", b"all_proxy"})
_URL = re.compile(
    rb"(https?)://(?:[^/?#@]*@)?(\[[0-9A-Fa-f:.]+\]|[^:/?#\[\]@]*)(?::([0-9]{1,5}))?(?:[/?#].*)?", re.IGNORECASE
)

# Where clients look for all authorities they trust; each of them replaces the client's own list.
_BUNDLES = (
    *(b"SSL_CERT_FILE", b"REQUESTS_CA_BUNDLE", b"CURL_CA_BUNDLE", b"GIT_SSL_CAINFO", b"AWS_CA_BUNDLE", b"PIP_CERT"),
    *(b"CARGO_HTTP_CAINFO", b"CODEX_CA_CERTIFICATE"),
)
_BUNDLES_IF_SET = (b"NIX_SSL_CERT_FILE",)
# Where they look for more than their own list.
_ADDITIONS = (b"NODE_EXTRA_CA_CERTS", b"DENO_CERT")

# Variables that clients take a base URL from, and what each of them means when it is not set.
_PROVIDERS = {
    b"ANTHROPIC_BASE_URL": b"https://api.anthropic.com",
    b"ANTHROPIC_API_BASE": b"https://api.anthropic.com",
    b"OPENAI_BASE_URL": b"https://api.openai.com/v1",
    b"OPENAI_API_BASE": b"https://api.openai.com/v1",
    b"GOOGLE_GEMINI_BASE_URL": b"https://generativelanguage.googleapis.com",
}
REVERSE_PREFIX = b"/+/"
"""Begins the path of a request to our reverse proxy: `/+/https/api.anthropic.com/v1/messages`."""


class Target(NamedTuple):
    """A server whose connections are to be read. `host`: an address as text, or empty for every address."""

    host: str
    port: int


def model_servers(
    environment: Environment, intercept: tuple[str, ...] = (), urls: Iterable[bytes] = ()
) -> frozenset[Target]:
    """Where model traffic may go besides port 443: named by the environment, or by `intercept` (HOST or HOST:PORT).

    `urls`: of other servers whose traffic is to be read (MCP).
    A server that is given by its name is one by its port alone: nobody is asked for the name here.
    """
    found = {Target(host, port) for host in ("127.0.0.1", "::1") for port in (_OLLAMA_PORT, _LM_STUDIO_PORT)}
    for name, value in environment.items():
        if name in _URLS or name.endswith(_SUFFIXES) or name.lower() in _PROXIES:
            found |= _targets(_with_scheme(value, _OLLAMA_PORT if name == b"OLLAMA_HOST" else 0))
    for word in intercept:
        found |= _targets(b"https://" + word.encode("utf-8", "surrogateescape"))
    for url in urls:
        found |= _targets(url)
    return frozenset(one for one in found if one != Target("", HTTPS_PORT) and one.port)


def _with_scheme(value: bytes, port: int) -> bytes:
    """A value as URL; `port` is for one that says neither scheme nor port (Ollama's `127.0.0.1`, `:11434`)."""
    if b"://" in value:
        return value
    return b"http://" + value + (b":%d" % port if port and not re.search(rb":[0-9]+/?\Z", value) else b"")


def _targets(url: bytes) -> set[Target]:
    match = _URL.fullmatch(url.strip())
    if match is None or not (match[2] or match[3]):
        return set()
    port = int(match[3]) if match[3] else _DEFAULT_PORTS[match[1].lower()]
    if port > 65535:
        return set()
    host = match[2].decode("ascii", "replace").strip("[]").lower()
    if host in ("localhost", "", "0.0.0.0", "::") or host.endswith(".localhost"):
        return {Target("127.0.0.1", port), Target("::1", port)}
    try:
        return {Target(str(ip_address(host)), port)}
    except ValueError:
        return {Target("", port)}


def trusted_files(environment: Environment, system: bytes | None) -> dict[bytes, bytes]:
    """For each variable that has to name our authority, too: the file whose certificates it has to name besides.

    That is the user's own where there is one, else the machine's bundle (`system`), or none (empty) for a variable that
    only adds. Without a bundle of the machine's, what would replace the client's own list is left alone.
    """
    found: dict[bytes, bytes] = {}
    usual = environment.get(b"SSL_CERT_FILE", b"") or system
    for name in _BUNDLES:
        file = environment.get(name, b"") or usual
        if file:
            found[name] = file
    found |= {name: environment[name] for name in _BUNDLES_IF_SET if environment.get(name)}
    return found | {name: environment.get(name, b"") for name in _ADDITIONS}


def with_authority(environment: Environment, files: Environment) -> dict[bytes, bytes]:
    """The environment in which clients believe our certificates, too. `files`: variable to path."""
    if not files:
        return dict(environment)
    return {b"DENO_TLS_CA_STORE": b"system,mozilla", **environment, **files}


def with_base_urls(environment: Environment, port: int) -> dict[bytes, bytes]:
    """The environment in which clients that take a base URL from it ask our reverse proxy on loopback `port`.

    A variable that is set to something else than an http(s) URL is left alone.
    """
    changed = dict(environment)
    for name, default in _PROVIDERS.items():
        value = environment.get(name, b"").strip() or default
        if _URL.fullmatch(value) and b"?" not in value and b"#" not in value:
            changed[name] = b"http://127.0.0.1:%d" % port + reverse_path(value)
    return changed


def reverse_path(url: bytes) -> bytes:
    """The path on our reverse proxy that stands for an http(s) URL: `/+/https/api.openai.com/v1`."""
    scheme, _, rest = url.partition(b"://")
    return REVERSE_PREFIX + scheme.lower() + b"/" + rest
