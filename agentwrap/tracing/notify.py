"""seccomp user notification (seccomp_unotify(2)): receive a call, answer it.

Knows the ioctls and struct layouts; knows nothing of what a call means.
"""

import ctypes
import errno
import fcntl
import os
import struct

# linux/seccomp.h ioctl numbers for x86-64 and arm64 (the generic _IOC encoding)
_RECV, _SEND, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082104
_FLAG_CONTINUE = 1
_SYNC_WAKE_UP = 1

# SEND never blocks: keep the interpreter lock.
_send = ctypes.PyDLL(None).ioctl
_send.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)
_send.restype = ctypes.c_int

# struct seccomp_notif: id, pid, flags, then struct seccomp_data: nr, arch, instruction_pointer, args[6]
_unpack = struct.Struct("=QIIiIQ6Q").unpack
_pack_answer = struct.Struct("=QqiI").pack_into
_ZERO = bytes(80)

Notification = tuple[int, int, int, int, int, int, int, int, int, int, int, int]


class Listener:
    """The listening end of one filter. Not thread safe: one thread receives and answers."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._answer = bytearray(24)
        self._answer_address = ctypes.addressof((ctypes.c_char * 24).from_buffer(self._answer))

    def wake_in_place(self) -> bool:
        """Ask for SYNC_WAKE_UP (Linux 6.6): the tracee runs on the same processor, ten times cheaper when idle."""
        try:
            fcntl.ioctl(self.descriptor, _SET_FLAGS, _SYNC_WAKE_UP)
        except OSError:
            return False
        return True

    def receive(self) -> Notification | None:
        """Block for the next call: (id, tid, flags, number, architecture, instruction pointer, six arguments).

        None when this one vanished (its thread was killed) or the wait was interrupted. Raises OSError otherwise.
        """
        try:
            # The kernel refuses a buffer that is not zero (EINVAL).
            return _unpack(fcntl.ioctl(self.descriptor, _RECV, _ZERO))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                return None
            raise

    def proceed(self, request_id: int) -> None:
        """The kernel makes the call as it is. A tracee killed meanwhile (ENOENT) is nobody's error."""
        _pack_answer(self._answer, 0, request_id, 0, 0, _FLAG_CONTINUE)
        _send(self.descriptor, _SEND, self._answer_address)

    def refuse(self, request_id: int, number: int) -> None:
        """The call is not made and fails with errno `number`."""
        _pack_answer(self._answer, 0, request_id, 0, -number, 0)
        _send(self.descriptor, _SEND, self._answer_address)

    def close(self) -> None:
        """Close the listener: from now on every filtered call of the tree fails with ENOSYS."""
        os.close(self.descriptor)
