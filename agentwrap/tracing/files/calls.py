"""Calls that were seen before they ran: each knows how to tell, from the file system, that it has happened.

`attempt` is asked when the thread is seen again (then no means it failed), and earlier when somebody else touches the
same path or at a sweep (then no means not yet). Reports what it finds through the desk.
"""

import os
import stat
from typing import Literal

from agentwrap.events import FileDirectory, FileEdit, FileLink, FileMode, FileSpecial
from agentwrap.events.file import FileClass
from agentwrap.tracing.files.desk import Desk
from agentwrap.tracing.files.pending import Pending
from agentwrap.tracing.files.places import lstat
from agentwrap.tracing.files.settings import Place, Who
from agentwrap.tracing.files.snapshot import ABSENT, Key, Snapshot, depth_after, take, take_known


class Call:
    """A call of one thread. `names`: the host paths whose meaning it changes.

    `rival`: an earlier call of another thread about the same name that is not known to have happened. Of two that
    remove or make the same thing (`exclusive`) only one can succeed: `done` tells that it was this one.
    """

    __slots__ = ("at_ns", "done", "klass", "names", "place", "rival", "who")
    exclusive = True

    def __init__(self, who: Who, place: Place, klass: FileClass, at_ns: int) -> None:
        self.who = who
        self.place = place
        self.klass: FileClass = klass
        self.at_ns = at_ns
        self.names: tuple[bytes, ...] = (place.host,)
        self.rival: Call | None = None
        self.done = False

    def attempt(self, desk: Desk) -> bool:
        """Report and return True if it has happened."""
        raise NotImplementedError

    def takes_away(self, host: bytes) -> bool:  # noqa: ARG002
        """Whether there is no file of this name once it has happened, or another one."""
        return False


class Creation(Call):
    """An open that makes a file. Most files that come and go do so by two calls in a row: this one costs little."""

    __slots__ = ()
    exclusive = False

    def attempt(self, desk: Desk) -> bool:
        """Begin to follow the file, if it is there: the open may have failed."""
        status = lstat(self.place.host)
        if status is None:
            return False
        if stat.S_ISREG(status.st_mode):
            desk.hold(self.who, self.place, self.klass, None, self.at_ns)
            made = desk.pending.by_host.get(self.place.host)
            if made is not None and made.key is None:
                desk.pending.identify(made, (status.st_dev, status.st_ino))
        return True


class Unlink(Call):
    """`before`: what is about to vanish; `made`: by the tree itself, so it only passed through.

    `fresh`: made by the very call before, so no book knows it.
    """

    __slots__ = ("before", "fresh", "made")

    def __init__(self, who: Who, place: Place, klass: FileClass, at_ns: int, before: Snapshot, *, made: bool) -> None:
        super().__init__(who, place, klass, at_ns)
        self.before = before
        self.made = made
        self.fresh = False

    def attempt(self, desk: Desk) -> bool:
        """See `Call`."""
        host = self.place.host
        if os.access(host, os.F_OK, follow_symlinks=False):
            status = lstat(host)
            if status is not None and (status.st_dev, status.st_ino) == self.before.key:
                return False
        who, before, klass, at_ns = self.who, self.before, self.klass, self.at_ns
        writers: tuple[str, ...] = (who.span,)
        role: Literal["before", "after"] = "after"
        if not self.fresh:
            if not self.made and desk.is_first(host):
                role = "before"
            desk.known.pop(host)
            pending = desk.pending.by_host.get(host)
            if pending is not None:
                if len(pending.spans) > 1:
                    writers = (*(span for span in pending.spans if span != who.span), who.span)
                desk.pending.remove(pending)
        if before.content is not None:
            desk.report.content(before.state.raw, before.content, role)
        elif before.state.omitted != "not-kept":
            desk.report.omission(who.span, who.pid, self.place.path, before.state)
        change: Literal["transient", "delete"] = "transient" if self.made else "delete"
        edit = FileEdit(
            at_ns=at_ns, span=who.span, pid=who.pid, path=self.place.path, change=change, via="remove",
            before=before.state, after=ABSENT.state, writers=writers, klass=klass,
        )  # fmt: skip
        desk.report.sink(edit)
        return True

    def takes_away(self, host: bytes) -> bool:
        """See `Call`."""
        return host == self.place.host


