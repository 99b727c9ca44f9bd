"""The ptrace loop: one blocking waitpid, a table of stops, and never a stop held longer than it takes to note it.

Runs on the thread that seized the child (ptrace binds to a thread). Ends when no task is left.
"""

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from resource import struct_rusage
from typing import TYPE_CHECKING, Literal

from agentwrap.events import CoverageKind
from agentwrap.launching.seccomp import ARCH_X86_64, ENOSYS, Rule, answer
from agentwrap.tracing import ptrace
from agentwrap.tracing.files.settings import Who
from agentwrap.tracing.files.tracker import FileTracker
from agentwrap.tracing.image import Image
from agentwrap.tracing.interrupted import Interrupted
from agentwrap.tracing.lifecycle import Lifecycle, Usage
from agentwrap.tracing.observer import Observer
from agentwrap.tracing.processes import Process, ProcessTree
from agentwrap.tracing.stops import StopKind, classify
from agentwrap.tracing.tracee import Memory

if TYPE_CHECKING:
    from agentwrap.tracing.guard.performer import Performer

_HOW: dict[int, Literal["fork", "vfork", "clone"]] = {
    ptrace.EVENT_FORK: "fork",
    ptrace.EVENT_VFORK: "vfork",
    ptrace.EVENT_CLONE: "clone",
}
_WAIT4 = b"61"  # arch/x86/entry/syscalls/syscall_64.tbl
_PATIENCE_S = 2.0
_FORWARDABLE = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2})


