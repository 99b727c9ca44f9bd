"""Clients and servers that are not ours, with a tap on the bytes between them."""

import shutil
import socket
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from gateway.capture.listening import Listening

from agentwrap.models.codings import decode

REASON = "the clients of pyproject.toml are not installed"
httpx = pytest.importorskip("httpx", reason=REASON)
requests = pytest.importorskip("requests", reason=REASON)
deflate = pytest.importorskip("websockets.extensions.permessage_deflate", reason=REASON)
connect = pytest.importorskip("websockets.sync.client", reason=REASON).connect
serve = pytest.importorskip("websockets.sync.server", reason=REASON).serve

EVENTS = [b'event: delta\ndata: {"text": "word %d \xc3\xa9"}\n\n' % number for number in range(40)]
LARGE = bytes(range(256)) * 8192


class Server(BaseHTTPRequestHandler):
    """`/events`: chunked; `/packed`: the same under gzip; `/old`: until the end; else what was sent."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length")
        body = self.rfile.read(int(length)) if length is not None else self._chunks()
        match self.path.partition("?")[0]:
            case "/events":
                self._stream(EVENTS)
            case "/packed":
                coder = zlib.compressobj(wbits=31)
                pieces = [coder.compress(event) + coder.flush(zlib.Z_SYNC_FLUSH) for event in EVENTS]
                self._stream([*pieces, coder.flush()], ("Content-Encoding", "gzip"))
            case "/old":
                self.send_response(200)
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = True
            case "/nothing":
                self.send_response(204)
                self.end_headers()
            case _:
                self.send_response(429 if self.path == "/busy" else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.headers.add_header("Content-Length", "0")
        self.do_POST()

    def _stream(self, pieces: list[bytes], *headers: tuple[str, str]) -> None:
        self.send_response(200)
        for name, value in (("Transfer-Encoding", "chunked"), *headers):
            self.send_header(name, value)
        self.end_headers()
        for piece in [*pieces, b""]:
            self.wfile.write(b"%x\r\n" % len(piece) + piece + b"\r\n")

    def _chunks(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def log_message(self, *args: Any) -> None:
        """Quiet."""


class Between:
    """Relays connections to a port; each has a tap."""

    def __init__(self, port: int) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.taps: list[Listening] = []
        self._to = port
        self._threads: list[threading.Thread] = []
        self._run(self._accept)

    def _run(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._to))
            listening, lock, left = Listening(), threading.Lock(), [2]
            self.taps.append(listening)
            for kind, source, sink in (("up", client, server), ("down", server, client)):
                self._run(self._relay, kind, source, sink, (listening, lock, left))

    def _relay(self, kind: str, source: socket.socket, sink: socket.socket, heard: tuple[Any, ...]) -> None:
        listening, lock, left = heard
        while data := source.recv(4096):
            with lock:
                listening.step(kind, data)
            sink.sendall(data)
        with lock:
            listening.step(f"{kind}_ended")
            left[0] -= 1
            over = not left[0]
        sink.shutdown(socket.SHUT_WR)
        if over:
            source.close()
            sink.close()

    def close(self) -> None:
        """Everything has ended after this."""
        if self.listener.fileno() < 0:
            return
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self._threads:
            thread.join()


@contextmanager
def between(port: int) -> Iterator[Between]:
    made = Between(port)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def http() -> Iterator[Between]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        with between(server.server_address[1]) as made:
            yield made
        server.shutdown()
        thread.join()


def by_requests(base: str) -> None:
    with requests.Session() as session:
        _ask(lambda method, path, body: session.request(method, base + path, data=body).content)


def by_httpx(base: str) -> None:
    with httpx.Client(trust_env=False, timeout=300) as client:
        _ask(lambda method, path, body: client.request(method, base + path, content=body).content)


def _ask(request: Callable[[str, str, Any], bytes]) -> None:
    assert request("POST", "/echo?x=1", b"hello") == b"hello"
    assert request("HEAD", "/echo", None) == b""
    assert request("POST", "/echo", iter([b"in ", b"chunks"])) == b"in chunks"
    assert request("POST", "/events", b"") == b"".join(EVENTS)
    assert request("POST", "/packed", b"") == b"".join(EVENTS)
    assert request("POST", "/nothing", b"") == b""
    assert request("POST", "/busy", LARGE) == LARGE
    assert request("POST", "/old", b"until the end") == b"until the end"


@pytest.mark.parametrize("client", [by_requests, by_httpx])
def test_http_clients(http: Between, client: Callable[[str], None]) -> None:
    client(f"http://127.0.0.1:{http.port}")
    http.close()
    heard = [one for tap in http.taps for one in tap.heard]
    packed = heard[4]
    assert decode(packed.received, dict(packed.answer_headers)[b"Content-Encoding"], 1 << 20) == (b"".join(EVENTS), "")
    packed.received = b""
    assert [(one.method, one.target, one.sent, one.status, one.received) for one in heard] == [
        (b"POST", b"/echo?x=1", b"hello", 200, b"hello"),
        (b"HEAD", b"/echo", b"", 200, b""),
        (b"POST", b"/echo", b"in chunks", 200, b"in chunks"),
        (b"POST", b"/events", b"", 200, b"".join(EVENTS)),
        (b"POST", b"/packed", b"", 200, b""),
        (b"POST", b"/nothing", b"", 204, b""),
        (b"POST", b"/busy", LARGE, 429, LARGE),
        (b"POST", b"/old", b"until the end", 200, b"until the end"),
    ]
    assert {(one.ending, one.detail) for one in heard} == {("complete", b"")}
    assert not any(tap.tap.active for tap in http.taps)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_a_client_that_waits_for_100(http: Between, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(LARGE)
    command = ["curl", "-sS", "--noproxy", "*", "--data-binary", f"@{tmp_path / 'large'}", "-H", "Expect: 100-continue"]
    url = f"http://127.0.0.1:{http.port}/echo"
    done = subprocess.run([*command, url], capture_output=True, timeout=300, check=True)
    http.close()
    only = http.taps[0].only
    assert done.stdout == only.sent == only.received == LARGE
    assert (only.status, only.ending) == (200, "complete")


@pytest.mark.parametrize("keeps", [True, False, None])
def test_another_websocket(keeps: bool | None) -> None:
    """Echoed messages, compressed with the window kept, without, and not at all."""
    up: list[Any] = ["hi", "é" * 50_000, b"\0\1" * 500, ["in ", "three ", "pieces"], ""]
    down: list[str | bytes] = []

    def echo(connection: Any) -> None:
        for message in connection:
            connection.send(message)

    ours = [deflate.ServerPerMessageDeflateFactory(not keeps, not keeps, 10, 12)] if keeps is not None else None
    theirs = [deflate.ClientPerMessageDeflateFactory(not keeps, not keeps, 10, 12)] if keeps is not None else None
    patience: dict[str, Any] = {"open_timeout": 300, "close_timeout": 300, "ping_interval": None}
    with serve(echo, "127.0.0.1", 0, compression=None, extensions=ours, **patience) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with between(server.socket.getsockname()[1]) as made:
            uri = f"ws://127.0.0.1:{made.port}/v1/responses"
            with connect(uri, compression=None, extensions=theirs, proxy=None, **patience) as client:
                for message in up:
                    client.send(message)
                    client.ping()
                    down.append(client.recv())
        server.shutdown()
        thread.join()
    only = made.taps[0].only
    texts = ["".join(one) if isinstance(one, list) else one for one in up]
    assert down == texts
    coded = [(isinstance(one, str), one.encode() if isinstance(one, str) else one) for one in texts]
    assert only.messages == [(side, *one) for one in coded for side in ("up", "down")]
    assert (only.status, only.ending, only.detail) == (101, "complete", b"")
    stated = dict(only.answer_headers).get(b"Sec-WebSocket-Extensions", b"")
    assert (b"deflate" in stated) == (keeps is not None)
    assert (b"no_context_takeover" in stated) == (keeps is False)
