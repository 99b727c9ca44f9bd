"""The file witness: is told of calls before they run, and reports what became of the files. Thread safe.

The kernel continues each call after it was reported here, so its result is not known: the state before is taken at
once, the state after when the thread is seen again, when the process is over, when somebody else comes to the file,
at a sweep, and at the end. Decides when to look; `desk` decides what a look means. Never raises into the tracer.
"""

import os
import stat
import threading
from collections.abc import Callable
from typing import Literal

from agentwrap.events import FileClass, FileRead, Sink
from agentwrap.tracing.files.calls import (
    Attribute,
    Creation,
    HardLink,
    LinkDescriptor,
    MakeDirectory,
    MakeNode,
    RemoveDirectory,
    Symlink,
    Truncate,
    Unlink,
)
from agentwrap.tracing.files.desk import Desk
from agentwrap.tracing.files.places import PATH_MAX, follow, is_there, lstat
from agentwrap.tracing.files.rename import Rename
from agentwrap.tracing.files.settings import TRANSIENT_CONTENT_BYTES, FileSettings, Place, Who
from agentwrap.tracing.files.snapshot import ABSENT, depth_before, passing, take_known
from agentwrap.tracing.files.sweep import Sweeper
from agentwrap.tracing.files.underway import UnderWay

EXCLUSIVE = os.O_CREAT | os.O_EXCL
O_TMPFILE_ONLY = os.O_TMPFILE & ~os.O_DIRECTORY
UNNAMED = b"(unnamed)"
"""What stands for the name of files that have none (open(2), O_TMPFILE)."""

MAX_UNNAMED = 10_000
"""Folders in which files without a name were made are told once per process; so many are remembered."""

RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2

MAX_OPEN_FILES = 4096
"""Files of one process waiting for a look; with more, a sweep is made at once."""

BACKLOG = 32
"""With more files waiting, sweeps come oftener."""

MAX_TRANSIENTS = 1000
TRANSIENTS_PER_NS = 200 / 1e9
"""Contents of files that were made and removed again: so many at once, then so many a second."""

MAX_READ_PATHS = 100_000
"""Read paths counted per process."""


