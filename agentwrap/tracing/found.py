"""Following without ptrace: processes are found when they make a reported call, and watched by pidfd until they end.

The weaker of the two ways (`--debuggable`, or where ptrace is refused): a process that makes no reported call is not
seen, a fork is known only by what it leads to, and the exit status only of the main command and of orphans. The
coverage statement says so.
"""

import os
import select
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from agentwrap.events import ProcessExec
from agentwrap.tracing.files.settings import Place
from agentwrap.tracing.files.tracker import FileTracker
from agentwrap.tracing.image import MAX_ARGUMENT_BYTES, is_set_id
from agentwrap.tracing.lifecycle import Lifecycle, Usage
from agentwrap.tracing.processes import Process, ProcessTree
from agentwrap.tracing.tracee import AT_FDCWD, Memory, descriptor_target, locate, signed

_MAX_ARGUMENTS = 4096


class Asked(NamedTuple):
    """An exec that was asked for. `set_id`: the file has such a bit; `for_other`: its owner is not who asks."""

    path: bytes
    argv: tuple[bytes, ...]
    set_id: bool
    for_other: bool


@dataclass(slots=True)
class _Watch:
    """A living process: its pidfd and the exec that was asked for and is not confirmed yet."""

    descriptor: int
    known: tuple[bytes, bytes]
    pending: Asked | None = None


