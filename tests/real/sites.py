"""Web servers for real clients: files, a git repository, package indexes, events; over plain TCP or TLS."""

import base64
import hashlib
import http.server
import io
import json
import os
import queue
import socket
import ssl
import struct
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import far_side

BODY = b"".join(hashlib.sha256(b"%d" % number).hexdigest().encode() + b"\n" for number in range(2000))
_WEBSOCKET = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3


class Site:
    """What the server has: `pages` (path to type and content), `repositories`, `events` to be sent when told."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[str, bytes]] = {"/file": ("text/plain", BODY)}
        self.repositories: Path | None = None
        self.events: queue.Queue[bytes] = queue.Queue()
        self.asked: list[str] = []

    def talk(self, connection: socket.socket) -> None:
        """HTTP/1.1 with keep-alive."""
        site = self

        class Handler(_Handler):
            def __init__(self) -> None:
                self.site = site
                super().__init__(connection, ("", 0), None)  # type: ignore[arg-type]

        Handler()

    def tls(self, context: ssl.SSLContext) -> far_side.Talk:
        """The same over TLS."""

        def talk(connection: socket.socket) -> None:
            if not connection.recv(1, socket.MSG_PEEK):
                return  # an SSLSocket that meets a reset on its way up is never closed
            with context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as inner:
                inner.do_handshake()
                self.talk(inner)

        return talk


def context(folder: Path, *names: str) -> ssl.SSLContext:
    """A server's TLS for these names; `folder`/ca.pem is for the clients."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(*far_side.certificate(folder, names))
    made.set_alpn_protocols(["http/1.1"])
    return made


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        host = self.headers.get("host", "")
        self.site.asked.append(f"{self.command} {host} {path}")
        if self.headers.get("upgrade", "").lower() == "websocket":
            self._websocket()
        elif path == "/events":
            self._events()
        elif path == "/name":
            self._answer("text/plain", host.encode() + b"\n")
        elif path.startswith("/git/") and self.site.repositories is not None:
            self._git(path, query)
        elif path in self.site.pages:
            self._answer(*self.site.pages[path])
        else:
            self.send_error(404)

    do_POST = do_HEAD = do_GET  # noqa: N815 - names of the library

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _events(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        while event := self.site.events.get(timeout=300):
            self.wfile.write(b"data: " + event + b"\n\n")
            self.wfile.flush()
        self.close_connection = True

    def _websocket(self) -> None:
        key = hashlib.sha1(self.headers["sec-websocket-key"].encode() + _WEBSOCKET).digest()
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade")):
            self.send_header(name, value)
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(key).decode())
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        while self.rfile.peek(1):
            kind, content = _frame(self.rfile)
            self.wfile.write(_framed(kind, content))
            self.wfile.flush()
            if kind == 8:
                return

    def _git(self, path: str, query: str) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        env = {
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.site.repositories), "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
            "PATH_INFO": path.removeprefix("/git"), "QUERY_STRING": query, "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("content-type", ""), "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
            "GIT_PROTOCOL": self.headers.get("git-protocol", ""),
        }  # fmt: skip
        done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=True)
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


def _frame(stream: Any) -> tuple[int, bytes]:
    """One masked frame of a WebSocket client (RFC 6455, 5.2): its kind and content."""
    first, second = stream.read(2)
    length = second & 0x7F
    if length == 126:
        (length,) = struct.unpack("!H", stream.read(2))
    mask = stream.read(4)
    content = bytes(byte ^ mask[at % 4] for at, byte in enumerate(stream.read(length)))
    return first & 0x0F, content


def _framed(kind: int, content: bytes) -> bytes:
    length = bytes([len(content)]) if len(content) < 126 else b"\x7e" + struct.pack("!H", len(content))
    return bytes([0x80 | kind]) + length + content


def wheel(name: str, version: str, source: str) -> bytes:
    """A wheel with one module."""
    out = io.BytesIO()
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(f"{name}.py", source)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return out.getvalue()


def pip_index(site: Site, name: str, source: str) -> None:
    """`site` becomes a package index (PEP 503) with one package under /simple/."""
    file = f"{name}-1.0-py3-none-any.whl"
    made = wheel(name, "1.0", source)
    link = f'<a href="/files/{file}#sha256={hashlib.sha256(made).hexdigest()}">{file}</a>'
    site.pages[f"/simple/{name}/"] = ("text/html", f"<!DOCTYPE html><html><body>{link}</body></html>".encode())
    site.pages[f"/files/{file}"] = ("application/octet-stream", made)


def npm_registry(site: Site, url: str, name: str, source: str) -> None:
    """`site`, reached as `url`, becomes an npm registry with one package."""
    package = {"name": name, "version": "1.0.0", "main": "index.js"}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, text in (("package.json", json.dumps(package)), ("index.js", source)):
            member = tarfile.TarInfo(f"package/{path}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    content = out.getvalue()
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
    dist = {"tarball": f"{url}/{name}/-/{name}-1.0.0.tgz", "integrity": integrity}
    document = {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {**package, "dist": dist}}}
    site.pages[f"/{name}"] = ("application/json", json.dumps(document).encode())
    site.pages[f"/{name}/-/{name}-1.0.0.tgz"] = ("application/octet-stream", content)