class RemoveDirectory(Call):
    """rmdir."""

    __slots__ = ("key", "mode")

    def __init__(self, who: Who, place: Place, klass: FileClass, at_ns: int, status: os.stat_result) -> None:
        super().__init__(who, place, klass, at_ns)
        self.key: Key = (status.st_dev, status.st_ino)
        self.mode = status.st_mode & 0o7777

    def attempt(self, desk: Desk) -> bool:
        """See `Call`."""
        status = lstat(self.place.host)
        if status is not None and (status.st_dev, status.st_ino) == self.key:
            return False
        desk.report.sink(
            FileDirectory(
                at_ns=self.at_ns, span=self.who.span, pid=self.who.pid, path=self.place.path,
                change="remove", mode=self.mode, klass=desk.taken_down(self.klass, self.place.host),
            )
        )  # fmt: skip
        return True


class MakeDirectory(Call):
    """mkdir."""

    __slots__ = ()

    def attempt(self, desk: Desk) -> bool:
        """See `Call`."""
        status = lstat(self.place.host)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return False
        desk.built(self.place)
        desk.report.sink(
            FileDirectory(
                at_ns=self.at_ns, span=self.who.span, pid=self.who.pid, path=self.place.path,
                change="create", mode=status.st_mode & 0o7777, klass=self.klass,
            )
        )  # fmt: skip
        return True


class Symlink(Call):
    """symlink."""

    __slots__ = ()

    def attempt(self, desk: Desk) -> bool:
        """See `Call`."""
        found = take(self.place.host, "stat", desk.settings)
        if found.state.type != "symlink":
            return False
        who, place = self.who, self.place
        desk.report.sink(
            FileLink(
                at_ns=self.at_ns, span=who.span, pid=who.pid, path=place.path,
                target=found.state.target, link="symbolic", klass=self.klass,
            )
        )  # fmt: skip
        desk.remember(who, place, self.klass, found, made=True, recorded=True)
        return True


class HardLink(Call):
    """link: `old` gets the further name `place`."""

    __slots__ = ("key", "old")

    def __init__(self, who: Who, place: Place, klass: FileClass, at_ns: int, old: Place, key: Key) -> None:
        super().__init__(who, place, klass, at_ns)
        self.old = old
        self.key = key

    def attempt(self, desk: Desk) -> bool:
        """See `Call`."""
        found = take(self.place.host, "stat", desk.settings)
        if found.key != self.key:
            return False
        who, place = self.who, self.place
        source = desk.pending.by_host.get(self.old.host)
        if source is not None:
            desk.settle(source)
        desk.report.sink(
            FileLink(
                at_ns=self.at_ns, span=who.span, pid=who.pid, path=place.path,
                target=self.old.path, link="hard", klass=self.klass,
            )
        )  # fmt: skip
        # What is older than the run is so under its new name too.
        desk.remember(who, place, self.klass, found, made=True, recorded=not desk.is_first(self.old.host))
        return True


class LinkDescriptor(Call):
    """linkat of a file without a name (O_TMPFILE): a file appears with all its content."""

    __slots__ = ("key",)

    def __init__(self, who: Who, place: Place, klass: FileClass, at_ns: int, key: Key) -> None:
        super().__init__(who, place, klass, at_ns)
        self.key = key

    def attempt(self, desk: Desk) -> bool:
        """See `Call`."""
        after = take(self.place.host, depth_after(self.klass), desk.settings)
        if after.key != self.key:
            return False
        who, place = self.who, self.place
        pending = desk.follow(who, place, self.klass, ABSENT)
        desk.pending.hold(pending, who, self.at_ns)  # its descriptor is still open
        desk.arrived(pending, after, via="link")
        return True


