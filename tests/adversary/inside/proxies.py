"""Rows 23 to 32: what is said inside of a connection that was allowed."""

import contextlib
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from addresses import ALLOWED, LOOPBACK_PORT, RESOLVER, forbidden
from probing import PATIENCE_S, Row, Skip, Told, ask, converse, dial, get, say, verdict


def _known() -> None:
    """Ask for the name as any client does, so that its address is known by it."""
    with contextlib.suppress(OSError):
        ask(b"allowed.example", RESOLVER)


def _plain() -> socket.socket:
    _known()
    return dial(ALLOWED, 80)


def _secure(name: str) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _known()
    return context.wrap_socket(dial(ALLOWED, 443), server_hostname=name or None)


def row_23(row: Row) -> None:
    def shown(mark: str) -> str:
        with _secure(f"{mark}.row23.example") as sock:
            return get(sock, "allowed.example", f"/{mark}")

    def inner(mark: str) -> str:
        with _secure("allowed.example") as sock:
            return get(sock, f"{mark}.row23.example", f"/{mark}")

    def nameless(mark: str) -> str:
        with _secure("") as sock:
            return get(sock, f"{mark}.row23.example", f"/{mark}")

    row.attempt("SNI is another name", shown)
    row.attempt("the Host inside of TLS is another name", inner)
    row.attempt("no SNI", nameless)


def row_24(row: Row) -> None:
    def request(mark: str, host: str) -> str:
        with _plain() as sock:
            return get(sock, host, f"/{mark}")

    row.attempt("the name that was dialled (allowed)", lambda mark: request(mark, "allowed.example"))
    row.attempt("another Host", lambda mark: request(mark, "row24.example"))
    row.attempt("an allowed Host, another address", _elsewhere, port=80)


def _elsewhere(mark: str) -> str:
    with dial(forbidden(24), 80) as sock:
        return get(sock, "allowed.example", f"/{mark}")


def _connect(sock: socket.socket, authority: str) -> None:
    sock.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
    sock.settimeout(PATIENCE_S)
    answer = sock.recv(4096)
    if b" 200 " not in answer.split(b"\r\n", 1)[0]:
        verdict(answer)


def row_25(row: Row) -> None:
    def tunnel(mark: str) -> str:
        with _plain() as sock:
            _connect(sock, f"{mark}.row25.example:443")
            return converse(sock, mark.encode())

    row.attempt("CONNECT through an allowed host", tunnel)
    row.attempt("CONNECT to a proxy's port", lambda mark: say(forbidden(25), 3128, mark), port=3128)


def row_26(row: Row) -> None:
    def follow(mark: str, host: str) -> str:
        _known()
        url = f"http://allowed.example/redirect/{host}/{mark[::-1]}"
        try:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            return opener.open(url, timeout=PATIENCE_S).read().decode()
        except urllib.error.HTTPError as error:
            return verdict(str(error.headers).encode() + error.read())
        except urllib.error.URLError as error:
            if isinstance(error.reason, socket.gaierror) or not isinstance(error.reason, OSError):
                raise Told(str(error)) from error
            raise error.reason from error

    row.attempt("to a name", lambda mark: follow(mark, "row26.example"))
    row.attempt("to an address", lambda mark: follow(mark, forbidden(26)), port=80)


def row_27(row: Row) -> None:
    def upgrade(mark: str) -> str:
        with _plain() as sock:
            more = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
            sock.sendall(f"GET /{mark} HTTP/1.1\r\nHost: allowed.example\r\n{more}\r\n".encode())
            sock.settimeout(PATIENCE_S)
            answer = sock.recv(4096)
            if b" 101 " not in answer:
                return verdict(answer)
            return converse(sock, b"anything at all " + mark.encode())

    row.attempt("an upgrade, then anything", upgrade, see_bytes=True)


def row_28(row: Row) -> None:
    def again(mark: str) -> str:
        with _plain() as sock:
            get(sock, "allowed.example", "/first")
            return get(sock, f"{mark}.row28.example", f"/{mark}")

    def piped(mark: str) -> str:
        with _plain() as sock:
            one = "GET /first HTTP/1.1\r\nHost: allowed.example\r\n\r\n"
            two = f"GET /{mark} HTTP/1.1\r\nHost: {mark}.row28.example\r\n\r\n"
            sock.sendall((one + two).encode())
            sock.settimeout(PATIENCE_S)
            answer = b""
            while answer.count(b"outside\n") < 2:
                chunk = sock.recv(65536)
                if not chunk:
                    break
                answer += chunk
            return "both answered" if answer.count(b"outside\n") == 2 else verdict(answer.partition(b"outside\n")[2])

    def second(mark: str) -> str:
        """HTTP/2 with prior knowledge: settings and one request with another authority (RFC 9113)."""

        def text(index: int, value: str) -> bytes:
            return bytes([index]) + bytes([len(value)]) + value.encode()  # literal, never indexed, indexed name

        block = b"\x82\x86" + text(0x04, f"/{mark}") + text(0x01, f"{mark}.row28.example")
        frames = struct.pack("!I", 0)[1:] + b"\x04\0\0\0\0\0"
        frames += struct.pack("!I", len(block))[1:] + b"\x01\x05\0\0\0\1" + block
        with _plain() as sock:
            return converse(sock, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frames)

    row.attempt("a second request for another host", again)
    row.attempt("both requests at once", piped)
    row.attempt("HTTP/2, another authority", second)


