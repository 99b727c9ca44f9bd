"""Opening a recording read-only in each state it can be in: live, torn, closed, in a folder we may not write."""

import sqlite3
from pathlib import Path
from urllib.parse import quote

from agentwrap.errors import AgentwrapError


def connect(path: Path) -> sqlite3.Connection:
    """A read-only connection that can see the tables. Raises AgentwrapError `damaged`."""
    last: sqlite3.Error | None = None
    for option in _options(path):
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro{option}", uri=True, isolation_level=None, check_same_thread=False
        )
        try:
            if "nolock" in option:
                # Without locks there is no shared memory: exclusive mode keeps the index of the -wal on the heap.
                connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("SELECT count(*) FROM meta").fetchone()
        except sqlite3.Error as error:
            last = error
            connection.close()
            continue
        connection.execute("PRAGMA query_only=1")
        connection.execute("PRAGMA mmap_size=268435456")
        return connection
    raise AgentwrapError(
        "damaged", "the recording is damaged", evidence=f"{path}: {last}", hint="agentwrap verify"
    ) from last


def _options(path: Path) -> tuple[str, ...]:
    wal = Path(f"{path}-wal")
    if wal.exists() and wal.stat().st_size:
        # In a read-only folder SQLite cannot make the -shm a -wal needs (sqlite.org/wal.html, "Read-Only Databases").
        return ("", "&nolock=1")
    return ("", "&immutable=1")
