"""What a file in another mount namespace is called on the machine: `/src/x` of a sandbox is `/home/u/project/x`.

Rules are about the machine's names. What lies on a file system that only the sandbox has (its own tmpfs, its own
/proc) has no name here, and nobody's file changes there.
"""

import os
import select
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from agentwrap.tracing.files.settings import Place

_KEPT = 32
_O_PATH = os.O_PATH | os.O_CLOEXEC


class Mount(NamedTuple):
    """A line of mountinfo (proc_pid_mountinfo(5)): `root` is the part of the file system that is mounted at `point`."""

    number: int
    device: bytes
    root: bytes
    point: bytes


def parse(data: bytes) -> tuple[Mount, ...]:
    """The mounts of a mountinfo; lines that are none are left out."""
    found = []
    for line in data.split(b"\n"):
        words = line.split(b" ", 5)
        if len(words) >= 5 and words[0].isdigit():
            found.append(Mount(int(words[0]), words[2], _plain(words[3]), _plain(words[4])))
    return tuple(found)


def _plain(word: bytes) -> bytes:
    for escape, byte in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        word = word.replace(escape, byte)
    return word


def name_on(
    mounts: tuple[Mount, ...], device: bytes, inner: bytes, preferred: frozenset[int] = frozenset()
) -> bytes | None:
    """The path at which `inner`, a path within the file system `device`, is seen through these mounts.

    Of several names the one on a `preferred` mount (by number), else the one on the narrowest mount.
    """
    best: Mount | None = None
    for mount in mounts:
        fits = mount.device == device and _below(inner, mount.root) is not None
        if fits and (best is None or _rank(mount, preferred) > _rank(best, preferred)):
            best = mount
    if best is None:
        return None
    rest = _below(inner, best.root) or b""
    return best.point.rstrip(b"/") + rest if rest else best.point


def _rank(mount: Mount, preferred: frozenset[int]) -> tuple[bool, int]:
    return mount.number in preferred, len(mount.root)


def _below(path: bytes, folder: bytes) -> bytes | None:
    """What comes after a folder in a path, with its slash; None if it does not lie there."""
    bare = folder.rstrip(b"/")
    if path in (folder, bare):
        return b""
    return path[len(bare) :] if path.startswith(bare + b"/") else None


