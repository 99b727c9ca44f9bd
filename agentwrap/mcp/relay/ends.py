"""Reading and writing descriptors that were taken over, without ever blocking and without anybody else noticing.

Their open file descriptions may be shared with other processes, so O_NONBLOCK is never set on them: a pipe is opened
anew (proc(5), /proc/pid/fd), a socket is told for each call (MSG_DONTWAIT), anything else is asked before each call.
Knows nothing of messages.
"""

import os
import select
import socket
import stat
from typing import Protocol

CHUNK_BYTES = 1 << 16  # what a pipe holds (pipe(7))
# What fits where poll(2) says that there is room: one page of a pipe; of a terminal's buffer it is a guess.
_PIPE_BYTES, _TERMINAL_BYTES = 4096, 256


class End(Protocol):
    """One descriptor."""

    fd: int

    def read(self) -> bytes | None:
        """Some bytes; None where there are none now; empty at the end. Never raises: a broken one has ended."""
        ...

    def write(self, data: memoryview) -> int:
        """How many were taken now. Raises OSError where nobody takes any more."""
        ...

    def hung(self) -> bool:
        """Whether the other side is gone in both directions."""
        ...

    def finish(self) -> None:
        """The other side gets no more from here (shutdown(2)); where that cannot be said, closing says it."""
        ...

    def refuse(self) -> None:
        """Nothing more is taken from the other side (shutdown(2)); where that cannot be said, closing says it."""
        ...

    def close(self) -> None:
        """Give the descriptor up."""
        ...


def end_of(fd: int, *, writes: bool) -> End:
    """What `fd` needs; it is owned by the result."""
    mode = os.fstat(fd).st_mode
    if stat.S_ISSOCK(mode):
        return _Socket(fd)
    if stat.S_ISFIFO(mode):
        try:
            how = os.O_WRONLY if writes else os.O_RDONLY
            own = os.open(f"/proc/self/fd/{fd}", how | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # another user's pipe (EACCES), or a named one that nobody reads (ENXIO)
            return _Looked(fd, _PIPE_BYTES)
        os.close(fd)  # after the open: a pipe is never without its reader or writer in between
        return _Pipe(own)
    return _Looked(fd, _TERMINAL_BYTES if os.isatty(fd) else CHUNK_BYTES)


class _Pipe:
    """A pipe through a description of our own."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def read(self) -> bytes | None:
        try:
            return os.read(self.fd, CHUNK_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def write(self, data: memoryview) -> int:
        try:
            return os.write(self.fd, data)
        except BlockingIOError:
            return 0

    def hung(self) -> bool:
        return True

    def finish(self) -> None:
        pass

    def refuse(self) -> None:
        pass

    def close(self) -> None:
        os.close(self.fd)


class _Looked(_Pipe):
    """A terminal, a file, a device, a pipe that could not be opened anew: what poll(2) allows, in small pieces."""

    __slots__ = ("_most", "_poll")

    def __init__(self, fd: int, most: int) -> None:
        super().__init__(fd)
        self._most = most
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN | select.POLLOUT)

    def _may(self, what: int) -> bool:
        return any(state & ~(select.POLLIN | select.POLLOUT) or state & what for _, state in self._poll.poll(0))

    def read(self) -> bytes | None:
        return super().read() if self._may(select.POLLIN) else None

    def write(self, data: memoryview) -> int:
        return super().write(data[: self._most]) if self._may(select.POLLOUT) else 0


class _Socket:
    """A stream socket; reading and writing ends may be descriptors of the same one."""

    __slots__ = ("_socket", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._socket = socket.socket(fileno=fd)

    def read(self) -> bytes | None:
        try:
            return self._socket.recv(CHUNK_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:  # ECONNRESET: the other side left without reading all (unix(7))
            return b""

    def write(self, data: memoryview) -> int:
        try:
            return self._socket.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return 0

    def hung(self) -> bool:
        waiting = select.poll()
        waiting.register(self.fd, 0)
        return any(state & select.POLLHUP for _, state in waiting.poll(0))

    def finish(self) -> None:
        self._shut(socket.SHUT_WR)

    def refuse(self) -> None:
        self._shut(socket.SHUT_RD)

    def _shut(self, how: int) -> None:
        try:
            self._socket.shutdown(how)
        except OSError:
            pass  # it is not connected any more

    def close(self) -> None:
        self._socket.close()
