"""The tracer process: parent and subreaper of the agent's tree, between the agent and the supervisor.

It is a process of its own so that its thousands of short waits never queue behind the supervisor's work (and its death,
by PTRACE_O_EXITKILL, is the tree's death). Threads, once the child has been forked:

    main    ptrace loop (or plain waitpid where ptrace is refused)
    notify  seccomp notifications
    clock   flushes batches within about 5 ms, lets the file tracker settle, ends what outlives the main command
    orders  commands of the supervisor; its end of file is the order to end everything
"""

import errno
import fcntl
import os
import resource
import signal
import socket
import stat
import threading
import time
from typing import TYPE_CHECKING, NoReturn

import msgspec

from agentwrap.events import CoverageKind, Gap
from agentwrap.launching import attendant, child
from agentwrap.launching.child import ChildPlan, Launched
from agentwrap.launching.seccomp import ARCH_X86_64, Rule
from agentwrap.tracing import noise, notify, performing, ptrace
from agentwrap.tracing.announcer import Announcer
from agentwrap.tracing.blindspots import inherited_socket
from agentwrap.tracing.files.settings import FileSettings, Who
from agentwrap.tracing.files.tracker import FileTracker
from agentwrap.tracing.found import FoundTree
from agentwrap.tracing.interrupted import Interrupted
from agentwrap.tracing.lifecycle import Lifecycle
from agentwrap.tracing.loop import PtraceLoop
from agentwrap.tracing.observer import Observer
from agentwrap.tracing.processes import Process, ProcessTree
from agentwrap.tracing.recorded import Recorded
from agentwrap.tracing.resolve import OWN_DIRECTORY
from agentwrap.tracing.standing import memory_errno, mode_of, no_new_privs
from agentwrap.tracing.syscalls import watched
from agentwrap.tracing.tracee import Memory, own_view, sees_other_files
from agentwrap.tracing.wire import AllEnded, Failed, MainEnded, Sender, Standing, Stopped

if TYPE_CHECKING:
    from agentwrap.launching.enforcement import EnforcementPlan
    from agentwrap.policy.layers import Layer
    from agentwrap.tracing.afterlook import AfterLook
    from agentwrap.tracing.capture import Capture, CaptureSettings
    from agentwrap.tracing.guard import Guard
    from agentwrap.tracing.interposing import Matcher
    from agentwrap.tracing.interposing.watch import Interposer
    from agentwrap.tracing.judging import StopJudge

# With the recorder's own 20 ms these keep what a kill -9 can lose under 50 ms.
_FLUSH_DELAY_S = 0.005
_LOOK_S = 0.02
_BUSY_LOOK_S = 0.004
_FOUND_LOOK_S = 0.05
_IDLE_S = 0.5
_DUPLICATE_WINDOW_S = 0.03
_MAX_FAULTS = 100
_EXECS = {key: name for key, name in watched.names().items() if name in ("execve", "execveat")}


class TracerSettings(msgspec.Struct, frozen=True):
    """How to follow. `start_ns`: CLOCK_MONOTONIC at the start of the run. `linger_s`: time for what outlives main.

    `callers`: where the gateway is told who connects; None: there is none. `guard`: the gateway's TCP and DNS ports on
    loopback where connections are made here, by the tracer; `capture`: those to model servers are. `landlock`: the
    tree's own TCP connections are refused.
    `layers`, `plan`: the policy that calls are judged by, and what the kernel holds of it.
    `servers`: which programs are MCP servers, `relay`: where they are handed over (`mcp.handover`, the tracer's end);
    None: none is relayed. `gated`: rules speak of servers, so that one that cannot be relayed may not run.
    `root_server`: the command itself is a server of this name.
    """

    start_ns: int
    files: FileSettings
    cwd: bytes
    home: bytes
    temporary: bytes
    agent_folders: tuple[bytes, ...] = ()
    want_ptrace: bool = True
    linger_s: float = 0.5
    grace_s: float = 0.5
    callers: socket.socket | None = None
    guard: tuple[int, int] | None = None
    capture: "CaptureSettings | None" = None
    landlock: bool = False
    layers: "tuple[Layer, ...]" = ()
    plan: "EnforcementPlan | None" = None
    servers: "Matcher | None" = None
    relay: socket.socket | None = None
    gated: bool = False
    root_server: bytes = b""


