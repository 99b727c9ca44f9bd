"""A recording in memory with the reader's methods, made of event structs: for views, which only need those."""

import base64
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from agentwrap.events import Body, Content, Event, FileState
from agentwrap.recording.spans import SpanRow, SpanTable


@dataclass
class FakeRow:
    seq: int
    at_ns: int
    kind: str
    span: str | None = "run"
    pid: int | None = None
    subject: str = ""
    verdict: str = ""
    data: dict[str, Any] = field(default_factory=dict)


def _json(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, tuple):
        return [_json(item) for item in value]
    if isinstance(value, Body):
        return {"size": value.size, **({"omitted": value.omitted} if value.omitted else {})}
    if isinstance(value, FileState):
        fields = {name: getattr(value, name) for name in value.__struct_fields__ if name != "raw"}
        if value.raw:
            fields["sha256"] = value.raw.hex()
        return {name: _json(item) for name, item in fields.items()}
    return value


def row_of(seq: int, event: Event) -> FakeRow:
    data = {
        info.name: _json(getattr(event, info.name))
        for info in msgspec.structs.fields(event)
        if info.name not in ("at_ns", "span", "pid") and getattr(event, info.name) != info.default
    }
    kind = str(type(event).__struct_config__.tag)
    subject = event.subject.decode(errors="backslashreplace")
    return FakeRow(seq, event.at_ns, kind, event.span, event.pid or None, subject, event.verdict, data)


class FakeRecording:
    def __init__(
        self,
        items: Iterable[Any] = (),
        *,
        blobs: Iterable[bytes] = (),
        state: str = "closed",
        meta: dict[str, str] | None = None,
    ) -> None:
        import hashlib

        self.meta = {"started_unix_ns": "1700000000000000000", "cwd": "/srv", "run_id": "r1", **(meta or {})}
        given = list(items)
        events = [item for item in given if isinstance(item, Event)]
        self._events: dict[int, Event] = dict(enumerate(events, 1))
        self._contents = {item.sha: item.data for item in given if isinstance(item, Content)}
        self._rows = [row_of(seq, event) for seq, event in self._events.items()]
        self._blobs = {hashlib.sha256(data).hexdigest(): data for data in blobs}
        self._state = state
        table = SpanTable()
        for row in self._rows:
            table.apply(row.at_ns, row.kind, row.span, row.pid, row.subject, row.data)
        self._spans = table.spans

    def rows(
        self, after: int = 0, kinds: Collection[str] | None = None, limit: int | None = None
    ) -> Iterator[FakeRow]:
        found = [row for row in self._rows if row.seq > after and (kinds is None or row.kind in kinds)]
        return iter(found[:limit])

    def spans(self) -> dict[str, SpanRow]:
        return self._spans

    def span(self, id: str) -> SpanRow | None:  # noqa: A002
        return self._spans.get(id)

    def blob(self, sha256_hex: str) -> bytes | None:
        return self._blobs.get(sha256_hex)

    def body(self, seq: int, field: str) -> Iterator[bytes | None]:
        told = getattr(self._events.get(seq), field, None)
        yield from (self._contents.get(piece) for piece in told.pieces) if isinstance(told, Body) else ()

    def count(self) -> int:
        return len(self._rows)

    def state(self) -> str:
        return self._state
