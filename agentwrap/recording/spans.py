"""Spans, folded from event rows: the same function for the writer (as rows are made) and for whoever checks. Pure.

A span that no event closed has no end; nobody invents one.
"""

from typing import Any, NamedTuple

import msgspec

from agentwrap.recording.foreign import to_bytes

_encode = msgspec.json.Encoder().encode
_DECISION_DATA = ("host", "port", "transport", "asked", "address", "protocol", "sni", "rule", "by")
_CLOSED_DATA = ("host", "port", "up_bytes", "down_bytes", "protocol", "sni", "alpn", "detail")
_EXIT_DATA = ("signal", "core", "ended_by", "user_ns", "system_ns", "max_rss_bytes", "threads")


class SpanRow(msgspec.Struct):
    """One row of `span`. Times in ns since the start of the run; `end_ns` None while open or where nobody saw it."""

    id: str
    parent: str | None
    kind: str
    name: str
    start_ns: int
    end_ns: int | None = None
    status: str | None = None
    data: dict[str, Any] = msgspec.field(default_factory=dict)

    def columns(self) -> tuple[str, str | None, str, str, int, int | None, str | None, str]:
        """The row as it is stored."""
        text = _encode(self.data).decode()
        return (self.id, self.parent, self.kind, self.name, self.start_ns, self.end_ns, self.status, text)


class _Fact(NamedTuple):
    """The columns of one event row that a span may need."""

    at_ns: int
    span: str
    pid: int | None
    subject: str
    data: dict[str, Any]


class SpanTable:
    """All spans so far, and which of them changed since they were last asked for."""

    def __init__(self) -> None:
        self.spans: dict[str, SpanRow] = {}
        self._changed: dict[str, SpanRow] = {}
        self._over: set[str] = set()

    def changed(self) -> list[SpanRow]:
        """Spans touched since the last call. Connections that are over are handed out for the last time."""
        rows = list(self._changed.values())
        self._changed.clear()
        for row in rows:
            if row.kind == "connection" and row.end_ns is not None:
                # Thousands in a long run, and nothing changes them any more.
                self._over.add(row.id)
                del self.spans[row.id]
        return rows

    def apply(
        self, at_ns: int, kind: str, span: str | None, pid: int | None, subject: str, data: dict[str, Any]
    ) -> None:
        """Fold one event row in (`data` as it is in the file). Kinds that make no span change nothing."""
        step = _STEPS.get(kind)
        if step is None or span is None:
            return
        own = str(data.get("connection", "")) if kind in _OF_CONNECTIONS else span
        if not own or own in self._over:
            return
        row = step(self.spans.get(own), _Fact(at_ns, span, pid, subject, data))
        if row is not None:
            self.spans[own] = self._changed[own] = row


def _status(data: dict[str, Any]) -> str | None:
    if data.get("signal"):
        return f"signal {data['signal']}"
    return f"exit {data['status']}" if data.get("status") is not None else None


def _text(value: Any) -> str:
    try:
        return to_bytes(value).decode(errors="backslashreplace")
    except ValueError:
        return ""


def _run_start(row: SpanRow | None, fact: _Fact) -> SpanRow | None:
    return row or SpanRow(fact.span, None, "run", fact.subject, fact.at_ns)


def _run_end(row: SpanRow | None, fact: _Fact) -> SpanRow | None:
    if row is not None:
        row.end_ns, row.status = fact.at_ns, _status(fact.data) or fact.subject
        row.data["reason"] = fact.data.get("reason", "exit")
    return row


def _process_start(row: SpanRow | None, fact: _Fact) -> SpanRow | None:
    if row is not None:
        return row
    data = fact.data
    kept = {"pid": fact.pid or 0, "ppid": data.get("ppid", 0), "how": data.get("how", ""), "execs": 0}
    return SpanRow(fact.span, str(data.get("parent", "run")), "process", _text(data.get("comm")), fact.at_ns, data=kept)


def _process_exec(row: SpanRow | None, fact: _Fact) -> SpanRow | None:
    data = fact.data
    if row is None or not data.get("confirmed", True):
        return row
    # A script's name says more than its interpreter's: `path` is what was asked for.
    row.name = _text(data.get("path")).rsplit("/", 1)[-1]
    row.data["execs"] = row.data.get("execs", 0) + 1
    for key in ("path", "exe", "argv", "cwd", "uid"):
        row.data[key] = data.get(key)
    return row


def _process_exit(row: SpanRow | None, fact: _Fact) -> SpanRow | None:
    if row is not None:
        data = fact.data
        row.end_ns, row.status = fact.at_ns, _status(data)
        row.data.update({key: data[key] for key in _EXIT_DATA if key in data})
    return row


def _connection(row: SpanRow | None, fact: _Fact, start_ns: int) -> SpanRow | None:
    """The open span of a connection, made if there is none; None where the id is that of something else, or over."""
    row = row or SpanRow(str(fact.data["connection"]), fact.span, "connection", fact.subject, start_ns)
    return row if row.kind == "connection" and row.end_ns is None else None


def _set(row: SpanRow, fact: _Fact, keys: tuple[str, ...]) -> None:
    if fact.pid is not None:
        row.data["pid"] = fact.pid
    row.data.update({key: fact.data[key] for key in keys if key in fact.data})


def _net_decision(row: SpanRow | None, fact: _Fact) -> SpanRow | None:
    row = _connection(row, fact, fact.at_ns)
    if row is not None:
        row.data["verdict"] = fact.data.get("decision", "")
        _set(row, fact, _DECISION_DATA)
    return row


def _net_closed(row: SpanRow | None, fact: _Fact) -> SpanRow | None:
    opened_ns = fact.data.get("opened_ns")
    row = _connection(row, fact, opened_ns if isinstance(opened_ns, int) else fact.at_ns)
    if row is not None:
        row.end_ns, row.status = fact.at_ns, str(fact.data.get("ending", ""))
        _set(row, fact, _CLOSED_DATA)
    return row


_STEPS = {
    "run.start": _run_start,
    "run.end": _run_end,
    "process.start": _process_start,
    "process.exec": _process_exec,
    "process.exit": _process_exit,
    "net.decision": _net_decision,
    "net.closed": _net_closed,
}
_OF_CONNECTIONS = ("net.decision", "net.closed")

SPAN_KINDS = frozenset(_STEPS)
"""The kinds that make, change or close a span."""
