"""Spans of model traffic, folded from events: agents, turns, calls, tools (docs/format.md, section 4). Pure."""

from collections.abc import Callable
from typing import Any, Protocol

from agentwrap.recording.span_row import Fact, SpanRow, text_of

_ASKED = ("agent", "api", "host", "connection", "transport", "stream", "attempt", "retry_of", "session")
_ANSWERED = (
    *("model", "stop", "error", "retry_after", "requested_ns", "headers_ns", "first_token_ns", "input_tokens"),
    *("cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "cost_usd", "prices"),
    *("tool_calls", "text_bytes"),
)


class Spans(Protocol):
    """Where spans are: those that may still change."""

    def get(self, span_id: str, kind: str) -> SpanRow | None:
        """The span, if there is one of this kind that is not over."""
        ...

    def free(self, span_id: str) -> bool:
        """Whether no span had this id yet."""
        ...

    def put(self, row: SpanRow) -> None:
        """Note a new or changed span."""
        ...

    def ended_unjoined(self, row: SpanRow) -> None:
        """An MCP call has ended."""
        ...

    def may_join(self, call: str) -> SpanRow | None:
        """The MCP call, if it may still be found to be a tool call."""
        ...

    def begin_turn(self, agent: str, turn: str) -> None:
        """An agent has a new turn."""
        ...

    def may_change(self, turn: SpanRow) -> bool:
        """Whether a turn is one of the last two of its agent."""
        ...


def _word(fact: Fact, key: str) -> str:
    value = fact.data.get(key)
    return value if isinstance(value, str) else ""


def _who(fact: Fact) -> dict[str, Any]:
    return {"process": fact.span, "pid": fact.pid or 0}


def _size(value: Any) -> int:
    size = value.get("size", 0) if isinstance(value, dict) else 0
    return size if isinstance(size, int) else 0


def _count(row: SpanRow, key: str) -> None:
    row.data[key] = row.data.get(key, 0) + 1


def _request(spans: Spans, fact: Fact) -> None:
    data = fact.data
    agent_id, turn_id, call = (_word(fact, key) for key in ("agent", "turn", "call"))
    agent = spans.get(agent_id, "agent")
    if agent is None and spans.free(agent_id):
        name = text_of(data.get("session")) or text_of(data.get("model"))
        agent = SpanRow(agent_id, str(data.get("agent_parent", "run")), "agent", name, fact.at_ns)
        agent.data = {**_who(fact), "calls": 0, **_those(data, ("api", "model", "session", "joined"))}
    if agent is not None:
        agent.end_ns = None
        _count(agent, "calls")
        spans.put(agent)
    turn = spans.get(turn_id, "turn")
    if turn is None and spans.free(turn_id):
        turn = SpanRow(turn_id, agent_id or None, "turn", text_of(data.get("model")), fact.at_ns)
        turn.data = {"calls": 0, "tools": 0}
        spans.begin_turn(agent_id, turn_id)
    if turn is not None and spans.may_change(turn):
        turn.end_ns = None
        _count(turn, "calls")
        spans.put(turn)
    if call and spans.free(call):
        row = SpanRow(call, turn_id or None, "model", fact.subject, fact.at_ns)
        row.data = {**_who(fact), "request_seq": fact.seq, "request_bytes": _size(data.get("request"))}
        row.data.update(_those(data, _ASKED))
        if "model" in data:
            row.data["asked_model"] = data["model"]
        spans.put(row)


def _response(spans: Spans, fact: Fact) -> None:
    data = fact.data
    agent, turn = spans.get(_word(fact, "agent"), "agent"), spans.get(_word(fact, "turn"), "turn")
    if agent is not None:
        agent.end_ns = fact.at_ns
        spans.put(agent)
    if turn is not None and spans.may_change(turn):
        turn.end_ns = fact.at_ns
        spans.put(turn)
    row = spans.get(_word(fact, "call"), "model")
    if row is None:
        return
    row.end_ns = fact.at_ns
    status = data.get("status", 0)
    row.status = f"{_word(fact, 'ending')} {status}" if status else _word(fact, "ending")
    row.data.update({"response_seq": fact.seq, "response_bytes": _size(data.get("response"))})
    row.data.update({"ending": _word(fact, "ending"), "http_status": status, **_those(data, _ANSWERED)})
    spans.put(row)


def _tool_call(spans: Spans, fact: Fact) -> None:
    tool = _word(fact, "tool")
    if not tool or not spans.free(tool):
        return
    turn_id = _word(fact, "turn")
    row = SpanRow(tool, turn_id or None, "tool", fact.subject, fact.at_ns)
    row.data = {**_who(fact), "call_seq": fact.seq, **_those(fact.data, ("agent", "call", "id", "provider_side"))}
    if fact.data.get("provider_side"):
        row.end_ns, row.status = fact.at_ns, "unknown"
    turn = spans.get(turn_id, "turn")
    if turn is not None and spans.may_change(turn):
        _count(turn, "tools")
        spans.put(turn)
    spans.put(row)


_SAID = {True: "error", False: "ok"}


def _tool_result(spans: Spans, fact: Fact) -> None:
    row = spans.get(_word(fact, "tool"), "tool")
    if row is None:
        return
    error = fact.data.get("error")
    row.end_ns = fact.at_ns
    row.status = _SAID[error] if isinstance(error, bool) else "unknown"
    row.data.update({"result_seq": fact.seq, "result_call": _word(fact, "call"), "size": fact.data.get("size", 0)})
    spans.put(row)
    turn = spans.get(row.parent or "", "turn")
    if turn is not None and spans.may_change(turn):
        turn.end_ns = max(turn.end_ns or 0, fact.at_ns)
        spans.put(turn)


def _those(data: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: data[key] for key in keys if key in data}


MODEL_STEPS: dict[str, Callable[[Spans, Fact], None]] = {
    "model.request": _request,
    "model.response": _response,
    "tool.call": _tool_call,
    "tool.result": _tool_result,
}