class PtraceLoop:
    """Follows every task of the tree.

    `on_main_end(status)` and `on_main_stop(signal)` tell about the main command. `every_call`: the rules, where there
    is no filter to apply them and each call has to be stopped at. `interrupted`: where calls wait for a listener.
    `may_run`: asked about each new program before it runs; one that may not is killed. `at_exec`: is told of each one
    that may, and may let it make calls; it returns what waitpid said if the program died of them.
    """

    def __init__(
        self,
        tree: ProcessTree,
        lifecycle: Lifecycle,
        observer: Observer,
        files: FileTracker,
        memory: Memory,
        on_main_end: Callable[[int], None],
        on_main_stop: Callable[[int], None],
        on_fault: Callable[[CoverageKind, str], None],
        every_call: Mapping[tuple[int, int], Rule] | None = None,
        interrupted: Interrupted | None = None,
        may_run: Callable[[Process], bool] | None = None,
        at_exec: Callable[[Process, Image], tuple[int, struct_rusage] | None] | None = None,
    ) -> None:
        self._tree = tree
        self._lifecycle = lifecycle
        self._observer = observer
        self._files = files
        self._memory = memory
        self._on_main_end = on_main_end
        self._on_main_stop = on_main_stop
        self._on_fault = on_fault
        self._rules = every_call
        self._interrupted = interrupted
        self._may_run = may_run
        self._at_exec = at_exec
        self._resume = ptrace.resume if every_call is None else ptrace.resume_to_call
        self._said: dict[int, int] = {}
        self._performer: Performer | None = None
        self._early: set[int] = set()
        self.main_stopped = False
        self._lock = threading.Lock()
        self._delivered: deque[tuple[int, int]] = deque(maxlen=8)
        self._foreseen: set[int] = set()  # whose next delivery is accounted for already
        self._tid = 0

    def perform_by(self, make: "Callable[[Callable[[int], None], Callable[[int, int], None]], Performer]") -> None:
        """Calls about internet sockets are performed: `make` is given how a thread goes on, and how it is answered."""
        self._performer = make(self._resume, self._answer)

    def run(self) -> None:
        """Until every task is gone (ECHILD). The interpreter's own children are none: the tracer has only tracees."""
        self._tid = threading.get_native_id()
        while True:
            try:
                tid, status, usage = os.wait4(-1, ptrace.WALL)
            except ChildProcessError:
                return
            try:
                self._take(tid, status, usage)
            except Exception as error:
                # A fault of ours must not end the agent, which it would with the tracer (PTRACE_O_EXITKILL).
                self._on_fault("process", f"task {tid}, status {status:#x}: {error!r}")
                self._resume(tid)

    def main_has(self, number: int, sender: int) -> bool:
        """Whether a signal of this sender has come to the main command, too; each counts once. Not for our own thread.

        One of its kind that still waits there is enough: a second one would be none then (signal(7)).
        """
        root, until = self._tree.root, time.monotonic() + _PATIENCE_S
        while root is not None and time.monotonic() < until:
            with self._lock:
                if _is_pending(root.pid, number):
                    self._foreseen.add(number)
                    return True
            # What is pending no more is at a stop: once the loop sleeps, it has seen that.
            if _is_in_wait4(self._tid):
                break
            time.sleep(0.001)
        with self._lock:
            came = (number, sender) in self._delivered
            if came:
                self._delivered.remove((number, sender))
        return came

    def _take(self, tid: int, status: int, usage: struct_rusage) -> None:
        stop = classify(status)
        match stop.kind:
            case StopKind.CALL:
                self._call(tid)
            case StopKind.EDGE:
                self._edge(tid)
            case StopKind.GONE:
                self._gone(tid, status, usage)
            case StopKind.SIGNAL:
                self._signal(tid, stop.value)
            case StopKind.CHILD:
                self._child(tid, stop.value)
            case StopKind.BEGIN:
                self._begin(tid)
            case StopKind.EXEC:
                self._exec(tid)
            case StopKind.GROUP:
                self._group_stop(tid, stop.value)
            case StopKind.OTHER:
                self._resume(tid)

    def _call(self, tid: int) -> None:
        call = ptrace.syscall_info(tid)
        process = self._tree.tasks.get(tid)
        if call is not None and process is not None:
            outcome = self._outcome(process, tid, *call)
            if outcome is None:
                return
            if outcome:
                self._answer(tid, -outcome)
        self._resume(tid)

    def _outcome(self, process: Process, tid: int, arch: int, number: int, arguments: tuple[int, ...]) -> int | None:
        """0: it goes on, an errno: it is refused, None: it has been answered already."""
        errno = self._observer.call(process, tid, arch, number, arguments)
        if errno or self._performer is None:
            return errno
        return self._performer.enter(process, tid, arch, number, arguments)

    def _answer(self, tid: int, value: int) -> None:
        ptrace.answer_syscall(tid, value)
        if self._rules is not None:
            self._said[tid] = value

    def _edge(self, tid: int) -> None:
        """At every call: what the filter would have decided is decided here."""
        call = ptrace.syscall_info(tid)
        if call is None:
            self._exit(tid)
        elif self._rules is not None:
            arch, number, arguments = call
            rule = self._rules.get((arch, number))
            # x32: another table of the same architecture, which a filter of ours would refuse (launching.seccomp).
            odd = arch == ARCH_X86_64 and number >> 30 == 1
            outcome: int | None = answer(rule, arguments) if rule is not None else ENOSYS * odd
            process = self._tree.tasks.get(tid)
            if outcome == -1:
                outcome = self._outcome(process, tid, arch, number, arguments) if process is not None else 0
            if outcome is None:
                return
            if outcome:
                self._answer(tid, -outcome)
        self._resume(tid)

    def _exit(self, tid: int) -> None:
        said = self._said.pop(tid, None)
        if said is not None:
            ptrace.set_result(tid, said)  # a filter above may have put its own answer to a call that is none
        elif self._performer is not None:
            self._performer.leave(tid)

    def _begin(self, tid: int) -> None:
        if tid not in self._tree.tasks:
            # Its parent's fork event, which tells who it is, may come later (ptrace(2)): hold it until then.
            self._early.add(tid)
            return
        if self._tree.root is not None and tid == self._tree.root.pid:
            self.main_stopped = False
        self._resume(tid)

    def _child(self, tid: int, event: int) -> None:
        new = ptrace.event_message(tid)
        parent = self._tree.tasks.get(tid)
        if new and parent is not None:
            # Any of the three may be a thread: the event's name tells the flags given to clone(2), not what came of it.
            if os.path.exists(f"/proc/{parent.pid}/task/{new}"):
                self._tree.start_thread(new, parent)
            else:
                process = self._tree.start(new, parent)
                self._lifecycle.started(process, _HOW[event], parent.pid)
            if new in self._early:
                self._early.discard(new)
                self._resume(new)
        self._resume(tid)

    def _exec(self, tid: int) -> None:
        former = ptrace.event_message(tid)
        if former and former != tid:
            self._memory.forget(former)
            self._forget_call(former)
        self._forget_call(tid)
        process = self._tree.exec(tid)
        if process is not None:
            image = self._lifecycle.became(process)
            if self._may_run is not None and not self._may_run(process):
                os.kill(process.pid, signal.SIGKILL)
            elif image is not None and self._at_exec is not None:
                gone = self._at_exec(process, image)
                if gone is not None:
                    self._gone(tid, *gone)
                    return
        self._resume(tid)

    def _forget_call(self, tid: int) -> None:
        self._said.pop(tid, None)
        if self._performer is not None:
            self._performer.gone(tid)

    def _signal(self, tid: int, number: int) -> None:
        root = self._tree.root
        if root is not None and self._tree.tasks.get(tid) is root and number in _FORWARDABLE:
            with self._lock:
                if number not in self._foreseen:
                    self._delivered.append((number, ptrace.signal_origin(tid)[1]))
                self._foreseen.discard(number)
        if self._interrupted is not None:
            self._interrupted.begin_anew(tid, self._tree.tasks.get(tid))
        self._resume(tid, number)

    def _group_stop(self, tid: int, number: int) -> None:
        ptrace.listen(tid)
        if self._tree.root is not None and tid == self._tree.root.pid:
            self.main_stopped = True
            self._on_main_stop(number)

    def _gone(self, tid: int, status: int, usage: struct_rusage) -> None:
        self._early.discard(tid)
        self._memory.forget(tid)
        self._forget_call(tid)
        process = self._tree.tasks.get(tid)
        if process is not None and tid != process.pid:
            self._files.thread_stopped(Who(tid, process.pid, process.span))
        ended = self._tree.end_task(tid)
        if ended is None:
            return
        main = ended is self._tree.root
        if main:
            self._on_main_end(status)
        self._lifecycle.ended(
            ended,
            status,
            Usage(
                int(usage.ru_utime * 1e9),
                int(usage.ru_stime * 1e9),
                usage.ru_maxrss * 1024,
            ),
        )


def _is_pending(pid: int, number: int) -> bool:
    """Whether a signal waits to be taken by a process (proc_pid_status(5))."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            pending = [int(line[7:], 16) for line in file if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    except OSError:
        return False
    return any(mask >> number - 1 & 1 for mask in pending)


def _is_in_wait4(tid: int) -> bool:
    """Whether a thread of ours sleeps there (proc_pid_syscall(5)); one that cannot be asked counts as if."""
    try:
        with open(f"/proc/self/task/{tid}/syscall", "rb") as file:
            return file.read(128).split(None, 1)[0] == _WAIT4
    except (OSError, IndexError):
        return True
