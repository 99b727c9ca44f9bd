"""Puts single files back without ever following a symbolic link, and without a moment in which a file is half there.

Every folder on the way is opened by its own name with O_NOFOLLOW, so a link planted since the run leads nowhere: the
step is refused. Knows paths and bytes; what to do is decided in `evidence.undo_steps`.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OVERWRITE = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class RestoreError(Exception):
    """A step that cannot be done; the message says why, for a person."""


@dataclass(frozen=True, slots=True)
class Found:
    """A name on the disk. `type` in the words of the recording (`file`, `directory`, `symlink`, `other`)."""

    type: str
    key: tuple[int, int]
    mode: int
    size: int
    mtime_ns: int
    target: bytes


@contextmanager
def _folder(path: bytes) -> Iterator[tuple[int, bytes]]:
    """The folder `path` lies in, as a descriptor, and the last name. Raises RestoreError."""
    parts = [part for part in path.split(b"/") if part]
    if not path.startswith(b"/") or not parts or b".." in parts or b"." in parts:
        raise RestoreError("its path is not an absolute one")
    current = os.open("/", _FOLDER)
    try:
        for part in parts[:-1]:
            try:
                deeper = os.open(part, _FOLDER, dir_fd=current)
            except OSError as error:
                raise RestoreError(_why_folder(error)) from error
            os.close(current)
            current = deeper
        yield current, parts[-1]
    except OSError as error:
        raise RestoreError(_why(error)) from error
    finally:
        os.close(current)


def _why_folder(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a folder on the way is a symbolic link, or no folder, now"
    if error.errno == errno.ENOENT:
        return "the folder it was in is not there"
    return f"a folder on the way cannot be opened: {error.strerror}"


def _why(error: OSError) -> str:
    if error.errno == errno.ENOTEMPTY:
        return "it is not empty"
    return (error.strerror or "it failed").lower()


def look(path: bytes) -> Found | None:
    """What is at `path`, None for nothing (or no folder). Raises RestoreError where that cannot be told safely."""
    try:
        with _folder(path) as (folder, name):
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                return None
            target = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(status.st_mode) else b""
    except RestoreError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno == errno.ENOENT:
            return None
        raise
    mode = status.st_mode
    kind = "file" if stat.S_ISREG(mode) else "directory" if stat.S_ISDIR(mode) else "other"
    return Found(
        "symlink" if stat.S_ISLNK(mode) else kind,
        (status.st_dev, status.st_ino),
        mode & 0o7777,
        status.st_size,
        status.st_mtime_ns,
        target,
    )


def read(path: bytes) -> bytes:
    """The content of a regular file. Raises RestoreError."""
    with _folder(path) as (folder, name), os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise RestoreError("it is no regular file now")
        return file.read()


def names(path: bytes) -> list[bytes]:
    """What a folder holds. Raises RestoreError."""
    with _folder(path) as (folder, name):
        descriptor = os.open(name, _FOLDER, dir_fd=folder)
        try:
            return [os.fsencode(entry) for entry in os.listdir(descriptor)]
        finally:
            os.close(descriptor)


def put_file(
    path: bytes,
    data: bytes,
    *,
    mode: int,
    owner: tuple[int, int],
    mtime_ns: int,
    unless: Callable[[], None],
    keep_names: bool = False,
) -> None:
    """Put a file there, replacing what is there in one step. `unless` is asked just before, and raises to prevent it.

    `keep_names`: a file with several names keeps them, so it is written in place. Owner and times are set where that
    is allowed; a set-id bit only together with the owner. Raises RestoreError.
    """
    with _folder(path) as (folder, name):
        if keep_names and _has_other_names(folder, name):
            unless()
            with os.fdopen(os.open(name, _OVERWRITE, dir_fd=folder), "wb") as file:
                _fill(file, data, mode, owner, mtime_ns)
            return
        partial = b".agentwrap-undo-" + secrets.token_hex(6).encode()
        descriptor = os.open(partial, _WRITE, 0o600, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                _fill(file, data, mode, owner, mtime_ns)
            unless()
            os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(partial, dir_fd=folder)
            raise


def _has_other_names(folder: int, name: bytes) -> bool:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 1


def _fill(file: IO[bytes], data: bytes, mode: int, owner: tuple[int, int], mtime_ns: int) -> None:
    file.write(data)
    file.flush()
    os.fchmod(file.fileno(), _give(file.fileno(), owner, mode))
    os.utime(file.fileno(), ns=(mtime_ns, mtime_ns))
    os.fsync(file.fileno())


def _give(descriptor: int, owner: tuple[int, int], mode: int) -> int:
    """Set the owner; returns the mode that is safe to give."""
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) == owner:
        return mode
    try:
        os.fchown(descriptor, *owner)
    except OSError:  # not ours to give away
        return mode & ~(stat.S_ISUID | stat.S_ISGID)
    return mode


def put_symlink(path: bytes, target: bytes, *, unless: Callable[[], None]) -> None:
    """Put a symbolic link there in one step. Raises RestoreError."""
    with _folder(path) as (folder, name):
        partial = b".agentwrap-undo-" + secrets.token_hex(6).encode()
        os.symlink(target, partial, dir_fd=folder)
        try:
            unless()
            os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(partial, dir_fd=folder)
            raise


def remove(path: bytes, *, unless: Callable[[], None]) -> None:
    """Remove a name that is no folder. Raises RestoreError."""
    with _folder(path) as (folder, name):
        unless()
        os.unlink(name, dir_fd=folder)


def remove_folder(path: bytes) -> None:
    """Remove an empty folder. Raises RestoreError."""
    with _folder(path) as (folder, name):
        os.rmdir(name, dir_fd=folder)


def make_folder(path: bytes, mode: int) -> None:
    """Make a folder with exactly this mode. Raises RestoreError."""
    with _folder(path) as (folder, name):
        os.mkdir(name, 0o700, dir_fd=folder)
        _chmod(folder, name, mode)


def move(old: bytes, new: bytes) -> None:
    """Rename, never over something. Raises RestoreError."""
    with _folder(old) as (from_folder, from_name), _folder(new) as (to_folder, to_name):
        try:
            os.stat(to_name, dir_fd=to_folder, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(from_name, to_name, src_dir_fd=from_folder, dst_dir_fd=to_folder)
            return
        raise RestoreError("something else is there now")


def set_mode(path: bytes, mode: int) -> None:
    """Set the permission bits of a file or folder. Raises RestoreError."""
    with _folder(path) as (folder, name):
        _chmod(folder, name, mode)


def set_owner(path: bytes, owner: tuple[int, int]) -> None:
    """Set the owner and group. Raises RestoreError."""
    with _folder(path) as (folder, name):
        os.chown(name, *owner, dir_fd=folder, follow_symlinks=False)


def _chmod(folder: int, name: bytes, mode: int) -> None:
    descriptor = os.open(name, _READ, dir_fd=folder)
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)
