"""The one writer of a recording: events in, rows out, every row a leaf of the Merkle tree.

Knows the order of things (redact, hash, store) and the transaction. Refuses to know threads, queues and what to do
about a full disk: `pump` has those. A failed commit loses nothing: what was added stays for the next one.
"""

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from agentwrap.events import AnyEvent, Content, Item, RunStart, Secrets
from agentwrap.recording import output
from agentwrap.recording.ahead import Ahead
from agentwrap.recording.contents import Contents
from agentwrap.recording.encode import Below, Columns, Encoder, Stored
from agentwrap.recording.envelope import Part, envelope, leaf_hash, meta_digest
from agentwrap.recording.finish import finish, seal_file
from agentwrap.recording.merkle import Tree
from agentwrap.recording.note import Note, key_id
from agentwrap.recording.redact import Redactor
from agentwrap.recording.spans import SPAN_KINDS, SpanTable
from agentwrap.recording.undo_store import UndoStore

_VALUES = "(?,?,?,?,?,?,?,?,?)"
_EVENTS = tuple((count, "INSERT INTO event VALUES " + ",".join([_VALUES] * count)) for count in (64, 8, 1))
"""Many rows in one step: each step gives up the interpreter's lock, and may wait long to get it back."""
_SPAN = "INSERT OR REPLACE INTO span VALUES (?,?,?,?,?,?,?,?)"
_BLOB = "INSERT OR IGNORE INTO blob VALUES (?,?,NULL,?)"
_PART = "INSERT INTO part VALUES (?,?,?,?)"
_CHECKPOINT = "INSERT OR REPLACE INTO checkpoint VALUES (?,?,?,?)"
_SMALL_BYTES = 64 * 32
_PLAIN_META = frozenset(
    {
        *("format", "run_id", "tool_version", "started_unix_ns", "mode", "kernel", "arch", "clocks", "shape_only"),
        *("redacted_from_run_id", "redacted_from_root", "redacted_from_events", "redacted_from_state"),
        "redacted_from_verdict",
    }
)
_RULES = "redacted_rules"

_Row = tuple[int, int, str, str, int | None, str | None, str | None, str, bytes]


class SignsNotes(Protocol):
    """A private key: `recording.keys.Signer`."""

    public: bytes

    def sign(self, message: bytes) -> bytes:
        """64 bytes of Ed25519."""
        ...


