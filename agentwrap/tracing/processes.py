"""The process tree as the kernel's events tell it. Pure: facts in, state out; no system call, no clock.

A *task* is a thread as the kernel counts them; a *process* is a thread group and owns a span. Process ids are reused;
spans are not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from agentwrap.events import Family, Transport
from agentwrap.tracing.folding import Folding
from agentwrap.tracing.syscalls.addresses import Address

Tried = tuple[Family, Transport, bytes, int, bytes]
"""What makes a connect the same as another one of its process: family, transport, host, port, path."""


@dataclass(slots=True)
class Process:
    """One thread group. `foreign`: it may see another file tree than we do (chroot, mount namespace)."""

    pid: int
    span: str
    parent: "Process | None"
    tids: set[int] = field(default_factory=set)
    threads_seen: int = 1
    execs: int = 0
    foreign: bool = False
    reported: set[str] = field(default_factory=set)
    sends: dict[Address, int] = field(default_factory=dict)
    connects: Folding[Tried] = field(default_factory=Folding)
    dns_descriptors: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    ended_by_us: bool = False

    def once(self, word: str) -> bool:
        """True the first time `word` is given: for facts that are told once a process."""
        if word in self.reported:
            return False
        self.reported.add(word)
        return True


class ProcessTree:
    """All living tasks of the run and the processes they belong to."""

    def __init__(self) -> None:
        self.tasks: dict[int, Process] = {}
        self.root: Process | None = None
        self._count = 0

    def start(self, pid: int, parent: Process | None) -> Process:
        """A new thread group; its span is the next one."""
        self._count += 1
        process = Process(pid, f"p{self._count}", parent, {pid})
        if parent is not None:
            process.foreign = parent.foreign
        self.tasks[pid] = process
        if self.root is None:
            self.root = process
        return process

    def start_thread(self, tid: int, process: Process) -> None:
        """A new thread of `process`."""
        self.tasks[tid] = process
        process.tids.add(tid)
        process.threads_seen += 1

    def exec(self, pid: int) -> Process | None:
        """`pid`'s group became one thread again: whichever thread called exec now has the leader's id (ptrace(2))."""
        process = self.tasks.get(pid)
        if process is None:
            return None
        for tid in process.tids - {pid}:
            self.tasks.pop(tid, None)
        process.tids = {pid}
        process.execs += 1
        return process

    def end_task(self, tid: int) -> Process | None:
        """A task is gone. Returns its process when that was the last one of it (the leader is reported last)."""
        process = self.tasks.pop(tid, None)
        if process is None:
            return None
        process.tids.discard(tid)
        return process if tid == process.pid else None

    def processes(self) -> Iterator[Process]:
        """Living processes, each once."""
        return (process for tid, process in list(self.tasks.items()) if tid == process.pid)