def _take_all_descriptors() -> None:
    """A descriptor for each process and many files: the soft limit (1,024 as a rule) is a child's, not ours.

    After the fork: the command keeps the limit that we were given.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        pass  # as before then; what cannot be opened is a gap


class Tracer:
    """Everything of one run that lives in the tracer process."""

    def __init__(self, channel: socket.socket, plan: ChildPlan, settings: TracerSettings) -> None:
        self._channel = channel
        self._plan = plan
        self._settings = settings
        self._sender = Sender(channel)
        self._recorded = Recorded(self._sender)
        self._memory = Memory()
        self._tree = ProcessTree()
        classify = noise.Classifier(settings.cwd, settings.home, settings.temporary, settings.agent_folders)
        self._files = FileTracker(self._sender.put, settings.files, self._now, classify)
        self._ending_since: float | None = None
        self._faults = 0
        self._ended_by_us: set[str] = set()
        self._over = threading.Event()
        self._loop: PtraceLoop | None = None
        self._found: FoundTree | None = None
        self._guard: Guard | None = None
        self._capture: Capture | None = None
        self._interposer: Interposer | None = None
        self._judge: StopJudge | None = None
        self._after: AfterLook | None = None
        self._view = own_view()

    def _now(self) -> int:
        return time.monotonic_ns() - self._settings.start_ns

    def run(self) -> None:
        """Launch, follow, end. Returns when nothing of the tree is left and everything was sent."""
        try:
            launched = child.launch(self._plan, self._attach, want_ptrace=self._settings.want_ptrace)
        except OSError as error:
            self._sender.put(Failed(step="launch", errno=error.errno or 0, detail=str(error).encode()))
            self._sender.flush()
            return
        listener = notify.Listener(launched.listener) if launched.listener >= 0 else None
        self._sender.put(
            Standing(
                pid=launched.pid,
                mode=mode_of(launched),
                attach_errno=launched.attach_errno,
                notify_errno=launched.notify_errno,
                filter_errno=launched.filter_errno,
                memory_errno=memory_errno(launched.pid),
                in_place_wake=listener.wake_in_place() if listener else False,
                no_new_privs=no_new_privs(launched.pid),
                takes_errno=(takes := performing.takes_errno(self._settings, launched)),
            )
        )
        self._sender.flush()
        performing.load(self._settings)
        if self._channel.recv(1) != b"G":
            os.kill(launched.pid, signal.SIGKILL)
            return
        self._follow(launched, listener, guards=not takes)

    def _attach(self, pid: int) -> int:
        try:
            ptrace.seize(pid, ptrace.FOLLOW | ptrace.OPT_SECCOMP)
        except OSError as error:
            return error.errno or errno.EPERM
        return 0

    def _follow(self, launched: Launched, listener: notify.Listener | None, *, guards: bool) -> None:
        os.chdir(OWN_DIRECTORY)
        self._judge = self._make_judge()
        observer = Observer(
            self._memory,
            self._files,
            self._sender.put,
            self._now,
            reads=self._settings.files.reads,
            traced=launched.traced,
            notifying=listener is not None,
            announce=self._announcer(notified=listener is not None),
            judge=self._judge,
        )
        descriptor = listener.descriptor if listener is not None else -1
        in_tree = self._tree.tasks.__contains__
        performs = (self._settings, self._memory, in_tree, self._sender.put, self._now, descriptor)
        made = performing.make_guard(*performs) if guards else None
        if made is not None:
            self._guard = made[0]
            observer.network.guarded = True
        if listener is not None:
            self._capture = performing.make_capture(*performs)
        relayed = (self._settings, observer, self._sender.put, self._now, descriptor)
        self._interposer = performing.make_interposer(*relayed)
        set_id_works = not no_new_privs(launched.pid) and (not launched.traced or os.geteuid() == 0)
        lifecycle = Lifecycle(
            self._sender.put, self._now, self._memory, self._files, observer, set_id_works=set_id_works
        )
        if launched.traced:
            root = self._tree.start(launched.pid, None)
            lifecycle.started(root, "root", os.getpid())
            self._loop = PtraceLoop(
                self._tree,
                lifecycle,
                observer,
                self._files,
                self._memory,
                self._main_ended,
                self._main_stopped,
                self._fault,
                self._rules() if launched.mode == child.MODE_EVERY_CALL else None,
                Interrupted() if listener is not None else None,
                self._judge.runs if self._judge is not None else None,
                self._interposer.at_exec if self._interposer is not None else None,
            )
            if made is not None and made[1] is not None:
                performing.perform_at_stops(self._loop, made[0], made[1])
        else:
            # Our death must not come before the tree's: without ptrace nothing else would end it.
            attendant.survive_parent()
            self._found = FoundTree(self._tree, lifecycle, self._files, self._memory, self._sender.put, self._now)
            self._found.watch_root(launched.pid)
        _take_all_descriptors()
        self._inherited(launched)
        if listener is not None:
            threading.Thread(target=self._answer_calls, args=(listener, observer), daemon=True).start()
        threading.Thread(target=self._clock, args=(lifecycle,), daemon=True).start()
        threading.Thread(target=self._take_orders, daemon=True).start()
        launched.channel.send(b"go")
        if self._loop is not None:
            self._loop.run()
        else:
            self._wait_for_children()
        self._finish(launched)

    def _rules(self) -> dict[tuple[int, int], Rule]:
        """For stopping at every call, where no filter decides."""
        guard = self._guard is not None
        judged = watched.judged_by(self._settings.plan, guard=guard)
        return watched.by_call(reads=self._settings.files.reads, guard=guard, judged=judged)

    def _announcer(self, *, notified: bool) -> Announcer | None:
        """In the guard tier the guard itself says who calls, and so does what leads connections to the gateway."""
        settings = self._settings
        if settings.callers is None or settings.guard is not None or (notified and settings.capture is not None):
            return None
        return Announcer(settings.callers)

    def _make_judge(self) -> "StopJudge | None":
        layers, plan = self._settings.layers, self._settings.plan
        if not layers or plan is None:
            return None
        from agentwrap.tracing.afterlook import AfterLook
        from agentwrap.tracing.judging import StopJudge, descends

        self._after = AfterLook(layers, plan) if plan else None
        own, known = os.getpid(), self._tree.tasks
        return StopJudge(
            layers,
            plan,
            self._sender.put,
            self._now,
            lambda pid: pid in known or descends(pid, own),
            self._recorded.hold,
        )

    def _look_once_more(self) -> None:
        if self._after is None:
            return
        try:
            self._after.tell(self._sender.put, self._now())
        except Exception as error:
            self._fault("file-write", f"the look at the end: {error!r}")

    def _inherited(self, launched: Launched) -> None:
        """Files that the agent gets open (a redirected stdout) change with no open to see; sockets are connected."""
        root = self._tree.root
        if root is None:
            return
        who = Who(launched.pid, launched.pid, root.span)
        for descriptor in (0, 1, 2, *self._plan.inherit):
            try:
                writable = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
                mode = os.fstat(descriptor).st_mode
                if writable and stat.S_ISREG(mode):
                    self._files.inherited(who, descriptor)
                elif stat.S_ISSOCK(mode) and (gap := inherited_socket(root, self._now(), descriptor)):
                    self._sender.put(gap)
            except OSError:
                continue  # closed: then the agent has none either

    def _answer_calls(self, listener: notify.Listener, observer: Observer) -> None:
        waiting, performer = self._sender.waiting, self._guard or self._capture
        while not self._over.is_set():
            try:
                request = listener.receive()
            except OSError as error:
                self._lost_listener(error)
                return
            if request is None:
                continue
            request_id, tid, _flags, number, arch, _pointer, *arguments = request
            interposer = self._interposer
            if interposer is not None and tid in interposer.injecting:
                if not interposer.answer(request_id, tid, number):
                    listener.proceed(request_id)
                continue
            try:
                refusal = self._judge_call(observer, tid, arch, number, tuple(arguments))
                if not refusal and interposer is not None:
                    refusal = interposer.before_exec(request_id)
            except Exception as error:
                # Every call must be answered: an agent that hangs for a fault of ours is worse than a gap.
                refusal = 0
                self._fault("file-write", f"call {number} of thread {tid}: {error!r}")
            if performer is not None and not refusal:
                process = self._tree.tasks.get(tid)
                refusal = performer.handle(process, tid, request_id, arch, number, tuple(arguments))
            if not waiting.is_set():
                waiting.set()
            if refusal > 0:
                listener.refuse(request_id, refusal)
            elif not refusal:
                listener.proceed(request_id)

    def _judge_call(self, observer: Observer, tid: int, arch: int, number: int, arguments: tuple[int, ...]) -> int:
        found = self._found
        if found is None:
            process = self._tree.tasks.get(tid)
            if process is None:
                return self._stranger(tid, number)
            return observer.call(process, tid, arch, number, arguments)
        process = found.find(tid)
        return self._call_found(found, observer, process, tid, arch, number, arguments) if process is not None else 0

    def _stranger(self, tid: int, number: int) -> int:
        """A call of a task that ptrace never announced. One that is dead by now was only asked about too late.

        Under a policy that is enforced nobody may act of whom nothing can be judged.
        """
        try:
            with open(f"/proc/{tid}/stat", "rb") as file:
                state = file.read().rpartition(b")")[2].split()[0]
        except OSError:
            return 0
        if state in (b"Z", b"X"):
            return 0
        self._fault("process", f"call {number} of task {tid}, which nobody announced")
        return errno.EPERM if self._settings.plan else 0

    def _fault(self, what: CoverageKind, detail: str) -> None:
        """A fault of ours: a gap, at most a few of them."""
        self._faults += 1
        if self._faults > _MAX_FAULTS:
            return
        now = self._now()
        self._sender.put(
            Gap(
                at_ns=now,
                what=what,
                cause="internal-fault",
                could_hide="what happened at this moment: agentwrap failed while looking at it",
                from_ns=now,
                to_ns=now,
                detail=detail.encode("utf-8", "backslashreplace"),
            )
        )

    def _call_found(
        self,
        found: FoundTree,
        observer: Observer,
        process: Process,
        tid: int,
        arch: int,
        number: int,
        arguments: tuple[int, ...],
    ) -> int:
        found.confirm(process)
        if not process.foreign and process.once("view"):
            process.foreign = sees_other_files(process.pid, self._view)
        name = _EXECS.get((arch, number))
        refusal = observer.call(process, tid, arch, number, arguments)
        if name is None or refusal:
            return refusal
        try:
            asked = found.executing(process, tid, name, arguments, wide=arch == ARCH_X86_64)
        except OSError:
            return 0  # a bad pointer, or a process that is gone: the exec fails by itself
        if asked is not None and self._interposer is not None:
            self._interposer.asked(process, asked.path, asked.argv)
        return 0

    def _lost_listener(self, error: OSError) -> None:
        if not self._over.is_set():
            now = self._now()
            self._sender.put(
                Gap(
                    at_ns=now,
                    what="file-write",
                    cause="listener-lost",
                    could_hide="every reported call from now on (they fail with ENOSYS)",
                    from_ns=now,
                    detail=str(error).encode(),
                )
            )

    def _wait_for_children(self) -> None:
        """Without ptrace: the main command and adopted orphans are our children, the rest is watched by pidfd."""
        assert self._found is not None
        root = self._tree.root
        while True:
            try:
                pid, status = os.waitpid(-1, 0)
            except ChildProcessError:
                if not any(True for _ in self._tree.processes()):
                    return
                # Descendants live below a process that is not ours: they become our children when it ends.
                self._over.wait(_FOUND_LOOK_S)
                continue
            if root is not None and pid == root.pid:
                self._main_ended(status)
            self._found.reaped(pid, status)

    def _main_ended(self, status: int) -> None:
        self._ending_since = time.monotonic()
        self._sender.put(MainEnded(status))

    def _main_stopped(self, number: int) -> None:
        self._sender.put(Stopped(number))
        self._sender.flush()

    def _clock(self, lifecycle: Lifecycle) -> None:
        """Sends batches, and looks at files and at the end of the run while there is a reason to; else it sleeps."""
        last_look = 0.0
        while not self._over.is_set():
            if self._sender.waiting.wait(self._patience_s()):
                time.sleep(_FLUSH_DELAY_S)
            now = time.monotonic()
            if now - last_look >= (_BUSY_LOOK_S if self._files.backlog else _LOOK_S):
                try:
                    self._look(lifecycle, now)
                except Exception as error:
                    self._fault("file-write", f"looking at files: {error!r}")
                last_look = time.monotonic()
            self._flush()

    def _look(self, lifecycle: Lifecycle, now: float) -> None:
        if self._found is not None:
            self._found.poll()
        self._files.sweep()
        if self._judge is not None:
            self._judge.settle()
        if self._guard is not None:
            self._guard.settle()
        if self._ending_since is not None:
            self._end_the_rest(lifecycle, now - self._ending_since)

    def _patience_s(self) -> float:
        if self._files.backlog:
            return _BUSY_LOOK_S
        counting = self._guard is not None or (self._judge is not None and self._judge.waiting)
        if self._files.pending or self._ending_since is not None or counting:
            return _LOOK_S
        return _FOUND_LOOK_S if self._found is not None else _IDLE_S

    def _flush(self) -> None:
        try:
            self._sender.flush()
        except OSError:
            self._supervisor_died()

    def _end_the_rest(self, lifecycle: Lifecycle, elapsed_s: float) -> None:
        """Nothing survives the run: first time to go, then SIGTERM, then SIGKILL."""
        if elapsed_s < self._settings.linger_s:
            return
        kill = elapsed_s >= self._settings.linger_s + self._settings.grace_s
        if self._found is not None:
            from agentwrap.tracing.descendants import descendants

            for pid in descendants(os.getpid()):
                self._found.find(pid)
        for process in self._tree.processes():
            if kill or process.span not in self._ended_by_us:
                self._ended_by_us.add(process.span)
                lifecycle.end(process, signal.SIGKILL if kill else signal.SIGTERM)

    def _take_orders(self) -> None:
        """One line an order: `S<signal> <sender>`, `C` continue, `A<number>` it is on disk, `E` end now.

        End of file: the supervisor is dead.
        """
        try:
            with self._channel.makefile("rb", buffering=0) as orders:
                for line in orders:
                    self._obey(line.rstrip(b"\n"))
        except OSError:
            pass  # ECONNRESET in place of end of file: it was killed with something of ours unread (unix(7))
        if not self._over.is_set():
            self._supervisor_died()

    def _obey(self, order: bytes) -> None:
        if order[:1] == b"S":
            number, _, sender = order[1:].partition(b" ")
            self._forward(int(number), int(sender or b"0"))
        elif order == b"C" and self._loop is not None and self._loop.main_stopped:
            self._signal_main(signal.SIGCONT)
        elif order[:1] == b"A":
            self._recorded.reached(int(order[1:]))
        elif order == b"E":
            self._ending_since = time.monotonic() - self._settings.linger_s - self._settings.grace_s

    def _forward(self, number: int, sender: int) -> None:
        """Pass a signal on, unless whoever sent it to us sent it to the whole process group and so to the agent too."""
        if self._loop is not None and sender:
            time.sleep(_DUPLICATE_WINDOW_S)
            if self._loop.main_has(number, sender):
                return
        self._signal_main(number)

    def _signal_main(self, number: int) -> None:
        root = self._tree.root
        if root is not None and root.pid in self._tree.tasks:
            try:
                os.kill(root.pid, number)
            except ProcessLookupError:
                pass  # it is over: nothing is left to signal

    def _supervisor_died(self) -> NoReturn:
        """Without a supervisor nothing is recorded: the tree ends, too."""
        # With ptrace our own end does it (PTRACE_O_EXITKILL). Without it, what is killed may just have forked.
        if self._found is None:
            os._exit(125)
        from agentwrap.tracing.descendants import descendants

        while left := descendants(os.getpid()):
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass  # gone by itself
        os._exit(125)

    def _finish(self, launched: Launched) -> None:
        self._over.set()
        self._files.finish()
        if self._judge is not None:
            self._judge.finish()
            self._look_once_more()
        if self._guard is not None:
            self._guard.settle(everything=True)
        launched.channel.setblocking(False)
        try:
            message = launched.channel.recv(64)
        except OSError:
            message = b""
        if message[:1] == b"E":
            self._sender.put(Failed(step="exec", errno=int(message[1:])))
        self._sender.put(AllEnded(len(self._ended_by_us)))
        self._flush()
