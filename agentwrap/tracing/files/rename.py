"""rename: a file that moves over another is one edit of that other; one that moves to a free name has only moved.

Decides what a rename was; `desk` compares and reports.
"""

import os

from agentwrap.events import FileDirectory, FileRename
from agentwrap.events.file import FileClass
from agentwrap.tracing.files.calls import Call
from agentwrap.tracing.files.desk import Desk
from agentwrap.tracing.files.known import Known
from agentwrap.tracing.files.pending import Pending
from agentwrap.tracing.files.places import lstat
from agentwrap.tracing.files.settings import Place, Who
from agentwrap.tracing.files.snapshot import ABSENT, Key, Snapshot, depth_after, differs, take_known, type_of


class Rename(Call):
    """`old` becomes `place`. `source` is the lstat of the old name, `replaced` the state of the new one before."""

    __slots__ = ("exchange", "key", "old", "old_klass", "replaced", "source")

    def __init__(
        self,
        who: Who,
        old: Place,
        old_klass: FileClass,
        place: Place,
        klass: FileClass,
        at_ns: int,
        *,
        source: os.stat_result,
        replaced: Snapshot,
        exchange: bool,
    ) -> None:
        super().__init__(who, place, klass, at_ns)
        self.old = old
        self.old_klass: FileClass = old_klass
        self.source = source
        self.key: Key = (source.st_dev, source.st_ino)
        self.replaced = replaced
        self.exchange = exchange
        self.names = (old.host, place.host)

    def attempt(self, desk: Desk) -> bool:
        """See `Call`."""
        status = lstat(self.place.host)
        if status is None or (status.st_dev, status.st_ino) != self.key:
            return False
        there = lstat(self.old.host)
        if self.exchange:
            if there is None or (there.st_dev, there.st_ino) != self.replaced.key:
                return False
            self._exchanged(desk)
            return True
        if there is not None and (there.st_dev, there.st_ino) == self.key:
            return False  # both names of one inode: rename(2) does nothing then
        kind = type_of(status.st_mode)
        if kind == "directory":
            self._moved_directory(desk)
        else:
            self._moved(desk, take_known(self.place.host, status, depth_after(self.klass), desk.settings))
        return True

    def takes_away(self, host: bytes) -> bool:
        """See `Call`; a folder takes along what is below it."""
        names = (self.old.host, self.place.host) if self.exchange else (self.old.host,)
        return any(host == name or host.startswith(name + b"/") for name in names)

    def _event(self, desk: Desk) -> None:
        desk.report.sink(
            FileRename(
                at_ns=self.at_ns, span=self.who.span, pid=self.who.pid, path=self.old.path, target=self.place.path,
                type=type_of(self.source.st_mode), exchange=self.exchange, klass=_clearer(self.old_klass, self.klass),
            )
        )  # fmt: skip

    def _moved_directory(self, desk: Desk) -> None:
        if self.replaced.state.type == "directory":  # an empty one, or it would have failed
            desk.report.sink(
                FileDirectory(
                    at_ns=self.at_ns, span=self.who.span, pid=self.who.pid, path=self.place.path,
                    change="remove", mode=self.replaced.state.mode, klass=self.klass,
                )
            )  # fmt: skip
        desk.pending.move_tree(self.old, self.place)
        desk.known.move_tree(self.old, self.place)
        self._event(desk)

    def _moved(self, desk: Desk, after: Snapshot) -> None:
        who, new = self.who, self.place
        source = desk.pending.by_host.get(self.old.host)
        target = desk.pending.by_host.get(new.host)
        known = desk.known.pop(self.old.host)
        passed_through = source is not None and source.before.absent
        made = passed_through or (known is not None and known.made)
        if target is not None and target is not source:
            desk.pending.remove(target)  # its inode is gone, or lives on without this name
        if self.replaced.absent and not passed_through:
            self._event(desk)
            self._written_since(desk, source, known, after)
        else:
            self._edit(desk, source, after)
        if not self.replaced.absent and not made:
            self._left(desk, after)
        elif known is not None and not self.replaced.absent and not differs(self.replaced, after):
            self._left_again(desk, after)
        made = made and self.replaced.absent
        recorded = made or not self.replaced.absent or (known is not None and known.recorded)
        desk.remember(who, new, self.klass, after, made=made, recorded=recorded)
        if source is not None:
            self._go_on(desk, source, after)

    def _written_since(self, desk: Desk, source: Pending | None, known: Known | None, after: Snapshot) -> None:
        """We learn that the rename succeeded when its thread is seen again: until then its file may have changed."""
        if source is not None:
            desk.pending.move(source, self.place)
            source.klass = self.klass
            desk.arrived(source, after)
        elif known is not None:
            known.path, known.klass = self.place.path, self.klass
            desk.late(self.place.host, known)

    def _edit(self, desk: Desk, source: Pending | None, after: Snapshot) -> None:
        """The new name has other content now: a new file, or what was there is replaced."""
        who, replaced = self.who, self.replaced
        if not replaced.absent and not differs(replaced, after):
            return  # written again with the same content
        if not replaced.absent:
            first = desk.is_first(self.place.host)
            desk.report.content(replaced.state.raw, replaced.content, "before" if first else "after")
        desk.report.content(after.state.raw, after.content, "after")
        for state in (replaced.state, after.state):
            if state.omitted:
                desk.report.omission(who.span, who.pid, self.place.path, state)
        writers = [] if source is None else [span for span in source.spans if span != who.span]
        desk.report.edit(
            self.place.path,
            self.klass,
            replaced.state,
            after.state,
            change="create" if replaced.absent else "modify",
            via="rename",
            span=who.span,
            pid=who.pid,
            writers=(*writers, who.span),
            temporary=self.old.path,
            at_ns=self.at_ns,
        )

    def _left(self, desk: Desk, after: Snapshot) -> None:
        """A file older than the run moved over another: its own name is gone, which the edit alone does not tell."""
        desk.report.content(after.state.raw, after.content, "before")
        desk.report.edit(
            self.old.path,
            self.old_klass,
            after.state,
            ABSENT.state,
            change="delete",
            via="rename",
            span=self.who.span,
            pid=self.who.pid,
            at_ns=self.at_ns,
        )

    def _left_again(self, desk: Desk, after: Snapshot) -> None:
        """A file whose making was told moved over an equal one: no edit tells that its own name is gone."""
        desk.report.edit(
            self.old.path,
            self.old_klass,
            after.state,
            ABSENT.state,
            change="transient",
            via="rename",
            span=self.who.span,
            pid=self.who.pid,
            at_ns=self.at_ns,
        )

    def _go_on(self, desk: Desk, source: Pending, after: Snapshot) -> None:
        """The file may still be open for writing: followed under its new name, from what it is now."""
        if not source.holders:
            desk.pending.remove(source)
            return
        desk.pending.move(source, self.place)
        source.klass = self.klass
        source.first = False
        source.before = after
        source.spans = []
        desk.pending.identify(source, after.key)
        desk.keep(source, self.who)

    def _exchanged(self, desk: Desk) -> None:
        old, new = self.old, self.place
        if self.replaced.state.type == "directory" or type_of(self.source.st_mode) == "directory":
            aside = Place(old.path + b"\0", old.host + b"\0")  # a name that cannot exist
            for book in (desk.pending, desk.known):
                book.move_tree(old, aside)
                book.move_tree(new, old)
                book.move_tree(aside, new)
        for pending, place in (
            (desk.pending.by_host.get(old.host), new),
            (desk.pending.by_host.get(new.host), old),
        ):
            if pending is not None:
                desk.pending.move(pending, place)
        for known, place in ((desk.known.pop(old.host), new), (desk.known.pop(new.host), old)):
            if known is not None:
                known.path = place.path
                desk.known.put(place.host, known)
        self._event(desk)


def _clearer(old: FileClass, new: FileClass) -> FileClass:
    """A move into or out of the work is work."""
    return "work" if "work" in (old, new) else new
