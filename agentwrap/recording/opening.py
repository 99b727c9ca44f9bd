"""Opening a recording read-only in each state it can be in: live, torn, closed, in a folder we may not write."""

import shutil
import sqlite3
import tempfile
from pathlib import Path
from urllib.parse import quote

from agentwrap.errors import AgentwrapError


def connect(path: Path, live: bool) -> sqlite3.Connection:
    """A read-only connection that can see the tables. `live`: a writer holds the file.

    Raises AgentwrapError `damaged`.
    """
    wal = Path(f"{path}-wal")
    if not live and not (wal.exists() and wal.stat().st_size):
        # Nobody writes and everything is in the main file. Without this SQLite would want to make a -shm beside a
        # file that says WAL, and fail in a read-only folder (sqlite.org/wal.html, "Read-Only Databases").
        return _try(path, "&immutable=1")
    try:
        return _try(path, "")
    except AgentwrapError:
        if live or _writable_folder(path):
            raise
    # A -wal without its -shm in a read-only folder: SQLite cannot read it there, so it is read from a private copy.
    with tempfile.TemporaryDirectory(prefix="agentwrap-") as folder:
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        shutil.copyfile(wal, f"{copy}-wal")
        # What is open stays readable without its name.
        return _try(copy, "")


def _writable_folder(path: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            return True
    except OSError:
        return False


def _try(path: Path, option: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=ro{option}", uri=True, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("SELECT count(*) FROM meta").fetchone()
        connection.execute("PRAGMA query_only=1")
    # UnicodeDecodeError: the sqlite3 module fails to decode a message that quotes damaged text.
    except (sqlite3.Error, UnicodeDecodeError) as error:
        connection.close()
        raise AgentwrapError(
            "damaged", "the recording is damaged", evidence=f"{path}: {error}", hint="agentwrap verify"
        ) from error
    return connection
