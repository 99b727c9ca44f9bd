"""What a process is at this moment, read from /proc: its program, arguments, directory, ids.

After an exec event these are facts of the new image; nothing of the caller can change them until it runs.
"""

import os
import re
import stat
import struct
from typing import NamedTuple

from agentwrap.tracing.resolve import leads_to

MAX_ARGUMENT_BYTES = 128 << 10
_AT_EXECFN = 31  # getauxval(3)
_SECRET_NAME = re.compile(
    rb"(?i)key|token|secret|passw|credential|auth|cookie|session|private|signature|dsn|_url$|_uri$"
)

_IDS = re.compile(rb"^Uid:\t(\d+)\t(\d+)\t[^\n]*\nGid:\t(\d+)\t", re.MULTILINE)
_PLAIN_ENTRIES, _PLAIN_ENTRY_BYTES = 4096, 256
_plain_entries: set[bytes] = set()


class Image(NamedTuple):
    """See `events.ProcessExec`; `secrets` are environment entries whose names look secret."""

    path: bytes
    exe: bytes
    argv: tuple[bytes, ...]
    argv_omitted_bytes: int
    cwd: bytes
    uid: int
    gid: int
    euid: int
    setuid: bool
    memfd: bool
    secrets: tuple[tuple[bytes, bytes], ...]
    resolved: bytes = b""


def _read(path: str, limit: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while limit > 0:
            data = os.read(descriptor, min(limit, 1 << 20))
            if not data:
                break
            parts.append(data)
            limit -= len(data)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _arguments(pid: int) -> tuple[tuple[bytes, ...], int]:
    return arguments(_read(f"/proc/{pid}/cmdline", 8 << 20))


def arguments(data: bytes) -> tuple[tuple[bytes, ...], int]:
    """The words in a /proc/PID/cmdline (each ends in a zero, proc(5)) up to the cap; how many bytes were left out."""
    kept = data[:MAX_ARGUMENT_BYTES]
    words = kept.removesuffix(b"\0").split(b"\0") if kept else []
    return tuple(words), len(data) - len(kept)


def _requested_path(pid: int) -> bytes:
    """The file name given to execve, from the auxiliary vector of the new image."""
    address = requested_path_address(_read(f"/proc/{pid}/auxv", 4096))
    if not address:
        return b""
    descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, 4096, address).split(b"\0", 1)[0]
    finally:
        os.close(descriptor)


def requested_path_address(auxv: bytes) -> int:
    """Where AT_EXECFN points to in an auxiliary vector of either word size (getauxval(3)), 0 if nowhere."""
    for words in ("=QQ", "=II"):
        size = struct.calcsize(words)
        pairs = struct.iter_unpack(words, auxv[: len(auxv) - len(auxv) % size])
        found = next((value for kind, value in pairs if kind == _AT_EXECFN), 0)
        if found:
            return int(found)
    return 0


def _ids(pid: int) -> tuple[int, int, int]:
    found = _IDS.search(_read(f"/proc/{pid}/status", 4096))
    return (int(found[1]), int(found[3]), int(found[2])) if found else (0, 0, 0)


def _secrets(pid: int) -> tuple[tuple[bytes, bytes], ...]:
    # A child has its parent's environment but for an entry or two: what was looked at once is not looked at again.
    found = []
    for entry in set(_read(f"/proc/{pid}/environ", 1 << 20).split(b"\0")) - _plain_entries:
        name, _, value = entry.partition(b"=")
        if value and _SECRET_NAME.search(name):
            found.append((name, value))
        elif len(entry) <= _PLAIN_ENTRY_BYTES:
            if len(_plain_entries) >= _PLAIN_ENTRIES:
                _plain_entries.clear()
            _plain_entries.add(entry)
    return tuple(found)


def is_set_id(mode: int) -> bool:
    """Without a group-execute bit S_ISGID means mandatory locking, not set-id (execve(2))."""
    return bool(mode & stat.S_ISUID) or mode & (stat.S_ISGID | stat.S_IXGRP) == stat.S_ISGID | stat.S_IXGRP


def look(pid: int) -> Image:
    """The image of `pid`. What cannot be read is left empty. Raises OSError when the process is gone."""
    exe = os.readlink(b"/proc/%d/exe" % pid)
    argv, omitted = _arguments(pid)
    try:
        cwd = os.readlink(b"/proc/%d/cwd" % pid)
    except OSError:
        cwd = b""
    try:
        path = _requested_path(pid)
    except OSError:
        path = b""
    try:
        secrets = _secrets(pid)
    except OSError:
        secrets = ()
    uid, gid, euid = _ids(pid)
    memfd = exe.startswith(b"/memfd:")
    try:
        mode = os.stat(f"/proc/{pid}/exe").st_mode
    except OSError:
        mode = 0
    if path and not path.startswith(b"/"):
        path = cwd + b"/" + path
    resolved = _leads_to(pid, path) if path and path != exe else b""
    os.readlink(b"/proc/%d/exe" % pid)  # who was ending meanwhile has no memory any more, and what was read is nothing
    return Image(path or exe, exe, argv, omitted, cwd, uid, gid, euid, is_set_id(mode), memfd, secrets, resolved)


def _leads_to(pid: int, path: bytes) -> bytes:
    """Where a name leads, links followed, if that is another name: a policy is asked about it, as about `exe`."""
    try:
        found = leads_to(pid, path)
    except OSError:
        return b""  # gone by now
    return found if found != path else b""
