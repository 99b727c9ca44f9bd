"""System calls about files, from registers to the edit tracker. One table: how each call names its files.

Knows where the paths, descriptors and flags lie in the arguments; what a change means is `tracing.files`' business.
"""

import os
import stat
import struct
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from agentwrap.tracing.blindspots import BlindSpots, RefusedError
from agentwrap.tracing.files.places import follow
from agentwrap.tracing.files.settings import Place, Who
from agentwrap.tracing.files.tracker import FileTracker
from agentwrap.tracing.processes import Process
from agentwrap.tracing.syscalls.watched import WRITING_OPEN
from agentwrap.tracing.tracee import AT_FDCWD, Memory, descriptor_meant, locate, locate_descriptor, signed

_AT_EMPTY_PATH = 0x1000
_AT_REMOVEDIR = 0x200
_AT_SYMLINK_FOLLOW = 0x400
_O_CREAT_FLAGS = 0o1 | 0o100 | 0o1000  # creat(2) is open with O_WRONLY | O_CREAT | O_TRUNC

Arguments = tuple[int, ...]
Handler = Callable[[Process, int, Arguments], int]


class At(NamedTuple):
    """Where a path is told: index of its directory descriptor (None: the working directory) and of the string."""

    directory: int | None
    path: int


class FileCalls:
    """Handlers by call name; each returns 0: what a witness sees always goes on."""

    def __init__(self, memory: Memory, files: FileTracker, blind: BlindSpots, *, reads: bool) -> None:
        self._memory = memory
        self._blind = blind
        self._files = files
        self._reads = reads
        self._last = Who(0, 0, "")
        self._recent: deque[tuple[Arguments, At, Place]] = deque(maxlen=2)
        self.handlers: dict[str, Handler] = {}
        self._add_opens()
        self._add_names()
        self._add_attributes()

    def place(self, process: Process, tid: int, arguments: Arguments, at: At) -> Place:
        """The place that arguments name. Kept for whoever asks again about the same call. Raises OSError."""
        for known, where, place in self._recent:
            if known is arguments and where == at:
                return place
        place = self._look_up(process, tid, arguments, at)
        self._recent.append((arguments, at, place))
        return place

    def _look_up(self, process: Process, tid: int, arguments: Arguments, at: At) -> Place:
        raw = self._memory.string(tid, arguments[at.path])
        directory = AT_FDCWD if at.directory is None else signed(arguments[at.directory])
        if not raw:
            found = locate_descriptor(tid, directory, foreign=process.foreign)
        else:
            found = locate(tid, directory, raw, foreign=process.foreign)
            if found.host.startswith(b"/proc/"):
                meant = descriptor_meant(found)
                if meant is not None:
                    link, found = found.host, locate_descriptor(*meant, foreign=process.foreign)
                    if found is None and (number := self._blind.descriptor(process, meant[0], link)):
                        raise RefusedError(number)
        if found is None:
            raise FileNotFoundError
        return found

    def _who(self, process: Process, tid: int) -> Who:
        """Calls come in runs of one thread."""
        last = self._last
        if last.tid != tid or last.span != process.span:
            last = self._last = Who(tid, process.pid, process.span)
        return last

    def _open(self, process: Process, tid: int, arguments: Arguments, at: At, flags: int, mode: int) -> int:
        if flags & WRITING_OPEN:
            place = self.place(process, tid, arguments, at)
            if place.path.startswith((b"/dev/", b"/proc/")):
                self._special(process, place, flags)
            elif os.path.islink(place.host) and (number := self._blind.pipe_by_link(process, tid, place.host)):
                return number
            self._files.opening(self._who(process, tid), place, flags, mode)
        elif self._reads:
            self._files.reading(self._who(process, tid), self.place(process, tid, arguments, at))
        return 0

    def _add_opens(self) -> None:
        add, here, at, act = self.handlers, At(None, 0), At(0, 1), self._open

        def by_handle(process: Process, _tid: int, arguments: Arguments) -> int:
            if arguments[2] & WRITING_OPEN:
                self._blind.opened_by_handle(process)
            return 0

        def openat2(process: Process, tid: int, arguments: Arguments) -> int:
            data = self._memory.read(tid, arguments[2], 16)
            if len(data) < 16:
                raise FileNotFoundError  # the end of a mapping: EFAULT for the call, too
            flags, mode = struct.unpack("=QQ", data)
            return act(process, tid, arguments, at, flags, mode)

        add["open"] = lambda process, tid, a: act(process, tid, a, here, a[1], a[2])
        add["creat"] = lambda process, tid, a: act(process, tid, a, here, _O_CREAT_FLAGS, a[1])
        add["openat"] = lambda process, tid, a: act(process, tid, a, at, a[2], a[3])
        add["openat2"] = openat2
        add["open_by_handle_at"] = by_handle

    def _special(self, process: Process, place: Place, flags: int) -> None:
        """Writing to a device or to a kernel interface that is no file of anybody's."""
        if flags & os.O_ACCMODE == os.O_RDONLY or self._blind.memory_of_another(process, place.path):
            return
        if not place.path.startswith(b"/dev/") or place.path.startswith(b"/dev/shm/"):
            return
        try:
            block = stat.S_ISBLK(os.stat(place.host).st_mode)
        except OSError:
            return  # not there: it is about to be made, or the open fails
        if block:
            self._blind.raw_device(process, place.path)

    def _simple(self, at: At, act: Callable[[Who, Place, Arguments], None]) -> Handler:
        def handle(process: Process, tid: int, arguments: Arguments) -> int:
            act(self._who(process, tid), self.place(process, tid, arguments, at), arguments)
            return 0

        return handle

    def _pair(self, first: At, second: At, act: Callable[[Who, Place, Place, Arguments], None]) -> Handler:
        def handle(process: Process, tid: int, arguments: Arguments) -> int:
            old = self.place(process, tid, arguments, first)
            new = self.place(process, tid, arguments, second)
            act(self._who(process, tid), old, new, arguments)
            return 0

        return handle

    def _add_names(self) -> None:
        files, add = self._files, self.handlers
        here = At(None, 0)
        at = At(0, 1)
        add["unlink"] = self._simple(here, lambda w, p, _: files.unlinking(w, p))
        add["rmdir"] = self._simple(here, lambda w, p, _: files.removing_directory(w, p))

        def unlinkat(who: Who, place: Place, arguments: Arguments) -> None:
            (files.removing_directory if arguments[2] & _AT_REMOVEDIR else files.unlinking)(who, place)

        add["unlinkat"] = self._simple(at, unlinkat)
        add["mkdir"] = self._simple(here, lambda w, p, a: files.making_directory(w, p, a[1] & 0o7777))
        add["mkdirat"] = self._simple(at, lambda w, p, a: files.making_directory(w, p, a[2] & 0o7777))
        add["mknod"] = self._simple(here, lambda w, p, a: files.making_node(w, p, a[1] & 0o177777))
        add["mknodat"] = self._simple(at, lambda w, p, a: files.making_node(w, p, a[2] & 0o177777))
        add["truncate"] = add["truncate64"] = self._simple(here, lambda w, p, _: files.truncating(w, p))
        add["rename"] = self._pair(here, At(None, 1), lambda w, o, n, _: files.renaming(w, o, n, 0))
        add["renameat"] = self._pair(at, At(2, 3), lambda w, o, n, _: files.renaming(w, o, n, 0))
        add["renameat2"] = self._pair(at, At(2, 3), lambda w, o, n, a: files.renaming(w, o, n, a[4]))
        add["link"] = self._pair(here, At(None, 1), lambda w, o, n, _: files.linking(w, o, n))
        add["linkat"] = self._linkat
        add["symlink"] = self._symlink(0, At(None, 1))
        add["symlinkat"] = self._symlink(0, At(1, 2))

    def _linkat(self, process: Process, tid: int, arguments: Arguments) -> int:
        new = self.place(process, tid, arguments, At(2, 3))
        who = Who(tid, process.pid, process.span)
        raw = self._memory.string(tid, arguments[1])
        if not raw and arguments[4] & _AT_EMPTY_PATH:
            self._files.linking_descriptor(who, b"/proc/%d/fd/%d" % (tid, signed(arguments[0])), new)
            return 0
        old = locate(tid, signed(arguments[0]), raw, foreign=process.foreign)
        if arguments[4] & _AT_SYMLINK_FOLLOW:
            if descriptor_meant(old) is not None:
                # The way open(2) documents for an O_TMPFILE file without CAP_DAC_READ_SEARCH.
                self._files.linking_descriptor(who, old.host, new)
                return 0
            old = follow(old, tid) or old
        self._files.linking(who, old, new)
        return 0

    def _symlink(self, target: int, at: At) -> Handler:
        def act(who: Who, place: Place, arguments: Arguments) -> None:
            self._files.symlinking(who, self._memory.string(who.tid, arguments[target]), place)

        return self._simple(at, act)

    def _add_attributes(self) -> None:
        files, add = self._files, self.handlers
        here, at = At(None, 0), At(0, 1)

        def by_descriptor(act: Callable[[Who, Place, Arguments], None]) -> Handler:
            def handle(process: Process, tid: int, arguments: Arguments) -> int:
                place = locate_descriptor(tid, signed(arguments[0]), foreign=process.foreign)
                if place is not None:
                    act(Who(tid, process.pid, process.span), place, arguments)
                return 0

            return handle

        add["chmod"] = self._simple(here, lambda w, p, a: files.changing_mode(w, p, a[1] & 0o7777))
        add["fchmod"] = by_descriptor(lambda w, p, a: files.changing_mode(w, p, a[1] & 0o7777))
        mode_at = self._simple(at, lambda w, p, a: files.changing_mode(w, p, a[2] & 0o7777))
        add["fchmodat"] = add["fchmodat2"] = mode_at
        owner = self._simple(here, lambda w, p, a: files.changing_owner(w, p, signed(a[1]), signed(a[2])))
        add["chown"] = add["lchown"] = add["chown32"] = add["lchown32"] = owner
        owner_fd = by_descriptor(lambda w, p, a: files.changing_owner(w, p, signed(a[1]), signed(a[2])))
        add["fchown"] = add["fchown32"] = owner_fd
        add["fchownat"] = self._simple(at, lambda w, p, a: files.changing_owner(w, p, signed(a[2]), signed(a[3])))

        def xattr(name: int) -> Callable[[Who, Place, Arguments], None]:
            return lambda w, p, a: files.changing_xattr(w, p, self._memory.string(w.tid, a[name], 256))

        for call in ("setxattr", "lsetxattr", "removexattr", "lremovexattr"):
            add[call] = self._simple(here, xattr(1))
        for call in ("fsetxattr", "fremovexattr"):
            add[call] = by_descriptor(xattr(1))
        for call in ("setxattrat", "removexattrat"):
            add[call] = self._simple(at, xattr(3))
        add["file_setattr"] = self._simple(at, lambda w, p, _: files.changing_xattr(w, p, b"inode-flags"))
