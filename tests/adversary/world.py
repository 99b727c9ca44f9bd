"""The outside world of the adversary: a network namespace whose loopback has all addresses, and servers that log.

`python world.py FOLDER UID` makes new network and mount namespaces (and a user namespace for a plain user), starts the
servers, prints `ready PID`, and goes away when its standard input ends. Whoever enters the namespaces of PID finds its
own `/run`, resolver and hosts file there. Nothing in it leads anywhere: there is no interface but loopback.

`FOLDER/log` gets one line of JSON for everything that reached a server: what, the address it came to, the bytes.
"""

import contextlib
import ctypes
import datetime as dt
import fcntl
import json
import os
import socket
import ssl
import struct
import sys
import threading
from collections import Counter
from pathlib import Path

import addresses

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def mount(source: str, target: str, flags: int) -> None:
    _check(_libc.mount(source.encode(), target.encode(), None, ctypes.c_ulong(flags), None))


class Log:
    """One line for each thing that arrived."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def __call__(self, what: str, local: object, data: bytes = b"", **more: object) -> None:
        text = data[:4096].decode("latin-1")
        os.write(self._file, json.dumps({"what": what, "local": str(local), "data": text, **more}).encode() + b"\n")


# -- the machine


def add_addresses() -> None:
    """Loopback up, and every address on it (rtnetlink(7), RTM_NEWADDR)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = bytearray(struct.pack("16sH22x", b"lo", 1))
        fcntl.ioctl(control, 0x8914, request)  # SIOCSIFFLAGS
    index = socket.if_nametoindex("lo")
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        for address in addresses.everything():
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            packed = socket.inet_pton(family, address)
            body = struct.pack("=BBBBi", family, len(packed) * 8, 0x02, 0, index)  # IFA_F_NODAD
            for kind in (1, 2):  # IFA_ADDRESS, IFA_LOCAL
                body += struct.pack("=HH", 4 + len(packed), kind) + packed
            link.send(struct.pack("=IHHII", 16 + len(body), 20, 0x605, 1, 0) + body)  # REQUEST|ACK|CREATE|EXCL
            (error,) = struct.unpack_from("=i", link.recv(4096), 16)
            if error:
                raise OSError(-error, f"{address}: {os.strerror(-error)}")


def separate(folder: Path) -> None:
    """Into namespaces of our own; `/run`, resolv.conf and hosts are the world's."""
    uid, gid = os.geteuid(), os.getegid()
    _check(_libc.unshare((CLONE_NEWUSER if uid else 0) | CLONE_NEWNET | CLONE_NEWNS))
    if uid:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    mount("none", "/", MS_REC | MS_PRIVATE)
    resolver = os.path.realpath("/etc/resolv.conf")
    mount(str(folder / "run"), "/run", MS_BIND)
    if resolver.startswith("/run/"):
        os.makedirs(os.path.dirname(resolver), exist_ok=True)
        Path(resolver).write_text((folder / "resolv.conf").read_text())
    else:
        mount(str(folder / "resolv.conf"), resolver, MS_BIND)
    mount(str(folder / "hosts"), "/etc/hosts", MS_BIND)


