"""Is this file a recording, and of which version: read from its first 100 bytes, without SQLite.

Fields of the database header: SQLite file format, section 1.3 (write version at 18, user version at 60, application id
at 68).
"""

import stat
from pathlib import Path

import msgspec

from agentwrap.errors import AgentwrapError

MAGIC = b"SQLite format 3\0"
APPLICATION_ID = 0x41574C47
USER_VERSION = 1


class Header(msgspec.Struct, frozen=True):
    """`wal`: the file says it has a write-ahead log; `version`: format version; sizes in bytes."""

    version: int
    wal: bool
    page_size: int
    declared_size: int
    size: int


def read_header(path: Path) -> Header:
    """Look at the file. Raises AgentwrapError: `not-found`, `not-a-recording`, `newer-format`."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            what = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise AgentwrapError("not-a-recording", "not a recording", evidence=f"{path}: {what}")
        with path.open("rb") as file:
            head = file.read(100)
    except FileNotFoundError as error:
        hint = "without FILE, the latest is meant"
        raise AgentwrapError("not-found", "no such recording", evidence=str(path), hint=hint) from error
    except OSError as error:
        raise AgentwrapError(
            "not-found", "the recording cannot be read", evidence=f"{path}: {error.strerror}"
        ) from error
    return _parse(path, head, status.st_size)


def _parse(path: Path, head: bytes, size: int) -> Header:
    if len(head) < 100 or not head.startswith(MAGIC):
        what = "the file is empty" if not head else "no SQLite header"
        raise AgentwrapError("not-a-recording", "not a recording", evidence=f"{path}: {what}")
    if int.from_bytes(head[68:72], "big") != APPLICATION_ID:
        raise AgentwrapError("not-a-recording", "not a recording", evidence=f"{path}: some other SQLite database")
    version = int.from_bytes(head[60:64], "big")
    if version > USER_VERSION:
        raise AgentwrapError(
            "newer-format",
            "written by a newer agentwrap",
            evidence=f"{path}: format {version}, this version reads up to {USER_VERSION}",
            hint="upgrade agentwrap",
        )
    page_size = int.from_bytes(head[16:18], "big")
    page_size = 65536 if page_size == 1 else page_size
    return Header(
        version=version,
        wal=2 in head[18:20],
        page_size=page_size,
        declared_size=page_size * int.from_bytes(head[28:32], "big"),
        size=size,
    )
