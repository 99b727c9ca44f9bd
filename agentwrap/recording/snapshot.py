"""Copies: a consistent one of a recording in any state, and a crashed one put into the form of a closed one."""

import os
import sqlite3
from pathlib import Path

from agentwrap.errors import AgentwrapError
from agentwrap.recording import liveness, seal
from agentwrap.recording.finish import merge
from agentwrap.recording.header import read_header
from agentwrap.recording.reader import Reader


def snapshot(source: Path, target: Path) -> int:
    """Write a copy of `source` to the new file `target` (mode 0600); returns the number of events in it.

    The byte seal is blank in the copy, as its bytes are others. Raises AgentwrapError: those of `Reader.open`,
    `exists`, `output`.
    """
    with Reader.open(source) as reader:
        try:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        except FileExistsError as error:
            raise AgentwrapError("exists", "the output is already there", evidence=str(target)) from error
        except OSError as error:
            raise _unwritable(target, error) from error
        try:
            reader.connection.execute("PRAGMA query_only=0")
            # Into an existing file only if that is empty (sqlite.org/lang_vacuum.html): so it is ours, and 0600.
            reader.connection.execute("VACUUM INTO ?", (str(target),))
            return _blank_seal(target)
        except (sqlite3.Error, OSError) as error:
            target.unlink(missing_ok=True)
            raise _unwritable(target, error) from error


def _blank_seal(target: Path) -> int:
    copy = sqlite3.connect(target, isolation_level=None)
    try:
        copy.execute("UPDATE seal SET data = ?", (seal.BLANK,))
        return int(copy.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()[0])
    finally:
        copy.close()


def finalise(path: Path) -> bool:
    """Put a file left by a crash into one piece (no -wal beside it). It stays torn: nothing is added, nothing signed.

    False if it is in one piece already. Raises AgentwrapError: `busy` while it is being written, `output`, and those
    of `Reader.open`.
    """
    header = read_header(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if liveness.held(descriptor):
            raise AgentwrapError("busy", "the recording is still being written", evidence=str(path))
        wal = Path(f"{path}-wal")
        if not header.wal and not wal.exists():
            return False
        try:
            connection = sqlite3.connect(path, isolation_level=None)
            try:
                connection.execute("SELECT count(*) FROM meta").fetchone()
                whole = merge(connection)
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise _unwritable(path, error) from error
        if not whole:
            raise AgentwrapError("busy", "somebody is reading the recording", evidence=str(path))
        return True
    finally:
        os.close(descriptor)


def _unwritable(path: Path, error: Exception) -> AgentwrapError:
    why = getattr(error, "strerror", None) or str(error)
    return AgentwrapError("output", "the copy cannot be written", evidence=f"{path}: {why}")
