"""Ways in which a run ends that nobody asked for, and how our own process leaves."""

import os
import resource
import signal
from collections.abc import Collection
from typing import NoReturn

from agentwrap.events import Gap

_CLOCK_JUMP_NS = 1_000_000_000


def end_orphans(own: Collection[int]) -> None:
    """The tracer is dead. With ptrace the kernel has ended the tree already; else its orphans are our children now.

    `own`: our other processes, which have something to tell yet.
    """
    from agentwrap.tracing.descendants import descendants

    while left := set(descendants(os.getpid())) - set(own):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except OSError:
                pass  # gone by itself, or not our child but its child's


def tracer_lost(at_ns: int) -> Gap:
    """The gap that a dead tracer leaves."""
    return Gap(
        at_ns=at_ns,
        what="process",
        cause="tracer-lost",
        could_hide="the last events before the tracer died; the tree was ended by the kernel",
        from_ns=at_ns,
    )


def clock_jump(started_unix_ns: int, now_unix_ns: int, now_ns: int) -> list[Gap]:
    """The wall clock was set, or the machine slept: times of day computed from the start are off from then on."""
    off_ns = now_unix_ns - started_unix_ns - now_ns
    if abs(off_ns) < _CLOCK_JUMP_NS:
        return []
    return [
        Gap(
            at_ns=now_ns,
            what="process",
            cause="clock-jump",
            could_hide="the time of day of events: the clock was set, or the machine slept",
            from_ns=0,
            to_ns=now_ns,
            detail=b"%+.1f s" % (off_ns / 1e9),
        )
    ]


def die_of(number: int) -> NoReturn:
    """End this process by the signal, without a core of our own."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)
