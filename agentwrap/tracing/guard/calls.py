"""One call as the guard's parts see it, and reading and writing the caller's memory."""

import errno
import os
from collections.abc import Sequence
from typing import NamedTuple

from agentwrap.tracing.processes import Process
from agentwrap.tracing.tracee import Memory, refused

PASS, ANSWERED = 0, -1
Arguments = tuple[int, ...]


class Call(NamedTuple):
    """Who asks. `wide`: its structs have the 64-bit layout; `descriptor`: what the first argument names."""

    process: Process
    tid: int
    request: int
    wide: bool
    name: str
    descriptor: int = -1


class UnavailableError(PermissionError):
    """No duplicate of this socket is to be had. It was told."""


def fail(number: int) -> OSError:
    """An error with the kernel's words."""
    return OSError(number, os.strerror(number))


def read(memory: Memory, tid: int, address: int, size: int) -> bytes:
    """Exactly `size` bytes. Raises OSError: EFAULT as the kernel would, EPERM where it would not let us look."""
    if size == 0:
        return b""
    try:
        data = memory.read(tid, address, size)
    except OSError as error:
        raise (error if refused(error, tid) else fail(errno.EFAULT)) from None
    if len(data) < size:
        raise fail(errno.EFAULT)
    return data


def write(tid: int, pieces: Sequence[tuple[int, bytes]]) -> bool:
    """Write each piece to its address; False when one of them does not fit there (EFAULT). From any thread."""
    try:
        descriptor = os.open(f"/proc/{tid}/mem", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return all(os.pwrite(descriptor, data, address) == len(data) for address, data in pieces)
    except (OSError, OverflowError):
        return False
    finally:
        os.close(descriptor)
