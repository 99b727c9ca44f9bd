"""Who serves a port of the machine's own: one question to the kernel's table of sockets (sock_diag(7)).

Not /proc/net/tcp: that one lists every connection that is over as well, and a busy test suite leaves thousands.
"""

import os
import socket
import struct
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

from agentwrap.tracing.guard.sockaddr import AF_INET, AF_INET6, Endpoint, Ip

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_DONE, _ERROR = 3, 2
# include/net/tcp_states.h
ESTABLISHED, SYN_SENT, CLOSED, LISTENING = 1, 2, 7, 10
_HEADER = struct.Struct("=IHHII")
_FOUND = struct.Struct("=BBBB")
_INODE_AT = 4 + 48 + 16
_PATIENCE_S = 2.0


class Listeners:
    """Asks the kernel of the network namespace we are in. One thread asks at a time."""

    def __init__(self) -> None:
        self._netlink: socket.socket | None = None
        self._count = 0

    def _open(self) -> socket.socket:
        if self._netlink is None:
            self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
            self._netlink.settimeout(_PATIENCE_S)
        return self._netlink

    def _dump(self, family: int, protocol: int, states: int, port: int) -> bytes:
        """Every socket with this local port. Raises OSError."""
        netlink = self._open()
        self._count = (self._count + 1) & 0xFFFFFFFF
        # struct inet_diag_req_v2: the filter's ports are honoured in a dump (net/ipv4/inet_diag.c)
        body = struct.pack("=BBBBI", family, protocol, 0, 0, states)
        body += struct.pack("!HH", port, 0) + bytes(32) + struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
        netlink.send(_HEADER.pack(16 + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, self._count, 0) + body)
        found = b""
        while True:
            data = netlink.recv(1 << 18)
            at = 0
            while at + 16 <= len(data):
                size, kind, _flags, count, _port = _HEADER.unpack_from(data, at)
                if count == self._count:
                    if kind == _DONE:
                        return found
                    if kind == _ERROR:
                        number = -struct.unpack_from("=i", data, at + 16)[0]
                        raise OSError(number, os.strerror(number))
                    found += data[at + 16 : at + 16 + 72].ljust(72, b"\0")
                at += max((size + 3) & ~3, 16)

    def serving(self, to: Endpoint, *, stream: bool) -> tuple[list[int], bool]:
        """Inodes of the sockets that the kernel chooses from for what is sent to `to`, and whether by its address.

        Several share a port by SO_REUSEPORT. A socket with that very address comes before those without any, and of
        these the ones of its own family first (net/ipv4/inet_hashtables.c). Raises OSError where nobody tells.
        """
        found: dict[int, list[int]] = {}
        protocol = socket.IPPROTO_TCP if stream else socket.IPPROTO_UDP
        states = 1 << LISTENING if stream else 1 << CLOSED | 1 << ESTABLISHED
        for family in (AF_INET, AF_INET6):
            data = self._dump(family, protocol, states, to.port)
            for at in range(0, len(data), 72):
                entry = data[at : at + 72]
                if struct.unpack_from("!H", entry, 4)[0] != to.port:
                    continue
                local: Ip = IPv4Address(entry[8:12]) if family == AF_INET else IPv6Address(entry[8:24])
                rank = _rank(local, to)
                if rank is not None:
                    found.setdefault(rank, []).append(struct.unpack_from("=I", entry, _INODE_AT)[0])
        if not found:
            return [], False
        best = min(found)
        return found[best], best == 0

    def state(self, family: int, port: int, inode: int) -> int | None:
        """The state of a stream socket with this local port (include/net/tcp_states.h); None if it has ended."""
        data = self._dump(family, socket.IPPROTO_TCP, 0xFFF, port)
        for at in range(0, len(data), 72):
            if struct.unpack_from("=I", data, at + _INODE_AT)[0] == inode:
                return data[at + 1]
        return None

    def close(self) -> None:
        """Close the netlink socket."""
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None


def _rank(local: Ip, to: Endpoint) -> int | None:
    """How well a socket at `local` fits: 0 by its address, 1 and 2 by having none; None: it gets nothing of it."""
    plain = Endpoint(local, 0).plain
    wanted = to.plain
    if wanted.is_unspecified:
        wanted = IPv4Address("127.0.0.1") if wanted.version == 4 else IPv6Address("::1")
    if plain == wanted:
        return 0
    if not plain.is_unspecified:
        return None
    if plain.version == wanted.version:
        return 1
    # [::] takes IPv4, too, unless it is V6ONLY: then connecting to it natively fails, as it should.
    return 2 if plain.version == 6 else None


class Owners:
    """Whether a socket belongs to the run: told by who holds it, remembered by its inode."""

    def __init__(self, in_tree: Callable[[int], bool]) -> None:
        self._in_tree = in_tree
        self._known: dict[int, bool] = {}

    def ours(self, inode: int) -> bool:
        """Whether a process of the run holds it. One look through /proc for each new inode."""
        answer = self._known.get(inode)
        if answer is None:
            if len(self._known) > 4096:
                self._known.clear()
            answer = self._known[inode] = any(inode in inodes_of(pid) for pid in _pids() if self._in_tree(pid))
        return answer

    def held(self) -> set[int] | None:
        """Inodes of every socket that somebody but us has; None when a process of the run would not let us look.

        Anybody: without ptrace a child that made no reported call yet is not known to be of the run.
        """
        found: set[int] = set()
        for pid in _pids():
            try:
                found |= inodes_of(pid, strict=True)
            except PermissionError:
                if self._in_tree(pid):
                    return None
        return found


def _pids() -> list[int]:
    own = os.getpid()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own]


def inode_in(link: str) -> int:
    """The inode in `socket:[N]`; 0 for another kind of descriptor."""
    return int(link[8:-1]) if link.startswith("socket:[") else 0


def inodes_of(pid: int, *, strict: bool = False) -> set[int]:
    """Inodes of the sockets that `pid` has. `strict`: raises PermissionError where it would not let us look."""
    found = set()
    folder = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(folder):
            try:
                inode = inode_in(os.readlink(f"{folder}/{name}"))
            except OSError:
                continue  # closed meanwhile
            if inode:
                found.add(inode)
    except PermissionError:
        if strict:
            raise
    except OSError:
        pass  # it is gone
    return found
