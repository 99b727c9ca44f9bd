"""Looking into a tracee that stands still: its memory, its descriptors, where a path of its leads.

What is read here is testimony: another thread of the tracee may change the memory after we looked (the walls of later
stages do not rest on it). Raises OSError where the kernel refuses; `refused` tells a refusal from a tracee that died.
"""

import errno
import os
import re
from collections import deque

from agentwrap.tracing.files.settings import Place
from agentwrap.tracing.resolve import OWN_LINKS, is_own, walk

AT_FDCWD = -100
PATH_MAX = 4096
_BASE_BYTES = 32  # of /proc/TID/fd/N/
_MEMORY_DESCRIPTORS = 192
_HIGHEST_ADDRESS = (1 << 63) - 1  # what pread(2) takes for an offset; no user address is higher
_O_PATH = os.O_PATH | os.O_CLOEXEC
_DESCRIPTOR = re.compile(rb"/proc/(\d+)/(?:task/\d+/)?fd/(\d+)")


# For the program, whatever a policy says: no such name, a bad pointer, a task that died.
FAILS_BY_ITSELF = frozenset(
    (
        *(None, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL),
        *(errno.EFAULT, errno.EIO, errno.ESRCH, errno.EBADF),
    )
)


_PF_EXITING = 0x4  # include/linux/sched.h
NOT_FOR_US = frozenset((errno.EPERM, errno.EACCES))


def refused(error: OSError, tid: int) -> bool:
    """The kernel would not let us look (not dumpable, other user), rather than: there is nothing to look at.

    Who is no root is refused a look at a thread that is just ending, too: it has no memory any more that could allow it
    (ptrace(2), access mode checking), or is gone before its link is followed. Its reported call is not made then.
    """
    return error.errno in NOT_FOR_US and not _is_ending(tid)


