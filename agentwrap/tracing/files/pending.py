"""Files that somebody may be writing: the state before, and who has them open. Pure bookkeeping, no I/O.

A file is found by its host path (see `settings.Place`) or by its inode, so a write through another name is not missed.
"""

from typing import NamedTuple

from agentwrap.events.file import FileClass
from agentwrap.tracing.files.known import rebased
from agentwrap.tracing.files.settings import Place, Who
from agentwrap.tracing.files.snapshot import Key, Snapshot
from agentwrap.tracing.files.spool import Held

MAX_WRITERS = 64
"""Writers named in one event."""


class Holder(NamedTuple):
    """A process that opened the file for writing: its thread that did, and when."""

    who: Who
    opened_ns: int


class Pending:
    """One file between its state before and its state after.

    `first`: the state before is older than the run (what undo needs). `spans`: writers since the last look;
    `seen`: holders whose descriptor was seen; `due_ns`: no look before this, for files that are written often.
    `calls`: so many change it by its name just now, so that a look may come before what it looks for.
    """

    __slots__ = (
        "before",
        "calls",
        "due_ns",
        "first",
        "held",
        "holders",
        "host",
        "key",
        "klass",
        "last_pid",
        "last_span",
        "looks",
        "path",
        "seen",
        "spans",
    )

    def __init__(self, place: Place, klass: FileClass, before: Snapshot, *, first: bool) -> None:
        self.path, self.host = place
        self.klass: FileClass = klass
        self.before = before
        self.calls = 0
        self.key = before.key
        self.first = first
        self.held: Held | None = None
        self.holders: dict[int, Holder] = {}
        self.spans: list[str] = []
        self.seen: set[int] | None = None
        self.last_pid = 0
        self.last_span = "run"
        self.looks = 0
        self.due_ns = 0

    def touch(self, who: Who) -> None:
        """Somebody is about to write."""
        self.last_pid = who.pid
        self.last_span = who.span
        spans = self.spans
        if not spans:
            spans.append(who.span)
        elif spans[-1] != who.span:
            if who.span in spans:
                spans.remove(who.span)
            elif len(spans) >= MAX_WRITERS:
                del spans[0]
            spans.append(who.span)


class PendingFiles:
    """All of them, by host path, by inode and by process. `loose`: nobody has them open, they wait for their turn."""

    def __init__(self) -> None:
        self.by_host: dict[bytes, Pending] = {}
        self.by_key: dict[Key, Pending] = {}
        self.by_pid: dict[int, dict[Pending, None]] = {}
        self.loose: dict[Pending, None] = {}

    def __len__(self) -> int:
        return len(self.by_host)

    def find(self, host: bytes, key: Key | None) -> Pending | None:
        """By inode first: the name may be another one. A name whose inode is another file now is still that name's."""
        if key is not None:
            found = self.by_key.get(key)
            if found is not None:
                return found
        return self.by_host.get(host)

    def follows(self, pending: Pending) -> bool:
        """Whether it is (still) in the book."""
        return self.by_host.get(pending.host) is pending

    def add(self, pending: Pending) -> None:
        """Begin to follow."""
        self.by_host[pending.host] = pending
        if pending.key is not None:
            self.by_key[pending.key] = pending

    def identify(self, pending: Pending, key: Key | None) -> None:
        """The inode is known now (the file was made), or has become another one (it was replaced)."""
        if key != pending.key:
            if pending.key is not None and self.by_key.get(pending.key) is pending:
                del self.by_key[pending.key]
            pending.key = key
        if key is not None:
            self.by_key[key] = pending

    def hold(self, pending: Pending, who: Who, now_ns: int) -> None:
        """`who` is about to have it open for writing."""
        pending.touch(who)
        pending.holders[who.pid] = Holder(who, now_ns)
        if pending.seen:
            pending.seen.discard(who.pid)
        mine = self.by_pid.get(who.pid)
        if mine is None:
            mine = self.by_pid[who.pid] = {}
        mine[pending] = None
        if self.loose:
            self.loose.pop(pending, None)

    def release(self, pending: Pending, pid: int) -> None:
        """A process does not have it open any more."""
        pending.holders.pop(pid, None)
        mine = self.by_pid.get(pid)
        if mine is not None:
            mine.pop(pending, None)
            if not mine:
                del self.by_pid[pid]
        if not pending.holders:
            if self.follows(pending):
                self.loose[pending] = None
        elif pending.last_pid == pid:
            pending.last_pid, holder = next(reversed(pending.holders.items()))
            pending.last_span = holder.who.span

    def move(self, pending: Pending, place: Place) -> None:
        """It has another name now."""
        if self.by_host.get(pending.host) is pending:
            del self.by_host[pending.host]
        pending.path, pending.host = place
        self.by_host[place.host] = pending

    def move_tree(self, old: Place, new: Place) -> None:
        """A folder above was renamed."""
        below = old.host + b"/"
        for host in [host for host in self.by_host if host.startswith(below)]:
            pending = self.by_host[host]
            path = rebased(pending.path, old.path, new.path)
            self.move(pending, Place(path, new.host + host[len(old.host) :]))

    def remove(self, pending: Pending) -> None:
        """No longer followed."""
        if self.by_host.get(pending.host) is pending:
            del self.by_host[pending.host]
        if pending.key is not None and self.by_key.get(pending.key) is pending:
            del self.by_key[pending.key]
        for pid in pending.holders:
            mine = self.by_pid.get(pid)
            if mine is not None:
                mine.pop(pending, None)
                if not mine:
                    del self.by_pid[pid]
        pending.holders.clear()
        self.loose.pop(pending, None)
        if pending.held is not None:
            pending.held.drop()
            pending.held = None
