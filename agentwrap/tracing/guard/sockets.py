"""The run's internet sockets, known by their inode, and how we get hold of one when it is to be connected.

A duplicate taken at the moment it is needed (pidfd_getfd(2)) is best: nothing is kept, so nothing of the tracee's lives
longer than it means to. Docker's profile refuses that call. There a duplicate is kept from the making of a socket:

    of a stream   until it is connected or listens; a kept one would hold back the end of its connection
    of datagrams  as long as the run has the socket
    of either     never longer than `MAX_KEPT` others: then the oldest goes, and a connect on it is refused and told

No call says that a socket was closed (asking about `close` would cost most of all), so every now and then, and when a
bind could fail because of a duplicate of ours, those that no process has any more are dropped.
"""

import errno
import os
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agentwrap.tracing.guard import raw_calls
from agentwrap.tracing.guard.listeners import Owners, inode_in
from agentwrap.tracing.guard.sockaddr import Endpoint

MAX_KEPT = 4096
MAX_KNOWN = 32_768
FIRST_SWEEP = 256
_MAX_QUESTIONS = 64
STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM


@dataclass(slots=True)
class Known:
    """One socket. `peer`: whom the program believes to be connected with; `kept`: our duplicate, if we keep one.

    `port`: its own, once connected. `asked`: name servers by the id of the question, `server`: the last of them.
    `told`: the gateway knows who sends from here to this server. `connecting`: between the connect and its outcome.
    `fresh`: connected, but the program's non-blocking connect has not been told so yet.
    """

    inode: int
    kind: int
    family: int
    kept: socket.socket | None = None
    peer: Endpoint | None = None
    port: int = 0
    connecting: bool = False
    fresh: bool = False
    server: Endpoint | None = None
    told: Endpoint | None = None
    asked: OrderedDict[int, Endpoint] | None = None

    @property
    def redirected(self) -> bool:
        """Whether datagrams come from the gateway in the name of somebody else."""
        return self.server is not None

    def ask(self, question: int, server: Endpoint) -> None:
        """Remember which name server a question was meant for."""
        self.server = server
        if self.asked is None:
            self.asked = OrderedDict()
        self.asked[question] = server
        self.asked.move_to_end(question)
        if len(self.asked) > _MAX_QUESTIONS:
            self.asked.popitem(last=False)

    def server_of(self, question: int) -> Endpoint | None:
        """Whom the answer to a question is expected from."""
        asked = self.asked.get(question) if self.asked is not None else None
        return self.peer or asked or self.server


class Sockets:
    """All sockets that the guard made or took over. The notify thread alone adds and finds.

    `any_datagrams`: whether one of them was a datagram socket.
    """

    def __init__(self, owners: Owners, *, taking: bool | None, limit: int = MAX_KEPT) -> None:
        """`taking`: whether duplicates are taken when needed; None: if that works."""
        self._taking = taking
        self._owners = owners
        self._limit = limit
        self._known: OrderedDict[int, Known] = OrderedDict()
        self._kept: OrderedDict[int, Known] = OrderedDict()
        self._since_sweep = 0
        self.any_datagrams = False

    def takes(self, pid: int) -> bool:
        """Whether duplicates are taken, found out on a process of the run the first time."""
        if self._taking is None:
            self._taking = can_take(pid)
        return self._taking

    def add(self, sock: socket.socket, kind: int, family: int, pid: int) -> Known:
        """A socket that now is the run's. A duplicate is kept where it could not be had again."""
        known = Known(os.fstat(sock.fileno()).st_ino, kind, family)
        self.any_datagrams = self.any_datagrams or kind == DATAGRAM
        self._known[known.inode] = known
        if len(self._known) > MAX_KNOWN:
            self._forget_one()
        if not self.takes(pid):
            self.keep(known, raw_calls.duplicate(sock))
        return known

    def _forget_one(self) -> None:
        inode = next(iter(self._known))
        self.drop(self._known.pop(inode))

    def get(self, inode: int) -> Known | None:
        """The socket with this inode, if it is one of those. Those that are used are forgotten last."""
        known = self._known.get(inode)
        if known is not None:
            self._known.move_to_end(inode)
        return known

    def keep(self, known: Known, duplicate: socket.socket) -> None:
        """Hold a duplicate from now on."""
        # Before the newest is among them: it is in no process yet.
        self._since_sweep += 1
        if len(self._kept) >= min(FIRST_SWEEP, self._limit) and self._since_sweep > len(self._kept) // 2:
            self.sweep()
        while len(self._kept) >= self._limit:
            self.drop(next(iter(self._kept.values())))
        known.kept = duplicate
        self._kept[known.inode] = known

    def drop(self, known: Known) -> None:
        """Close the duplicate, if one is kept."""
        self._kept.pop(known.inode, None)
        if known.kept is not None:
            known.kept.close()
            known.kept = None

    def sweep(self) -> None:
        """Drop what no process of the run has any more. A socket on its way through a unix socket counts as gone."""
        self._since_sweep = 0
        held = self._owners.held()
        if held is not None:
            for known in [known for inode, known in list(self._kept.items()) if inode not in held]:
                self.drop(known)

    def make_room_for(self, port: int) -> None:
        """Before a bind to `port`: a closed socket of the run must not hold it through a duplicate of ours."""
        for known in list(self._kept.values()):
            if known.kept is not None and raw_calls.port_of(known.kept) == port:
                self.sweep()
                return

    @contextmanager
    def hold(self, known: Known, pid: int, tid: int, descriptor: int) -> Iterator[socket.socket | None]:
        """A duplicate for the length of one call; None where there is none to be had."""
        if known.kept is not None:
            yield known.kept
            return
        sock = self.take(pid, tid, descriptor) if self.takes(pid) else None
        try:
            # Another thread may have put another socket in its place since we looked.
            yield sock if sock is not None and os.fstat(sock.fileno()).st_ino == known.inode else None
        finally:
            if sock is not None:
                sock.close()

    def take(self, pid: int, tid: int, descriptor: int) -> socket.socket | None:
        """A duplicate of any socket of the tracee; None where it is refused, or no socket."""
        try:
            duplicate = raw_calls.take(pid, tid, descriptor)
        except OSError:
            return None
        try:
            return socket.socket(fileno=duplicate)
        except OSError:
            os.close(duplicate)
            return None

    def close(self) -> None:
        """Close every duplicate."""
        for known in list(self._kept.values()):
            self.drop(known)


def inode_of(tid: int, descriptor: int) -> int:
    """The inode of a socket of thread `tid`. Raises OSError as the kernel would: EBADF, ENOTSOCK."""
    try:
        link = os.readlink(f"/proc/{tid}/fd/{descriptor}")
    except FileNotFoundError:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None
    inode = inode_in(link)
    if not inode:
        raise OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK))
    return inode


def can_take(pid: int, take: Callable[[int, int, int], int] = raw_calls.take) -> bool:
    """Whether pidfd_getfd(2) works here, tried on a process of the run. EBADF: it would, with another number."""
    return not take_errno(pid, take)


def take_errno(pid: int, take: Callable[[int, int, int], int] = raw_calls.take) -> int:
    """Why it does not work, as `can_take` finds out; 0: it does."""
    try:
        os.close(take(pid, pid, 0))
    except OSError as error:
        return 0 if error.errno == errno.EBADF else error.errno or errno.EPERM
    return 0
