"""Births, execs and deaths of processes as events. Called by whichever loop learns of them."""

import os
import signal
import stat
from collections.abc import Callable
from typing import Literal

from agentwrap.events import (
    ProcessDenied,
    ProcessExec,
    ProcessExit,
    ProcessStart,
    Secrets,
    Sink,
)
from agentwrap.tracing.files.tracker import FileTracker
from agentwrap.tracing.gaps import gap_of
from agentwrap.tracing.image import Image, look
from agentwrap.tracing.observer import Observer
from agentwrap.tracing.processes import Process
from agentwrap.tracing.tracee import NOT_FOR_US, Memory, refused

_SEEN_SECRETS = 4096


class Usage:
    """Processor time and memory of a dead process, as wait4(2) tells them."""

    __slots__ = ("max_rss_bytes", "system_ns", "user_ns")

    def __init__(self, user_ns: int = 0, system_ns: int = 0, max_rss_bytes: int = 0) -> None:
        self.user_ns = user_ns
        self.system_ns = system_ns
        self.max_rss_bytes = max_rss_bytes


class Lifecycle:
    """Emits process events and tells the observers when a process is over."""

    def __init__(
        self,
        sink: Sink,
        now: Callable[[], int],
        memory: Memory,
        files: FileTracker,
        observer: Observer,
        *,
        set_id_works: bool,
    ) -> None:
        self._sink = sink
        self._now = now
        self._memory = memory
        self._files = files
        self._observer = observer
        self._set_id_works = set_id_works
        self._seen_secrets: set[tuple[bytes, bytes]] = set()

    def started(
        self, process: Process, how: Literal["root", "fork", "vfork", "clone", "found"], ppid: int, comm: bytes = b""
    ) -> None:
        """A process exists; its span opens."""
        self._sink(
            ProcessStart(
                at_ns=self._now(),
                span=process.span,
                pid=process.pid,
                parent=process.parent.span if process.parent else "run",
                ppid=ppid,
                how=how,
                comm=comm,
            )
        )

    def became(self, process: Process, *, confirmed: bool = True) -> Image | None:
        """`process` runs another program now. None when it died before it could be looked at (then a gap is told)."""
        self._memory.forget(process.pid)
        try:
            image = look(process.pid)
        except OSError as error:
            gone = error.errno in NOT_FOR_US and not refused(error, process.pid)
            if not gone and error.errno not in (2, 3):  # ENOENT, ESRCH: killed in its exec; its exit is told
                could_hide = "which program this process runs"
                self._sink(gap_of(process, self._now(), "exec", "not-dumpable", could_hide, str(error)))
            return None
        self._learn(image)
        self._sink(
            ProcessExec(
                at_ns=self._now(),
                span=process.span,
                pid=process.pid,
                path=image.path,
                exe=image.exe,
                argv=image.argv,
                argv_omitted_bytes=image.argv_omitted_bytes,
                cwd=image.cwd,
                uid=image.uid,
                gid=image.gid,
                euid=image.euid,
                setuid=image.setuid,
                memfd=image.memfd,
                confirmed=confirmed,
                resolved=image.resolved,
            )
        )
        if image.argv_omitted_bytes:
            self._over_cap(process, image)
        if image.setuid:
            self._set_id_denied(process, image)
        return image

    def _learn(self, image: Image) -> None:
        fresh = tuple(pair for pair in image.secrets if pair not in self._seen_secrets)
        if fresh:
            if len(self._seen_secrets) < _SEEN_SECRETS:
                self._seen_secrets.update(fresh)
            self._sink(Secrets(fresh))

    def _over_cap(self, process: Process, image: Image) -> None:
        could_hide = f"the last {image.argv_omitted_bytes} bytes of its arguments"
        self._sink(gap_of(process, self._now(), "exec", "over-cap", could_hide, image.path, passing=True))

    def _set_id_denied(self, process: Process, image: Image) -> None:
        try:
            file = os.stat(f"/proc/{process.pid}/exe")
        except OSError:
            return  # gone already: it did nothing with what it did not get
        if file.st_mode & stat.S_ISUID and file.st_uid != image.euid:
            self.set_id_denied(process, image.exe)

    def set_id_denied(self, process: Process, program: bytes) -> None:
        """A set-user-ID program runs without its owner's rights, where this way of following takes them."""
        if self._set_id_works:
            return
        self._sink(
            ProcessDenied(
                at_ns=self._now(),
                span=process.span,
                pid=process.pid,
                what="setuid",
                why="a filtered or traced process gains no privileges (no_new_privs)",
                detail=program,
            )
        )

    def ended(self, process: Process, status: int | None, usage: Usage) -> None:
        """A process is gone with this wait status (None: not known). Its files are settled, its span closes."""
        at_ns = self._now()
        self._memory.forget(process.pid)
        self._files.process_ended(process.pid, process.span)
        self._observer.network.ended(process)
        killed_by = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else 0
        self._sink(
            ProcessExit(
                at_ns=at_ns,
                span=process.span,
                pid=process.pid,
                status=os.WEXITSTATUS(status) if status is not None and not killed_by else None,
                signal=killed_by,
                core=bool(killed_by and status is not None and os.WCOREDUMP(status)),
                ended_by="agentwrap" if process.ended_by_us else "",
                user_ns=usage.user_ns,
                system_ns=usage.system_ns,
                max_rss_bytes=usage.max_rss_bytes,
                threads=process.threads_seen,
            )
        )

    def end(self, process: Process, number: signal.Signals) -> None:
        """Send a signal to a process that outlived the main command, and remember that it was us."""
        process.ended_by_us = True
        try:
            os.kill(process.pid, number)
            if number != signal.SIGKILL:
                os.kill(process.pid, signal.SIGCONT)
        except ProcessLookupError:
            pass  # it went by itself meanwhile; its exit event may be on its way
