"""Events about files. An edit is content: what was there before, and what is there after.

`klass` sorts noise from work (see `tracing.noise`); nothing is dropped for its class. `stdio` is a file that the caller
redirected the command's standard output or error to.
"""

from typing import Literal

import msgspec

from agentwrap.events.base import Event

FileClass = Literal["work", "temporary", "cache", "agent-state", "version-control", "device", "system", "stdio"]
FileType = Literal["file", "directory", "symlink", "other", "absent"]


class FileState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file at one moment.

    `raw`: SHA-256 of the content as it was on disk: it exists only between producer and recorder (the file on disk
    keeps the hash of what is stored, after redaction). `omitted`: why no content was kept (`over-cap`, `unreadable`,
    `not-kept` for a class whose content is never kept, `special`). Sizes in bytes; `mode` is st_mode & 07777.
    """

    type: FileType = "file"
    size: int = 0
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    raw: bytes = b""
    target: bytes = b""
    omitted: Literal["", "over-cap", "unreadable", "not-kept", "special"] = ""


class PathEvent(Event, frozen=True, kw_only=True):
    """What events about a file share: its path, absolute as the process sees it, and its class."""

    path: bytes
    klass: FileClass = "work"

    @property
    def subject(self) -> bytes:
        return self.path


class FileEdit(PathEvent, frozen=True, kw_only=True, tag="file.edit"):
    """A file has other content than before (or came, or went).

    `change`: `create` (was absent), `modify`, `delete`, or `transient` (made and removed by the tree itself).
    `via`: `write` in place, `rename` (a temporary file was moved over it: `temporary` names it), `link`, `remove`.
    `writers`: spans of every process that had it open for writing; the event's own span is the last of them.
    """

    change: Literal["create", "modify", "delete", "transient"]
    via: Literal["write", "rename", "link", "remove", "unknown"] = "write"
    before: FileState
    after: FileState
    writers: tuple[str, ...] = ()
    temporary: bytes = b""


class FileRename(PathEvent, frozen=True, kw_only=True, tag="file.rename"):
    """A path moved; the content did not change. `type` tells files from directories."""

    target: bytes
    type: FileType = "file"
    exchange: bool = False

    @property
    def subject(self) -> bytes:
        return self.path + b" -> " + self.target


class FileDirectory(PathEvent, frozen=True, kw_only=True, tag="file.directory"):
    """A directory was made or removed."""

    change: Literal["create", "remove"]
    mode: int = 0


class FileMode(PathEvent, frozen=True, kw_only=True, tag="file.mode"):
    """Permission bits, owner or an extended attribute changed (`xattr` names it; its value is not kept)."""

    change: Literal["mode", "owner", "xattr"]
    before: int = 0
    after: int = 0
    before_owner: tuple[int, int] = (0, 0)
    after_owner: tuple[int, int] = (0, 0)
    xattr: bytes = b""


class FileLink(PathEvent, frozen=True, kw_only=True, tag="file.link"):
    """A new name: a hard link to `target`, or a symbolic link whose text is `target`."""

    target: bytes
    link: Literal["hard", "symbolic"]

    @property
    def subject(self) -> bytes:
        return self.path + b" -> " + self.target


class FileSpecial(PathEvent, frozen=True, kw_only=True, tag="file.special"):
    """A device, fifo or socket node was made."""

    type: Literal["fifo", "socket", "character", "block", "file"]


class FileRead(PathEvent, frozen=True, kw_only=True, tag="file.read"):
    """One row per process and path, written when the process is over (`--reads`)."""

    count: int = 1
