"""Which processes a process descends from, as the kernel tells it in /proc (proc(5)).

A run's tracer is the subreaper of its tree (prctl(2)): whatever the agent starts, and however often it forks, its chain
of parents ends at the tracer or passes the supervisor.
"""

import os
import time
from collections.abc import Collection, Iterator

TRACER = "aw-tracer"
"""What a run's tracer is called in /proc/PID/comm. A process can rename itself, not what it descends from."""

_MAX_DEPTH = 4096
_TRIES = 5


class OutOfSight(Exception):  # noqa: N818 - no error of ours: what it means is for the caller to say
    """A process whose origin cannot be told: it is gone, or lies outside of what we see."""


def _stat(pid: int) -> tuple[int, int]:
    """(parent, start in clock ticks since boot)."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return int(fields[1]), int(fields[19])


def chain(pid: int) -> list[int]:
    """The process and its parents, up to the first process or the edge of our PID namespace.

    Raises OutOfSight where that cannot be read.
    """
    for _ in range(_TRIES):
        try:
            return _chain(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue  # a parent ended while we climbed, and its children have another one now
        except (OSError, ValueError, IndexError) as error:
            raise OutOfSight(f"process {pid}: {error}") from error
    raise OutOfSight(f"process {pid} is gone")


def _chain(pid: int) -> list[int]:
    found = list(_climb(pid))
    if not found:
        raise OutOfSight(f"process {pid} is not of our PID namespace")
    return found


def _climb(pid: int) -> Iterator[int]:
    """The process and its parents, each as soon as it is known. Raises OSError, ValueError, IndexError."""
    for _ in range(_MAX_DEPTH):
        if pid <= 0:
            return
        yield pid
        pid, _started = _stat(pid)


def tracer_above(pid: int) -> int:
    """The nearest process above that follows a run, 0 where there is none as far as can be seen.

    Where /proc shows only one's own processes (proc(5), hidepid), a tracer of the same user is still among them.
    """
    for _ in range(_TRIES):
        try:
            return next((one for one in _climb(pid) if one != pid and _called(one) == TRACER), 0)
        except (OSError, ValueError, IndexError):
            continue  # a parent ended while we climbed, and its children have another one now; or it is hidden
    return 0


def descends(pid: int, roots: Collection[int]) -> bool:
    """Whether the process is one of `roots` or below one. Raises OutOfSight."""
    return any(one in roots for one in chain(pid))


def started_after(pid: int, boottime_ns: int) -> bool:
    """Whether the process began after that time (CLOCK_BOOTTIME): its number was another one's before.

    Raises OutOfSight.
    """
    try:
        ticks = _stat(pid)[1]
    except (OSError, ValueError, IndexError) as error:
        raise OutOfSight(f"process {pid} is gone") from error
    return ticks > boottime_ns * os.sysconf("SC_CLK_TCK") // 10**9 + 1


def now_boottime_ns() -> int:
    """The clock that process starts are told in."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def told(pid: int, roots: Collection[int], *, limit: int = 6) -> str:
    """`curl (4130), started by bash (4121), claude (4100)`: names of programs up to, and without, `roots`.

    The names are the agent's choice. What cannot be read is left out.
    """
    try:
        pids = chain(pid)
    except OutOfSight:
        return f"process {pid}, which is gone" if pid else ""
    below = []
    for one in pids:
        if one in roots:
            break
        below.append(one)
    names = [f"{_name(one)} ({one})" for one in below[:limit]]
    if len(below) > limit:
        names.append("...")
    return ", started by ".join([names[0], ", ".join(names[1:])]) if names[1:] else "".join(names)


def _name(pid: int) -> str:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        pass  # not ours to look at, or a kernel thread
    try:
        return _called(pid)
    except OSError:
        return "?"


def _called(pid: int) -> str:
    with open(f"/proc/{pid}/comm", "rb") as file:
        return os.fsdecode(file.read().rstrip(b"\n"))
