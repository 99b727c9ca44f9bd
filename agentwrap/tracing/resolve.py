"""The directory part of a tracee's path, followed as the kernel follows it for the tracee and not for us.

What differs: absolute links lead into the tracee's root, `..` stops there, and `/proc/self` is the tracee. Knows links
and descriptors; what the last component means is the caller's business. path_resolution(7), proc(5).
"""

import ctypes
import errno
import os
import stat

_O_PATH = os.O_PATH | os.O_CLOEXEC
_MAX_LINKS = 40
_NAME_MAX = 255
_PROC_SUPER_MAGIC = 0x9FA0  # linux/magic.h
_PROC_ROOT_INODE = 1
_libc = ctypes.PyDLL(None, use_errno=True)

OWN_LINKS = (b"/proc/self/", b"/proc/thread-self/")

OWN_DIRECTORY = b"/proc"
"""Where the tracer's own working directory must be, so that a `/proc/self/cwd` followed by mistake shows itself."""


def is_own(path: bytes) -> bool:
    """Whether a resolved directory can only come from *our* /proc/self: then the tracee's leads elsewhere."""
    if not path.startswith(OWN_DIRECTORY):
        return False
    own = b"/proc/%d" % os.getpid()
    return path in (OWN_DIRECTORY, own) or path.startswith(own + b"/")


def _in_procfs(descriptor: int) -> bool:
    buffer = (ctypes.c_long * 32)()  # struct statfs begins with f_type, statfs(2)
    return _libc.fstatfs(descriptor, ctypes.byref(buffer)) == 0 and buffer[0] == _PROC_SUPER_MAGIC


def _key(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


class _Walk:
    """One resolution. `at`: where it stands, an O_PATH descriptor."""

    def __init__(self, tid: int, start: bytes) -> None:
        self._tid = tid
        self._root = b"/proc/%d/root" % tid
        self._links = 0
        self.at = os.open(start, _O_PATH)

    def _go(self, descriptor: int) -> None:
        os.close(self.at)
        self.at = descriptor

    def _up(self) -> None:
        root = os.stat(self._root)
        if _key(self.at) != (root.st_dev, root.st_ino):
            self._go(os.open(b"..", _O_PATH, dir_fd=self.at))

    def step(self, part: bytes) -> list[bytes]:
        """One component further; returns the components of a link that come in its place."""
        if part == b"..":
            self._up()
            return []
        if len(part) > _NAME_MAX:
            raise FileNotFoundError  # the call itself fails for the same reason
        found = os.open(part, _O_PATH | os.O_NOFOLLOW, dir_fd=self.at)
        if not stat.S_ISLNK(os.fstat(found).st_mode):
            self._go(found)
            return []
        try:
            self._links += 1
            if self._links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            return self._link(part, found)
        finally:
            os.close(found)

    def _link(self, part: bytes, found: int) -> list[bytes]:
        if _in_procfs(found):
            if os.fstat(self.at).st_ino != _PROC_ROOT_INODE:
                self._go(os.open(part, _O_PATH, dir_fd=self.at))  # cwd, root, fd/N: only the kernel can follow these
                return []
            if part in (b"self", b"thread-self"):
                self._go(os.open(b"/proc/%d" % self._tid, _O_PATH))
                return []
        target = os.readlink(b"", dir_fd=found)
        if target.startswith(b"/"):
            self._go(os.open(self._root, _O_PATH))
        return target.split(b"/")


    def along(self, path: bytes) -> None:
        """All components of a path; closes `at` and raises OSError where one leads nowhere."""
        try:
            todo = path.split(b"/")[::-1]
            while todo:
                part = todo.pop()
                if part not in (b"", b"."):
                    todo += self.step(part)[::-1]
        except BaseException:
            os.close(self.at)
            raise


def walk(tid: int, start: bytes, path: bytes) -> int:
    """An O_PATH descriptor of the directory `path` below `start`, as thread `tid` would get it. Raises OSError."""
    walk = _Walk(tid, start)
    walk.along(path)
    if not stat.S_ISDIR(os.fstat(walk.at).st_mode):
        os.close(walk.at)
        raise NotADirectoryError
    return walk.at


def leads_to(tid: int, path: bytes) -> bytes:
    """The name of what an absolute path leads to for thread `tid`, every link followed. Raises OSError."""
    walk = _Walk(tid, b"/proc/%d/root" % tid)
    walk.along(path)
    try:
        return os.readlink(b"/proc/self/fd/%d" % walk.at)
    finally:
        os.close(walk.at)