class MakeNode(Call):
    """mknod, or a unix socket's bind."""

    __slots__ = ()

    def attempt(self, desk: Desk) -> bool:
        """See `Call`."""
        status = lstat(self.place.host)
        kind = None if status is None else _node_type(status.st_mode)
        if status is None or kind is None:
            return False
        who, place = self.who, self.place
        desk.report.sink(
            FileSpecial(
                at_ns=self.at_ns, span=who.span, pid=who.pid, path=place.path, type=kind, klass=self.klass
            )
        )  # fmt: skip
        found = take_known(place.host, status, "stat", desk.settings)
        desk.remember(who, place, self.klass, found, made=True, recorded=True)
        return True


def _node_type(mode: int) -> Literal["fifo", "socket", "character", "block", "file"] | None:
    if stat.S_ISFIFO(mode):
        return "fifo"
    if stat.S_ISSOCK(mode):
        return "socket"
    if stat.S_ISCHR(mode):
        return "character"
    if stat.S_ISBLK(mode):
        return "block"
    return "file" if stat.S_ISREG(mode) else None


class Truncate(Call):
    """truncate by path: nobody keeps it open, so it is looked at as soon as the call is over."""

    __slots__ = ("pending",)
    exclusive = False

    def __init__(self, who: Who, place: Place, klass: FileClass, at_ns: int, pending: Pending) -> None:
        super().__init__(who, place, klass, at_ns)
        self.pending = pending
        pending.calls += 1

    def attempt(self, desk: Desk) -> bool:
        """See `Call`."""
        if desk.pending.by_host.get(self.pending.host) is not self.pending:
            return True  # looked at and let go meanwhile
        status = lstat(self.place.host)
        before = self.pending.before.signature
        if status is not None and (status.st_size, status.st_mtime_ns) == before[:2]:
            return False
        desk.settle_if_due(self.pending)
        return True


class Attribute(Call):
    """chmod, chown, setxattr. `places`: the name itself, and what it leads to if it is a link (chown may mean either).

    `states`: the values of all of them before.
    """

    __slots__ = ("change", "name", "places", "states")
    exclusive = False

    def __init__(
        self,
        who: Who,
        places: tuple[Place, ...],
        klass: FileClass,
        at_ns: int,
        change: Literal["mode", "owner", "xattr"],
        name: bytes = b"",
    ) -> None:
        super().__init__(who, places[0], klass, at_ns)
        self.change: Literal["mode", "owner", "xattr"] = change
        self.name = name
        self.places = places
        self.states = [self._state(place.host) for place in places]
        self.names = tuple(place.host for place in places)

    def _state(self, host: bytes) -> tuple[Key, tuple[int, ...] | bytes] | None:
        """Which inode it is, and the value."""
        try:
            status = os.lstat(host)
        except OSError:
            return None
        key = (status.st_dev, status.st_ino)
        if self.change == "xattr":
            return key, _xattr(host, self.name)
        return key, (status.st_mode & 0o7777,) if self.change == "mode" else (status.st_uid, status.st_gid)

    def attempt(self, desk: Desk) -> bool:
        """See `Call`."""
        for place, old in zip(self.places, self.states, strict=True):
            new = self._state(place.host)
            if old is not None and new is not None and old[0] == new[0] and old[1] != new[1]:
                self._report(desk, place, old[1], new[1])
                return True
        return False

    def _report(self, desk: Desk, place: Place, old: object, new: object) -> None:
        who, path = self.who, place.path
        pending = desk.pending.by_host.get(place.host)
        if pending is not None and pending.before.absent and self.change != "xattr":
            return  # a file that is just being made: its creation tells mode and owner
        event = FileMode(
            at_ns=self.at_ns, span=who.span, pid=who.pid, path=path, change=self.change, klass=desk.classify(path),
            before=old[0] if self.change == "mode" and isinstance(old, tuple) else 0,
            after=new[0] if self.change == "mode" and isinstance(new, tuple) else 0,
            before_owner=old if self.change == "owner" and isinstance(old, tuple) else (0, 0),
            after_owner=new if self.change == "owner" and isinstance(new, tuple) else (0, 0),
            xattr=self.name,
        )  # fmt: skip
        desk.report.sink(event)


def _xattr(host: bytes, name: bytes) -> bytes:
    try:
        return os.getxattr(host, name, follow_symlinks=False)
    except OSError:
        return b"\0absent"  # never set, or not for us to read (security.*, trusted.*): no change is seen then
