"""A receiver of OTLP over HTTP on loopback: keeps what it is sent, answers as it is told."""

import gzip
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from export_received import Trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

Reply = tuple[int, dict[str, str], bytes]
FINE: Reply = (200, {}, b"")


def partial(rejected: int, message: str) -> Reply:
    told = ExportTraceServiceResponse()
    told.partial_success.rejected_spans, told.partial_success.error_message = rejected, message
    return 200, {}, told.SerializeToString()


@dataclass
class Receiver:
    """`replies`: one for each request, then FINE. A reply with status 0 closes the connection without an answer."""

    url: str = ""
    replies: list[Reply] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    heads: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    connections: set[tuple[str, int]] = field(default_factory=set)
    came: threading.Condition = field(default_factory=threading.Condition)
    held: threading.Event | None = None

    def trace(self) -> Trace:
        """What was accepted, as one trace."""
        return Trace(b"".join(self.bodies))

    def wait_for(self, wanted: Any, timeout_s: float = 300) -> bool:
        with self.came:
            return self.came.wait_for(wanted, timeout_s)

    def take(self, handler: BaseHTTPRequestHandler) -> Reply:
        body = gzip.decompress(handler.rfile.read(int(handler.headers["content-length"])))
        if self.held is not None:
            self.held.wait(300)
        with self.came:
            self.connections.add(handler.client_address)
            self.heads.append((handler.path, {name.lower(): value for name, value in handler.headers.items()}))
            reply = self.replies.pop(0) if self.replies else FINE
            if reply[0] == 200:
                self.bodies.append(body)
            self.came.notify_all()
        return reply


@contextmanager
def receiver(*replies: Reply, tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    state = Receiver(replies=list(replies))
    kept: list[socket.socket] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            kept.append(self.connection)

        def do_POST(self) -> None:
            status, headers, body = state.take(self)
            if not status:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_given: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = False  # closing it waits for them: none goes on beside a later test

        def handle_error(self, *_given: object) -> None:
            """Who asked is gone: nothing is said of it on a stderr that may be another test's by now."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    state.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield state
    finally:
        if state.held is not None:
            state.held.set()
        server.shutdown()
        thread.join()
        for connection in kept:
            with suppress(OSError):  # it is closed already
                connection.shutdown(socket.SHUT_RDWR)
        server.server_close()
