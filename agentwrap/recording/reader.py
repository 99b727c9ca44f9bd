"""Reading a recording that is being written, was left by a crash, or is closed. Changes nothing.

Knows rows and spans as plain values; refuses to know events' structs, writers, and what any of it means.
"""

import contextlib
import os
import sqlite3
from collections.abc import Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import msgspec

from agentwrap.errors import AgentwrapError
from agentwrap.recording import liveness
from agentwrap.recording.header import read_header
from agentwrap.recording.lists import hashes_in, name_and_depth
from agentwrap.recording.opening import connect
from agentwrap.recording.spans import SpanRow

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_COLUMNS = "SELECT seq, at_ns, kind, span, pid, subject, verdict, data FROM event WHERE seq > ?"


class Row(NamedTuple):
    """One event. `subject`, `verdict`, `span` are empty and `pid` 0 where the file has none; `subject` is foreign."""

    seq: int
    at_ns: int
    kind: str
    span: str
    pid: int
    subject: str
    verdict: str
    data: dict[str, Any]


class Reader:
    """An open recording. Use as a context manager."""

    def __init__(self, path: Path, connection: sqlite3.Connection, descriptor: int) -> None:
        self.path = path
        self.connection = connection
        self._descriptor = descriptor
        self._version = -1
        self._meta: dict[str, str] | None = None

    @classmethod
    def open(cls, path: Path) -> "Reader":
        """Open `path` for reading. Raises AgentwrapError: `not-found`, `not-a-recording`, `newer-format`, `damaged`."""
        read_header(path)
        # Opened before and closed after SQLite's own descriptor: closing any descriptor of a file drops all POSIX
        # locks the process has on it (fcntl(2)), SQLite's among them.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return cls(path, connect(path, liveness.held(descriptor)), descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def _ask(self, statement: str, values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self.connection.execute(statement, values)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise damaged(self.path, error) from error

    @property
    def meta(self) -> dict[str, str]:
        """The `meta` table: facts about the run, the host and the file."""
        if self._meta is None:
            self._meta = {str(key): str(value) for key, value in self._ask("SELECT key, value FROM meta")}
        return self._meta

    def rows(self, after: int = 0, kinds: Collection[str] | None = None, limit: int | None = None) -> Iterator[Row]:
        """Events with `seq` above `after`, in order, streamed."""
        statement = _COLUMNS
        values: tuple[Any, ...] = (after,)
        if kinds is not None:
            wanted = sorted(kinds)
            statement += f" AND kind IN ({','.join('?' * len(wanted))})"
            values += tuple(wanted)
        statement += " ORDER BY seq"
        if limit is not None:
            statement += " LIMIT ?"
            values += (limit,)
        yield from self._rows(statement, values)

    def grouped(self, key: str, kinds: Collection[str]) -> Iterator[Row]:
        """Events of some kinds in the order of a field of `data`, those without it first; of one value by `seq`."""
        marks = ",".join("?" * len(kinds))
        statement = f"{_COLUMNS} AND kind IN ({marks}) ORDER BY data ->> ?, seq"
        yield from self._rows(statement, (0, *sorted(kinds), key))

    def _rows(self, statement: str, values: tuple[Any, ...]) -> Iterator[Row]:
        for seq, at_ns, kind, span, pid, subject, verdict, data in self._ask(statement, values):
            try:
                fields = _decode(data)
            except (msgspec.DecodeError, TypeError, UnicodeDecodeError) as error:
                raise damaged(self.path, error, f"event {seq}") from error
            # SQLite holds any type in any column: a file made by hand must not surprise those who read rows.
            if not _shaped((at_ns, pid or 0), (kind, span or "", subject or "", verdict or ""), fields):
                raise damaged(self.path, ValueError("a column of another type"), f"event {seq}")
            yield Row(seq, at_ns, kind, span or "", pid or 0, subject or "", verdict or "", fields)

    def spans(self) -> dict[str, SpanRow]:
        """Every span by its id, in the order in which they began."""
        found = map(self._span, self._ask("SELECT * FROM span ORDER BY start_ns, rowid"))
        return {span.id: span for span in found}

    def span(self, span_id: str) -> SpanRow | None:
        """One span, or None."""
        found = list(self._ask("SELECT * FROM span WHERE id = ?", (span_id,)))
        return self._span(found[0]) if found else None

    def _span(self, row: tuple[Any, ...]) -> SpanRow:
        span_id, parent, kind, name, start_ns, end_ns, status, data = row
        try:
            fields = _decode(data or "{}")
        except (msgspec.DecodeError, TypeError, UnicodeDecodeError) as error:
            raise damaged(self.path, error, f"span {span_id}") from error
        words = (span_id, parent or "", kind, name or "", status or "")
        if not _shaped((start_ns or 0, end_ns or 0), words, fields):
            raise damaged(self.path, ValueError("a column of another type"), f"span {span_id}")
        return SpanRow(span_id, parent, kind, name or "", start_ns or 0, end_ns, status, fields)

    def blob(self, sha256_hex: str) -> bytes | None:
        """The stored bytes with this SHA-256, or None where they were not kept."""
        found = list(self._ask("SELECT data FROM blob WHERE sha256 = ?", (bytes.fromhex(sha256_hex),)))
        return found[0][0] if found and found[0][0] is not None else None

    def body(self, seq: int, field: str) -> Iterator[bytes | None]:
        """The pieces of a body of an event, in order: stored bytes, or None where they were not kept.

        Nothing where the event has no such body. Raises AgentwrapError `damaged`.
        """
        parts = "SELECT role, sha256 FROM part WHERE seq = ? AND role IN (?, ?, ?) ORDER BY role, ordinal"
        for role, digest in self._ask(parts, (seq, field, f"{field}/1", f"{field}/2")):
            for _, one in self._unfolded(seq, role, digest):
                yield self._content(one)

    def contents(self, seq: int) -> Iterator[tuple[str, bytes]]:
        """(field, SHA-256) of every content of an event, lists followed, in order. Raises AgentwrapError `damaged`."""
        parts = "SELECT role, sha256 FROM part WHERE seq = ? ORDER BY role, ordinal"
        for role, digest in self._ask(parts, (seq,)):
            yield from self._unfolded(seq, role, digest)

    def _unfolded(self, seq: int, role: str, digest: bytes) -> Iterator[tuple[str, bytes]]:
        try:
            field, depth = name_and_depth(role)
            for one in self._below(digest, depth):
                yield field, one
        except (ValueError, TypeError) as error:
            raise damaged(self.path, error, f"event {seq}, {role}") from error

    def _below(self, digest: bytes, depth: int) -> Iterator[bytes]:
        if not depth:
            yield digest
            return
        listed = self._content(digest)
        for one in hashes_in(listed if listed is not None else b""):
            yield from self._below(one, depth - 1)

    def _content(self, digest: bytes) -> bytes | None:
        found = [data for (data,) in self._ask("SELECT data FROM blob WHERE sha256 = ?", (digest,))]
        if not found:
            raise damaged(self.path, ValueError(f"content {digest.hex()} is missing"))
        return found[0]  # type: ignore[no-any-return]

    def count(self) -> int:
        """`seq` of the last event, 0 for none."""
        return next(self._ask("SELECT coalesce(max(seq), 0) FROM event"))[0]  # type: ignore[no-any-return]

    def state(self) -> Literal["closed", "live", "torn"]:
        """`closed`: the close record is there; `live`: a writer holds it; `torn`: the writer is gone without one."""
        held = liveness.held(self._descriptor)  # asked first: a writer that lets go between the questions has closed
        note = list(self._ask("SELECT note FROM checkpoint ORDER BY count DESC LIMIT 1"))
        if note and "\nclose\n" in str(note[0][0]):
            return "closed"
        return "live" if held else "torn"

    def changed(self) -> bool:
        """Whether anything was committed since the last call (the first call says yes)."""
        version = next(self._ask("PRAGMA data_version"))[0]
        before, self._version = self._version, version
        return bool(before != version)

    def close(self) -> None:
        """Let go of the file."""
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _shaped(numbers: tuple[Any, ...], words: tuple[Any, ...], fields: Any) -> bool:
    """Whether columns have the types the schema says."""
    return {*map(type, numbers)} == {int} and {*map(type, words)} == {str} and type(fields) is dict


def damaged(path: Path, error: Exception, where: str = "") -> AgentwrapError:
    """SQLite's complaint as an error a person is told."""
    place = f"{path}: {where}: " if where else f"{path}: "
    return AgentwrapError("damaged", "the recording is damaged", evidence=place + str(error), hint="agentwrap verify")
