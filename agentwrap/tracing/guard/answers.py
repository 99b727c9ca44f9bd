"""Answers that only the guard gives to a notification (seccomp_unotify(2)). Any thread may give them.

Knows the ioctls; knows nothing of what a call means. A tracee that was killed meanwhile (ENOENT) is nobody's error.
"""

import errno
import fcntl
import struct
from typing import Protocol

# linux/seccomp.h, generic encoding: SEND, ID_VALID, ADDFD
_SEND, _ID_VALID, _ADDFD = 0xC0182101, 0x40082102, 0x40182103
_ADDFD_SEND = 2
_pack = struct.Struct("=QqiI").pack
_pack_add = struct.Struct("=QIIII").pack
_pack_id = struct.Struct("=Q").pack
ERESTARTSYS = 512
"""Not for programs: the kernel makes EINTR or a restart of it when the signal is delivered (signal(7))."""


class Answering(Protocol):
    """How the guard's parts say what a call comes to; `request` is the one of the `Call`."""

    def value(self, request: int, value: int) -> None:
        """The call is not made and returns `value`."""

    def error(self, request: int, number: int) -> None:
        """The call is not made and fails with errno `number`."""

    def outcome(self, request: int, number: int) -> None:
        """The call is not made; it succeeded (0) or failed with errno `number`."""

    def stands(self, request: int) -> bool:
        """Whether the caller still waits: its thread id and its memory are then its own."""


class Answers:
    """One listener's answers."""

    def __init__(self, listener: int) -> None:
        self._listener = listener
        self._atomic = True

    def value(self, request: int, value: int) -> None:
        """The call is not made and returns `value`."""
        self._send(request, value, 0)

    def error(self, request: int, number: int) -> None:
        """The call is not made and fails with errno `number`."""
        self._send(request, 0, -number)

    def outcome(self, request: int, number: int) -> None:
        """The call is not made; it succeeded (0) or failed with errno `number`."""
        self._send(request, 0, -number)

    def _send(self, request: int, value: int, error: int) -> None:
        try:
            fcntl.ioctl(self._listener, _SEND, _pack(request, value, error, 0))
        except OSError as failed:
            if failed.errno not in (errno.ENOENT, errno.EINPROGRESS):
                raise

    def stands(self, request: int) -> bool:
        """Whether the caller still waits: its thread id and its memory are then its own."""
        try:
            fcntl.ioctl(self._listener, _ID_VALID, _pack_id(request))
        except OSError:
            return False
        return True

    def descriptor(self, request: int, source: int, *, close_on_exec: bool) -> bool:
        """The call returns a new descriptor for our `source`. False: it got none, its own limit is reached (EMFILE)."""
        new_flags = 0o2000000 if close_on_exec else 0
        try:
            if self._atomic:
                try:
                    fcntl.ioctl(self._listener, _ADDFD, _pack_add(request, _ADDFD_SEND, source, 0, new_flags))
                    return True
                except OSError as failed:
                    if failed.errno != errno.EINVAL:
                        raise
                    self._atomic = False  # before Linux 5.14: two steps
            # A mutable buffer: only then does fcntl.ioctl return what the kernel returned.
            step = bytearray(_pack_add(request, 0, source, 0, new_flags))
            number = fcntl.ioctl(self._listener, _ADDFD, step, True)
        except OSError as failed:
            if failed.errno != errno.ENOENT:
                self.error(request, failed.errno or errno.EMFILE)
            return False
        self.value(request, int(number))
        return True