class _Table:
    """The mounts of one namespace, read again when the kernel says that they changed (poll, proc_pid_mountinfo(5))."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLPRI)
        self._mounts: tuple[Mount, ...] | None = None

    def mounts(self) -> tuple[Mount, ...]:
        if self._mounts is None or self._poll.poll(0):
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            parts = []
            while data := os.read(self._descriptor, 1 << 16):
                parts.append(data)
            self._mounts = parse(b"".join(parts))
        return self._mounts

    def close(self) -> None:
        os.close(self._descriptor)


class MountNames:
    """Names on the machine for places in other namespaces. One thread uses it.

    `at_home`: folders that the policy speaks of. What a bind mount gives a second name is called by the one they have.
    """

    def __init__(self, at_home: Iterable[str] = ()) -> None:
        self._ours = _Table("/proc/self/mountinfo")
        self._preferred = frozenset(number for folder in at_home if (number := _mount_of(folder)) >= 0)
        self._tables: OrderedDict[tuple[int, ...], _Table] = OrderedDict()

    def outside(self, tid: int, place: Place) -> bytes | None:
        """The machine's name of a place of thread `tid`; None for one on a file system that the machine has not.

        Raises OSError for a process that is gone or that may not be looked at.
        """
        if place.host == place.path:
            return place.path
        folder, _, name = place.host.rpartition(b"/")
        descriptor = os.open(folder or b"/", _O_PATH)
        try:
            number = _mount_number(descriptor)
            seen = os.readlink(b"/proc/self/fd/%d" % descriptor)
        finally:
            os.close(descriptor)
        mount = self._mount(tid, number)
        if mount is None:
            return place.path  # out of its own sight, too: a descriptor from elsewhere
        # Of a mount in another namespace the kernel tells the path from that namespace's own root; a table begins at
        # the root of whose table it is.
        point = _joined(os.readlink(b"/proc/%d/root" % tid), mount.point)
        inside = _below(seen, point)
        if inside is None:
            inside = _below(seen, mount.point)
        if inside is None:
            return place.path
        inner = _joined(mount.root, inside + b"/" + name)
        return name_on(self._ours.mounts(), mount.device, inner, self._preferred)

    def read_only(self, tid: int, place: Place, ours: frozenset[bytes]) -> bool:
        """Whether `tid` cannot write to a place for a mount that a sandbox made read-only, and had writable around it.

        What the machine mounts as well, or `ours` names, has its state from there, and so has the first mount on top of
        that: a sandbox may have meant it to be writable. Raises OSError as `outside`.
        """
        seen = b"/proc/%d/root" % tid + place.path if place.host == place.path else place.host
        try:
            descriptor = os.open(seen, _O_PATH | os.O_NOFOLLOW)
        except FileNotFoundError:
            descriptor = os.open(seen.rpartition(b"/")[0], _O_PATH)
        try:
            if not os.fstatvfs(descriptor).f_flag & os.ST_RDONLY:
                return False
            mount = self._mount(tid, _mount_number(descriptor))
        finally:
            os.close(descriptor)
        if mount is None or not self._is_its_own(mount, ours):
            return False
        around = [one for one in self._mounts_of(tid) if one.point != mount.point and _below(mount.point, one.point)]
        nearest = max(around, key=lambda one: len(one.point), default=None)
        if nearest is None:
            return False
        writable = not os.statvfs(b"/proc/%d/root" % tid + nearest.point).f_flag & os.ST_RDONLY
        return writable or self._is_its_own(nearest, ours)

    def _is_its_own(self, mount: Mount, ours: frozenset[bytes]) -> bool:
        mounts = self._ours.mounts()
        name = name_on(mounts, mount.device, mount.root, self._preferred)
        return name is not None and name not in ours and all(name != one.point for one in mounts)

    def _mount(self, tid: int, number: int) -> Mount | None:
        for fresh in (False, True):
            for one in self._mounts_of(tid, fresh):
                if one.number == number:
                    return one
        return None

    def _mounts_of(self, tid: int, fresh: bool = False) -> tuple[Mount, ...]:
        # A table shows what lies below the root that a process had when the table was opened (pivot_root(2) moves it).
        root = os.open(f"/proc/{tid}/root", _O_PATH)
        try:
            status = os.fstat(root)
            key = (os.stat(f"/proc/{tid}/ns/mnt").st_ino, _mount_number(root), status.st_dev, status.st_ino)
        finally:
            os.close(root)
        return self._table(tid, key, fresh).mounts()

    def _table(self, tid: int, key: tuple[int, ...], fresh: bool) -> _Table:
        table = self._tables.pop(key, None)
        if table is not None and fresh:
            table.close()
            table = None
        if table is not None:
            self._tables[key] = table
        else:
            if len(self._tables) >= _KEPT:
                self._tables.popitem(last=False)[1].close()
            table = self._tables[key] = _Table(f"/proc/{tid}/mountinfo")
        return table


def _mount_of(folder: str) -> int:
    try:
        descriptor = os.open(folder, _O_PATH)
    except OSError:
        return -1
    try:
        return _mount_number(descriptor)
    finally:
        os.close(descriptor)


def _mount_number(descriptor: int) -> int:
    with open(f"/proc/self/fdinfo/{descriptor}", "rb") as file:
        for line in file:
            if line.startswith(b"mnt_id:"):
                return int(line[7:])
    return -1


def _joined(folder: bytes, path: bytes) -> bytes:
    return b"/" + b"/".join(part for part in (*folder.split(b"/"), *path.split(b"/")) if part)
