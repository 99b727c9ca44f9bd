"""What the machine itself takes away: how long a thread that wants the processor has to wait for it."""

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self


def waited_ns(supervisor: int) -> int:
    """How long the threads of a supervisor and its tracer have waited for a processor (proc(5), schedstat)."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    tracers = [pid for pid in children if _called(pid) == "aw-tracer\n"]
    found = 0
    for pid in (str(supervisor), *tracers):
        for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                found += int(file.read_text().split()[1])
            except (OSError, IndexError):
                continue  # gone, or a kernel that does not count
    return found


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
