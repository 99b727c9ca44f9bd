"""Events as JSON, one object per line. Pure: rows in, bytes out.

The fields of every object: `schema` (of this form), `type` (the event's kind), `seq`, `ts` (RFC 3339, UTC), `mono_ns`
(since the start of the run, monotonic), `span`, `pid`, `subject`, `verdict`, `data`. Additive only: fields may come,
none goes or changes its meaning. Foreign bytes are text, or `{"b64": ...}` where they are not UTF-8.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from agentwrap.export.stamps import rfc3339
from agentwrap.rows import Row, Span
from agentwrap.views.source import Source

SCHEMA = 1
MEDIA = "application/jsonl"
_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


def event_object(row: Row, started_unix_ns: int) -> dict[str, Any]:
    """One event as a JSON object; `started_unix_ns` turns monotonic time into a date."""
    return {
        "schema": SCHEMA,
        "type": row.kind,
        "seq": row.seq,
        "ts": rfc3339(started_unix_ns + row.at_ns),
        "mono_ns": row.at_ns,
        "span": row.span or None,
        "pid": row.pid or None,
        "subject": row.subject,
        "verdict": row.verdict or None,
        "data": row.data,
    }


def span_object(span: Span) -> dict[str, Any]:
    """One span as a JSON object; `end_ns` is null while it is open or where its end was not seen."""
    return {
        "id": span.id,
        "parent": span.parent,
        "kind": span.kind,
        "name": span.name,
        "start_ns": span.start_ns,
        "end_ns": span.end_ns,
        "status": span.status,
        "data": span.data,
    }


def export(_source: Source, rows: Iterable[Row], started_unix_ns: int) -> Iterator[bytes]:
    """The export: one line per event, ASCII only."""
    for row in rows:
        yield _encode(event_object(row, started_unix_ns)).encode("ascii") + b"\n"
