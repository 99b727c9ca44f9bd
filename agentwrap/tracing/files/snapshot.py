"""A file at one moment: what it is, its hash, its bytes where they are kept.

Reads regular files only (a fifo or device is never opened) and never writes. Refuses to know events and paths' history.
"""

import hashlib
import os
import stat
import time
from typing import Final, Literal

import msgspec

from agentwrap.events.file import FileClass, FileState, FileType
from agentwrap.tracing.files.settings import CHEAP_HASH_BYTES, FileSettings

Depth = Literal["content", "hash", "stat"]
"""How much is read: the bytes up to the cap, only a hash of small files, or nothing."""

Key = tuple[int, int]
"""(st_dev, st_ino)."""

RACY_NS = 50_000_000
"""A change time this close to now may stand still while the file changes again (kernels before 6.13 have one tick)."""

_CLOCK_REALTIME_COARSE = 5  # linux/time.h: the one of change times; it stands still where a tick comes late
SMALL_BYTES = 16 << 10
CHUNK_BYTES = 1 << 20
_OPEN_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_OPEN_FLAGS_OWNER: Final = _OPEN_FLAGS | os.O_NOATIME


class Snapshot:
    """`state` as it will be recorded; `content` where kept; `key` and `signature` tell whether it is still the same."""

    __slots__ = ("content", "key", "racy", "signature", "state")

    def __init__(
        self,
        state: FileState,
        content: bytes | None = None,
        key: Key | None = None,
        signature: tuple[int, int, int] = (0, 0, 0),
        racy: bool = True,
    ) -> None:
        self.state = state
        self.content = content
        self.key = key
        self.signature = signature
        self.racy = racy

    @property
    def absent(self) -> bool:
        """Nothing was there."""
        return self.state.type == "absent"


ABSENT = Snapshot(FileState(type="absent"), racy=False)

_KEPT: frozenset[FileClass] = frozenset(("work", "temporary", "stdio"))


def depth_before(klass: FileClass) -> Depth:
    """How much of a state before is read: nothing where it would never be kept."""
    return "content" if klass in _KEPT else "stat"


def depth_after(klass: FileClass) -> Depth:
    """How much of a state after is read."""
    return "content" if klass in _KEPT else "hash"


