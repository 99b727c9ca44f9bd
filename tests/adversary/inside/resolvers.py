"""Rows 13 to 22: name service as a way out, datagrams, other protocols and families, switches that turn proxies off."""

import ctypes
import errno
import os
import shutil
import socket
import struct
import subprocess
import urllib.request

from addresses import ALLOWED, RESOLVER, forbidden, forbidden_6
from probing import PATIENCE_S, Row, Skip, Told, ask, dial, get, libc, lookup, say, sockaddr, verdict

MSG_FASTOPEN = 0x20000000


def row_13(row: Row) -> None:
    row.attempt("a refused name, by the C library", lambda mark: lookup(f"{mark}.row13.example"))
    row.attempt("a refused name, by hand", lambda mark: ask(f"{mark}.row13.example".encode(), RESOLVER))
    row.attempt("other types of a refused name", lambda mark: ask(f"{mark}.row13.example".encode(), RESOLVER, kind=16))


def row_14(row: Row) -> None:
    data = "6461746120696e2061206e616d65" * 2
    row.attempt(
        "data in a name under an allowed one", lambda mark: ask(f"{data}.{mark}.allowed.example".encode(), RESOLVER)
    )
    row.attempt("data in the type TXT", lambda mark: ask(f"{data}.{mark}.row14.example".encode(), RESOLVER, kind=16))
    row.attempt(
        "data in a name under an allowed suffix", lambda mark: ask(f"{data}.{mark}.suffix.example".encode(), RESOLVER)
    )


def row_15(row: Row) -> None:
    def name(mark: str) -> bytes:
        return f"{mark}.row15.example".encode()

    row.attempt("by TCP", lambda mark: ask(name(mark), RESOLVER, stream=True))
    row.attempt("another resolver", lambda mark: ask(name(mark), forbidden(15)))
    row.attempt("another resolver by TCP", lambda mark: ask(name(mark), forbidden(15), stream=True))
    row.attempt("an odd port", lambda mark: ask(name(mark), forbidden(15), 5353), port=5353)
    row.attempt("an odd port by TCP", lambda mark: ask(name(mark), forbidden(15), 5353, stream=True), port=5353)


def row_16(row: Row) -> None:
    def over_https(mark: str) -> str:
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with dial(forbidden(16), 443) as plain, context.wrap_socket(plain, server_hostname="doh.row16.example") as sock:
            return get(sock, "doh.row16.example", f"/dns-query?{mark}", method="POST")

    row.attempt("DNS over HTTPS", over_https, port=443)
    row.attempt("DNS over TLS", lambda mark: say(forbidden(16), 853, mark), port=853)


def _receive(sock: socket.socket) -> str:
    sock.settimeout(PATIENCE_S)
    return sock.recv(100).decode()


