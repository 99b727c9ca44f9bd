"""Calls that a signal interrupts while they wait to be noticed, and which by themselves could never be interrupted.

Until the listener has taken a call, a signal ends the wait (after that only a deadly one does,
SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV). With SA_RESTART nobody sees it; without, mkdir fails with EINTR, which no
program expects. Where ptrace sees the signal come, such a call is told to begin anew. Nothing of it has happened yet.
"""

import os
import stat

from agentwrap.tracing import ptrace
from agentwrap.tracing.processes import Process
from agentwrap.tracing.syscalls import watched
from agentwrap.tracing.tracee import AT_FDCWD, Memory, locate, signed

_OPENS = {"open": 0, "creat": 0, "openat": 1, "openat2": 1}  # and which argument is the path


class Interrupted:
    """Has a reader of memory of its own: it works on another thread than the observer."""

    def __init__(self) -> None:
        self._names = watched.names()
        self._memory = Memory()

    def begin_anew(self, tid: int, process: Process | None) -> None:
        """At a signal stop of `tid`: restart what would be EINTR only because of us."""
        call = ptrace.interrupted_call(tid)
        if call is None:
            return
        arch, number, arguments = call
        name = self._names.get((arch, number), "")
        if name in watched.NEVER_SLEEP or (name in _OPENS and self._opens_a_file(name, tid, process, arguments)):
            ptrace.restart_interrupted(tid)

    def _opens_a_file(self, name: str, tid: int, process: Process | None, arguments: tuple[int, ...]) -> bool:
        """Opening a fifo or a device may sleep, and its EINTR is the kernel's own; a file's never is."""
        at = _OPENS[name]
        directory = signed(arguments[0]) if at else AT_FDCWD
        try:
            path = self._memory.string(tid, arguments[at])
            place = locate(tid, directory, path, foreign=process is None or process.foreign)
            mode = os.stat(place.host).st_mode
        except FileNotFoundError:
            return True
        except OSError:
            return False
        finally:
            self._memory.forget(tid)
        return stat.S_ISREG(mode) or stat.S_ISDIR(mode)
