"""Small servers for a test's internet: one thread each, on sockets that exist already."""

import datetime as dt
import select
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path

from agentwrap.gateway import dns

Talk = Callable[[socket.socket], None]


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """A connected pair on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname(), timeout=300)
        far, _ = listener.accept()
    far.settimeout(300)
    return near, far


def shut(sock: socket.socket) -> None:
    """Whoever waits for it is woken, and closes it: a number that is free again belongs to somebody else at once."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # no peer: inet_shutdown (net/ipv4/af_inet.c) wakes all the same; or it is closed


class Server:
    """Accepts on `listener` and has `talk` with each connection, in a thread of its own. `peers` counts them."""

    def __init__(self, listener: socket.socket, talk: Talk) -> None:
        self.listener = listener
        self.talk = talk
        self.heard: list[bytes] = []
        self.peers = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with self.listener:
            while True:
                try:
                    connection, _ = self.listener.accept()
                except OSError:
                    return
                self.peers += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                self.talk(connection)
            except OSError:
                pass

    def close(self) -> None:
        shut(self.listener)
        self._thread.join(300)


def http(listener: socket.socket, name: str) -> Server:
    """HTTP/1.1 with keep-alive: answers every request with its own name, the Host and the target."""

    def talk(connection: socket.socket) -> None:
        buffer = b""
        while True:
            while b"\r\n\r\n" not in buffer:
                data = connection.recv(65536)
                if not data:
                    return
                buffer += data
            head, _, buffer = buffer.partition(b"\r\n\r\n")
            server.heard.append(head)
            lines = head.split(b"\r\n")
            host = next((line[6:] for line in lines if line.lower().startswith(b"host: ")), b"")
            body = name.encode() + b" " + host + b" " + lines[0].split()[1] + b"\n"
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    server = Server(listener, talk)
    return server


def join(one: socket.socket, other: socket.socket) -> None:
    """Bytes both ways until one of them ends."""
    ends = {one: other, other: one}
    while ready := select.select([*ends], [], [], 300)[0]:
        for end in ready:
            if not (data := end.recv(65536)):
                return
            ends[end].sendall(data)


def echo(listener: socket.socket) -> Server:
    """Sends back what it hears, and its end when it hears one."""

    def talk(connection: socket.socket) -> None:
        while data := connection.recv(65536):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)

    return Server(listener, talk)


def tls(listener: socket.socket, folder: Path, *names: str, protocols: tuple[str, ...] = ()) -> Server:
    """TLS for these names, then one HTTP answer. `folder` gets `ca.pem` for the clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(folder, names))
    if protocols:
        context.set_alpn_protocols(list(protocols))

    def talk(connection: socket.socket) -> None:
        if not connection.recv(1, socket.MSG_PEEK):
            return  # an SSLSocket that meets a reset on its way up is never closed
        with context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as inner:
            inner.do_handshake()
            server.heard.append(inner.recv(65536))
            # Without a length: a client that has all of it would close while our end of TLS comes, which is a reset.
            inner.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nsecure\n")
            inner.unwrap().close()

    server = Server(listener, talk)
    return server


def certificate(folder: Path, names: tuple[str, ...]) -> tuple[Path, Path]:
    """A certificate for the names, of an authority of its own, and its key. `folder`/ca.pem is the authority's."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    start = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    above = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority of a test")])
    own = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])])
    above_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())

    def signed(subject: x509.Name, public: ec.EllipticCurvePublicKey, *more: tuple[x509.ExtensionType, bool]) -> bytes:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(above).public_key(public)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(start)
        builder = builder.not_valid_after(start + dt.timedelta(days=30))
        for extension, critical in more:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(above_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    limits = x509.BasicConstraints(ca=True, path_length=None), True
    alternatives = x509.SubjectAlternativeName([x509.DNSName(one) for one in names]), False
    no_authority = x509.BasicConstraints(ca=False, path_length=None), True
    trusted, public, private = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
    trusted.write_bytes(signed(above, above_key.public_key(), limits))
    public.write_bytes(signed(own, key.public_key(), alternatives, no_authority))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    trusted.chmod(0o644)
    return public, private


class Names:
    """A name server that knows `names`; `asked` keeps what it was asked, in order."""

    def __init__(self, sock: socket.socket, names: Mapping[str, Sequence[str]]) -> None:
        self.names = dict(names)
        self.asked: list[str] = []
        self._sock = sock
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            data, peer = self._sock.recvfrom(4096)
            if not data:
                return
            query = dns.parse_query(data)
            self.asked.append(query.name)
            found = [ip_address(one) for one in self.names.get(query.name.lower(), ())]
            rcode = dns.NOERROR if query.name.lower() in self.names else dns.NXDOMAIN
            try:
                self._sock.sendto(dns.reply(query, rcode=rcode, addresses=found), peer)
            except OSError:
                return

    def close(self) -> None:
        shut(self._sock)
        self._thread.join(300)
        self._sock.close()
