"""The end of a file: everything out of the -wal, back to one file that can be mailed, then the byte seal."""

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from agentwrap.recording import seal

_PATIENCE_NS = 1_000_000_000


def merge(connection: sqlite3.Connection) -> bool:
    """Move the -wal into the main file and leave WAL mode. False if a reader kept us from leaving it.

    With a reader attached (`agentwrap tail`) the mode cannot change; the file is then whole but still says WAL.
    """
    patience = time.monotonic_ns() + _PATIENCE_NS
    connection.execute("PRAGMA busy_timeout=100")
    while True:
        connection.execute("PRAGMA synchronous=NORMAL")
        busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        try:
            if not busy:
                # The main file holds everything by now; what is left to write is one page, which `seal_file` syncs.
                connection.execute("PRAGMA synchronous=OFF")
            if not busy and connection.execute("PRAGMA journal_mode=DELETE").fetchone()[0] == "delete":
                return True
        except sqlite3.OperationalError:  # "database is locked": somebody reads
            pass
        if time.monotonic_ns() > patience:
            return False


def finish(path: Path, connection: sqlite3.Connection) -> None:
    """Close the connection such that the main file alone is the recording."""
    try:
        merge(connection)
    finally:
        connection.close()
    wal = Path(f"{path}-wal")
    if wal.exists() and not wal.stat().st_size:
        # A reader kept the mode, and being read-only it will not tidy up. An empty -wal means nothing to anybody; the
        # reader goes on with the descriptors it has.
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)


def seal_file(path: Path, run_id: str, sign: Callable[[bytes], bytes] | None) -> None:
    """Patch hash and signature into the closed file. Does nothing while a -wal still holds something."""
    wal = Path(f"{path}-wal")
    if wal.exists() and wal.stat().st_size:
        return
    with path.open("r+b") as file:
        offset = seal.locate(file)
        if offset is None:
            raise OSError(f"{path}: no place for the seal")
        digest = seal.digest(file, offset)
        signature = sign(seal.signed_message(run_id, digest)) if sign is not None else bytes(64)
        file.seek(offset + len(seal.MAGIC))
        file.write(digest + signature)
        file.flush()
        os.fsync(file.fileno())
