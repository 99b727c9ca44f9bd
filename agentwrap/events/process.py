"""Events about processes: the spans of the run."""

from typing import Literal

from agentwrap.events.base import Event

DeniedWhat = Literal["setuid", "ptrace", "seccomp-listener", "io-uring", "namespace"]


class ProcessStart(Event, frozen=True, kw_only=True, tag="process.start"):
    """A new process (not a thread). Opens the span `span`; `parent` is the span of the process that made it."""

    parent: str
    ppid: int = 0
    how: Literal["root", "fork", "vfork", "clone", "found"]
    comm: bytes = b""

    @property
    def subject(self) -> bytes:
        return self.comm


class ProcessExec(Event, frozen=True, kw_only=True, tag="process.exec"):
    """A process became another program, confirmed by the kernel.

    `path`: what was asked for, absolute as the process sees it; `exe`: what the kernel runs (differs for scripts and
    links); `resolved`: where `path` leads, if that is another name; `argv_omitted_bytes`: arguments past the cap;
    `setuid`: the file has a set-id bit.
    """

    path: bytes
    exe: bytes
    argv: tuple[bytes, ...]
    argv_omitted_bytes: int = 0
    cwd: bytes
    uid: int
    gid: int
    euid: int
    setuid: bool = False
    memfd: bool = False
    confirmed: bool = True
    resolved: bytes = b""

    @property
    def subject(self) -> bytes:
        return b" ".join(self.argv) or self.path


class ProcessExit(Event, frozen=True, kw_only=True, tag="process.exit"):
    """A process is gone. Closes its span. `ended_by` is `agentwrap` where it outlived the main command."""

    status: int | None = None
    signal: int = 0
    core: bool = False
    ended_by: Literal["", "agentwrap"] = ""
    user_ns: int = 0
    system_ns: int = 0
    max_rss_bytes: int = 0
    threads: int = 1

    @property
    def subject(self) -> bytes:
        if self.signal:
            return b"signal %d" % self.signal
        return b"exit" if self.status is None else b"exit %d" % self.status


class ProcessDenied(Event, frozen=True, kw_only=True, tag="process.denied"):
    """Something about privileges that does not work inside: a set-id program, another tracer, a notify listener."""

    what: DeniedWhat
    why: str
    detail: bytes = b""

    @property
    def subject(self) -> bytes:
        return self.detail or self.what.encode()

    @property
    def verdict(self) -> str:
        return "deny"


class ProcessIsolation(Event, frozen=True, kw_only=True, tag="process.isolation"):
    """A process changed its own view of the machine: unshare, setns, mount, chroot, pivot_root, clone of namespaces."""

    call: str
    flags: tuple[str, ...] = ()
    detail: bytes = b""

    @property
    def subject(self) -> bytes:
        return self.call.encode() + (b" " + self.detail if self.detail else b"")


class ProcessReach(Event, frozen=True, kw_only=True, tag="process.reach"):
    """A process reached into another: ptrace, process_vm_writev, pidfd_getfd."""

    call: str
    target: int = 0

    @property
    def subject(self) -> bytes:
        return self.call.encode()