def row_29(row: Row) -> None:
    def absolute(mark: str) -> str:
        with _plain() as sock:
            where = f"127.0.0.1:{LOOPBACK_PORT}"
            return get(sock, where, f"http://{where}/{mark}")

    def tunnel(mark: str) -> str:
        with _plain() as sock:
            _connect(sock, f"127.0.0.1:{LOOPBACK_PORT}")
            return converse(sock, mark.encode())

    row.attempt("absolute form", absolute)
    row.attempt("CONNECT", tunnel)
    row.attempt("directly", lambda mark: say("127.0.0.1", LOOPBACK_PORT, mark), host="127.0.0.1", port=LOOPBACK_PORT)
    row.attempt(
        "by the name localhost",
        lambda mark: say("localhost", LOOPBACK_PORT, mark),
        host="127.0.0.1",
        port=LOOPBACK_PORT,
    )


def row_30(row: Row) -> None:
    row.attempt("another host, a port that is allowed elsewhere", lambda mark: say(forbidden(30), 80, mark), port=80)

    def own_port(mark: str) -> str:
        """A port that the run itself listens on opens nothing outside."""
        with socket.socket() as server:
            server.bind(("127.0.0.1", 9999))
            server.listen()
            return say(forbidden(30), 9999, mark)

    row.attempt("another host, a port of our own", own_port, port=9999)


def row_31(row: Row) -> None:
    def by_file(mark: str) -> str:
        """Every socket in the places where agentwrap keeps its own."""
        places = [os.environ.get(f"XDG_{one}", "") for one in ("RUNTIME_DIR", "STATE_HOME")]
        places += [f"/run/user/{os.getuid()}/agentwrap", "/run/agentwrap", "/tmp/agentwrap"]
        found = [path for place in places if place for path in Path(place).rglob("*") if path.is_socket()]
        tried = []
        for path in (one for one in found if "/agentwrap/" in str(one)):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(PATIENCE_S)
                try:
                    sock.connect(str(path))
                except OSError as error:
                    tried.append(error)
                else:
                    return f"connected to {path}"
        if tried:
            raise tried[0]
        raise FileNotFoundError(2, "no socket of agentwrap's to be found")

    def by_abstract(mark: str) -> str:
        names = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines()[1:] if " @" in line]
        for name in (one for one in names if "agentwrap" in one):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect("\0" + name[1:])
                return f"connected to {name}"
        raise FileNotFoundError(2, "no abstract socket of agentwrap's")

    def by_command(mark: str) -> str:
        command = os.environ.get("ADVERSARY_AGENTWRAP", "")
        if not command:
            raise Skip("agentwrap's own command is not known here")
        done = subprocess.run(
            [*json.loads(command), "approve", "--always", "1"], capture_output=True, text=True, timeout=PATIENCE_S
        )
        if not done.returncode:
            return f"approved: {done.stdout}"
        raise Told(done.stderr.strip()[-200:])

    row.attempt("a socket file", by_file, local=True, absent="no control socket is to be seen")
    row.attempt("an abstract socket", by_abstract, local=True, absent="it has no abstract name")
    row.attempt("`agentwrap approve`", by_command, local=True)


def row_32(row: Row) -> None:
    def post(mark: str) -> str:
        with _plain() as sock:
            return get(sock, "allowed.example", f"/{mark}", method="POST", body=b"x" * 100_000)

    row.attempt("a large body to an allowed host", post, see_bytes=100_000)

    def by_curl(mark: str) -> str:
        if not shutil.which("curl"):
            raise Skip("no curl here")
        url = f"http://allowed.example/{mark}"
        done = subprocess.run(
            ["curl", "-sS", "-m", str(PATIENCE_S), "--data-binary", "@-", url], input=b"y" * 50_000, capture_output=True
        )
        return verdict(done.stdout)

    row.attempt("the same with curl", by_curl, see_bytes=50_000)
