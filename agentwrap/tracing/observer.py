"""One reported call, from numbers to the handler that knows it. The same for notifications and for ptrace stops."""

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentwrap.events import CoverageKind, Sink
from agentwrap.launching.seccomp import ARCH_X86_64
from agentwrap.tracing.announcer import Announcer
from agentwrap.tracing.blindspots import BlindSpots, RefusedError
from agentwrap.tracing.calls_file import FileCalls
from agentwrap.tracing.calls_network import NetworkCalls
from agentwrap.tracing.calls_process import ProcessCalls
from agentwrap.tracing.files.tracker import FileTracker
from agentwrap.tracing.gaps import gap_of
from agentwrap.tracing.processes import Process
from agentwrap.tracing.syscalls import watched
from agentwrap.tracing.tracee import FAILS_BY_ITSELF, NOT_FOR_US, Memory, refused

if TYPE_CHECKING:
    from agentwrap.tracing.judging import StopJudge

Arguments = tuple[int, ...]


class Observer:
    """Turns calls into events. `call` never raises: what it cannot read is a gap, what it got wrong is a gap too."""

    def __init__(
        self,
        memory: Memory,
        files: FileTracker,
        sink: Sink,
        now: Callable[[], int],
        *,
        reads: bool,
        traced: bool,
        notifying: bool,
        announce: Announcer | None = None,
        judge: "StopJudge | None" = None,
    ) -> None:
        self._sink = sink
        self._now = now
        self._judge = judge
        self.blind = blind = BlindSpots(sink, now, os.path.exists)
        file_calls = FileCalls(memory, files, blind, reads=reads)
        process_calls = ProcessCalls(memory, sink, now, traced=traced, notifying=notifying, judge=judge)
        file_handlers, sockets = file_calls.handlers, None
        if judge is not None:
            from agentwrap.tracing.judged_calls import JudgedCalls
            from agentwrap.tracing.judged_files import FileQuestions
            from agentwrap.tracing.judged_sockets import SocketQuestions

            questions = FileQuestions(judge)
            sockets = SocketQuestions(judge, questions)
            judged = JudgedCalls(file_calls, questions, memory, execs=judge.plan.execs)
            file_handlers = judged.over(file_handlers)
        self.network = NetworkCalls(memory, files, sink, now, blind, announce, sockets)
        self._table: dict[tuple[int, int], tuple[str, Callable[[Process, int, Arguments], int]]] = {}
        plain = file_handlers | process_calls.handlers
        for (arch, number), name in watched.names().items():
            if name in plain:
                self._table[arch, number] = (name, plain[name])
            elif name in self.network.handlers:
                self._table[arch, number] = (name, self._with_layout(name, arch == ARCH_X86_64))

    def _with_layout(self, name: str, wide: bool) -> Callable[[Process, int, Arguments], int]:
        handler = self.network.handlers[name]
        return lambda process, tid, arguments: handler(process, tid, arguments, wide)

    def call(self, process: Process, tid: int, arch: int, number: int, arguments: Arguments) -> int:
        """0: the call goes on. Else the errno with which it is refused."""
        entry = self._table.get((arch, number))
        if entry is None:
            return 0
        name, handler = entry
        try:
            return handler(process, tid, arguments)
        except RefusedError as closed:
            return closed.number
        except OSError as error:
            # A path that does not exist, a bad pointer, a task that died: the call fails by itself, nothing is missed.
            if refused(error, tid):
                return self._unreadable(process, name, error)
            if error.errno in NOT_FOR_US:  # nobody waits for it any more
                return 0 if self._judge is None else errno.EPERM
            if error.errno not in FAILS_BY_ITSELF:
                self._unresolved(process, name, error)
        except Exception as error:
            # A fault of ours must neither hang the agent nor pass for silence.
            self._fault(process, name, error)
        return 0

    def _unreadable(self, process: Process, name: str, error: OSError) -> int:
        if name in self.network.handlers:
            self.network.refused(process, name, error)
            return 0
        if process.once("unreadable"):
            self._gap(process, "file-write", "not-dumpable", "which files this process changes", f"{name}: {error}")
        return 0 if self._judge is None else self._judge.unreadable(process, name)

    def _unresolved(self, process: Process, name: str, error: OSError) -> None:
        """What the process could do and we could not: mostly a directory whose path is longer than readlink gives."""
        cause = "path-too-long" if error.errno == errno.ENAMETOOLONG else "lookup"
        if process.once(cause):
            self._gap(process, "file-write", cause, "which files this process changes there", f"{name}: {error}")

    def _fault(self, process: Process, name: str, error: Exception) -> None:
        if process.once("fault " + name):
            what: CoverageKind = "connect" if name in self.network.handlers else "file-write"
            self._gap(process, what, "internal-fault", f"what this process does by {name}", f"{name}: {error!r}")

    def _gap(self, process: Process, what: CoverageKind, cause: str, could_hide: str, detail: str) -> None:
        self._sink(gap_of(process, self._now(), what, cause, could_hide, detail))