class Recorder:
    """A recording being written. Made by `create`; used from one thread at a time."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        alive: int,
        meta: Mapping[str, str],
        redactor: Redactor,
        signer: SignsNotes | None,
        shape_only: bool,
        undo: UndoStore | None,
        now: Callable[[], int],
    ) -> None:
        self.path = path
        self.redactor = redactor
        self._db = connection
        self._run_id = meta["run_id"]
        self._origin = f"agentwrap/{self._run_id}"
        self._meta = meta_digest(meta)
        self._signer, self._undo = signer, undo
        self.now = now
        self._ahead = Ahead(redactor)
        self._contents = Contents(redactor, not shape_only, self._ahead.harmless)
        self._encoder = Encoder(redactor, self._contents.lookup, shape_only, self._ahead.harmless)
        self._tree, self._spans = Tree(), SpanTable()
        self._rows: list[_Row] = []
        self._parts: list[tuple[int, str, int, bytes]] = []
        self._blobs: list[tuple[bytes, int, bytes | None]] = []
        self._span_rows: dict[str, tuple[object, ...]] = {}
        self._notes: list[tuple[int, int, bytes, str]] = []
        self._alive = alive

    @classmethod
    def create(
        cls,
        path: Path,
        *,
        run_id: str,
        meta: Mapping[str, str],
        redactor: Redactor,
        signer: SignsNotes | None,
        shape_only: bool = False,
        undo: Path | None = None,
        now: Callable[[], int],
    ) -> "Recorder":
        """Make the file and begin.

        `meta` is stored as it is given, after redaction (`format`, `run_id` and `shape_only` are added). `undo`: the
        folder for raw contents from before, or None to keep none. `now`: ns since the start of the run.
        Raises AgentwrapError: `exists`, `output`.
        """
        told = {**meta, "format": "1", "run_id": run_id, "shape_only": "1" if shape_only else "0"}
        told = {key: _clean_meta(key, value, redactor, shape_only) for key, value in told.items()}
        connection, alive = output.create(path, told)
        try:
            store = UndoStore(undo, redactor.key) if undo is not None and not shape_only else None
        except OSError as error:
            connection.close()
            os.close(alive)
            raise output.discard(path, error) from error
        return cls(path, connection, alive, told, redactor, signer, shape_only, store, now)

    @property
    def count(self) -> int:
        """Events added so far: the `seq` of the last one."""
        return self._tree.count

    def look_ahead(self, items: Sequence[Item]) -> None:
        """Told which items come next (`ahead.TOGETHER` of them at most): they are looked at together."""
        self._ahead.look(items)

    def add(self, event: AnyEvent) -> int:
        """Append one event; it is in the file after the next `commit`. Returns its `seq`."""
        if type(event) is RunStart:
            for name, value in event.environment:
                self.redactor.learn(name, value)
        return self.append(self._encoder.columns(event))

    def append(self, columns: Columns) -> int:
        """Append one event that is laid out and redacted already; else as `add`."""
        at_ns, kind, span, pid, subject, verdict, data, parts, fields, below = columns
        seq = self._tree.count + 1
        leaf = leaf_hash(envelope(seq, at_ns, kind, span, pid, subject, verdict, data, parts))
        self._tree.add(leaf)
        self._rows.append((seq, at_ns, kind, span, pid, subject, verdict, data.decode(), leaf))
        if kind in SPAN_KINDS:
            self._spans.apply(at_ns, kind, span, pid, subject or "", fields, seq)
        if parts:
            self._keep(seq, parts, below)
        return seq

    def _keep(self, seq: int, parts: list[Part], below: Below) -> None:
        for role, ordinal, digest in parts:
            self._parts.append((seq, role, ordinal, digest))
            if digest not in below:
                self._keep_bytes(digest, self._contents.take(digest))
        for digest, listed in below.items():
            self._keep_bytes(digest, listed if listed is not None else self._contents.take(digest))

    def _keep_bytes(self, digest: bytes, data: bytes | None) -> None:
        if data is not None:
            self._blobs.append((digest, len(data), data))

    def content(self, content: Content) -> None:
        """Take a content that a later event will name; one from before is also kept raw for `undo`."""
        self._contents.add(content)
        if content.role == "before" and self._undo is not None:
            self._undo.keep(content.sha.hex(), content.data)

    def stored(self, raw: bytes) -> Stored | None:
        """What became of the content with this raw SHA-256, if it is remembered."""
        return self._contents.lookup(raw)

    def secrets(self, secrets: Secrets) -> None:
        """Teach the redactor the environment of a process."""
        for name, value in secrets.values:
            self.redactor.learn(name, value)

    def commit(self) -> None:
        """Write what was added. Raises sqlite3.Error and keeps everything for the next try."""
        for span in self._spans.changed():
            self._span_rows[span.id] = span.columns()
        if not (self._rows or self._notes):
            return
        db = self._db
        try:
            db.execute("BEGIN IMMEDIATE")
            _insert_events(db, self._rows)
            db.executemany(_SPAN, self._span_rows.values())
            db.executemany(_BLOB, self._blobs)
            db.executemany(_PART, self._parts)
            db.executemany(_CHECKPOINT, self._notes)
            db.execute("COMMIT")
        except sqlite3.Error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        for pending in (self._rows, self._span_rows, self._blobs, self._parts, self._notes):
            pending.clear()

    def checkpoint(self) -> None:
        """Commit, then state how many events there are and their root, signed if there is a key."""
        self._note(close=False)
        self.commit()

    def _note(self, close: bool) -> None:
        at_ns = self.now()
        note = Note(self._origin, self._tree.count, self._tree.root(), at_ns, self._meta, close)
        if self._signer is not None:
            signature = self._signer.sign(note.body().encode())
            hint = key_id(self._origin, self._signer.public)
            note = msgspec.structs.replace(note, signatures=((self._origin, hint + signature),))
        self._notes = [kept for kept in self._notes if kept[0] != note.count]
        self._notes.append((note.count, at_ns, note.root, note.text()))

    def close(self) -> None:
        """Write the close record, let go of the file, seal it. Raises sqlite3.Error or OSError (the file is torn)."""
        self._note(close=True)
        try:
            try:
                self.commit()
            finally:
                finish(self.path, self._db)
            seal_file(self.path, self._run_id, self._signer.sign if self._signer is not None else None)
        finally:
            os.close(self._alive)

    def shed(self) -> None:
        """Give up the bytes of contents not yet written (their hashes stay), where there is no room for them."""
        # Small ones stay: what is a list among them says what the others are.
        self._blobs = [(digest, size, data if size <= _SMALL_BYTES else None) for digest, size, data in self._blobs]

    def abandon(self) -> None:
        """Let go of the file as it is: torn, with every committed event in it."""
        self._db.close()
        os.close(self._alive)


def _insert_events(db: sqlite3.Connection, rows: list[_Row]) -> None:
    done = 0
    for count, statement in _EVENTS:
        while len(rows) - done >= count:
            db.execute(statement, [value for row in rows[done : done + count] for value in row])
            done += count


def _clean_meta(key: str, value: str, redactor: Redactor, shape_only: bool) -> str:
    if key in _PLAIN_META:
        return value
    clean = redactor.shape if shape_only and key != _RULES else redactor.clean
    return clean(value.encode(errors="surrogateescape")).decode(errors="backslashreplace")
