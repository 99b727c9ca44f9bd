"""Spans, folded from event rows: the same function for the writer (as rows are made) and for whoever checks. Pure.

A span that no event closed has no end; nobody invents one.
"""

from collections import OrderedDict, deque
from typing import Any

from agentwrap.recording.mcp_spans import MCP_STEPS
from agentwrap.recording.model_spans import MODEL_STEPS
from agentwrap.recording.span_row import Fact, SpanRow, text_of

__all__ = ["SPAN_KINDS", "SpanRow", "SpanTable"]
_DECISION_DATA = ("host", "port", "transport", "asked", "address", "protocol", "sni", "rule", "by")
_CLOSED_DATA = ("host", "port", "up_bytes", "down_bytes", "protocol", "sni", "alpn", "detail")
_TURNS_THAT_CHANGE = 2
_JOINED_LATE_MAX = 256
_EXIT_DATA = ("signal", "core", "ended_by", "user_ns", "system_ns", "max_rss_bytes", "threads")


class SpanTable:
    """All spans so far that may still change, and which of them changed since they were last asked for."""

    def __init__(self) -> None:
        self.spans: dict[str, SpanRow] = {}
        self._turns: dict[str, deque[str]] = {}
        self._changed: dict[str, SpanRow] = {}
        self._over: set[str] = set()
        self._unjoined: OrderedDict[str, SpanRow] = OrderedDict()
        """MCP calls that have ended and may still be found to be a model's tool call."""

    def changed(self) -> list[SpanRow]:
        """Spans touched since the last call. What is over is handed out for the last time."""
        rows = list(self._changed.values())
        self._changed.clear()
        for row in rows:
            # Thousands in a long run, and nothing changes them any more.
            closed = row.kind in _NEVER_REOPENED and row.end_ns is not None
            if closed or (row.kind == "turn" and not self.may_change(row)):
                self._drop(row.id)
        return rows

    def _drop(self, span_id: str) -> None:
        self._over.add(span_id)
        del self.spans[span_id]

    def begin_turn(self, agent: str, turn: str) -> None:
        """An agent has a new turn; the last but one before it changes no more, and is handed out once again."""
        turns = self._turns.setdefault(agent, deque())
        turns.append(turn)
        if len(turns) > _TURNS_THAT_CHANGE:
            old = self.spans.get(turns.popleft())
            if old is not None:
                self.put(old)

    def may_change(self, turn: SpanRow) -> bool:
        """Whether a turn is one of the last two of its agent."""
        return turn.id in self._turns.get(turn.parent or "", ())

    def get(self, span_id: str, kind: str) -> SpanRow | None:
        """The span, if there is one of this kind that is not over."""
        row = self.spans.get(span_id)
        if row is None or row.kind != kind or (kind in _NEVER_REOPENED and row.end_ns is not None):
            return None
        return row

    def ended_unjoined(self, row: SpanRow) -> None:
        """An MCP call has ended; nobody knows yet whether it carries out a tool call."""
        if "tool_call" not in row.data:
            self._unjoined[row.id] = row
            if len(self._unjoined) > _JOINED_LATE_MAX:
                self._unjoined.popitem(last=False)

    def may_join(self, call: str) -> SpanRow | None:
        """The MCP call, if it is not joined and is open or ended not long ago."""
        row = self._unjoined.pop(call, None) or self.get(call, "mcp")
        return row if row is not None and "tool_call" not in row.data else None

    def free(self, span_id: str) -> bool:
        """Whether no span had this id yet."""
        return bool(span_id) and span_id not in self.spans and span_id not in self._over

    def put(self, row: SpanRow) -> None:
        """Note a new or changed span."""
        self.spans[row.id] = self._changed[row.id] = row

    def apply(
        self,
        at_ns: int,
        kind: str,
        span: str | None,
        pid: int | None,
        subject: str,
        data: dict[str, Any],
        seq: int = 0,
    ) -> None:
        """Fold one event row in (`data` as it is in the file). Kinds that make no span change nothing."""
        if span is None:
            return
        of_traffic = _OF_TRAFFIC.get(kind)
        if of_traffic is not None:
            of_traffic(self, Fact(at_ns, span, pid, subject, data, seq))
            return
        step = _STEPS.get(kind)
        if step is None:
            return
        own = str(data.get("connection", "")) if kind in _OF_CONNECTIONS else span
        if not own or own in self._over:
            return
        row = step(self.spans.get(own), Fact(at_ns, span, pid, subject, data))
        if row is not None:
            self.put(row)


def _status(data: dict[str, Any]) -> str | None:
    if data.get("signal"):
        return f"signal {data['signal']}"
    return f"exit {data['status']}" if data.get("status") is not None else None


def _run_start(row: SpanRow | None, fact: Fact) -> SpanRow | None:
    return row or SpanRow(fact.span, None, "run", fact.subject, fact.at_ns)


def _run_end(row: SpanRow | None, fact: Fact) -> SpanRow | None:
    if row is not None:
        row.end_ns, row.status = fact.at_ns, _status(fact.data) or fact.subject
        row.data["reason"] = fact.data.get("reason", "exit")
    return row


def _process_start(row: SpanRow | None, fact: Fact) -> SpanRow | None:
    if row is not None:
        return row
    data = fact.data
    kept = {"pid": fact.pid or 0, "ppid": data.get("ppid", 0), "how": data.get("how", ""), "execs": 0}
    name = text_of(data.get("comm"))
    return SpanRow(fact.span, str(data.get("parent", "run")), "process", name, fact.at_ns, data=kept)


def _process_exec(row: SpanRow | None, fact: Fact) -> SpanRow | None:
    data = fact.data
    if row is None or not data.get("confirmed", True):
        return row
    # A script's name says more than its interpreter's: `path` is what was asked for.
    row.name = text_of(data.get("path")).rsplit("/", 1)[-1]
    row.data["execs"] = row.data.get("execs", 0) + 1
    for key in ("path", "exe", "argv", "cwd", "uid"):
        row.data[key] = data.get(key)
    return row


def _process_exit(row: SpanRow | None, fact: Fact) -> SpanRow | None:
    if row is not None:
        data = fact.data
        row.end_ns, row.status = fact.at_ns, _status(data)
        row.data.update({key: data[key] for key in _EXIT_DATA if key in data})
    return row


def _connection(row: SpanRow | None, fact: Fact, start_ns: int) -> SpanRow | None:
    """The open span of a connection, made if there is none; None where the id is that of something else, or over."""
    row = row or SpanRow(str(fact.data["connection"]), fact.span, "connection", fact.subject, start_ns)
    return row if row.kind == "connection" and row.end_ns is None else None


def _set(row: SpanRow, fact: Fact, keys: tuple[str, ...]) -> None:
    if fact.pid is not None:
        row.data["pid"] = fact.pid
    row.data.update({key: fact.data[key] for key in keys if key in fact.data})


def _net_decision(row: SpanRow | None, fact: Fact) -> SpanRow | None:
    row = _connection(row, fact, fact.at_ns)
    if row is not None:
        row.data["verdict"] = fact.data.get("decision", "")
        _set(row, fact, _DECISION_DATA)
    return row


def _net_closed(row: SpanRow | None, fact: Fact) -> SpanRow | None:
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

_OF_TRAFFIC = {**MODEL_STEPS, **MCP_STEPS}

_NEVER_REOPENED = frozenset({"connection", "model", "tool", "session", "mcp"})

SPAN_KINDS = frozenset(_STEPS) | frozenset(_OF_TRAFFIC)
"""The kinds that make, change or close a span."""
