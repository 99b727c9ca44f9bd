"""Paths that stay openable: symbolic links followed in the process's own root, foreign roots and long paths anchored.

Knows directories and links. Refuses to know what is in a file.
"""

import errno
import os
import stat

from agentwrap.tracing.files.settings import Place
from agentwrap.tracing.resolve import OWN_LINKS

PATH_MAX = 4096  # bytes with the final zero, linux/limits.h
MAX_LINKS = 40  # as the kernel counts them, path_resolution(7)
MAX_ANCHORS = 256  # descriptors
SANDBOX_ROOT = b"/newroot"
"""Where bubblewrap builds a sandbox: the machine's folders are bound there before it becomes `/`."""


def lstat(host: bytes) -> os.stat_result | None:
    """lstat, with None for what is not there.

    Raises:
        OSError: the name cannot be looked up for another reason (no permission, too long).

    """
    try:
        return os.lstat(host)
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_there(host: bytes) -> bool:
    """Whether the name exists. An exception costs twice the system call, and this is asked after each unlink."""
    return os.access(host, os.F_OK, follow_symlinks=False)


def _prefix(place: Place) -> bytes:
    """What stands before the process's own root in `host`."""
    return place.host[: -len(place.path)] if place.host.endswith(place.path) else b""


def follow(place: Place, tid: int) -> Place | None:
    """The place a final symbolic link of thread `tid` leads to (it may not exist yet); None for a loop, or unreadable.

    Links are resolved inside the process's root, so an absolute target never leads into ours.
    """
    prefix = _prefix(place)
    path = place.path
    for _ in range(MAX_LINKS):
        host = prefix + path
        try:
            if not stat.S_ISLNK(os.lstat(host).st_mode):
                return Place(path, host)
            target = os.readlink(host)
        except FileNotFoundError:
            return Place(path, host)
        except OSError:
            return None
        target = os.path.join(os.path.dirname(path), target)
        if target.startswith(OWN_LINKS):
            target = b"/proc/%d/" % tid + target.split(b"/", 3)[3]  # ours is another one
        parent, name = os.path.split(target)
        resolved = _canonical(parent, prefix)
        if resolved is None or name in (b"", b".", b".."):
            return None  # a directory then: not something that is opened for writing
        path = resolved.rstrip(b"/") + b"/" + name
    return None


def _canonical(path: bytes, prefix: bytes) -> bytes | None:
    """The directory `path` without links and dots, as seen below `prefix`."""
    if not prefix:
        try:
            return os.path.realpath(path)
        except OSError:
            return None
    done: list[bytes] = []
    todo = [part for part in reversed(path.split(b"/")) if part and part != b"."]
    links = 0
    while todo:
        part = todo.pop()
        if part == b"..":
            del done[-1:]
            continue
        here = b"/" + b"/".join([*done, part])
        try:
            target = os.readlink(prefix + here)
        except OSError:
            done.append(part)  # not a link
            continue
        links += 1
        if links > MAX_LINKS:
            return None
        if target.startswith(b"/"):
            done = []
        todo.extend(part for part in reversed(target.split(b"/")) if part and part != b".")
    return b"/" + b"/".join(done)


class Anchors:
    """Turns a host path that will stop working into one that does not.

    `/proc/TID/root/...` dies with its thread, and a path of 4,096 bytes cannot be opened at all. Where the same
    directory is visible under the same name to us (bind mounts of sandboxes, also while they are built), that name is
    used, so that what the sandbox makes and others remove outside is one file; else an O_PATH descriptor of the
    directory is kept and the path becomes `/proc/self/fd/N/name`.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], int] = {}

    def steady(self, place: Place) -> Place:
        """The same place by a path that outlives the thread.

        Raises:
            OSError: the directory cannot be opened, or too many are kept.

        """
        path, host = place
        directory, name = os.path.split(host)
        descriptor = open_directory(directory)
        try:
            status = os.fstat(descriptor)
            key = (status.st_dev, status.st_ino)
            kept = self._kept.get(key)
            seen = os.path.dirname(path)
            for outside in (seen, seen.removeprefix(SANDBOX_ROOT) or b"/"):
                if kept is None and _is_directory(outside, key):
                    return Place(path, (outside if outside != b"/" else b"") + b"/" + name)
            if kept is None:
                if len(self._kept) >= MAX_ANCHORS:
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                kept = self._kept[key] = descriptor
                descriptor = -1
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        return Place(path, b"/proc/self/fd/%d/%b" % (kept, name))

    def close(self) -> None:
        """Close all kept directories."""
        for descriptor in self._kept.values():
            os.close(descriptor)
        self._kept.clear()


def _is_directory(path: bytes, key: tuple[int, int]) -> bool:
    """Whether `path`, as we see it, is the directory `key`."""
    if len(path) > PATH_MAX - 257:  # a name in it must be openable too
        return False
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == key


def open_directory(path: bytes) -> int:
    """An O_PATH descriptor of a directory whose path may be longer than the kernel takes at once.

    Raises:
        OSError: a part of it is not there or may not be searched.

    """
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    if len(path) < PATH_MAX:
        return os.open(path, flags)
    parts = path.split(b"/")
    current = os.open(b"/", flags)
    try:
        while parts:
            chunk = b""
            while parts and len(chunk) + len(parts[0]) + 1 < PATH_MAX:
                chunk += parts.pop(0) + b"/"
            deeper = os.open(chunk.lstrip(b"/") or b".", flags, dir_fd=current)
            os.close(current)
            current = deeper
    except OSError:
        os.close(current)
        raise
    return current
