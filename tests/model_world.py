"""Model servers in an internet of a test's own, and runs in it: TLS on 443, plain HTTP beside."""

import socket
import ssl
import subprocess
from pathlib import Path

import far_side
from internet import Internet
from wrapping import Wrapped, command, environment

MODEL, OTHER, LOCAL = "api.anthropic.com", "www.example.com", "127.0.0.1"
NAMES = {MODEL: ["203.0.113.10", "2001:db8::10"], OTHER: ["203.0.113.20"], "six.example.com": ["2001:db8::30"]}
NAMES["proxy.example.com"] = NAMES[OTHER]
PORT = 8123


class World:
    """Servers: TLS on 443 for both names, plain HTTP on `PORT` of several addresses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.net = Internet(folder, NAMES)
        self.servers: list[far_side.Server] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*far_side.certificate(folder, tuple(NAMES)))
        self.tls = {host: self._keep(self._tls(host)) for host in {one: 0 for hosts in NAMES.values() for one in hosts}}
        self.plain = {
            host: self._keep(far_side.http(self.net.listen(host, PORT), host))
            for host in (LOCAL, "::1", "203.0.113.10", "203.0.113.20")
        }

    def _keep(self, server: far_side.Server) -> far_side.Server:
        self.servers.append(server)
        return server

    def serve(self, listener: socket.socket, talk: far_side.Talk) -> far_side.Server:
        """One more server."""
        return self._keep(far_side.Server(listener, talk))

    def _tls(self, host: str) -> far_side.Server:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nsecure\n"

        def talk(connection: socket.socket) -> None:
            if not connection.recv(1, socket.MSG_PEEK):
                return  # an SSLSocket that meets a reset on its way up is never closed
            with self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as inner:
                inner.do_handshake()
                server.heard.append(inner.recv(65536))
                inner.sendall(answer)
                inner.unwrap().close()

        server = far_side.Server(self.net.listen(host, 443), talk)
        return server

    def run(
        self, *words: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None, trusts: bool = True
    ) -> Wrapped:
        process = self.start(*words, options=options, env=env, trusts=trusts)
        out, error = process.communicate(timeout=300)
        return Wrapped(process.returncode, out, error, self.folder / "run.agentlog")

    def start(
        self, *words: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None, trusts: bool = True
    ) -> "subprocess.Popen[bytes]":
        (self.folder / "run.agentlog").unlink(missing_ok=True)
        more = {"SSL_CERT_FILE": str(self.folder / "ca.pem")} if trusts else {}
        return self.net.popen(
            command(self.folder / "run.agentlog", *words, options=options),
            env={**environment(self.folder), **more, **(env or {})},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder,
        )  # fmt: skip

    def close(self) -> None:
        for server in self.servers:
            server.close()
        self.net.close()


def exchanges(ran: Wrapped) -> list[tuple[str, str, str]]:
    """Scheme, host and path of what was read."""
    return [(e.data.get("scheme", "https"), e.data["host"], e.data["path"]) for e in ran.events("http.exchange")]


def coverage(ran: Wrapped) -> str:
    (row,) = (event.data for event in ran.events("coverage") if event.data["what"] == "model")
    return f"{row['tier']} {row.get('mechanism', '')}".strip()
