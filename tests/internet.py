"""An internet of a test's own: a network namespace with loopback and some addresses, and names that lead there.

Nothing in it can reach anything outside of it. A helper process holds it and makes sockets in it for the test; the
program under test is started inside.
"""

import ctypes
import errno
import fcntl
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from agentwrap.launching import namespaces

_SIOCSIFADDR, _SIOCSIFFLAGS, _SIOCSIFNETMASK = 0x8916, 0x8914, 0x891C
_IFF_UP_RUNNING = 0x41
_MS_BIND = 4096
_libc = ctypes.CDLL(None, use_errno=True)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("=16sH14x", b"lo", _IFF_UP_RUNNING))


def _add4(index: int, address: str) -> None:
    alias = f"lo:{index}".encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fields = struct.pack("=16sHH4s8x", alias, socket.AF_INET, 0, socket.inet_aton(address))
        fcntl.ioctl(sock, _SIOCSIFADDR, fields)
        mask = struct.pack("=16sHH4s8x", alias, socket.AF_INET, 0, b"\xff" * 4)
        fcntl.ioctl(sock, _SIOCSIFNETMASK, mask)


def _add6(address: str) -> None:
    # struct in6_ifreq (linux/ipv6.h): address, prefix length, interface index
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFADDR, struct.pack("=16sIi", socket.inet_pton(socket.AF_INET6, address), 128, 1))
    while not _usable6(address):
        pass


def _usable6(address: str) -> bool:
    """A kernel thread makes an address usable a moment after it was added (net/ipv6/addrconf.c, addrconf_dad_work)."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind((address, 0))
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            return False
    return True


def _bind_over(source: Path, target: str) -> None:
    if _libc.mount(os.fsencode(source), target.encode(), None, _MS_BIND, None):
        raise OSError(ctypes.get_errno(), f"mount over {target}")


class Internet:
    """Names and addresses. `names`: host name to its addresses, all of which exist in here."""

    def __init__(self, folder: Path, names: Mapping[str, Sequence[str]]) -> None:
        hosts = folder / "hosts"
        lines = ["127.0.0.1 localhost", "::1 localhost"]
        lines += [f"{address} {name}" for name, addresses in names.items() for address in addresses]
        hosts.write_text("\n".join(lines) + "\n")
        resolver = folder / "resolv.conf"
        resolver.write_text("nameserver 127.0.0.1\noptions timeout:30 attempts:1\n")
        order = folder / "nsswitch.conf"
        order.write_text("hosts: files dns\n")
        for file in (hosts, resolver, order):
            file.chmod(0o644)
        addresses = dict.fromkeys(one for some in names.values() for one in some)
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._pid = os.fork()
        if self._pid == 0:
            self._channel.close()
            self._hold(theirs, [(hosts, "/etc/hosts"), (resolver, "/etc/resolv.conf"), (order, "/etc/nsswitch.conf")],
                       list(addresses))  # fmt: skip
        theirs.close()
        answer = self._channel.recv(1024)
        if answer != b"ready":
            os.waitpid(self._pid, 0)
            self._channel.close()
            raise OSError(answer.decode())

    def _hold(self, channel: socket.socket, files: list[tuple[Path, str]], addresses: list[str]) -> None:
        try:
            uid, gid = os.getuid(), os.getgid()
            if uid:
                namespaces.unshare(namespaces.NEWUSER)
                namespaces.map_own_id(uid, gid)
            namespaces.unshare(namespaces.NEWNET | namespaces.NEWNS)
            _libc.mount(None, b"/", None, 0x4000 | 1 << 18, None)  # MS_REC | MS_PRIVATE
            for source, target in files:
                _bind_over(source, target)
            _raise_loopback()
            for index, address in enumerate(addresses):
                if ":" in address:
                    _add6(address)
                else:
                    _add4(index, address)
            channel.send(b"ready")
            while request := channel.recv(1024):
                self._answer(channel, request)
        except BaseException as error:
            channel.send(repr(error).encode())
        os._exit(0)

    @staticmethod
    def _answer(channel: socket.socket, request: bytes) -> None:
        kind, host, port = request.decode().split()
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind((host, int(port)))
                if kind == "tcp":
                    sock.listen(1024)
                socket.send_fds(channel, [b"ok"], [sock.fileno()])
        except OSError as error:
            channel.send(repr(error).encode())

    def _socket(self, kind: str, host: str, port: int) -> socket.socket:
        self._channel.send(f"{kind} {host} {port}".encode())
        answer, descriptors, _flags, _address = socket.recv_fds(self._channel, 1024, 1)
        if not descriptors:
            raise OSError(answer.decode())
        return socket.socket(fileno=descriptors[0])

    def listen(self, host: str, port: int) -> socket.socket:
        """A listening socket in there; port 0 for a free one."""
        return self._socket("tcp", host, port)

    def stream(self, host: str) -> socket.socket:
        """A TCP socket bound to a free port in there, to connect with."""
        return self._socket("stream", host, 0)

    def datagrams(self, host: str, port: int) -> socket.socket:
        """A bound datagram socket in there."""
        return self._socket("udp", host, port)

    def enter(self) -> None:
        """Move the calling process (one thread) inside."""
        own = f"/proc/{self._pid}/ns/"
        wanted = [("user", namespaces.NEWUSER)] if os.getuid() else []
        wanted += [("net", namespaces.NEWNET), ("mnt", namespaces.NEWNS)]
        cwd = os.getcwdb()
        opened = [(os.open(own + name, os.O_RDONLY), kind) for name, kind in wanted]
        for descriptor, kind in opened:
            namespaces.setns(descriptor, kind)
            os.close(descriptor)
        os.chdir(cwd)

    def popen(self, argv: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
        """Start a program inside."""
        return subprocess.Popen(argv, preexec_fn=self.enter, **options)

    def run(self, argv: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[bytes]":
        """Run a program inside."""
        return subprocess.run(argv, preexec_fn=self.enter, check=False, **options)

    def close(self) -> None:
        """End the helper; the namespace goes with the last process in it."""
        self._channel.close()
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
