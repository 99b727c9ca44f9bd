"""The caps of the file witness, and who calls it. Pure: knows no file and no clock."""

from typing import NamedTuple

import msgspec


class Who(NamedTuple):
    """The thread that makes a call: its id, its process (thread group), the process's span."""

    tid: int
    pid: int
    span: str


class Place(NamedTuple):
    """A name in the file system, at the moment of a call.

    `path`: absolute, the directory part free of symbolic links, as the process sees it. `host`: a path that *we* can
    open now: the same bytes, or `/proc/TID/root/...` for a process with another root or mount namespace. The last
    component of both is not resolved.
    """

    path: bytes
    host: bytes


class FileSettings(msgspec.Struct, frozen=True):
    """How much of a file is kept. Sizes in bytes; exceeding one is a gap in the recording, never a silent hole.

    `max_content_bytes`: contents up to this size are kept. `max_hash_bytes`: larger files up to this size are hashed.
    `max_pending_bytes`: memory for states before that are waiting for their state after (more goes to an unlinked
    temporary file, up to `max_spool_bytes`). `reads`: count reads too.
    """

    max_content_bytes: int = 8 << 20
    max_hash_bytes: int = 256 << 20
    max_pending_bytes: int = 64 << 20
    max_spool_bytes: int = 1 << 30
    reads: bool = False


TRANSIENT_CONTENT_BYTES = 64 << 10
"""Files the tree made and removed again keep their content up to here: scripts are written, run and deleted."""

CHEAP_HASH_BYTES = 1 << 20
"""Classes whose content is not kept are hashed up to here: a pack file of git need not be read."""