def certificate(folder: Path) -> ssl.SSLContext:
    """A server context with a key of this minute: nobody verifies it, the programs inside only want a handshake."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "allowed.example")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - dt.timedelta(1)).not_valid_after(now + dt.timedelta(2))
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    path = folder / "server.pem"
    path.write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


# -- servers


def forever(work, *arguments: object) -> None:  # type: ignore[no-untyped-def]
    threading.Thread(target=work, args=arguments, daemon=True).start()


class Servers:
    def __init__(self, log: Log, context: ssl.SSLContext) -> None:
        self.log = log
        self.context = context
        self.context.sni_callback = lambda _sock, name, _context: log("sni", "", (name or "").encode())
        self.asked: Counter[str] = Counter()

    def tcp(self, port: int) -> None:
        listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        with contextlib.suppress(OSError):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 64)
        listener.bind(("::", port))
        listener.listen(1024)
        forever(self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            forever(self._connection, connection)

    def _connection(self, connection: socket.socket) -> None:
        host, port = connection.getsockname()[:2]
        local = f"{host.removeprefix('::ffff:')}:{port}"
        self.log("accept", local)
        connection.settimeout(300)
        try:
            if port == 53 and host.endswith(addresses.RESOLVER):
                self._dns_stream(connection, local)
                return
            if connection.recv(1, socket.MSG_PEEK) == b"\x16":
                connection = self.context.wrap_socket(connection, server_side=True)
            self._talk(connection, local)
        except (OSError, ssl.SSLError):
            pass
        finally:
            connection.close()

    def _talk(self, connection: socket.socket, local: str) -> None:
        """HTTP where it looks like it, else an answer to whatever comes."""
        rings = False  # HTTP/2 by prior knowledge: answered once a request is there, not for its greeting
        more = b""  # of requests that came together, those not yet answered
        while data := more or connection.recv(65536):
            if not more:
                self.log("tcp", local, data)
            more = b""
            rings = rings or data.startswith(b"PRI * HTTP/2")
            if rings and b".example" not in data:
                continue
            word = data.split(b" ", 1)[0]
            if not (word.isalpha() and b" HTTP/1." in data.split(b"\r\n", 1)[0]):
                connection.sendall(b"outside\n")
                continue
            head, _, body = data.partition(b"\r\n\r\n")
            length = next(
                (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
            )
            while len(body) < length:
                body += connection.recv(65536)
            more = body[length:]
            connection.sendall(self._answer(word, head))

    @staticmethod
    def _answer(method: bytes, head: bytes) -> bytes:
        if method == b"CONNECT":
            return b"HTTP/1.1 200 established\r\n\r\n"
        if b"\nUpgrade:" in head:
            return b"HTTP/1.1 101 switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        target = head.split(b" ")[1]
        if target.startswith(b"/redirect/"):
            host, _, path = target.removeprefix(b"/redirect/").partition(b"/")
            where = host + b"/" + path[::-1]  # the mark goes backwards until then
            return b"HTTP/1.1 302 found\r\nLocation: http://%b\r\nContent-Length: 0\r\n\r\n" % where
        return b"HTTP/1.1 200 ok\r\nContent-Length: 8\r\n\r\noutside\n"

    def udp(self, address: str, port: int) -> None:
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((address, port))
        forever(self._datagrams, sock, f"{address}:{port}")

    def _datagrams(self, sock: socket.socket, local: str) -> None:
        while True:
            data, peer = sock.recvfrom(65536)
            self.log("udp", local, data)
            with contextlib.suppress(OSError):
                sock.sendto(self._dns(data, local) if local == f"{addresses.RESOLVER}:53" else b"outside\n", peer)

    def _dns_stream(self, connection: socket.socket, local: str) -> None:
        while size := connection.recv(2, socket.MSG_WAITALL):
            (length,) = struct.unpack("!H", size)
            answer = self._dns(connection.recv(length, socket.MSG_WAITALL), local)
            connection.sendall(struct.pack("!H", len(answer)) + answer)

    def _dns(self, query: bytes, local: str) -> bytes:
        """An answer out of `addresses.answers`, NXDOMAIN for the rest (RFC 1035)."""
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]])
            at += 1 + query[at]
        name = b".".join(labels).decode("latin-1").lower()
        (kind,) = struct.unpack_from("!H", query, at + 1)
        self.log("dns", local, name.encode("latin-1"), qtype=kind)
        four, six = addresses.answers(name, self.asked[name])
        self.asked[name] += kind == 1
        chosen = {1: four, 28: six}.get(kind, [])
        records = b""
        for address in chosen:
            packed = socket.inet_pton(socket.AF_INET6 if kind == 28 else socket.AF_INET, address)
            records += b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 1, len(packed)) + packed
        flags = 0x8180 if four or six else 0x8183
        head = query[:2] + struct.pack("!HHHHH", flags, 1, len(chosen), 0, 0)
        return head + query[12 : at + 5] + records

    def icmp(self) -> None:
        """Every ICMP packet of loopback that carries something of ours."""
        for family, protocol in ((socket.AF_INET, socket.IPPROTO_ICMP), (socket.AF_INET6, socket.IPPROTO_ICMPV6)):
            sock = socket.socket(family, socket.SOCK_RAW, protocol)
            forever(self._packets, sock)

    def _packets(self, sock: socket.socket) -> None:
        while True:
            data, peer = sock.recvfrom(65536)
            # Errors about a refused packet quote it; only echoes and their replies are something that got through.
            kind = data[20] if sock.family == socket.AF_INET else data[0]
            if kind in (0, 8, 128, 129):
                self.log("icmp", peer[0], data)

    def unix(self, path: str, kind: socket.SocketKind = socket.SOCK_STREAM) -> None:
        sock = socket.socket(socket.AF_UNIX, kind)
        sock.bind(path)
        if not path.startswith("\0"):
            os.chmod(path, 0o777)
        name = path.replace("\0", "@")
        if kind == socket.SOCK_DGRAM:
            forever(self._unix_datagrams, sock, name)
        else:
            sock.listen(64)
            forever(self._unix_streams, sock, name)

    def _unix_datagrams(self, sock: socket.socket, name: str) -> None:
        while True:
            self.log("unix", name, sock.recv(65536))

    def _unix_streams(self, sock: socket.socket, name: str) -> None:
        while True:
            connection, _ = sock.accept()
            self.log("unix", name)
            forever(self._unix_talk, connection, name)

    def _unix_talk(self, connection: socket.socket, name: str) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65536):
                self.log("unix", name, data)
                connection.sendall(b"outside\n")

    def passer(self, path: str) -> None:
        """Hands everybody who asks a socket that is connected to the address of row 37."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.bind(path)
        os.chmod(path, 0o777)
        sock.listen(16)
        forever(self._pass, sock)

    @staticmethod
    def _pass(sock: socket.socket) -> None:
        while True:
            connection, _ = sock.accept()
            with connection, socket.create_connection((addresses.forbidden(37), 9999)) as given:
                socket.send_fds(connection, [b"have it"], [given.fileno()])