class FileTracker:
    """See the module. `now`: nanoseconds since the start of the run. `classify`: see `tracing.noise`."""

    def __init__(
        self, sink: Sink, settings: FileSettings, now: Callable[[], int], classify: Callable[[bytes], FileClass]
    ) -> None:
        self._lock = threading.Lock()
        self._desk = Desk(sink, settings, now, classify)
        self._underway = UnderWay(self._desk)
        self._reads: dict[int, dict[bytes, int]] = {}
        self._sweeper = Sweeper(self._desk)
        self._sink = sink
        self._desk.explain = self._underway.explain
        self._desk.leaving = self._underway.leaving
        self._more = False
        self._transients: float = MAX_TRANSIENTS
        self._transients_ns = now()
        self._unnamed: set[tuple[str, bytes]] = set()

    @property
    def pending(self) -> bool:
        """Whether a sweep would have anything to look at."""
        return bool(self._underway.by_tid or len(self._desk.pending))

    @property
    def backlog(self) -> bool:
        """Whether so much waits to be looked at that the end of a process would be held up by it."""
        return len(self._desk.pending) > BACKLOG

    # -- what the tracer tells: content

    def opening(self, who: Who, place: Place, flags: int, mode: int) -> None:  # noqa: ARG002  mode shows in the result
        """An open that writes, creates or truncates."""
        with self._lock:  # as `_told`, spelled out: this and unlinking are the hot path
            try:
                self._desk.moved[who.tid] = self._desk.now()
                if who.tid in self._underway.by_tid:
                    self._underway.over(who.tid)
                self._opening(who, place, flags)
            except Exception as error:
                self._desk.report.missed(who, place.path, error)

    def _opening(self, who: Who, place: Place, flags: int) -> None:
        if flags & O_TMPFILE_ONLY:
            self._without_name(who, place)
            return
        if place.path != place.host or len(place.host) >= PATH_MAX:
            place = self._steady(place)
        if self._underway.claims:
            self._underway.meet(who, place)
        exclusive = flags & EXCLUSIVE == EXCLUSIVE
        # An exception costs more than a second call, and files that are about to be made are the hot path.
        if flags & os.O_CREAT and not os.access(place.host, os.F_OK, follow_symlinks=False):
            status = None
        else:
            status = lstat(place.host)
        if status is not None and stat.S_ISLNK(status.st_mode):
            target = None if exclusive or flags & os.O_NOFOLLOW else follow(place, who.tid)
            if target is None:
                return
            place = target
            self._underway.meet(who, place)
            status = lstat(place.host)
        klass = self._desk.classify(place.path)
        if _no_files_there(klass, place.path):
            return
        now_ns = self._desk.now()
        if status is None:
            if flags & os.O_CREAT:
                self._underway.begin(Creation(who, place, klass, now_ns))
        elif stat.S_ISREG(status.st_mode) and not exclusive:
            self._desk.hold(who, place, klass, status, now_ns)
        mine = self._desk.pending.by_pid.get(who.pid)
        if mine is not None and len(mine) > MAX_OPEN_FILES:
            self._sweeper.shed(who.pid)

    def _without_name(self, who: Who, folder: Place) -> None:
        """A file that appears, if ever, by linking_descriptor: until then only that it is used, and where, is told."""
        folder = follow(folder, who.tid) or folder
        path = folder.path.rstrip(b"/") + b"/" + UNNAMED
        if (who.span, path) in self._unnamed:
            return
        klass = self._desk.classify(path)
        if _no_files_there(klass, path) or os.statvfs(folder.host).f_flag & os.ST_RDONLY:
            return
        if len(self._unnamed) < MAX_UNNAMED:
            self._unnamed.add((who.span, path))
        report, nothing = self._desk.report, ABSENT.state
        report.edit(path, klass, nothing, nothing, change="transient", via="remove", span=who.span, pid=who.pid)

    def inherited(self, who: Who, fd: int) -> None:
        """A descriptor open for writing that the root process was given from outside."""
        self._told(who, b"descriptor %d" % fd, self._inherited, fd)

    def _inherited(self, who: Who, fd: int) -> None:
        link = b"/proc/%d/fd/%d" % (who.pid, fd)
        status = os.stat(link)
        if not stat.S_ISREG(status.st_mode):
            return
        path = os.readlink(link)
        named = lstat(path)
        klass: FileClass = "stdio" if fd <= 2 else self._desk.classify(path)
        if named is None or not os.path.samestat(named, status) or _no_files_there(klass, path):
            return  # a file without a name, or not visible here: nothing to compare with later
        self._desk.hold(who, Place(path, path), klass, named, self._desk.now())

    def truncating(self, who: Who, place: Place) -> None:
        """A truncate, or an ftruncate of a descriptor's file."""
        self._told(who, place.path, self._truncating, place)

    def _truncating(self, who: Who, place: Place) -> None:
        place = self._steady(place)
        status = lstat(place.host)
        if status is not None and stat.S_ISLNK(status.st_mode):
            target = follow(place, who.tid)
            if target is None:
                return
            place = target
            status = lstat(place.host)
        self._underway.meet(who, place)
        klass = self._desk.classify(place.path)
        if status is None or not stat.S_ISREG(status.st_mode) or _no_files_there(klass, place.path):
            return
        desk = self._desk
        pending = desk.pending.find(place.host, (status.st_dev, status.st_ino))
        if pending is None:
            pending = desk.follow(who, place, klass, desk.before(place, status, klass))
            desk.pending.loose[pending] = None
        pending.touch(who)
        self._underway.begin(Truncate(who, place, klass, desk.now(), pending))

    # -- names

    def unlinking(self, who: Who, place: Place) -> None:
        """Unlink of anything but a directory."""
        with self._lock:
            try:
                self._desk.moved[who.tid] = self._desk.now()
                call = self._underway.by_tid.get(who.tid)
                if call is not None:
                    if type(call) is Creation and call.place.host == place.host:
                        self._unlinking_fresh(who, call)
                        return
                    self._underway.over(who.tid)
                self._unlinking(who, place)
            except Exception as error:
                self._desk.report.missed(who, place.path, error)

    def _unlinking_fresh(self, who: Who, creation: Creation) -> None:
        """The thread removes what it made by its call before: nothing is known of it yet, and nothing needs to be."""
        place = creation.place
        status = lstat(place.host)
        if status is None or not stat.S_ISREG(status.st_mode):
            self._underway.over(who.tid)
            return
        now_ns = self._desk.now()
        keep = status.st_size <= TRANSIENT_CONTENT_BYTES and self._afford_transient(now_ns)
        if keep:
            before = take_known(place.host, status, depth_before(creation.klass), self._desk.settings)
        else:
            before = passing(status)
        call = Unlink(who, place, creation.klass, now_ns, before, made=True)
        call.fresh = True
        self._underway.by_tid[who.tid] = self._underway.claims[place.host] = call

    def _unlinking(self, who: Who, place: Place) -> None:
        desk = self._desk
        place = self._steady(place)
        if self._underway.claims:
            self._underway.meet(who, place)
        klass = desk.classify(place.path)
        status = lstat(place.host)
        if status is None or stat.S_ISDIR(status.st_mode) or _no_files_there(klass, place.path):
            return
        pending = desk.pending.by_host.get(place.host)
        if pending is not None and pending.before is ABSENT:
            made = True
        else:
            known = desk.known.get(place.host)
            made = known is not None and known.made
        if made:
            keep = status.st_size <= TRANSIENT_CONTENT_BYTES and self._afford_transient(desk.now())
            before = take_known(place.host, status, depth_before(klass) if keep else "stat", desk.settings)
        else:
            if pending is not None:
                desk.settle(pending)
            before = desk.before(place, status, klass)
        if not before.absent:
            self._underway.begin(Unlink(who, place, klass, desk.now(), before, made=made))

    def _afford_transient(self, now_ns: int) -> bool:
        """Whether the content of one more file that came and went is kept: a loop of them is not worth its blobs."""
        self._transients = min(self._transients + (now_ns - self._transients_ns) * TRANSIENTS_PER_NS, MAX_TRANSIENTS)
        self._transients_ns = now_ns
        if self._transients < 1:
            return False
        self._transients -= 1
        return True

    def removing_directory(self, who: Who, place: Place) -> None:
        """Remove an empty directory."""
        self._told(who, place.path, self._removing_directory, place)

    def _removing_directory(self, who: Who, place: Place) -> None:
        place = self._steady(place)
        self._underway.meet(who, place)
        status = lstat(place.host)
        if status is not None and stat.S_ISDIR(status.st_mode):
            self._underway.begin(RemoveDirectory(who, place, self._class(place), self._desk.now(), status))

    def making_directory(self, who: Who, place: Place, mode: int) -> None:  # noqa: ARG002  mode shows in the result
        """Make a directory."""
        self._told(who, place.path, self._making, place, MakeDirectory)

    def making_node(self, who: Who, place: Place, mode: int) -> None:  # noqa: ARG002  the result shows the type
        """Make a node (mknod, or the bind of a unix socket)."""
        self._told(who, place.path, self._making, place, MakeNode)

    def symlinking(self, who: Who, target: bytes, place: Place) -> None:  # noqa: ARG002  the result shows the target
        """Make a symbolic link."""
        self._told(who, place.path, self._making, place, Symlink)

    def _making(self, who: Who, place: Place, kind: type[MakeDirectory] | type[MakeNode] | type[Symlink]) -> None:
        place = self._steady(place)
        self._underway.meet(who, place)
        if not is_there(place.host):
            self._underway.begin(kind(who, place, self._class(place), self._desk.now()))

    def renaming(self, who: Who, old: Place, new: Place, flags: int) -> None:
        """Rename, with the flags of renameat2."""
        self._told(who, new.path, self._renaming, old, new, flags)

    def _renaming(self, who: Who, old: Place, new: Place, flags: int) -> None:
        desk = self._desk
        old, new = self._steady(old), self._steady(new)
        self._underway.meet(who, old)
        self._underway.meet(who, new)
        source, target = lstat(old.host), lstat(new.host)
        exchange = bool(flags & RENAME_EXCHANGE)
        if source is not None and (stat.S_ISDIR(source.st_mode) or exchange):
            self._underway.meet_below(who, old, new)
        if source is None or (exchange and target is None):
            return
        if target is not None and (flags & RENAME_NOREPLACE or os.path.samestat(source, target)):
            return
        for place in (old, new):
            pending = desk.pending.by_host.get(place.host)
            # What was written so far belongs to the name it had, except to a temporary one.
            if pending is not None and (exchange or place is new or not pending.before.absent):
                desk.settle(pending)
        old_klass, klass = self._class(old), self._class(new)
        replaced = ABSENT if target is None else desk.before(new, target, klass)
        call = Rename(
            who, old, old_klass, new, klass, desk.now(), source=source, replaced=replaced, exchange=exchange
        )  # fmt: skip
        self._underway.begin(call)

    def linking(self, who: Who, old: Place, new: Place) -> None:
        """Give an existing file a further name."""
        self._told(who, new.path, self._linking, old, new)

    def _linking(self, who: Who, old: Place, new: Place) -> None:
        old, new = self._steady(old), self._steady(new)
        self._underway.meet(who, old)
        self._underway.meet(who, new)
        status = lstat(old.host)
        if status is not None and not is_there(new.host):
            key = (status.st_dev, status.st_ino)
            self._underway.begin(HardLink(who, new, self._class(new), self._desk.now(), old, key))

    def linking_descriptor(self, who: Who, host_fd_path: bytes, new: Place) -> None:
        """Linkat of a descriptor (AT_EMPTY_PATH, or through /proc/self/fd/N); `host_fd_path` leads to its file."""
        self._told(who, new.path, self._linking_descriptor, host_fd_path, new)

    def _linking_descriptor(self, who: Who, host_fd_path: bytes, new: Place) -> None:
        new = self._steady(new)
        self._underway.meet(who, new)
        status = os.stat(host_fd_path)
        if is_there(new.host):
            return
        key, klass, now_ns = (status.st_dev, status.st_ino), self._class(new), self._desk.now()
        if status.st_nlink == 0:
            self._underway.begin(LinkDescriptor(who, new, klass, now_ns, key))
        else:
            path = os.readlink(host_fd_path)
            self._underway.begin(HardLink(who, new, klass, now_ns, Place(path, path), key))

    # -- attributes

    def changing_mode(self, who: Who, place: Place, mode: int) -> None:  # noqa: ARG002  the result shows it
        """Change of permission bits."""
        self._told(who, place.path, self._attribute, place, "mode", b"")

    def changing_owner(self, who: Who, place: Place, uid: int, gid: int) -> None:  # noqa: ARG002  the result shows it
        """Change of owner or group."""
        self._told(who, place.path, self._attribute, place, "owner", b"")

    def changing_xattr(self, who: Who, place: Place, name: bytes) -> None:
        """Set or remove an extended attribute."""
        self._told(who, place.path, self._attribute, place, "xattr", name)

    def _attribute(self, who: Who, place: Place, change: Literal["mode", "owner", "xattr"], name: bytes) -> None:
        place = self._steady(place)
        self._underway.meet(who, place)
        klass = self._class(place)
        if _no_files_there(klass, place.path):
            return
        status = lstat(place.host)
        target = follow(place, who.tid) if status is not None and stat.S_ISLNK(status.st_mode) else None
        places = (place,) if target is None else (place, target)
        if target is not None:
            self._underway.meet(who, target)
        self._underway.begin(Attribute(who, places, klass, self._desk.now(), change, name))

    # -- reads

    def reading(self, who: Who, place: Place) -> None:
        """Open for reading; counted where there is a file."""
        with self._lock:
            counts = self._reads.setdefault(who.pid, {})
            seen = counts.get(place.path)
            if seen is not None:
                counts[place.path] = seen + 1
                return
            try:
                if len(counts) < MAX_READ_PATHS and stat.S_ISREG(os.stat(place.host).st_mode):
                    counts[place.path] = 1
            except OSError:
                pass  # not there, as in every search along a path: nothing is read

    # -- time passes

    def thread_stopped(self, who: Who) -> None:
        """The thread was seen again: what it called before is over."""
        if who.tid in self._underway.by_tid:
            self._told(who, b"", _nothing)

    def process_ended(self, pid: int, span: str) -> None:
        """Look at all this process had open for writing. Call it before the process's exit is reported."""
        self._told(Who(0, pid, span), b"", self._process_ended)

    def _process_ended(self, who: Who) -> None:
        for tid in [tid for tid, call in self._underway.by_tid.items() if call.who.pid == who.pid]:
            self._underway.over(tid)
        self._underway.moved(0)
        self._sweeper.ended(who.pid)
        for path, count in self._reads.pop(who.pid, {}).items():
            klass = self._desk.classify(path)
            at_ns = self._desk.now()
            self._sink(FileRead(at_ns=at_ns, span=who.span, pid=who.pid, path=path, count=count, klass=klass))

    def sweep(self) -> None:
        """Look at what became quiet. To be called about every 50 ms while `pending`."""
        nobody = Who(0, 0, "run")
        self._told(nobody, b"", self._sweep_calls)
        self._more = True
        while self._more:  # in slices, so that nobody waits long for the lock
            self._more = False
            self._told(nobody, b"", self._sweep_slice)

    def _sweep_calls(self, who: Who) -> None:  # noqa: ARG002
        self._underway.look(self._desk.now())

    def _sweep_slice(self, who: Who) -> None:  # noqa: ARG002
        self._more = self._sweeper.slice()

    def finish(self) -> None:
        """Look at everything once more: the run is over."""
        self._told(Who(0, 0, "run"), b"", self._finish)

    def _finish(self, who: Who) -> None:
        for tid in list(self._underway.by_tid):
            self._underway.over(tid)
        self._sweeper.finish()
        forgotten = self._desk.known.forgotten
        if forgotten:
            self._desk.report.gap("forgotten", b"", who.span, who.pid, b"%d paths" % forgotten)
        self._desk.anchors.close()
        self._desk.spool.close()

    # -- small things

    def _told(self, who: Who, path: bytes, act: Callable[..., None], *details: object) -> None:
        """Do one thing under the lock. The tracer must go on whatever happens: a failure here is a gap."""
        with self._lock:
            try:
                if who.tid:
                    self._desk.moved[who.tid] = self._desk.now()
                if who.tid in self._underway.by_tid:  # it makes another call: the one before is over
                    self._underway.over(who.tid)
                act(who, *details)
            except Exception as error:
                self._desk.report.missed(who, path, error)

    def _steady(self, place: Place) -> Place:
        if place.path == place.host and len(place.host) < PATH_MAX:
            return place
        return self._desk.anchors.steady(place)

    def _class(self, place: Place) -> FileClass:
        return self._desk.classify(place.path)


def _no_files_there(klass: FileClass, path: bytes) -> bool:
    """Kernel interfaces that look like files: reading them may block or do something."""
    return klass == "device" or (klass == "system" and path.startswith((b"/proc/", b"/sys/")))


def _nothing(who: Who) -> None:
    """Only the thread's call before is looked at."""
