"""What the machine itself takes away: how long a thread that wants the processor has to wait for it."""

import os
import signal
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self


def tracers(supervisor: int) -> list[int]:
    """Process ids of a supervisor's tracer."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    return [int(pid) for pid in children if _called(pid) == "aw-tracer\n"]


def stop(supervisor: int) -> list[int]:
    """Stop a supervisor, which is a child of ours, and its tracer; the tracer's process id.

    A thread that waits for a processor has to be given one before it stops: then `waited_ns` counts that wait, too.
    """
    found = tracers(supervisor)
    os.kill(supervisor, signal.SIGSTOP)
    os.waitid(os.P_PID, supervisor, os.WSTOPPED)
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
        while not _stands(pid):
            time.sleep(0.001)
    return found


def waited_ns(supervisor: int) -> int:
    """How long the threads of a supervisor and its tracer have waited for a processor (proc(5), schedstat)."""
    found = 0
    for pid in (supervisor, *tracers(supervisor)):
        for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                found += int(file.read_text().split()[1])
            except (OSError, IndexError):
                continue  # gone, or a kernel that does not count
    return found


def _stands(pid: int) -> bool:
    """Whether all of its threads are stopped (proc(5): the third field)."""
    for file in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            if file.read_text().rpartition(") ")[2][0] not in "TZX":
                return False
        except OSError:
            continue  # gone since it was listed
    return True


def _called(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""  # it has ended since it was listed


class Bystander(threading.Thread):
    """Wants the processor every millisecond, from entering to leaving. `longest_wait_ns`: it had to wait so long."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.longest_wait_ns = 0
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        before, over = time.monotonic_ns(), False
        while not over:
            over = self._over.wait(0.001)
            now = time.monotonic_ns()
            self.longest_wait_ns = max(self.longest_wait_ns, now - before - 1_000_000)
            before = now
