"""What a wait status means for a seized tracee (ptrace(2), "Stopped states"). Pure."""

import enum
import signal
from typing import NamedTuple

from agentwrap.tracing import ptrace

STOPPING = frozenset({signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})


class StopKind(enum.Enum):
    """Every state that waitpid reports of a seized tracee."""

    CALL = "call"  # PTRACE_EVENT_SECCOMP
    EDGE = "edge"  # entry to or exit from a call, where every call is stopped at
    CHILD = "child"  # fork, vfork or clone: a new task exists
    EXEC = "exec"
    GROUP = "group"  # stopped by a stopping signal, job control
    BEGIN = "begin"  # a new task's first stop, or waking from a group stop
    SIGNAL = "signal"  # a signal is about to be delivered
    OTHER = "other"
    GONE = "gone"


class Stop(NamedTuple):
    """`value`: the ptrace event for CHILD, the signal for GROUP and SIGNAL, else 0."""

    kind: StopKind
    value: int = 0


_CALL = Stop(StopKind.CALL)
_EDGE = Stop(StopKind.EDGE)
_BEGIN = Stop(StopKind.BEGIN)
_EXEC = Stop(StopKind.EXEC)
_GONE = Stop(StopKind.GONE)
_CALL_STATUS = ptrace.EVENT_SECCOMP << 16 | signal.SIGTRAP << 8 | 0x7F


def classify(status: int) -> Stop:
    """The stop that `status` (as from waitpid) stands for."""
    if status == _CALL_STATUS:
        return _CALL
    if status & 0xFF != 0x7F:
        return _GONE
    event, number = status >> 16, status >> 8 & 0xFF
    if event == ptrace.EVENT_STOP:
        return Stop(StopKind.GROUP, number) if number in STOPPING else _BEGIN
    if event in (ptrace.EVENT_FORK, ptrace.EVENT_VFORK, ptrace.EVENT_CLONE):
        return Stop(StopKind.CHILD, event)
    if event == ptrace.EVENT_EXEC:
        return _EXEC
    if event == 0 and number == signal.SIGTRAP | 0x80:
        return _EDGE
    if event == 0:
        return Stop(StopKind.SIGNAL, number)
    return Stop(StopKind.OTHER, event)
