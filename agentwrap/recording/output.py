"""Making the file: new, private, with the schema in it, or one clear error before anything runs."""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from agentwrap.errors import AgentwrapError
from agentwrap.recording import liveness, seal
from agentwrap.recording.header import APPLICATION_ID, USER_VERSION

_ROOM_BYTES = 1 << 20
"""A recording is not begun with less free space than this."""


def schema_text() -> str:
    """The statements that make an empty recording."""
    # importlib.resources would find it, too, and take 4 ms of every start-up to be loaded.
    return Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")


def create(path: Path, meta: Mapping[str, str]) -> tuple[sqlite3.Connection, int]:
    """Make the file at `path` (mode 0600) with `meta` in it; returns the connection, and a descriptor that says so.

    Raises AgentwrapError: `exists` where something is there already, `output` where it cannot be written.
    """
    try:
        alive = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise AgentwrapError(
            "exists", "the output is already there", evidence=str(path), hint="choose another --output"
        ) from error
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from error
    try:
        os.fchmod(alive, 0o600)  # a umask may have taken our own rights away
        room = os.statvfs(path)
        # f_blocks 0: a filesystem that does not count (9p and others).
        if room.f_blocks and room.f_bavail * room.f_frsize < _ROOM_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        liveness.hold(alive)
        return _fill(path, meta, alive), alive
    except (OSError, sqlite3.Error) as error:
        os.close(alive)
        raise discard(path, error) from error


def discard(path: Path, error: Exception) -> AgentwrapError:
    """Remove what was begun, and say why as an error to raise."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        with contextlib.suppress(OSError):
            os.unlink(f"{path}{suffix}")
    why = getattr(error, "strerror", None) or str(error)
    failed_at = getattr(error, "filename", None)
    if failed_at is not None and not os.fsdecode(failed_at).startswith(str(path)):
        return AgentwrapError(
            "output",
            "what `agentwrap undo` needs cannot be kept",
            evidence=f"{os.fsdecode(failed_at)}: {why}",
            hint="go on with --no-undo, or set XDG_STATE_HOME to a folder of yours",
        )
    return _unwritable(path, why)


def _unwritable(path: Path, why: str) -> AgentwrapError:
    return AgentwrapError(
        "output", "the recording cannot be written", evidence=f"{path}: {why}", hint="choose another --output"
    )


def _fill(path: Path, meta: Mapping[str, str], descriptor: int) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
    try:
        # The schema goes into the main file itself before WAL begins: a copy of the main file alone still says
        # what it is, and a reader never meets an empty file. Nothing is to be rolled back to before that: one fsync
        # at the end stands for the dozen of a journal.
        connection.executescript(
            "PRAGMA page_size=4096; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN;"
            f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={USER_VERSION}; {schema_text()}"
        )
        connection.execute("INSERT INTO seal VALUES (1, ?)", (seal.BLANK,))
        connection.executemany("INSERT INTO meta VALUES (?, ?)", sorted(meta.items()))
        connection.execute("COMMIT")
        # Without shared memory maps (9p, some FUSE) the answer is the old mode: live readers then wait for each other.
        connection.execute("PRAGMA journal_mode=WAL").fetchone()
        os.fsync(descriptor)
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA temp_store=MEMORY")
        connection.execute("PRAGMA cache_size=-8000")
    except BaseException:
        connection.close()
        raise
    return connection
