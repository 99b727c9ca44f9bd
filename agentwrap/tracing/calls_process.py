"""System calls with which a process changes its own view of the machine, or reaches into another process."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentwrap.events import DeniedWhat, ProcessDenied, ProcessIsolation, ProcessReach, Sink
from agentwrap.tracing.processes import Process
from agentwrap.tracing.syscalls.watched import CLONE_NEW, CLONE_UNTRACED
from agentwrap.tracing.tracee import Memory, signed

if TYPE_CHECKING:
    from agentwrap.tracing.judging import StopJudge

Arguments = tuple[int, ...]
_EPERM, _ENOSYS = 1, 38
_TIOCSTI = 0x5412  # asm-generic/ioctls.h
_NAMESPACE_FLAGS = {
    0x00000080: "time",
    0x00020000: "mount",
    0x02000000: "cgroup",
    0x04000000: "uts",
    0x08000000: "ipc",
    0x10000000: "user",
    0x20000000: "pid",
    0x40000000: "net",
}
_PTRACE_TRACEME, _PTRACE_ATTACH, _PTRACE_SEIZE = 0, 16, 0x4206


def namespace_words(flags: int) -> tuple[str, ...]:
    """CLONE_NEW* bits as words (namespaces(7))."""
    return tuple(word for bit, word in _NAMESPACE_FLAGS.items() if flags & bit)


def in_pid_namespace(tid: int) -> bool:
    """Whether a task has a PID namespace of its own: then it sees, and reaches, nothing but the run."""
    try:
        return os.stat(f"/proc/{tid}/ns/pid").st_ino != os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return False


def pid_of(tid: int, descriptor: int) -> int:
    """The process behind a pidfd of a task; -1 for none or one that is gone (pidfd_open(2), fdinfo)."""
    try:
        with open(f"/proc/{tid}/fdinfo/{descriptor}", "rb") as file:
            return next((int(line[4:]) for line in file if line.startswith(b"Pid:")), -1)
    except OSError:
        return -1


class ProcessCalls:
    """Handlers by call name; a handler returns 0 or the errno with which the call is refused."""

    def __init__(
        self,
        memory: Memory,
        sink: Sink,
        now: Callable[[], int],
        *,
        traced: bool,
        notifying: bool,
        judge: "StopJudge | None" = None,
    ) -> None:
        self._memory = memory
        self._judge = judge
        self._sink = sink
        self._now = now
        self._traced = traced
        self._notifying = notifying
        self.handlers: dict[str, Callable[[Process, int, Arguments], int]] = {
            "clone": self._clone,
            "unshare": self._unshare,
            "setns": self._setns,
            "chroot": self._path_call("chroot"),
            "pivot_root": self._path_call("pivot_root"),
            "mount": self._mount,
            "umount": self._quiet_mount("umount"),
            "umount2": self._quiet_mount("umount2"),
            "ptrace": self._ptrace,
            "process_vm_writev": self._reach("process_vm_writev", pidfd=False),
            "process_vm_readv": self._read_memory,
            "pidfd_getfd": self._reach("pidfd_getfd", pidfd=True),
            "pidfd_send_signal": self._signal("pidfd_send_signal", pidfd=True),
            "seccomp": self._seccomp,
            **dict.fromkeys(("io_uring_setup", "io_uring_enter", "io_uring_register"), self._io_uring),
            "ioctl": self._terminal,
        }
        for name in ("open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick"):
            self.handlers[name] = self._quiet_mount(name)
        self.handlers["mount_setattr"] = self._quiet_mount("mount_setattr")
        for name in ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
            self.handlers[name] = self._signal(name, pidfd=False)

    def _isolation(self, process: Process, call: str, flags: tuple[str, ...] = (), detail: bytes = b"") -> None:
        # Whether it succeeds is not known yet; paths looked up through /proc/TID/root are right either way.
        process.foreign = True
        self._sink(
            ProcessIsolation(
                at_ns=self._now(), span=process.span, pid=process.pid, call=call, flags=flags, detail=detail
            )
        )

    def _denied(self, process: Process, what: DeniedWhat, why: str, detail: bytes = b"") -> None:
        if process.once("denied " + what):
            self._sink(
                ProcessDenied(
                    at_ns=self._now(),
                    span=process.span,
                    pid=process.pid,
                    what=what,
                    why=why,
                    detail=detail,
                )
            )

    def _clone(self, process: Process, _tid: int, arguments: Arguments) -> int:
        if arguments[0] & CLONE_UNTRACED:
            self._denied(process, "namespace", "CLONE_UNTRACED would make a child that is not followed")
            return _EPERM
        if not arguments[0] & CLONE_NEW:
            return 0
        self._sink(
            ProcessIsolation(
                at_ns=self._now(),
                span=process.span,
                pid=process.pid,
                call="clone",
                flags=namespace_words(arguments[0]),
            )
        )
        # The flag belongs to the child, which inherits it; the parent only pays a longer lookup.
        process.foreign = True
        return 0

    def _unshare(self, process: Process, _tid: int, arguments: Arguments) -> int:
        words = namespace_words(arguments[0])
        if words:
            self._isolation(process, "unshare", words)
        return 0

    def _setns(self, process: Process, _tid: int, arguments: Arguments) -> int:
        self._isolation(process, "setns", namespace_words(arguments[1]))
        return 0

    def _path_call(self, call: str) -> Callable[[Process, int, Arguments], int]:
        def handle(process: Process, tid: int, arguments: Arguments) -> int:
            self._isolation(process, call, detail=self._memory.string(tid, arguments[0]))
            return 0

        return handle

    def _mount(self, process: Process, tid: int, arguments: Arguments) -> int:
        process.foreign = True
        if process.once("mount"):
            self._isolation(process, "mount", detail=self._memory.string(tid, arguments[1]))
        return 0

    def _quiet_mount(self, call: str) -> Callable[[Process, int, Arguments], int]:
        """Sandboxes mount by the dozen: the first of each call tells that the view changes."""

        def handle(process: Process, _tid: int, _arguments: Arguments) -> int:
            process.foreign = True
            if process.once("mount " + call) and process.once("mount"):
                self._isolation(process, call)
            return 0

        return handle

    def _ptrace(self, process: Process, tid: int, arguments: Arguments) -> int:
        request = signed(arguments[0])
        if request not in (_PTRACE_TRACEME, _PTRACE_ATTACH, _PTRACE_SEIZE):
            return 0
        call = {0: "ptrace traceme", 16: "ptrace attach"}.get(request, "ptrace seize")
        target = process.pid if request == _PTRACE_TRACEME else signed(arguments[1])
        if process.once(f"{call} {target}"):
            self._sink(ProcessReach(at_ns=self._now(), span=process.span, pid=process.pid, call=call, target=target))
        if self._judge is not None and not in_pid_namespace(tid) and self._judge.reach(process, target, call):
            return _EPERM
        if self._traced:
            # The kernel allows one tracer a task (ptrace(2)) and answers EPERM by itself.
            self._denied(process, "ptrace", "agentwrap is the tracer; --debuggable leaves room for a debugger")
        return 0

    def _reach(self, call: str, *, pidfd: bool) -> Callable[[Process, int, Arguments], int]:
        def handle(process: Process, tid: int, arguments: Arguments) -> int:
            if process.once(call):
                pid = 0 if pidfd else signed(arguments[0])
                self._sink(ProcessReach(at_ns=self._now(), span=process.span, pid=process.pid, call=call, target=pid))
            return self._asked(process, tid, arguments, call, pidfd=pidfd)

        return handle

    def _read_memory(self, process: Process, tid: int, arguments: Arguments) -> int:
        return self._asked(process, tid, arguments, "process_vm_readv", pidfd=False)

    def _asked(self, process: Process, tid: int, arguments: Arguments, call: str, *, pidfd: bool) -> int:
        """What the policy says to reaching into another process. Its number is the caller's, who may count apart."""
        if self._judge is None or in_pid_namespace(tid):
            return 0
        target = pid_of(tid, signed(arguments[0])) if pidfd else signed(arguments[0])
        return self._judge.reach(process, target, call) if target > 0 else 0

    def _signal(self, call: str, *, pidfd: bool) -> Callable[[Process, int, Arguments], int]:
        """Signals are reported only where they are judged. Signal 0 tells whether a process is there, no more."""
        where = 2 if call in ("tgkill", "rt_tgsigqueueinfo") else 1

        def handle(process: Process, tid: int, arguments: Arguments) -> int:
            if self._judge is None or not arguments[where] or in_pid_namespace(tid):
                return 0
            target = pid_of(tid, signed(arguments[0])) if pidfd else signed(arguments[0])
            if pidfd and target <= 0:
                return 0  # of a process that is gone
            return self._judge.signal(process, target, call)

        return handle

    def _terminal(self, process: Process, _tid: int, arguments: Arguments) -> int:
        """Reported for the two requests that put input into a terminal, and only where there is a policy."""
        request = "TIOCSTI" if arguments[1] & 0xFFFFFFFF == _TIOCSTI else "TIOCLINUX"
        return 0 if self._judge is None else self._judge.terminal(process, request)

    def _seccomp(self, process: Process, _tid: int, _arguments: Arguments) -> int:
        why = "the tree has a notify listener already: ours"
        self._denied(process, "seccomp-listener", why)
        # With a listener of ours the kernel itself answers EBUSY. Without one, an inner listener that lets calls go on
        # would hide them from the tracer's filter (seccomp_unotify(2)): refuse.
        return 0 if self._notifying else _EPERM

    def _io_uring(self, process: Process, _tid: int, _arguments: Arguments) -> int:
        self._denied(process, "io-uring", "a ring's operations would not be seen; programs fall back to plain calls")
        return _ENOSYS
