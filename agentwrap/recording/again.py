"""A recording written again with more of it hidden: every event and content through a redactor, all hashes anew.

The copy is a log of its own, with its own run id, and says in `meta` which one it was made from and by which rules.
What this version does not know of an event is kept, its strings cleaned one by one.
"""

import os
import sqlite3
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec

from agentwrap.errors import AgentwrapError
from agentwrap.events import AnyEvent, Body, Content, FileState, RunStart
from agentwrap.recording import note as notes
from agentwrap.recording.encode import Columns, Encoder
from agentwrap.recording.foreign import to_bytes, to_json, to_subject
from agentwrap.recording.layout import Layout, every_layout
from agentwrap.recording.lists import fold, role_of
from agentwrap.recording.reader import Reader, Row
from agentwrap.recording.redact import Redactor
from agentwrap.recording.redact.streams import texts_of
from agentwrap.recording.writer import Recorder, SignsNotes

_CLASSES = {layout.kind: (event_class, layout) for event_class, layout in every_layout().items()}
_DROPPED = {
    "tool.call": ("arguments",),
    "tool.result": ("text",),
    "mcp.call": ("arguments",),
    "ask.waiting": ("arguments",),
    "mcp.result": ("text",),
    "mcp.tool": ("description",),
}
_OF_FILES = ("before", "after")
_encode = msgspec.json.Encoder().encode


class Written(msgspec.Struct, frozen=True):
    """What was done: events in the copy, how many of them and of the contents are others than before."""

    events: int
    changed_events: int
    changed_contents: int


def write_again(
    source: Path,
    target: Path,
    *,
    redactor: Redactor,
    signer: SignsNotes | None,
    facts: Mapping[str, str],
    drop_bodies: bool = False,
) -> Written:
    """Write `source` to the new file `target` through `redactor`. `facts`: more for `meta`, such as the rules.

    Raises AgentwrapError: those of `Reader.open` and `Recorder.create`, `output` where the disk is full.
    """
    with Reader.open(source) as reader:
        last = reader.count()
        _learn(reader, redactor, last)
        recorder = Recorder.create(
            target,
            run_id=os.urandom(8).hex(),
            meta={**reader.meta, **_origin(reader), **facts},
            redactor=redactor,
            signer=signer,
            shape_only=reader.meta.get("shape_only") == "1",
            now=_clock(reader),
        )
        try:
            try:
                written = _Again(reader, recorder, redactor, drop_bodies).run(last)
            except BaseException:
                recorder.abandon()
                raise
            recorder.close()
        except BaseException as error:
            for suffix in ("", "-wal", "-shm", "-journal"):
                Path(f"{target}{suffix}").unlink(missing_ok=True)
            if isinstance(error, OSError | sqlite3.Error):
                why = f"{target}: {getattr(error, 'strerror', None) or error}"
                raise AgentwrapError("output", "the copy cannot be written", evidence=why) from error
            raise
    return written


def _origin(reader: Reader) -> dict[str, str]:
    """What the copy says of the recording it was made from."""
    note = next(iter(reader.connection.execute("SELECT note FROM checkpoint ORDER BY count DESC LIMIT 1")), ("",))[0]
    try:
        root = notes.parse(note).root.hex()
    except ValueError:
        root = ""
    told = {"redacted_from_run_id": reader.meta.get("run_id", ""), "redacted_from_root": root}
    return {**told, "redacted_from_events": str(reader.count()), "redacted_from_state": reader.state()}


def _clock(reader: Reader) -> Callable[[], int]:
    last = reader.connection.execute(
        "SELECT max((SELECT coalesce(max(at_ns), 0) FROM event), (SELECT coalesce(max(at_ns), 0) FROM checkpoint))"
    ).fetchone()[0]
    return lambda: int(last)


def _learn(reader: Reader, redactor: Redactor, last: int) -> None:
    """Look at everything once: what is a secret anywhere is one everywhere, also before it was first told."""
    for row in reader.rows(limit=last):
        if row.kind == "run.start":
            for name, value in row.data.get("environment", ()):
                redactor.learn(_bytes(name), _bytes(value))
        redactor.clean(_encode(row.data))
    for (data,) in reader.connection.execute("SELECT data FROM blob WHERE data IS NOT NULL"):
        redactor.clean_scattered(data, texts_of(data))


def _bytes(value: Any) -> bytes:
    try:
        return to_bytes(value)
    except ValueError:
        return b""


class _Original(Encoder):
    """Lays out events made of rows: what the row says of its contents is kept, but for their new hashes."""

    data: dict[str, Any]
    states: dict[bytes, dict[str, Any]]

    def _state(self, state: FileState) -> tuple[dict[str, Any], bytes]:
        told = dict(self.states[state.raw])
        if state.target:
            told["target"] = to_json(state.target)
        if "sha256" not in told:
            return told, b""
        stored = self._lookup(bytes.fromhex(str(told["sha256"])))
        if stored is None:
            del told["sha256"]
            told["omitted"] = "not-kept"
            return told, b""
        told["sha256"] = stored.sha256.hex()
        if stored.redacted:
            told["redacted"] = True
        return told, stored.sha256

    def _body(self, body: Body, role: str) -> tuple[dict[str, Any], list[tuple[str, int, bytes]]]:
        told, parts = super()._body(body, role)
        return {**self.data[role], **told}, parts