UNIX_IN_RUN = (
    "docker.sock",
    "containerd/containerd.sock",
    "podman/podman.sock",
    "dbus/system_bus_socket",
    "systemd/private",
    "user/{uid}/bus",
    "user/{uid}/systemd/private",
    "user/{uid}/wayland-0",
    "user/{uid}/pipewire-0",
    "user/{uid}/gnupg/S.gpg-agent",
    "user/{uid}/keyring/ssh",
)
ABSTRACT = ("adversary", "/tmp/.X11-unix/X0")


def start(folder: Path, uid: str) -> Servers:
    servers = Servers(Log(folder / "log"), certificate(folder))
    for port in addresses.TCP_PORTS:
        servers.tcp(port)
    for address in addresses.everything():
        for port in addresses.UDP_PORTS:
            servers.udp(address, port)
    servers.udp("127.0.0.1", addresses.LOOPBACK_PORT)
    servers.udp(addresses.RESOLVER, 53)
    servers.udp(addresses.forbidden(15), 53)
    servers.icmp()
    for name in UNIX_IN_RUN:
        path = folder / "run" / name.format(uid=uid)
        path.parent.mkdir(parents=True, exist_ok=True)
        servers.unix(f"/run/{name.format(uid=uid)}")
    if not os.geteuid():
        for path in (folder / "run/user", *(folder / "run/user").rglob("*")):
            os.chown(path, int(uid), int(uid))
    servers.unix("/run/systemd/notify", socket.SOCK_DGRAM)
    for name in ABSTRACT:
        servers.unix("\0" + name)
    servers.passer(str(folder / "passer.sock"))
    return servers


def main(folder: Path, uid: str) -> None:
    (folder / "run").mkdir(exist_ok=True)
    (folder / "resolv.conf").write_text(f"nameserver {addresses.RESOLVER}\noptions timeout:30 attempts:1\n")
    (folder / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    separate(folder)
    add_addresses()
    start(folder, uid)
    sys.stdout.write(f"ready {os.getpid()}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
