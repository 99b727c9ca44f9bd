"""The client's side of TLS towards the real server: verified as the machine, and whoever started us, verify.

Knows where certificates of authorities lie. What the agent's environment says counts for nothing here.
"""

import os
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
import trio

from agentwrap.gateway.interception.tls import TlsError, TlsSide
from agentwrap.launching.authority_files import SYSTEM_BUNDLES

HANDSHAKE_S = 20.0
OWN_FILES = ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")
_REMEMBERED = 10_000
_CERTIFICATE_REQUEST = 13  # RFC 8446, 4; RFC 5246, 7.4

Why = Literal["upstream-untrusted", "upstream-wants-certificate", "upstream-protocol", "upstream-tls"]


class NotOurs(msgspec.Struct, frozen=True):
    """There is no session with the server that we could stand in for. `detail`: the library's word."""

    why: Why
    detail: str


def client_context(environment: Mapping[str, str]) -> ssl.SSLContext:
    """TLS that trusts the machine's authorities and those that our own environment names besides."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    defaults = ssl.get_default_verify_paths()
    system = next(filter(os.path.isfile, SYSTEM_BUNDLES), defaults.openssl_cafile)
    files = [system, *(environment.get(name, "") for name in OWN_FILES)]
    folders = environment.get("SSL_CERT_DIR", "").split(":")
    _load_files(context, list(dict.fromkeys(filter(None, files))))
    for folder in filter(None, [defaults.openssl_capath if not os.path.isfile(system) else "", *folders]):
        _load(context, capath=folder)
    return context


def _load_files(context: ssl.SSLContext, files: list[str]) -> None:
    """One that is all of another one and a little more, as bundles are made, is read alone: each takes 40 ms."""
    loaded: list[bytes] = []
    for content, file in sorted(((_content(file), file) for file in files), key=lambda one: -len(one[0])):
        known = content and any(content in other for other in loaded)
        if not known and _load(context, cafile=file):
            loaded.append(content)


def _content(file: str) -> bytes:
    try:
        return Path(file).read_bytes() if os.path.isfile(file) else b""
    except OSError:
        return b""


def _load(context: ssl.SSLContext, *, cafile: str | None = None, capath: str | None = None) -> bool:
    try:
        context.load_verify_locations(cafile, capath)
    except (OSError, ssl.SSLError):
        return False  # what it would have trusted is not trusted: its servers are passed through, and that is told
    return True


class Upstream:
    """Makes sessions with servers. Remembers which of them ask for no certificate."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._context: ssl.SSLContext | None = None
        self._loading = trio.Lock()
        self._asked: set[int] = set()
        self._watched = 0
        self._simple: set[tuple[str, int]] = set()

    async def session(self, sock: socket.socket, host: str, port: int) -> TlsSide | NotOurs:
        """TLS as a client of `host` over a fresh connection. Raises OSError, trio.ClosedResourceError."""
        context = await self._loaded()
        watched = (host, port) not in self._simple
        self._watch(context, watched)
        side = TlsSide(sock, context, server_name=host)
        try:
            with trio.fail_after(HANDSHAKE_S):
                await side.handshake()
        except TlsError as error:
            return NotOurs("upstream-untrusted" if error.untrusted else "upstream-tls", error.reason)
        except trio.TooSlowError:
            return NotOurs("upstream-tls", "its handshake takes too long")
        finally:
            asked = id(side.session) in self._asked
            self._asked.discard(id(side.session))
            self._watch(context, -watched)
        if asked:
            return NotOurs("upstream-wants-certificate", "it asks for a certificate of the client")
        if side.protocol not in ("", "http/1.1"):
            return NotOurs("upstream-protocol", side.protocol)
        if len(self._simple) < _REMEMBERED:
            self._simple.add((host, port))
        return side

    async def warm(self) -> None:
        """Load what the first session would wait for."""
        await self._loaded()

    async def _loaded(self) -> ssl.SSLContext:
        """Reading all authorities takes some 40 ms: once, and beside the event loop."""
        async with self._loading:
            if self._context is None:
                self._context = await trio.to_thread.run_sync(
                    client_context, self._environment, abandon_on_cancel=True
                )
            return self._context

    def _watch(self, context: ssl.SSLContext, more: int) -> None:
        """See whether servers ask for a certificate, while there are handshakes with servers that nobody knows.

        Nothing else tells. A private name of CPython's since 3.8; where it is gone, such a server refuses us, and that
        is what the client hears.
        """
        self._watched += more

        def look(session: object, _way: str, _version: int, _content: int, kind: int, _data: bytes) -> None:
            if kind == _CERTIFICATE_REQUEST:
                self._asked.add(id(session))

        context._msg_callback = look if self._watched else None  # type: ignore[attr-defined]
