"""Spans of MCP: sessions and calls, folded from events (docs/format.md, section 4). Pure."""

from collections.abc import Callable
from typing import Any

from agentwrap.recording.model_spans import Spans
from agentwrap.recording.span_row import Fact, SpanRow

_SESSION = ("server", "transport", "how", "config", "command", "url")
_HELLO = ("protocol", "client_name", "client_version", "server_name", "server_version")
_ENDED = ("messages", "up_bytes", "down_bytes", "detail")
_CALL = (
    *("session", "server", "up", "method", "tool", "id", "modern", "digest", "tool_call", "joined", "retry_of"),
    *("agent", "on_behalf_of"),
)
_DECIDED = ("decision", "rule", "ask")
_RESULT = ("size", "error", "claimed_ns")


def _word(fact: Fact, key: str) -> str:
    value = fact.data.get(key)
    return value if isinstance(value, str) else ""


def _those(data: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: data[key] for key in keys if key in data}


def _session(spans: Spans, fact: Fact) -> None:
    name = _word(fact, "session")
    if spans.free(name):
        row = SpanRow(name, fact.span, "session", fact.subject, fact.at_ns)
        row.data = {"pid": fact.pid or 0, **_those(fact.data, _SESSION)}
        spans.put(row)


def _hello(spans: Spans, fact: Fact) -> None:
    row = spans.get(_word(fact, "session"), "session")
    if row is not None:
        row.data.update(_those(fact.data, _HELLO))
        spans.put(row)


def _ended(spans: Spans, fact: Fact) -> None:
    row = spans.get(_word(fact, "session"), "session")
    if row is not None:
        row.end_ns, row.status = fact.at_ns, _word(fact, "ending")
        row.data.update(_those(fact.data, _ENDED))
        spans.put(row)


def _call(spans: Spans, fact: Fact) -> None:
    name = _word(fact, "call")
    if not spans.free(name):
        return
    row = SpanRow(name, _word(fact, "tool_call") or _word(fact, "session") or None, "mcp", fact.subject, fact.at_ns)
    row.data = {"process": fact.span, "pid": fact.pid or 0, "call_seq": fact.seq, **_those(fact.data, _CALL)}
    spans.put(row)


def _decision(spans: Spans, fact: Fact) -> None:
    row = spans.get(_word(fact, "call"), "mcp")
    if row is not None:
        row.data.update({"decision_seq": fact.seq, **_those(fact.data, _DECIDED)})
        spans.put(row)


def _joined(spans: Spans, fact: Fact) -> None:
    row = spans.may_join(_word(fact, "call"))
    tool_call = _word(fact, "tool_call")
    if row is not None and tool_call:
        row.parent = tool_call
        row.data.update({"tool_call": tool_call, "joined": _word(fact, "joined")})
        spans.put(row)


def _result(spans: Spans, fact: Fact) -> None:
    row = spans.get(_word(fact, "call"), "mcp")
    if row is None:
        return
    row.end_ns, row.status = fact.at_ns, _word(fact, "ending")
    row.data.update({"result_seq": fact.seq, **_those(fact.data, _RESULT)})
    if "digest" in fact.data:
        row.data["result_digest"] = fact.data["digest"]
    spans.put(row)
    spans.ended_unjoined(row)


MCP_STEPS: dict[str, Callable[[Spans, Fact], None]] = {
    "mcp.session": _session,
    "mcp.hello": _hello,
    "mcp.ended": _ended,
    "mcp.call": _call,
    "mcp.decision": _decision,
    "mcp.joined": _joined,
    "mcp.result": _result,
}
