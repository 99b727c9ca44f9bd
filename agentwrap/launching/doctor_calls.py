"""Raw system calls and the forked attempt: the tools the probes are made of.

Knows how to try something in a child that may be killed for trying, and how to tell the parent what came of it. Knows
nothing of what a result means for a run (`probes`), nor of how it is shown (`cli.doctor`). Everything here uses `os`
and `ctypes` alone, because it runs after a fork.
"""

import ctypes
import errno
import os
import platform
import select
import signal
import struct
import warnings
from collections.abc import Callable

ATTEMPT_TIMEOUT_S = 5.0

# asm/unistd.h; numbers from pidfd_open (424) on are the same everywhere.
_NUMBERS = {
    "x86_64": {"getpgid": 121, "process_vm_readv": 310, "seccomp": 317, "unshare": 272},
    "aarch64": {"getpgid": 155, "process_vm_readv": 270, "seccomp": 277, "unshare": 97},
}
_COMMON = {"io_uring_setup": 425, "pidfd_open": 434, "pidfd_getfd": 438, "landlock": 444}

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_SET_MODE_FILTER = 1
SECCOMP_RET_ERRNO = 0x00050000
SECCOMP_RET_USER_NOTIF = 0x7FC00000
SECCOMP_RET_TRACE = 0x7FF00000
SECCOMP_RET_ALLOW = 0x7FFF0000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def number(name: str) -> int:
    """The number of a system call on this machine; -1 (which answers ENOSYS) where it is not known."""
    return _COMMON.get(name, _NUMBERS.get(platform.machine(), {}).get(name, -1))


def call(name: str, *arguments: object) -> int:
    """Call syscall(2) by name; integers, bytes and ctypes pointers pass as they are. Raises OSError."""
    ctypes.set_errno(0)
    wrapped = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = int(_libc.syscall(ctypes.c_long(number(name)), *wrapped))
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> int:
    """One request of ptrace(2), which raises OSError."""
    ctypes.set_errno(0)
    result = int(_libc.ptrace(request, pid, address, data))
    if result == -1 and ctypes.get_errno():
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def prctl(option: int, argument: int = 0) -> None:
    """One option of prctl(2) with one argument, which raises OSError."""
    if _libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def filter_one(name: str, action: int, flags: int = 0) -> int:
    """Install a seccomp filter that answers one system call with `action` and lets all others pass.

    Returns what seccomp(2) returned: the listener's descriptor with SECCOMP_FILTER_FLAG_NEW_LISTENER. Raises OSError.
    """
    prctl(PR_SET_NO_NEW_PRIVS, 1)  # without it an unprivileged filter is EACCES (seccomp(2))
    instructions = (
        struct.pack("=HBBI", 0x20, 0, 0, 0)  # ld [seccomp_data.nr]
        + struct.pack("=HBBI", 0x15, 0, 1, number(name))  # jeq number, next, +1
        + struct.pack("=HBBI", 0x06, 0, 0, action)
        + struct.pack("=HBBI", 0x06, 0, 0, SECCOMP_RET_ALLOW)
    )
    held = ctypes.create_string_buffer(instructions)
    program = ctypes.create_string_buffer(struct.pack("@HP", 4, ctypes.addressof(held)))
    return call("seccomp", SECCOMP_SET_MODE_FILTER, flags, program)


class Refused(Exception):  # noqa: N818 -- it is an answer, not an error
    """An attempt that ended with a known refusal: the kernel's error number (0: none), and words."""

    def __init__(self, number: int, words: str) -> None:
        super().__init__(number, words)
        self.number = number
        self.words = words

    @property
    def name(self) -> str:
        """`EPERM`, `ENOSYS`, ... or the words themselves."""
        return errno.errorcode.get(self.number, self.words)


def forked(work: Callable[[], None]) -> int:
    """Fork a child that runs `work` and leaves at once with 0, or 1 if it raised; it dies with its parent."""
    with warnings.catch_warnings():
        # Python >= 3.12 warns of a fork beside threads; this child never touches a lock of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        work()
        status = 0
    finally:
        os._exit(status)


def attempt(work: Callable[[], str], *, timeout_s: float = ATTEMPT_TIMEOUT_S) -> str:
    """Run `work` in a child of its own and return its words; nothing of it is left behind.

    Raises Refused: with the error number of the OSError that ended it, or with words where a signal or the time-out
    did. The child leads a process group, which is killed whole; its own children die with it by PDEATHSIG.
    """
    reading, writing = os.pipe()

    def tell() -> None:
        os.close(reading)
        os.setpgid(0, 0)
        try:
            said = b"0 " + work().encode()
        except OSError as error:
            said = b"%d " % (error.errno or 0) + (error.strerror or str(error)).encode()
        except Refused as refused:
            said = b"%d " % refused.number + refused.words.encode()
            if not refused.number:
                said = b"-1 " + refused.words.encode()
        os.write(writing, said)

    pid = forked(tell)
    os.close(writing)
    said, timed_out = _listen(reading, timeout_s)
    os.close(reading)
    _end(pid)
    _, status = os.waitpid(pid, 0)
    if said:
        code, _, words = said.decode(errors="replace").partition(" ")
        if code == "0":
            return words
        raise Refused(max(int(code), 0), words)
    if timed_out:
        raise Refused(0, f"no answer in {timeout_s:g} s")
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
        raise Refused(0, f"killed by {signal.Signals(os.WTERMSIG(status)).name}")
    raise Refused(0, "the probe ended without an answer")


def _listen(descriptor: int, timeout_s: float) -> tuple[bytes, bool]:
    """The answer, empty at the end of the pipe, and whether the time was up before it. What is there counts."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    if not poller.poll(timeout_s * 1000):
        return b"", True
    # One write is the whole answer (it is shorter than PIPE_BUF); grandchildren may hold the pipe open.
    return os.read(descriptor, 4096), False


def _end(pid: int) -> None:
    """Kill the child's group and the child; both may be gone already."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # not yet its own group, or already gone (it is not reaped, so the pid is still ours)
