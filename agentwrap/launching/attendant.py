"""What every process of ours beside the agent does first: leave the terminal's signals alone, die with its parent."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME = 1, 4, 15
_KEPT = frozenset(
    {
        *(signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGCONT),
        *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT),
    }
)


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument."""
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def die_with(parent: int) -> None:
    """Be killed when the parent dies; end now if it is dead already (prctl(2), PR_SET_PDEATHSIG)."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(125)


def be_called(name: str) -> None:
    """The process's name in `ps` and `top` (prctl(2), PR_SET_NAME: 15 bytes)."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()), 0, 0, 0)


def let_go_of_streams() -> None:
    """Put /dev/null over our own standard input and output: who is at their other ends waits for the last one to go.

    A terminal is kept. It has no end, and job control goes through it.
    """
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in (0, 1):
        if not os.isatty(number):
            os.dup2(nothing, number)
    os.close(nothing)


def survive_parent() -> None:
    """Undo `die_with`."""
    prctl(_PR_SET_PDEATHSIG, 0)


def hide_memory(hidden: bool = True) -> None:
    """An agent of the same user must not read our memory or take our descriptors (ptrace(2), access mode checking)."""
    prctl(_PR_SET_DUMPABLE, int(not hidden))


def ignore_terminal_signals() -> None:
    """The terminal's and a job's signals are the agent's business; the supervisor tells us what to do."""
    for number in range(1, signal.NSIG):
        if number in _KEPT:
            continue
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass  # reserved by the threading library