class _Again:
    """The one pass that writes."""

    def __init__(self, reader: Reader, recorder: Recorder, redactor: Redactor, drop_bodies: bool) -> None:
        self._reader = reader
        self._recorder = recorder
        self._redactor = redactor
        self._drop_bodies = drop_bodies
        self._encoder = _Original(redactor, recorder.stored, shape_only=False)
        self._renamed: dict[str, str] = {}
        """SHA-256 of contents that are others now, and what it has become, in hex."""

    def run(self, last: int) -> Written:
        """Every event, in order."""
        changed = 0
        for row in self._reader.rows(limit=last):
            columns = self._columns(row)
            changed += msgspec.json.decode(columns[6]) != row.data or (columns[4] or "") != row.subject
            self._recorder.append(columns)
            if row.seq % 200 == 0:
                self._recorder.commit()
        return Written(last, changed, len(self._renamed))

    def _columns(self, row: Row) -> Columns:
        contents: dict[str, list[bytes]] = {}
        for field, digest in self._reader.contents(row.seq):
            if field in _OF_FILES or not self._drop_bodies:
                contents.setdefault(field, []).append(digest)
                self._content(digest, field)
        event = self._event(row, contents)
        if event is None:
            return self._unknown(row, contents)
        if isinstance(event, RunStart):
            for name, value in event.environment:
                self._redactor.learn(name, value)
        self._encoder.data = row.data
        return self._encoder.columns(event)

    def _content(self, digest: bytes, field: str) -> None:
        if self._recorder.stored(digest) is not None:
            return
        data = next(iter(self._reader.connection.execute("SELECT data FROM blob WHERE sha256 = ?", (digest,))))[0]
        if data is None:
            return
        role: Literal["after", "body"] = "after" if field in _OF_FILES else "body"
        self._recorder.content(Content(digest, data, role, texts_of(data)))
        stored = self._recorder.stored(digest)
        if stored is not None and stored.redacted:
            self._renamed[digest.hex()] = stored.sha256.hex()

    def _event(self, row: Row, contents: dict[str, list[bytes]]) -> AnyEvent | None:
        """The struct that a row was made of; None for what this version does not know in full."""
        if row.kind not in _CLASSES:
            return None
        event_class, layout = _CLASSES[row.kind]
        known = {field.name for field in msgspec.structs.fields(event_class)}
        if row.data.keys() - known:
            return None
        self._encoder.states = {}
        try:
            values = {name: self._value(name, row, layout, contents) for name in row.data}
            values.pop("unredacted", None)
            if self._drop_bodies:
                _drop(row.kind, values)
            return event_class(at_ns=row.at_ns, span=row.span, pid=row.pid, **values)  # type: ignore[return-value]
        except (TypeError, ValueError, AttributeError):
            return None

    def _value(self, name: str, row: Row, layout: Layout, contents: dict[str, list[bytes]]) -> Any:
        value = row.data[name]
        if name in dict(layout.foreign):
            return to_bytes(value)
        if name in dict(layout.many):
            return tuple(map(to_bytes, value))
        if name in dict(layout.pairs):
            loose = (lambda one: one) if row.kind == "run.start" and name == "options" else to_bytes
            return tuple((loose(left), loose(right)) for left, right in value)
        if name in dict(layout.states):
            token = sha256(b"%d %b" % (row.seq, name.encode())).digest()
            self._encoder.states[token] = value
            return FileState(raw=token, target=_bytes(value.get("target")))
        if name in dict(layout.bodies):
            omitted = value.get("omitted", "not-kept" if self._drop_bodies else "")
            return Body(value["size"], () if omitted else tuple(contents.get(name, ())), omitted)
        return tuple(value) if isinstance(value, list) else value

    def _unknown(self, row: Row, contents: dict[str, list[bytes]]) -> Columns:
        """A row of another version: all its strings cleaned, its contents as they became."""
        data = self._cleaned(row.data)
        parts: list[tuple[str, int, bytes]] = []
        below: dict[bytes, bytes | None] = {}
        for field in sorted(contents):
            stored = [one.sha256 for one in map(self._recorder.stored, contents[field]) if one is not None]
            folded = fold(stored)
            parts += [(role_of(field, folded.depth), number, one) for number, one in enumerate(folded.top)]
            if folded.depth:
                below.update(dict.fromkeys(stored))
                below.update(folded.lists)
        subject = self._redactor.clean(row.subject.encode(errors="replace"))
        told = to_subject(subject) if subject else None
        columns = (row.at_ns, row.kind, row.span, row.pid or None, told, row.verdict or None)
        return (*columns, _encode(data), parts, data, below)

    def _cleaned(self, value: Any) -> Any:
        if isinstance(value, str):
            if value in self._renamed:
                return self._renamed[value]
            return self._redactor.clean(value.encode(errors="replace")).decode(errors="replace")
        if isinstance(value, list):
            return [self._cleaned(one) for one in value]
        if not isinstance(value, dict):
            return value
        if value.keys() == {"b64"}:
            return to_json(self._redactor.clean(_bytes(value)))
        return {key: self._cleaned(one) for key, one in value.items()}


def _drop(kind: str, values: dict[str, Any]) -> None:
    """Leave out what was read out of bodies."""
    for name in _DROPPED.get(kind, ()):
        gone = len(values.pop(name, b""))
        if kind in ("tool.call", "mcp.call"):
            values["omitted_bytes"] = values.get("omitted_bytes", 0) + gone
