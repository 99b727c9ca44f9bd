"""Carries a mount plan out, inside the mount namespace that the agent will join: new mount API, stdlib only.

Knows how each step is made, and in which order a name goes over to what lies on top of it; why a path is closed or open
is `launching.enforcement`'s. What was mounted here, by a user namespace above the agent's, is locked there: no umount,
no remount, in no namespace below (mount_namespaces(7), "restrictions on mount namespaces").
"""

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Callable

from agentwrap.launching.enforcement import Bind, Devices, Hold, Mask, MountPlan, Private, Put, ReadOnly, Step

_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _MOUNT_SETATTR = 428, 429, 430, 431, 432, 442
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_TREE_CLONE, _TREE_CLOEXEC = 1, os.O_CLOEXEC
_FROM_EMPTY_PATH, _TO_EMPTY_PATH = 0x4, 0x40
_SET_STRING, _CREATE = 1, 6  # linux/mount.h, enum fsconfig_command
_RDONLY, _NOSUID, _NODEV, _NOEXEC = 1, 2, 4, 8  # MOUNT_ATTR_*
_MS_PRIVATE = 1 << 18
_MNT_DETACH = 2
_O_PATH = os.O_PATH | os.O_CLOEXEC
# Not there, or not to be reached by whoever makes the plan true: the agent, with no more rights, reaches it neither.
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO})

_libc = ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    # Registers are 64 bits wide; ctypes passes an int as 32.
    wide = (ctypes.c_long(one) if isinstance(one, int) else one for one in arguments)
    result = int(_libc.syscall(ctypes.c_long(number), *wide))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _clone(directory: int, path: bytes) -> int:
    """A detached copy of the tree of mounts at a path (open_tree(2)); an empty path is the descriptor itself."""
    flags = _TREE_CLONE | _TREE_CLOEXEC | _AT_RECURSIVE | (0 if path else _AT_EMPTY_PATH)
    return _call(_OPEN_TREE, directory, path, flags)


def _set_attributes(descriptor: int, path: bytes, attributes: int, *, below: bool = True) -> None:
    """Add attributes to a mount, and to all below it (mount_setattr(2)); none is ever taken away."""
    structure = struct.pack("=QQQQ", attributes, 0, 0, 0)  # struct mount_attr: set, clear, propagation, userns
    flags = (_AT_RECURSIVE if below else 0) | (0 if path else _AT_EMPTY_PATH)
    _call(_MOUNT_SETATTR, descriptor, path, flags, structure, len(structure))


def _attach(mount: int, target: int) -> None:
    """Lay a detached mount over the file that a descriptor stands for (move_mount(2))."""
    _call(_MOVE_MOUNT, mount, b"", target, b"", _FROM_EMPTY_PATH | _TO_EMPTY_PATH)


def _tmpfs(mode: str) -> int:
    """A new tmpfs, detached."""
    context = _call(_FSOPEN, b"tmpfs", 1)
    try:
        for key, value in ((b"mode", mode.encode()), (b"size", b"1m"), (b"source", b"agentwrap")):
            _call(_FSCONFIG, context, _SET_STRING, key, value, 0)
        _call(_FSCONFIG, context, _CREATE, None, None, 0)
        return _call(_FSMOUNT, context, 1, 0)
    finally:
        os.close(context)


class _Blank:
    """A tmpfs with an empty file and an empty folder, the sources of masks.

    A mount can be cloned only while it is attached to our namespace, so it lies over the root while we work: names are
    looked up from the root that a process has, below it, and nobody sees it (path_resolution(7)).
    """

    def __init__(self) -> None:
        self.descriptor = _tmpfs("0755")
        os.mkdir(b"folder", 0o000, dir_fd=self.descriptor)
        os.close(os.open(b"file", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o000, dir_fd=self.descriptor))
        root = os.open("/", _O_PATH)
        try:
            _attach(self.descriptor, root)
        finally:
            os.close(root)

    def clone(self, folder: bool) -> int:
        return _clone(self.descriptor, b"folder" if folder else b"file")

    def close(self) -> None:
        os.fchdir(self.descriptor)
        if _libc.umount2(b".", _MNT_DETACH) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        os.chdir("/")
        os.close(self.descriptor)


