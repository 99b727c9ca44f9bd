"""The spans of a recording, made anew from its events: on disk, as there may be as many as there are calls.

SQLite keeps a database without a name in memory as long as it is small (sqlite.org/inmemorydb.html).
"""

import sqlite3
from collections.abc import Iterator
from typing import Any

from agentwrap.recording.spans import SpanTable

_FLUSHED = 4096
_COLUMNS = "id PRIMARY KEY, parent, kind, name, start_ns, end_ns, status, data"


class RebuiltSpans:
    """A `span` table that is made of events, in order."""

    def __init__(self) -> None:
        self._table = SpanTable()
        self._db = sqlite3.connect("", isolation_level=None)
        # Nothing of it outlives us.
        self._db.execute("PRAGMA journal_mode=OFF")
        self._db.execute(f"CREATE TABLE span({_COLUMNS}) WITHOUT ROWID")
        self._waiting = 0
        self.odd = ""

    def apply(
        self, at_ns: int, kind: str, span: str | None, pid: int | None, subject: str, data: dict[str, Any], seq: int
    ) -> None:
        """Fold one event row in."""
        self._table.apply(at_ns, kind, span, pid, subject, data, seq)
        self._waiting += 1
        if self._waiting >= _FLUSHED:
            self._flush()

    def _flush(self) -> None:
        self._waiting = 0
        self._db.execute("BEGIN")
        for row in self._table.changed():
            try:
                self._db.execute("INSERT OR REPLACE INTO span VALUES (?,?,?,?,?,?,?,?)", row.columns())
            except (sqlite3.Error, OverflowError, UnicodeError):
                self.odd = self.odd or row.id  # no table can hold it, so none does
        self._db.execute("COMMIT")

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """All of them, in the order of their ids."""
        self._flush()
        yield from self._db.execute("SELECT * FROM span ORDER BY id")

    def close(self) -> None:
        """Let go of them."""
        self._db.close()
