"""What a standing process has under a descriptor, and how to get hold of it from outside.

A pipe is opened once more through /proc: a description of our own, whose flags nobody else sees, and no container
forbids it. A socket cannot be opened; it is taken (pidfd_getfd(2)).
"""

import enum
import fcntl
import os
import socket
import stat
from collections.abc import Sequence
from typing import NamedTuple

from agentwrap.tracing.guard import raw_calls

_FLAGS = b"flags:"
_NULL_MAJOR = 1  # /dev/null and its neighbours (Documentation/admin-guide/devices.txt)


class Kind(enum.Enum):
    """What sort of thing it is, as far as it matters for who stands in between."""

    PIPE = "pipe"  # or a fifo that has a name
    SOCKET = "socket"
    FILE = "file"  # and everything else that just lies there: /dev/null, a folder, an eventfd
    TERMINAL = "terminal"


class Held(NamedTuple):
    """A descriptor of a process. `identity`: device and inode; `flags`: of open(2), O_CLOEXEC among them."""

    number: int
    kind: Kind
    identity: tuple[int, int]
    flags: int

    @property
    def access(self) -> int:
        """O_RDONLY, O_WRONLY or O_RDWR."""
        return self.flags & os.O_ACCMODE

    @property
    def closes(self) -> bool:
        """Whether it is closed by an exec."""
        return bool(self.flags & os.O_CLOEXEC)

    @property
    def status_flags(self) -> int:
        """O_NONBLOCK, where it is set."""
        return self.flags & os.O_NONBLOCK


def held(pid: int, number: int) -> Held | None:
    """What `pid` has under a number; None for nothing. Raises OSError where we may not look (PermissionError)."""
    try:
        status = os.stat(f"/proc/{pid}/fd/{number}")
        with open(f"/proc/{pid}/fdinfo/{number}", "rb") as file:
            lines = file.read(4096).splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    flags = next((int(line[len(_FLAGS) :], 8) for line in lines if line.startswith(_FLAGS)), 0)
    return Held(number, _kind(status), (status.st_dev, status.st_ino), flags)


def _kind(status: os.stat_result) -> Kind:
    if stat.S_ISFIFO(status.st_mode):
        return Kind.PIPE
    if stat.S_ISSOCK(status.st_mode):
        return Kind.SOCKET
    if stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) != _NULL_MAJOR:
        return Kind.TERMINAL
    return Kind.FILE


def others(pid: int, known: Sequence[Held]) -> list[tuple[Held, Held]]:
    """What `pid` has under other numbers and is the same as one of `known`, open the same way; each with that one."""
    by_identity = {one.identity: one for one in known}
    numbers = {one.number for one in known}
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        number = int(name)
        if number in numbers:
            continue
        try:
            status = os.stat(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            continue
        same = by_identity.get((status.st_dev, status.st_ino))
        if same is not None and (other := held(pid, number)) is not None and other.access == same.access:
            found.append((other, same))
    return found


def take(pid: int, one: Held, access: int) -> int:
    """A descriptor of our own for it; a pipe is open for `access` alone, and never waits for another side (fifo(7)).

    Raises OSError: PermissionError where pidfd_getfd(2) is refused.
    """
    if one.kind is Kind.PIPE:
        try:
            return os.open(f"/proc/{pid}/fd/{one.number}", access | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError:
            pass  # made by another user: it can still be taken
    return raw_calls.take(pid, pid, one.number)


def pipe_bytes(descriptor: int) -> int:
    """How much a pipe holds (F_GETPIPE_SZ); 0 for what is none."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)
    except OSError:
        return 0


def size_as(descriptor: int, other: int) -> None:
    """Let a pipe hold as much as another one. More than the system's limit is refused (pipe(7)): then it stays."""
    wanted = pipe_bytes(other)
    if wanted and wanted != pipe_bytes(descriptor):
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, wanted)
        except OSError:
            pass  # pipe-max-size, or pipe-user-pages-soft is reached


def is_stream(descriptor: int) -> bool:
    """Whether a socket is a stream of AF_UNIX, as those are that programs are started with."""
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        return sock.family == socket.AF_UNIX and sock.type & 0xF == socket.SOCK_STREAM
