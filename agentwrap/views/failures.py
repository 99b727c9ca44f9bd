"""What failed: exits, signals, denials, model calls, tools. Calls that were tried again are told with all attempts."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from agentwrap import text
from agentwrap.rows import Row, number
from agentwrap.views.context import Context
from agentwrap.views.lines import stream_line
from agentwrap.views.styled import Line, line

if TYPE_CHECKING:
    from agentwrap.evidence.turns import Call

FAILED = ("error", "incomplete", "cancelled", "unread")
NONE = "no failed exit, signal, denial, model call, MCP call or tool was recorded"


def is_failure(row: Row) -> bool:
    """Whether a row tells of something that failed or was refused."""
    data = row.data
    if row.verdict == "deny":
        return True
    if row.kind in ("process.exit", "run.end"):
        return bool(data.get("status") or data.get("signal"))
    if row.kind == "model.response":
        return data.get("ending") in FAILED or number(data.get("status")) >= 400
    if row.kind == "mcp.result":
        return data.get("ending") in ("tool-error", "error", "denied", "expired", "unanswered")
    if row.kind == "mcp.ended":
        return data.get("ending") == "lost"
    if row.kind == "mcp.finding":
        return True
    if row.kind == "http.exchange":
        return number(data.get("status")) >= 400 or data.get("ending", "complete") != "complete"
    return (row.kind == "tool.result" and data.get("error") is True) or (
        row.kind == "claim" and data.get("said") == "error"
    )


def failure_lines(rows: Iterable[Row], context: Context, limit: int | None) -> Iterator[Line]:
    """A line for each failure, as they came."""
    shown = 0
    for row in rows:
        call = _call_of(row, context)
        unanswered = row.kind == "model.request" and call is not None and call.response is None and not context.live
        if is_failure(row) or unanswered:
            if limit is not None and shown >= limit:
                return
            shown += 1
            yield stream_line(row, context)
        if row.kind == "model.response" and call is not None:
            yield from _attempts(call, context)
    if not shown:
        yield line((NONE, "dim"))


def _call_of(row: Row, context: Context) -> "Call | None":
    return context.story.turns.calls.get(str(row.data.get("call"))) if context.story is not None else None


def _attempts(call: "Call", context: Context) -> Iterator[Line]:
    """After the last attempt of a call: how all of them ended."""
    if context.story is None or not call.retry_of:
        return
    tries = context.story.turns.attempts(call)
    if tries[-1] is call:
        from agentwrap.views.model_parts import attempts_words

        told = f"{tries[0].id} to {call.id}: {attempts_words(tries)}"
        good = not call.failed
        turn = f"{text.escape(call.turn):<{context.turn_columns()}}"
        yield line((f"{'':>8}{turn} model  ", "dim"), (told, "good" if good else "bad"))
