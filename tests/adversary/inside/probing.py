"""How a program inside tries things and tells what came of it. Standard library alone: it runs in any container.

An attempt is a function in a forked child. It returns proof that it got through (what a server answered, what it could
read or write), returns nothing if it did not, or raises OSError with the kernel's refusal. Its own word is only half of
the verdict: the harness reads what the servers outside logged, and what was recorded, by the pids told here.
"""

import ctypes
import errno
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from addresses import token

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
LETTERS = "abcdefghijklmnopqrstuvwxyz"
# A refusal has to come at once, and an answer does: this long passes only where neither ever comes.
PATIENCE_S = 120.0
HUNG_S = 900.0


class Skip(Exception):  # noqa: N818 -- it is an answer
    """This attempt cannot be made on this machine; the reason."""


class Told(OSError):  # noqa: N818 -- it is an answer
    """Refused by an answer instead of by the kernel: a 403, NXDOMAIN, an alert."""

    def __init__(self, words: str) -> None:
        super().__init__(0, words)


class Row:
    """The attempts of one row, in order: `a`, `b`, ..."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.attempts: list[dict[str, object]] = []

    def attempt(self, what: str, work: Callable[[str], object], **told: object) -> None:
        """Try it in a child. `told`: what the harness needs to find its rows (`host`, `port`, `path`)."""
        letter = LETTERS[len(self.attempts)]
        mark = token(self.number, letter)
        reading, writing = os.pipe()
        started = time.monotonic()
        pid = os.fork()
        if not pid:
            os.close(reading)
            _child(writing, work, mark)
        os.close(writing)
        said, hung = _listen(reading)
        os.close(reading)
        if hung:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        result = {"reached": "", "refused": "", "detail": "", "skipped": "", "more": {}}
        if said:
            result |= json.loads(said)
        elif hung:
            result["refused"] = "hung"
        else:
            result["refused"] = f"killed by {-os.waitstatus_to_exitcode(status)}"
        took = {"took_s": round(time.monotonic() - started, 2)}
        self.attempts.append({"letter": letter, "what": what, "token": mark, "pid": pid, **told, **result, **took})


def _child(writing: int, work: Callable[[str], object], mark: str) -> None:
    result: dict[str, object] = {}
    try:
        proof = work(mark)
        result = proof if isinstance(proof, dict) else {"reached": str(proof or "")}
    except Skip as skip:
        result = {"skipped": str(skip)}
    except TimeoutError as error:
        result = {"refused": "timeout", "detail": str(error)}
    except OSError as error:
        result = {"refused": errno.errorcode.get(error.errno or 0, type(error).__name__), "detail": str(error)}
    except Exception as error:  # a fault of the probe's own: the harness fails on it
        result = {"refused": "fault", "detail": f"{type(error).__name__}: {error}"}
    os.write(writing, json.dumps(result).encode())
    os._exit(0)


def _listen(descriptor: int) -> tuple[bytes, bool]:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    if not poller.poll(HUNG_S * 1000):
        return b"", True
    return os.read(descriptor, 65536), False


def syscall(number: int, *arguments: object) -> int:
    """syscall(2); integers and ctypes pointers. Raises OSError."""
    ctypes.set_errno(0)
    wrapped = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = int(libc.syscall(ctypes.c_long(number), *wrapped))
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def sockaddr(host: str, port: int) -> bytes:
    if ":" in host:
        return struct.pack("=H", 10) + struct.pack("!HI", port, 0) + socket.inet_pton(10, host) + bytes(4)
    return struct.pack("=H", 2) + struct.pack("!H", port) + socket.inet_aton(host) + bytes(8)


def family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def dial(host: str, port: int, *, protocol: int = 0) -> socket.socket:
    """A connection to an address (names are resolved)."""
    if protocol or host.replace(".", "").isdigit() or ":" in host:
        sock = socket.socket(family_of(host), socket.SOCK_STREAM, protocol)
        sock.settimeout(PATIENCE_S)
        sock.connect((host, port))
        return sock
    return socket.create_connection((host, port), timeout=PATIENCE_S)


def converse(sock: socket.socket, payload: bytes) -> str:
    """Send, and what came back from outside; raises where it was agentwrap that answered, or nobody."""
    sock.settimeout(PATIENCE_S)
    sock.sendall(payload)
    answer = b""
    while b"outside\n" not in answer and len(answer) < 65536:
        chunk = sock.recv(65536)
        if not chunk:
            break
        answer += chunk
    return verdict(answer)


def verdict(answer: bytes) -> str:
    if b"outside\n" in answer:
        return "answered: " + answer[-60:].decode("latin-1")
    if b"X-Agentwrap-Denied" in answer or b"agentwrap" in answer.lower():
        raise Told("403 by agentwrap: " + answer.split(b"\r\n", 1)[0].decode("latin-1"))
    if answer:
        raise Told("answered otherwise: " + answer[:80].decode("latin-1"))
    raise ConnectionResetError(errno.ECONNRESET, "closed without an answer")


def say(host: str, port: int, mark: str, **keywords: int) -> str:
    """Connect, send the mark, and what came back."""
    with dial(host, port, **keywords) as sock:
        return converse(sock, mark.encode() + b"\n")


def get(sock: socket.socket, host: str, path: str, *, method: str = "GET", more: str = "", body: bytes = b"") -> str:
    """One HTTP/1.1 request on an open connection; the path carries the mark."""
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return converse(sock, head.encode("latin-1") + body)


def lookup(name: str) -> list[str]:
    """Addresses by the C library. Raises OSError."""
    try:
        found = socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise Told(f"getaddrinfo: {error}") from error
    return [str(one[4][0]) for one in found]


def labels(name: bytes) -> bytes:
    return b"".join(bytes([len(part)]) + part for part in name.split(b".") if part) + b"\0"


def ask(name: bytes | list[bytes], server: str, port: int = 53, *, stream: bool = False, kind: int = 1) -> str:
    """One question to a name server, built by hand so that no library cleans it up; answers or a refusal."""
    encoded = b"".join(bytes([len(part)]) + part for part in name) + b"\0" if isinstance(name, list) else labels(name)
    query = struct.pack("!HHHHHH", 0x4242, 0x0100, 1, 0, 0, 0) + encoded + struct.pack("!HH", kind, 1)
    if stream:
        with dial(server, port) as sock:
            sock.sendall(struct.pack("!H", len(query)) + query)
            (size,) = struct.unpack("!H", sock.recv(2, socket.MSG_WAITALL) or b"\0\0")
            answer = sock.recv(size, socket.MSG_WAITALL)
    else:
        with socket.socket(family_of(server), socket.SOCK_DGRAM) as sock:
            sock.settimeout(PATIENCE_S)
            sock.sendto(query, (server, port))
            answer = sock.recv(4096)
    if answer == b"outside\n":
        return "answered: outside"
    if len(answer) < 12:
        raise ConnectionResetError(errno.ECONNRESET, "closed without an answer")
    flags, count = struct.unpack_from("!HxxH", answer, 2)
    if flags & 15 or not count:
        raise Told(f"rcode {flags & 15}, {count} answers")
    return f"{count} answers"


def python() -> str:
    return sys.executable


def supervisors() -> list[int]:
    """Pids of the agentwrap that runs us: processes whose arguments name our recording, and no others.

    What lies above it (a test runner, a shell) and agentwraps of other people must never be touched by an attempt.
    """
    if os.environ.get("ADVERSARY_BARE"):
        return [os.getppid()]  # no agentwrap: what the machine says of another process of ours
    recording = (os.environ["ADVERSARY_FOLDER"] + "/run.agentlog").encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"agentwrap" in words and recording in words and entry.name != str(os.getpid()):
                found.append(int(entry.name))
    return found
