"""How a reader knows that a recording is still being written: a lock that the writer holds, and the kernel drops.

An open-file-description lock (fcntl(2), F_OFD_SETLK) on one byte far behind SQLite's own lock bytes. It belongs to the
descriptor, so closing another descriptor of the file does not lose it (as it does with SQLite's POSIX locks), and it is
gone with the writer, however that ended.
"""

import fcntl
import os
import struct

_OFFSET = 1 << 62
_FLOCK = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid


def hold(descriptor: int) -> bool:
    """Take the lock; false if somebody else has it or the filesystem has no such locks."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _OFFSET, 1, 0))
    except OSError:
        return False
    return True


def held(descriptor: int) -> bool:
    """Whether another open file description holds it."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _OFFSET, 1, 0)
    try:
        told = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked)
    except OSError:
        return False
    return bool(_FLOCK.unpack(told)[0] != fcntl.F_UNLCK)
