"""Compares a file's state before with its state now and reports the edit. The one place that decides "it changed".

Holds the books (pending, known), the spool and the reporter for `tracker` and `calls`; has no lock of its own.
"""

import os
import time
from collections.abc import Callable
from typing import Literal

from agentwrap.events import FileClass, Sink
from agentwrap.tracing.files.known import Known, KnownPaths
from agentwrap.tracing.files.pending import Pending, PendingFiles
from agentwrap.tracing.files.places import SANDBOX_ROOT, Anchors, lstat
from agentwrap.tracing.files.report import Reporter
from agentwrap.tracing.files.settings import FileSettings, Place, Who
from agentwrap.tracing.files.snapshot import (
    ABSENT,
    Key,
    Snapshot,
    depth_after,
    depth_before,
    differs,
    not_kept,
    signature,
    take_known,
)
from agentwrap.tracing.files.spool import Spool

FREE_LOOKS = 8
"""So many times a file is looked at as soon as there is a reason; then ever less often, as logs grow."""

FIRST_WAIT_NS = 50_000_000
LONGEST_WAIT_NS = 60_000_000_000
REST_NS = 3_000_000_000
"""A file that nobody wrote for so long begins anew."""

MAX_SCAFFOLD = 4096

WORK_SHARE = 20
"""After a look that took t, the next one of the same file waits at least 20 t."""


def _in_folder(host: bytes) -> tuple[Key, bytes] | None:
    """A name by its folder's inode, the same inside a sandbox and out; not by its own, which a mount on it hides."""
    folder, _, name = host.rpartition(b"/")
    try:
        status = os.stat(folder or b"/")
    except OSError:
        return None
    return (status.st_dev, status.st_ino), name