def row_17(row: Row) -> None:
    where = (forbidden(17), 9999)

    def sendto(mark: str) -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(mark.encode(), where)
            return _receive(sock)

    def sendmsg(mark: str) -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendmsg([mark.encode()], [], 0, where)
            return _receive(sock)

    def second(mark: str) -> str:
        """One question that is answered, then the real one from the same socket."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"\x42\x42\x01\0\0\1\0\0\0\0\0\0\7allowed\7example\0\0\1\0\1", (RESOLVER, 53))
            _receive_bytes(sock)
            sock.sendto(mark.encode(), where)
            return _receive(sock)

    def connected(mark: str) -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(where)
            sock.send(mark.encode())
            return _receive(sock)

    row.attempt("sendto", sendto, port=9999)
    row.attempt("sendmsg", sendmsg, port=9999)
    row.attempt("sendmmsg, the second to another address", lambda mark: _many(mark, where), port=9999)
    row.attempt("a second datagram to another address", second, port=9999)
    row.attempt("a connected socket", connected, port=9999)


def _receive_bytes(sock: socket.socket) -> bytes:
    sock.settimeout(PATIENCE_S)
    return sock.recv(4096)


def _many(mark: str, where: tuple[str, int]) -> str:
    """sendmmsg(2): two messages in one call."""
    keep, headers = [], b""
    for data, address in (
        (b"\x42\x42\x01\0\0\1\0\0\0\0\0\0\7allowed\7example\0\0\1\0\1", (RESOLVER, 53)),
        (mark.encode(), where),
    ):
        name = ctypes.create_string_buffer(sockaddr(*address))
        text = ctypes.create_string_buffer(data, len(data))
        vector = ctypes.create_string_buffer(struct.pack("@PN", ctypes.addressof(text), len(data)))
        keep += [name, text, vector]
        headers += struct.pack(
            "@PIxxxxPNPNixxxxIxxxx", ctypes.addressof(name), 16, ctypes.addressof(vector), 1, 0, 0, 0, 0
        )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        ctypes.set_errno(0)
        sent = libc.sendmmsg(sock.fileno(), ctypes.create_string_buffer(headers, len(headers)), 2, 0)
        if sent < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        if sent == 1:  # sendmmsg(2): the error of a later message is told at the next call
            raise PermissionError(errno.EPERM, "the first message was sent, the second was not")
        sock.settimeout(PATIENCE_S)
        for _ in range(2):
            data = sock.recv(4096)
            if data.startswith(b"outside"):
                return data.decode()
        return ""


def row_18(row: Row) -> None:
    def quic(mark: str, host: str) -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((host, 443))
            sock.send(b"\xc0\0\0\0\1\x08" + mark.encode() + bytes(1200))
            return _receive(sock)

    row.attempt("to an allowed host", lambda mark: quic(mark, ALLOWED), host=ALLOWED, port=443)
    row.attempt("to another", lambda mark: quic(mark, forbidden(18)), port=443)


def row_19(row: Row) -> None:
    def echo(mark: str, kind: int, protocol: int, family: int, host: str, patience_s: float = PATIENCE_S) -> str:
        with socket.socket(family, kind, protocol) as sock:
            sock.settimeout(patience_s)
            first = 128 if family == socket.AF_INET6 else 8
            body = struct.pack("!BBHHH", first, 0, 0, 7, 1) + mark.encode()
            if kind == socket.SOCK_RAW and family == socket.AF_INET:
                words = body + bytes(len(body) % 2)
                total = sum(struct.unpack(f"!{len(words) // 2}H", words))
                total = (total >> 16) + (total & 0xFFFF)
                body = body[:2] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + body[4:]
            sock.sendto(body, (host, 0))
            return "sent and answered" if mark.encode() in sock.recv(2000) else ""

    four, six = (socket.AF_INET, forbidden(19)), (socket.AF_INET6, forbidden_6(19))
    icmp, icmp6 = socket.IPPROTO_ICMP, socket.IPPROTO_ICMPV6
    row.attempt("an echo", lambda mark: echo(mark, socket.SOCK_DGRAM, icmp, *four))
    # Nobody refuses this one to its face: only the record of its denial tells.
    row.attempt("an echo by IPv6", lambda mark: echo(mark, socket.SOCK_DGRAM, icmp6, *six, 2), unanswered=True)
    row.attempt("a raw socket", lambda mark: echo(mark, socket.SOCK_RAW, icmp, *four))

    def packet(_mark: str) -> str:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as sock:
            sock.bind(("lo", 0))
            return "a packet socket on lo"

    row.attempt("a packet socket", packet)


def row_20(row: Row) -> None:

    def multipath(mark: str) -> str:
        """MPTCP, and where the protocol is refused TCP, as every program that speaks it does."""
        try:
            return say(forbidden(20), 80, mark, protocol=262)
        except OSError as error:
            if error.errno != errno.EPROTONOSUPPORT:
                raise
        return say(forbidden(20), 80, mark)

    row.attempt("MPTCP, or TCP where that is refused", multipath, port=80)

    def sctp(mark: str) -> str:
        try:
            return say(forbidden(20), 80, mark, protocol=132)
        except OSError as error:
            if error.errno == errno.EPROTONOSUPPORT:
                raise Skip("no SCTP in this kernel") from error
            raise

    row.attempt("SCTP", sctp, port=80)

    def fast_open(mark: str) -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.settimeout(PATIENCE_S)
            sock.sendto(mark.encode() + b"\n", MSG_FASTOPEN, (forbidden(20), 9999))
            return verdict(sock.recv(100))

    row.attempt("TCP fast open", fast_open, port=9999)

    def lazily(mark: str) -> str:
        """TCP_FASTOPEN_CONNECT: connect does nothing, the first write does it all."""
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, 30, 1)
            sock.settimeout(PATIENCE_S)
            sock.connect((forbidden(20), 9999))
            sock.sendall(mark.encode() + b"\n")
            return verdict(sock.recv(100))

    row.attempt("TCP fast open at connect", lazily, port=9999)


def row_21(row: Row) -> None:
    families = {"vsock": 40, "alg": 38, "tipc": 30, "bluetooth": 31, "can": 29, "key": 15, "qipcrtr": 42, "xdp": 44}
    for name, number in families.items():

        def make(_mark: str, number: int = number) -> str:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW):
                try:
                    socket.socket(number, kind, 0).close()
                except OSError as error:
                    last = error
                else:
                    return f"a socket of family {number}"
            raise last

        row.attempt(name, make)


def row_22(row: Row) -> None:
    def without_proxy(mark: str) -> str:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        os.environ["NO_PROXY"] = "*"
        try:
            return opener.open(f"http://{forbidden(22)}/{mark}", timeout=PATIENCE_S).read().decode()
        except urllib.error.HTTPError as error:
            return verdict(str(error.headers).encode() + error.read())
        except urllib.error.URLError as error:
            if isinstance(error.reason, OSError):
                raise error.reason from error
            raise Told(str(error)) from error

    row.attempt("NO_PROXY=*", without_proxy, port=80)

    def curl(mark: str) -> str:
        if not shutil.which("curl"):
            raise Skip("no curl here")
        command = ["curl", "-sS", "--noproxy", "*", "-m", str(PATIENCE_S), f"http://{forbidden(22)}/{mark}"]
        done = subprocess.run(command, capture_output=True)
        return verdict(done.stdout) if done.stdout else ""

    row.attempt("curl --noproxy", curl, port=80)
