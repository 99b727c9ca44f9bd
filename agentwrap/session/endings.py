"""Ways in which a run ends that nobody asked for, and how our own process leaves."""

import os
import resource
import signal
import time
from collections.abc import Collection
from typing import NoReturn

from agentwrap.events import Gap

_CLOCK_JUMP_NS = 1_000_000_000
_AT_ONCE_NS = 1_000_000


def end_orphans(tracer_pid: int, own: Collection[int]) -> None:
    """The tracer is dead. With ptrace the kernel has ended the tree already; else its orphans are our children now.

    `own`: our other processes, which have something to tell yet. The tracer is left to be waited for: its end of the
    channel is closed before it is a zombie (exit_files() comes before exit_notify()).
    """
    from agentwrap.tracing.descendants import descendants

    os.kill(tracer_pid, signal.SIGKILL)
    while left := set(descendants(os.getpid())) - {tracer_pid, *own}:
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


def both_clocks() -> tuple[int, int]:
    """CLOCK_MONOTONIC and CLOCK_REALTIME of one moment, in ns.

    Who is held up between the two would find a jump of the clock (or miss one): then they are read once more.
    """
    while True:
        before_ns, unix_ns = time.monotonic_ns(), time.time_ns()
        if time.monotonic_ns() - before_ns < _AT_ONCE_NS:
            return before_ns, unix_ns


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
