"""What calls about sockets ask the policy at the stop: unix sockets, families, data before a connection.

Connections to hosts are the gateway's. Knows which unix sockets the run itself has made.
"""

import errno
import socket

from agentwrap.tracing.files.places import follow
from agentwrap.tracing.judged_files import FileQuestions
from agentwrap.tracing.judging import StopJudge
from agentwrap.tracing.processes import Process
from agentwrap.tracing.syscalls.addresses import Address
from agentwrap.tracing.tracee import AT_FDCWD, locate

MSG_FASTOPEN = 0x20000000
_MAX_OWN = 10_000
_KIND = 0xF  # SOCK_TYPE_MASK (linux/net.h)
# By name: AF_ROUTE is the same number as AF_NETLINK.
_ASKED_BY_NAME = ("unix", "inet", "inet6", "netlink", "vsock", "packet")
_FAMILIES = {int(getattr(socket, f"AF_{name.upper()}")): name for name in _ASKED_BY_NAME}


class SocketQuestions:
    """Every method returns 0 or an errno."""

    def __init__(self, judge: StopJudge, files: FileQuestions) -> None:
        self._judge = judge
        self._files = files
        self._own: set[bytes] = set()

    def connecting(self, process: Process, tid: int, address: Address, call: str) -> int:
        """A unix socket is connected to, or sent to. One that nobody serves refuses by itself."""
        path = address.path
        if address.family != "unix" or not path:
            return 0
        if path.startswith(b"@"):
            return self._judge.unix(process, path, call, inner=path in self._own)
        try:
            place = follow(locate(tid, AT_FDCWD, path, foreign=process.foreign), tid)
        except (FileNotFoundError, NotADirectoryError):
            return 0
        named = self._files.named(process, tid, place) if place is not None else None
        if named is None or named.there is None:
            return 0
        return self._judge.unix(process, named.path, call, inner=named.path in self._own)

    def binding(self, process: Process, tid: int, address: Address) -> int:
        """A unix socket gets its name, which is a file where it is no abstract one (unix(7)).

        A name that somebody has already (EADDRINUSE) does not become the run's by asking for it.
        """
        path = address.path
        if address.family != "unix" or not path:
            return 0
        if path.startswith(b"@"):
            if not _is_taken(tid, path):
                self._serves(path)
            return 0
        place = locate(tid, AT_FDCWD, path, foreign=process.foreign)
        named = self._files.named(process, tid, place)
        if named is None or named.there is not None:
            return 0
        refused = self._files.making(process, tid, "bind", place)
        if not refused:
            self._serves(named.path)
        return refused

    def _serves(self, path: bytes) -> None:
        if len(self._own) < _MAX_OWN:
            self._own.add(path)

    def making(self, process: Process, family: int, kind: int, call: str) -> int:
        """A socket of a family and kind is made (socket(2)); the low halves of the arguments count."""
        name = _FAMILIES.get(family & 0xFFFFFFFF, "other")
        if name in ("inet", "inet6"):
            return self._judge.raw_socket(process, name, call) if kind & _KIND == socket.SOCK_RAW else 0
        refused = self._judge.family(process, name, call)
        return errno.EAFNOSUPPORT if refused else 0

    def sending(self, process: Process, address: Address | None, flags: int, call: str) -> int:
        """A message is sent with flags (send(2))."""
        if not flags & MSG_FASTOPEN or self._judge.observes:
            return 0
        target = b"" if address is None else b"%b:%d" % (address.host, address.port)
        return self._judge.fast_open(process, target, call)


def _is_taken(tid: int, name: bytes) -> bool:
    """Whether an abstract name is in use in the thread's network namespace (proc_net_unix(5))."""
    try:
        with open(f"/proc/{tid}/net/unix", "rb") as file:
            return any(line.rstrip(b"\n").endswith(b" " + name) for line in file)
    except OSError:
        return True