class _Work:
    """One execution: trees held, the blank file system, what was gone."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        self.gone: list[str] = []
        self._blank: _Blank | None = None

    def do(self, step: Step) -> None:
        match step:
            case Private():
                self._private()
            case Hold(path):
                self.held[path] = _clone(_AT_FDCWD, os.fsencode(path))
            case ReadOnly(path):
                _set_attributes(_AT_FDCWD, os.fsencode(path), _RDONLY)
            case Put(path):
                self._put(path)
            case Bind(path):
                self._over(path, lambda target: _clone(target, b""), _bind_attributes(step))
            case Mask(path):
                self._over(path, self._nothing, _RDONLY | _NOSUID | _NODEV | _NOEXEC)
            case Devices(paths):
                self._devices(paths)

    def _private(self) -> None:
        if _libc.mount(None, b"/", None, ctypes.c_ulong(_MS_PRIVATE | 0x4000), None) < 0:  # MS_REC
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def _put(self, path: str) -> None:
        mount = self.held.pop(path, -1)
        if mount < 0:
            return  # gone when it was to be held
        try:
            self._lay(mount, path)
        finally:
            os.close(mount)

    def _lay(self, mount: int, path: str) -> None:
        target = os.open(path, _O_PATH)
        try:
            _attach(mount, target)
        finally:
            os.close(target)

    def _over(self, path: str, source: Callable[[int], int], attributes: int) -> None:
        target = os.open(path, _O_PATH)
        try:
            mount = source(target)
            try:
                if attributes:
                    _set_attributes(mount, b"", attributes)
                _attach(mount, target)
            finally:
                os.close(mount)
        finally:
            os.close(target)

    def _nothing(self, target: int) -> int:
        if self._blank is None:
            self._blank = _Blank()
        return self._blank.clone(stat.S_ISDIR(os.fstat(target).st_mode))

    def _devices(self, paths: tuple[str, ...]) -> None:
        """A /dev with these alone, and the links that every /dev has."""
        kept: dict[str, tuple[int, bool]] = {}
        for path in paths:
            try:
                descriptor = os.open(path, _O_PATH | os.O_NOFOLLOW)
            except OSError as error:
                if error.errno not in _NOT_THERE:
                    raise
                continue
            try:
                mode = os.fstat(descriptor).st_mode
                if not stat.S_ISLNK(mode):
                    kept[path] = _clone(descriptor, b""), stat.S_ISDIR(mode)
            finally:
                os.close(descriptor)
        new = _tmpfs("0755")
        for name, leads_to in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
            os.symlink(leads_to, name, dir_fd=new)
        if "/dev/ptmx" not in kept and "/dev/pts" in kept:
            os.symlink("pts/ptmx", "ptmx", dir_fd=new)
        for path, (_, is_folder) in kept.items():
            _make(new, path.removeprefix("/dev/"), is_folder)
        self._lay(new, "/dev")
        for path, (mount, _) in kept.items():
            self._lay(mount, path)
            os.close(mount)
        _set_attributes(new, b"", _RDONLY | _NOSUID | _NOEXEC, below=False)
        os.close(new)

    def close(self) -> None:
        for descriptor in self.held.values():
            os.close(descriptor)
        self.held.clear()
        if self._blank is not None:
            self._blank.close()
            self._blank = None


def _make(directory: int, name: str, is_folder: bool) -> None:
    parent, _, _ = name.rpartition("/")
    done = ""
    for part in parent.split("/") if parent else []:
        done += part
        try:
            os.mkdir(done, 0o755, dir_fd=directory)
        except FileExistsError:
            pass  # made for a sibling
        done += "/"
    if is_folder:
        os.mkdir(name, 0o755, dir_fd=directory)
    else:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=directory))


def _bind_attributes(step: Bind) -> int:
    return (_RDONLY if step.read_only else 0) | (_NOEXEC if step.no_exec else 0)


def execute(plan: MountPlan) -> tuple[str, ...]:
    """Make the plan true in this process's mount namespace. Returns the paths that were gone, which stay as they are.

    Needs CAP_SYS_ADMIN in the user namespace that owns the mount namespace. Raises OSError with the step and the path
    in its text; then the namespace is half made and no agent may be let into it.
    """
    work = _Work()
    try:
        for step in plan.steps:
            try:
                work.do(step)
            except OSError as error:
                if isinstance(step, Hold | Put | Bind | Mask) and error.errno in _NOT_THERE:
                    work.gone.append(step.path)
                    continue
                raise OSError(error.errno, f"{step}: {os.strerror(error.errno or 0)}") from error
    finally:
        work.close()
    return tuple(work.gone)