def _is_ending(tid: int) -> bool:
    try:
        with open(f"/proc/{tid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return True
    return bool(int(words[6]) & _PF_EXITING)  # proc_pid_stat(5), the ninth field


def signed(value: int) -> int:
    """The low 32 bits as a C int."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


class Memory:
    """Reads of tracees' memory through cached /proc/TID/mem descriptors (0.85 µs; process_vm_readv costs 2.4).

    One thread reads. Others call `forget` when a task died or became another program; the descriptor is closed by the
    reading thread, so that a reused number is never read by mistake.
    """

    def __init__(self) -> None:
        self._descriptors: dict[int, int] = {}
        self._stale: deque[int] = deque()

    def forget(self, tid: int) -> None:
        """The memory of `tid` is not what it was (exit, exec)."""
        self._stale.append(tid)

    def _descriptor(self, tid: int) -> int:
        while self._stale:
            self._drop(self._stale.popleft())
        descriptor = self._descriptors.get(tid)
        if descriptor is None:
            if len(self._descriptors) >= _MEMORY_DESCRIPTORS:
                self._drop(next(iter(self._descriptors)))
            descriptor = self._descriptors[tid] = os.open(b"/proc/%d/mem" % tid, os.O_RDONLY | os.O_CLOEXEC)
        return descriptor

    def _drop(self, tid: int) -> None:
        descriptor = self._descriptors.pop(tid, None)
        if descriptor is not None:
            os.close(descriptor)

    def read(self, tid: int, address: int, size: int) -> bytes:
        """Up to `size` bytes at `address`; shorter at the end of a mapping. Raises OSError (EIO, EFAULT: unmapped)."""
        if address > _HIGHEST_ADDRESS:
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
        return os.pread(self._descriptor(tid), size, address)

    def string(self, tid: int, address: int, limit: int = PATH_MAX) -> bytes:
        """The C string at `address`, cut at `limit`.

        Raises OSError; FileNotFoundError for a path that does not end, which no call takes (ENAMETOOLONG or EFAULT).
        """
        if address > _HIGHEST_ADDRESS:
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
        # Spelled out: every reported call about a file comes through here.
        descriptor = None if self._stale else self._descriptors.get(tid)
        data = os.pread(self._descriptor(tid) if descriptor is None else descriptor, 256, address)
        end = data.find(0)
        if end < 0 and len(data) == 256:
            data = self.read(tid, address, limit)
            end = data.find(0)
        if end < 0 and limit == PATH_MAX:
            raise FileNotFoundError
        return data[:end] if end >= 0 else data


def descriptor_target(tid: int, descriptor: int) -> bytes:
    """What /proc/TID/fd/N points to: a path, `socket:[inode]`, ... Raises OSError."""
    return os.readlink(b"/proc/%d/fd/%d" % (tid, descriptor))


def _told(descriptor: int) -> tuple[bytes, tuple[int, int]]:
    status = os.fstat(descriptor)
    return os.readlink(b"/proc/self/fd/%d" % descriptor), (status.st_dev, status.st_ino)


def _canonical_directory(tid: int, base: bytes, head: bytes, *, foreign: bool) -> tuple[bytes, tuple[int, int]]:
    """Path and identity of the directory `head` below `base` (`/proc/TID/cwd`, ...; `root` for an absolute path)."""
    if not foreign and len(head) < PATH_MAX - _BASE_BYTES:
        descriptor = os.open((base + b"/" + head) if base != b"root" else b"/" + head, _O_PATH)
        try:
            found = _told(descriptor)
        finally:
            os.close(descriptor)
        if not is_own(found[0]):
            return found
    descriptor = walk(tid, b"/proc/%d/root" % tid if base == b"root" else base, head)
    try:
        return _told(descriptor)
    finally:
        os.close(descriptor)


def _same_directory(path: bytes, identity: tuple[int, int]) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == identity


def locate(tid: int, directory: int, raw: bytes, *, foreign: bool) -> Place:
    """Where `raw`, relative to descriptor `directory` (or AT_FDCWD) of task `tid`, leads.

    `foreign`: the process may have another root or mount namespace; then `host` goes through /proc/TID/root unless the
    same directory is found under the same name here. Raises OSError when the directory part does not exist.
    """
    base = b"root"
    if not raw.startswith(b"/"):
        base = b"/proc/%d/cwd" % tid if directory == AT_FDCWD else b"/proc/%d/fd/%d" % (tid, directory)
        if b"/" not in raw and not foreign and raw not in (b".", b".."):
            # The plain case, one system call: a name in the working directory.
            parent = os.readlink(base)
            path = parent + b"/" + raw if parent != b"/" else b"/" + raw
            return Place(path, path)
    elif raw.startswith(OWN_LINKS):
        base, raw = b"/proc/%d" % tid, raw.split(b"/", 3)[3]
    head, _, name = raw.rstrip(b"/").rpartition(b"/")
    if name in (b".", b".."):
        head, name = raw, b""
    parent, identity = _canonical_directory(tid, base, head, foreign=foreign)
    path = ((parent if parent != b"/" else b"") + b"/" + name) if name else parent
    if not foreign or _same_directory(parent, identity):
        return Place(path, path)
    return Place(path, b"/proc/%d/root" % tid + path)


def descriptor_meant(place: Place) -> tuple[int, int] | None:
    """Thread and number where `place` is a descriptor in /proc, which stands for the file it was opened on."""
    if not place.host.startswith(b"/proc/"):
        return None
    found = _DESCRIPTOR.fullmatch(place.host)
    return (int(found[1]), int(found[2])) if found else None


def locate_descriptor(tid: int, descriptor: int, *, foreign: bool) -> Place | None:
    """The file an open descriptor stands for; None for one that has no path (pipe, socket, deleted file)."""
    target = descriptor_target(tid, descriptor)
    if not target.startswith(b"/") or target.endswith(b" (deleted)"):
        return None
    return Place(target, b"/proc/%d/root" % tid + target if foreign else target)


def sees_other_files(pid: int, own: tuple[str, int, int]) -> bool:
    """Whether `pid` has another root directory or mount namespace than `own` (see `own_view`)."""
    try:
        return _view(pid) != own
    except OSError:
        return True


def own_view() -> tuple[str, int, int]:
    """Mount namespace and root directory of this process."""
    return _view(os.getpid())


def _view(pid: int) -> tuple[str, int, int]:
    root = os.stat(f"/proc/{pid}/root")
    return os.readlink(f"/proc/{pid}/ns/mnt"), root.st_dev, root.st_ino