class Desk:
    """The state of the file witness."""

    def __init__(
        self, sink: Sink, settings: FileSettings, now: Callable[[], int], classify: Callable[[bytes], FileClass]
    ) -> None:
        self.settings = settings
        self.now = now
        self.classify = classify
        self.report = Reporter(sink, now)
        self.pending = PendingFiles()
        self.known = KnownPaths()
        self.spool = Spool(settings.max_pending_bytes, settings.max_spool_bytes)
        self.anchors = Anchors()
        self.explain: Callable[[bytes], None] = lambda _: None
        """Asked when a followed file is not there any more: a call that was told of may be the reason."""
        self.leaving: Callable[[bytes], bool] = lambda _: False
        """Whether a call is under way that takes this name away: it tells, at its own time, what was there."""
        self._scaffold: set[tuple[Key, bytes]] = set()
        self.moved: dict[int, int] = {}
        """When each thread last made a call that was reported: the call before it is over then."""

    def built(self, place: Place) -> None:
        """A folder came to be. In a sandbox's new root it is something to mount on, and noise."""
        if place.path.startswith(SANDBOX_ROOT + b"/") and len(self._scaffold) < MAX_SCAFFOLD:
            name = _in_folder(place.host)
            if name is not None:
                self._scaffold.add(name)

    def taken_down(self, klass: FileClass, host: bytes) -> FileClass:
        """The class of a folder's removal: what was only there to mount on goes as quietly as it came."""
        if not self._scaffold:
            return klass
        name = _in_folder(host)
        if name not in self._scaffold:
            return klass
        self._scaffold.remove(name)
        return "system"

    def before(self, place: Place, status: os.stat_result, klass: FileClass) -> Snapshot:
        """The state of an existing name before a call changes it."""
        return take_known(place.host, status, depth_before(klass), self.settings)

    def follow(self, who: Who, place: Place, klass: FileClass, before: Snapshot) -> Pending:
        """A file is about to be written for the first time (since it was last at rest)."""
        if before is ABSENT:  # the hot path of files that come and go
            pending = Pending(place, klass, before, first=False)
            self.pending.by_host[place.host] = pending
            return pending
        known = self.known.get(place.host)
        pending = Pending(place, klass, before, first=known is None or not known.recorded)
        if known is not None and known.looks and self.now() < known.due_ns + REST_NS:
            pending.looks, pending.due_ns = known.looks, known.due_ns
        self.keep(pending, who)
        self.pending.add(pending)
        return pending

    def hold(self, who: Who, place: Place, klass: FileClass, status: os.stat_result | None, now_ns: int) -> None:
        """`who` opens the file for writing: it is followed from now on, with its state before, unless it is already.

        `status`: its lstat, None where it is about to be made.
        """
        key = None if status is None else (status.st_dev, status.st_ino)
        pending = self.pending.find(place.host, key)
        if pending is not None:
            if pending.host != place.host or (pending.key != key and pending.key is not None):
                self.settle(pending)  # another name of the same file, or the name was taken by somebody unseen
            else:
                self.settle_if_due(pending)
            if not self.pending.follows(pending):
                pending = None  # it was gone
        if pending is None:
            before = ABSENT if status is None else self.before(place, status, klass)
            pending = self.follow(who, place, klass, before)
        elif pending.host != place.host:
            self.pending.move(pending, place)  # from now on it goes by this name
        self.pending.hold(pending, who, now_ns)

    def is_first(self, host: bytes) -> bool:
        """Whether what is there now is what was there before the run, and not recorded yet."""
        known = self.known.get(host)
        return known is None or not known.recorded

    def keep(self, pending: Pending, who: Who) -> None:
        """The content of the state before goes to the spool, within its bounds."""
        before = pending.before
        if pending.held is not None:
            pending.held.drop()
            pending.held = None
        if before.content is None:
            return
        pending.held = self.spool.put(before.content)
        if pending.held is None:
            self.report.gap("pending-cap", pending.path, who.span, who.pid)
        pending.before = Snapshot(before.state, None, before.key, before.signature, before.racy)

    def settle_if_due(self, pending: Pending) -> bool:
        """Look now unless it is looked at too often, or a call is to change or take it yet. Returns whether it was."""
        if self.now() < pending.due_ns or (pending.calls and _as_before(pending)) or self.leaving(pending.host):
            return False
        self.settle(pending)
        return True

    def settle(self, pending: Pending) -> None:
        """Look now, report an edit if there is one; what is there now is the new state before."""
        started_ns = time.perf_counter_ns()
        try:
            status = lstat(pending.host)
        except OSError as error:
            detail = (error.strerror or "").encode()
            self.report.gap("lookup", pending.path, pending.last_span, pending.last_pid, detail)
            return
        if status is None or (pending.key is not None and pending.key != (status.st_dev, status.st_ino)):
            self.explain(pending.host)
            if not self.pending.follows(pending):
                return
            status = lstat(pending.host)
        before = pending.before
        if status is None:
            after = ABSENT
        elif not before.racy and before.key == (status.st_dev, status.st_ino) and before.signature == signature(status):
            self._looked(pending, started_ns)
            return
        else:
            after = take_known(pending.host, status, depth_after(pending.klass), self.settings)
        self.arrived(pending, after)
        self._looked(pending, started_ns)

    def arrived(
        self,
        pending: Pending,
        after: Snapshot,
        *,
        via: Literal["write", "rename", "link", "unknown"] = "write",
        temporary: bytes = b"",
    ) -> None:
        """`after` is what is there now: report the difference and go on from it."""
        if after.state.type == "directory" or (pending.before.absent and after.state.type != "file"):
            return  # the open failed, and something else has the name now: its own call tells about it
        if differs(pending.before, after):
            self._edited(pending, after, "unknown" if after.absent else via, temporary)
        who = Who(0, pending.last_pid, pending.last_span)
        place = Place(pending.path, pending.host)
        self.remember(who, place, pending.klass, after, made=pending.before.absent, recorded=not pending.first)
        pending.before = after
        self.pending.identify(pending, after.key)
        if pending.holders:
            self.keep(pending, who)
        elif pending.held is not None:
            pending.held.drop()
            pending.held = None

    def _edited(
        self,
        pending: Pending,
        after: Snapshot,
        via: Literal["write", "rename", "link", "remove", "unknown"],
        temporary: bytes,
    ) -> None:
        before = pending.before
        change: Literal["create", "modify", "delete"]
        change = "create" if before.absent else "delete" if after.absent else "modify"
        if pending.held is not None:
            role: Literal["before", "after"] = "before" if pending.first else "after"
            self.report.content(before.state.raw, pending.held.read(), role)
        self.report.content(after.state.raw, after.content, "after")
        for state in (before.state, after.state):
            if state.omitted:
                self.report.omission(pending.last_span, pending.last_pid, pending.path, state)
        if after.state.size and pending.path.startswith(SANDBOX_ROOT + b"/"):
            pending.klass = "work"  # nothing to mount on: it may be somebody's home that is bound there
        lost = pending.held is None and before.state.raw and not before.state.omitted
        self.report.edit(
            pending.path,
            pending.klass,
            not_kept(before.state) if lost else before.state,
            after.state,
            change=change,
            via=via,
            span=pending.last_span,
            pid=pending.last_pid,
            writers=tuple(pending.spans),
            temporary=temporary,
        )
        pending.first = False

    def remember(
        self, who: Who, place: Place, klass: FileClass, found: Snapshot, *, made: bool, recorded: bool
    ) -> None:
        """Note how a path looks now; whether the tree made it is decided once."""
        known = self.known.get(place.host)
        if found.absent:
            if known is not None:
                self.known.pop(place.host)
        elif known is None:
            known = Known(
                place.path, found.state, found.key, found.signature,
                made=made, recorded=recorded, span=who.span, pid=who.pid, klass=klass,
            )  # fmt: skip
            self.known.put(place.host, known)
        else:
            known.state, known.key, known.signature = found.state, found.key, found.signature
            known.span, known.pid, known.recorded = who.span, who.pid, known.recorded or recorded

    def _looked(self, pending: Pending, started_ns: int) -> None:
        pending.looks += 1
        pending.spans = [holder.who.span for holder in pending.holders.values()]
        extra = pending.looks - FREE_LOOKS
        if extra > 0:
            wait_ns = min(FIRST_WAIT_NS << min(extra, 12), LONGEST_WAIT_NS)
            wait_ns = max(wait_ns, WORK_SHARE * (time.perf_counter_ns() - started_ns))
            pending.due_ns = self.now() + wait_ns

    def let_go(self, pending: Pending) -> None:
        """Nobody writes it any more and it was looked at; not while a call is under way, which may come after that."""
        if pending.calls:
            return
        known = self.known.get(pending.host)
        if known is not None:
            known.looks, known.due_ns = pending.looks, max(pending.due_ns, self.now())
        self.pending.remove(pending)

    def late(self, host: bytes, known: Known) -> None:
        """At the end: has a path changed since it was last looked at? Then somebody wrote whose open was not seen."""
        try:
            status = lstat(host)
        except OSError:
            return
        if status is not None and known.key == (status.st_dev, status.st_ino):
            now = signature(status)
            if known.signature[:2] == now[:2]:
                return  # at most the inode changed (mode, links): not an edit
        before = Snapshot(known.state, None, known.key, known.signature)
        after = ABSENT if status is None else take_known(host, status, depth_after(known.klass), self.settings)
        if after.state.type == "directory" or not differs(before, after):
            return
        self.report.content(after.state.raw, after.content, "after")
        self.report.edit(
            known.path,
            known.klass,
            known.state,
            after.state,
            change="delete" if after.absent else "modify",
            via="unknown",
            span=known.span,
            pid=known.pid,
        )


def _as_before(pending: Pending) -> bool:
    """Whether nothing has happened to it yet."""
    try:
        status = lstat(pending.host)
    except OSError:
        return False
    return status is not None and pending.before.signature == signature(status)