def type_of(mode: int) -> FileType:
    """The type in the words of the recording."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"


def signature(status: os.stat_result) -> tuple[int, int, int]:
    """(size, mtime, ctime): what a change of content changes."""
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def take(host: bytes, depth: Depth, settings: FileSettings) -> Snapshot:
    """Look at a name now. A vanished file is an absent one, an unreadable one has `omitted` set.

    Raises:
        OSError: the name cannot be looked up at all.

    """
    try:
        status = os.lstat(host)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    return take_known(host, status, depth, settings)


def passing(status: os.stat_result) -> Snapshot:
    """A regular file that is not worth a read."""
    state = FileState(
        size=status.st_size, mode=status.st_mode & 0o7777, uid=status.st_uid, gid=status.st_gid,
        mtime_ns=status.st_mtime_ns, omitted="not-kept",
    )  # fmt: skip
    return Snapshot(state, None, (status.st_dev, status.st_ino))


def take_known(host: bytes, status: os.stat_result, depth: Depth, settings: FileSettings) -> Snapshot:
    """The same for a name whose lstat is at hand."""
    mode = status.st_mode
    if not stat.S_ISREG(mode):
        return _other(host, status)
    # Before it is read: what changes after that, in the same tick, must be looked for again.
    now_ns = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
    if depth == "stat" or (depth == "hash" and status.st_size > CHEAP_HASH_BYTES):
        return _snapshot(status, now_ns, b"", None, "not-kept")
    try:
        try:
            descriptor = os.open(host, _OPEN_FLAGS_OWNER)
        except PermissionError:
            descriptor = os.open(host, _OPEN_FLAGS)  # O_NOATIME is for owners, open(2)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except OSError:  # no permission, or replaced by a link between the two calls
        return _snapshot(status, now_ns, b"", None, "unreadable")
    try:
        if status.st_size <= SMALL_BYTES:  # looked at a moment ago, and the look costs as much as the read
            return _read(descriptor, status, now_ns, depth, settings)
        return _read(descriptor, os.fstat(descriptor), now_ns, depth, settings)
    except OSError:
        return _snapshot(status, now_ns, b"", None, "unreadable")
    finally:
        os.close(descriptor)


def _read(descriptor: int, status: os.stat_result, now_ns: int, depth: Depth, settings: FileSettings) -> Snapshot:
    size = status.st_size
    if not stat.S_ISREG(status.st_mode):
        return _snapshot(status, now_ns, b"", None, "special")
    if size <= settings.max_content_bytes:
        content = os.read(descriptor, size + 1)
        if len(content) != size:
            content = _rest(descriptor, content, settings.max_content_bytes)
        raw = hashlib.sha256(content).digest()
        if depth == "hash":
            return _snapshot(status, now_ns, raw, None, "not-kept")
        return _snapshot(status, now_ns, raw, content, "")
    if size > settings.max_hash_bytes:
        return _snapshot(status, now_ns, b"", None, "over-cap")
    digest = hashlib.sha256()
    seen = 0
    while seen <= settings.max_hash_bytes:
        chunk = os.read(descriptor, CHUNK_BYTES)
        if not chunk:
            break
        digest.update(chunk)
        seen += len(chunk)
    return _snapshot(status, now_ns, digest.digest(), None, "not-kept" if depth == "hash" else "over-cap")


def _rest(descriptor: int, content: bytes, cap: int) -> bytes:
    """The file grows or shrinks while it is read: take what is there, at most one byte over the cap."""
    parts = [content]
    room = cap + 1 - len(content)
    while room > 0:
        more = os.read(descriptor, min(room, CHUNK_BYTES))
        if not more:
            break
        parts.append(more)
        room -= len(more)
    return b"".join(parts)


def _snapshot(
    status: os.stat_result,
    now_ns: int,
    raw: bytes,
    content: bytes | None,
    omitted: Literal["", "over-cap", "unreadable", "not-kept", "special"],
) -> Snapshot:
    state = FileState(
        type="file",
        size=status.st_size if content is None else len(content),
        mode=status.st_mode & 0o7777,
        uid=status.st_uid,
        gid=status.st_gid,
        mtime_ns=status.st_mtime_ns,
        raw=raw,
        omitted=omitted,
    )
    racy = now_ns - status.st_ctime_ns < RACY_NS
    return Snapshot(state, content, (status.st_dev, status.st_ino), signature(status), racy)


def _other(host: bytes, status: os.stat_result) -> Snapshot:
    kind = type_of(status.st_mode)
    target = b""
    if kind == "symlink":
        try:
            target = os.readlink(host)
        except OSError:
            pass  # gone or replaced meanwhile: the type is still what was seen
    state = FileState(
        type=kind,
        mode=status.st_mode & 0o7777,
        uid=status.st_uid,
        gid=status.st_gid,
        mtime_ns=status.st_mtime_ns,
        target=target,
        omitted="special" if kind == "other" else "",
    )
    return Snapshot(state, None, (status.st_dev, status.st_ino), signature(status), False)


def differs(before: Snapshot, after: Snapshot) -> bool:
    """Whether the content is another one. Without a hash on both sides size and times must tell."""
    old, new = before.state, after.state
    if old.type != new.type:
        return True
    if old.type == "symlink":
        return old.target != new.target
    if old.type != "file":
        return before.key != after.key
    if old.raw and new.raw:
        return old.raw != new.raw
    return before.key != after.key or before.signature[:2] != after.signature[:2]


def not_kept(state: FileState) -> FileState:
    """The same state, saying that there was no room for its content."""
    return msgspec.structs.replace(state, omitted="over-cap")