class FoundTree:
    """Keeps a `ProcessTree` from notifications and /proc.

    Calls come from the notify thread, `poll` from the clock's, `reaped` from the main thread.
    """

    def __init__(
        self,
        tree: ProcessTree,
        lifecycle: Lifecycle,
        files: FileTracker,
        memory: Memory,
        sink: Callable[[ProcessExec], None],
        now: Callable[[], int],
    ) -> None:
        self._tree = tree
        self._lifecycle = lifecycle
        self._files = files
        self._memory = memory
        self._sink = sink
        self._now = now
        self._lock = threading.RLock()
        self._watches: dict[int, _Watch] = {}
        self._statuses: dict[int, int] = {}
        self._poll = select.poll()

    def watch_root(self, pid: int) -> None:
        """The main command, which we started."""
        with self._lock:
            process = self._tree.start(pid, None)
            self._lifecycle.started(process, "root", os.getpid())
            self._open(process)

    def find(self, tid: int) -> Process | None:
        """The process of thread `tid`, entered into the tree if it is new; None if it is gone already.

        Raises OSError where it cannot be told (no descriptor is left): the call is not seen then.
        """
        known = self._tree.tasks.get(tid)
        if known is not None:
            return known
        with self._lock:
            try:
                group, parent = _group_and_parent(tid)
            except (FileNotFoundError, ProcessLookupError, ValueError):
                return None
            process = self._tree.tasks.get(group)
            if process is None:
                process = self._enter(group, parent)
            if tid != group:
                self._tree.start_thread(tid, process)
            return process

    def _enter(self, pid: int, parent_pid: int) -> Process:
        parent = self._tree.tasks.get(parent_pid)
        if parent is None and parent_pid > 1 and parent_pid != os.getpid():
            parent = self.find(parent_pid)
        process = self._tree.start(pid, parent or self._tree.root)
        self._lifecycle.started(process, "found", parent_pid)
        self._open(process)
        return process

    def _open(self, process: Process) -> None:
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:
            descriptor = -1
        if descriptor >= 0:
            self._poll.register(descriptor, select.POLLIN)
        self._watches[process.pid] = _Watch(descriptor, _identity(process.pid))

    def executing(
        self, process: Process, tid: int, name: str, arguments: tuple[int, ...], *, wide: bool
    ) -> Asked | None:
        """An execve was asked for; whether it succeeds is seen at the process's next sign of life.

        None for one that fails: a step along PATH.
        """
        base = 1 if name == "execveat" else 0
        directory = signed(arguments[0]) if base else AT_FDCWD
        path = self._memory.string(tid, arguments[base])
        argv = self._strings(tid, arguments[base + 1], 8 if wide else 4)
        if path:
            place = locate(tid, directory, path, foreign=process.foreign)
        else:
            place = Place(descriptor_target(tid, directory), b"/proc/%d/fd/%d" % (tid, directory))
        file = os.stat(place.host)  # of a step along PATH: not there
        if not stat.S_ISREG(file.st_mode) or not file.st_mode & 0o111:
            return None  # execve(2): EACCES
        for_other = bool(file.st_mode & stat.S_ISUID) and file.st_uid != os.stat(f"/proc/{process.pid}").st_uid
        asked = Asked(place.path, argv, is_set_id(file.st_mode), for_other)
        with self._lock:
            watch = self._watches.get(process.pid)
            if watch is not None:
                watch.pending = asked
        self._memory.forget(process.pid)
        self._memory.forget(tid)
        return asked

    def _strings(self, tid: int, pointer: int, pointer_bytes: int) -> tuple[bytes, ...]:
        out: list[bytes] = []
        left = MAX_ARGUMENT_BYTES
        for i in range(_MAX_ARGUMENTS):
            raw = self._memory.read(tid, pointer + pointer_bytes * i, pointer_bytes)
            address = int.from_bytes(raw, "little")
            if len(raw) < pointer_bytes or not address or left <= 0:
                break
            out.append(self._memory.string(tid, address, MAX_ARGUMENT_BYTES))
            left -= len(out[-1]) + 1
        return tuple(out)

    def confirm(self, process: Process) -> None:
        """If the process runs another program than when last seen, tell its exec."""
        with self._lock:
            watch = self._watches.get(process.pid)
            if watch is None or watch.pending is None:
                return
            identity = _identity(process.pid)
            if not identity[1]:
                return  # dead already (told by what it asked for, at its end), or the kernel is still laying it out
            if identity == watch.known and watch.pending.argv != tuple(identity[1].rstrip(b"\0").split(b"\0")):
                return
            asked, watch.pending = watch.pending, None
            watch.known = identity
            process.execs += 1
            if self._lifecycle.became(process) is None:
                self._unconfirmed(process, asked)

    def reaped(self, pid: int, status: int) -> None:
        """The wait status of a child of ours (the main command, adopted orphans)."""
        with self._lock:
            self._statuses[pid] = status
            process = self._tree.tasks.get(pid)
            if process is not None and process.pid == pid:
                self._end(process)

    def poll(self) -> None:
        """Confirm pending execs and end the processes whose pidfd says they are gone."""
        with self._lock:
            for process in list(self._tree.processes()):
                self.confirm(process)
            gone = {descriptor for descriptor, _ in self._poll.poll(0)}
            for process in list(self._tree.processes()):
                watch = self._watches.get(process.pid)
                if watch is not None and (watch.descriptor in gone or watch.descriptor < 0):
                    if watch.descriptor < 0 and os.path.exists(f"/proc/{process.pid}"):
                        continue
                    if not _is_our_zombie(process.pid):
                        self._end(process)

    def _end(self, process: Process) -> None:
        watch = self._watches.pop(process.pid, None)
        if watch is not None:
            if watch.pending is not None:
                self._unconfirmed(process, watch.pending)
            if watch.descriptor >= 0:
                self._poll.unregister(watch.descriptor)
                os.close(watch.descriptor)
        for tid in list(process.tids):
            if tid != process.pid:
                self._tree.end_task(tid)
        if self._tree.end_task(process.pid) is not None:
            self._lifecycle.ended(process, self._statuses.pop(process.pid, None), Usage())

    def _unconfirmed(self, process: Process, asked: Asked) -> None:
        """It was gone before we could look: the arguments it asked with are what there is."""
        self._sink(
            ProcessExec(
                at_ns=self._now(),
                span=process.span,
                pid=process.pid,
                path=asked.path,
                exe=asked.path,
                argv=asked.argv,
                cwd=b"",
                uid=-1,
                gid=-1,
                euid=-1,
                setuid=asked.set_id,
                confirmed=False,
            )
        )
        if asked.for_other:
            self._lifecycle.set_id_denied(process, asked.path)


def _identity(pid: int) -> tuple[bytes, bytes]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            arguments = file.read(1 << 17)
        return os.readlink(b"/proc/%d/exe" % pid), arguments
    except OSError:
        return b"", b""


def _is_our_zombie(pid: int) -> bool:
    """A dead child of ours that `waitpid` has not told yet: its status is still to come."""
    try:
        return _group_and_parent(pid)[1] == os.getpid()
    except (OSError, ValueError):
        return False


def _group_and_parent(tid: int) -> tuple[int, int]:
    """Tgid and PPid of a thread (proc_pid_status(5))."""
    group = parent = 0
    with open(f"/proc/{tid}/status", "rb") as file:
        for line in file:
            if line.startswith(b"Tgid:"):
                group = int(line.split()[1])
            elif line.startswith(b"PPid:"):
                parent = int(line.split()[1])
                break
    if not group:
        raise ValueError(tid)
    return group, parent
