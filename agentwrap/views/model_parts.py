"""What the lines of model traffic say: calls, tools, plain exchanges, claims, session files."""

from agentwrap import text
from agentwrap.evidence.tool_arguments import read
from agentwrap.evidence.turns import Call
from agentwrap.rows import Row, number
from agentwrap.views import tokens
from agentwrap.views.context import Context, Lineage, brief, outcome
from agentwrap.views.parts_base import Maker, Parts, whom
from agentwrap.views.source import foreign_text, mapping
from agentwrap.views.styled import Line

ENDINGS = {
    "error": "failed",
    "incomplete": "broken off",
    "cancelled": "cancelled by the client",
    "unread": "could not be read",
}


def model_name(*rows: Row | None) -> str:
    """The model, as far as a request and an answer tell."""
    names = (foreign_text(row.data.get("model")) for row in rows if row is not None)
    return next((brief(name) for name in names if name), "(model not told)")


def trouble(data: dict[str, object]) -> Line:
    """What went wrong with an answer, or nothing."""
    ending, status = str(data.get("ending", "")), number(data.get("status"))
    if ending in ("", "complete") and status < 400:
        return []
    told = [str(status)] if status >= 400 else [ENDINGS.get(ending, ending)]
    if data.get("error"):
        told.append(brief(foreign_text(data["error"]))[:300])
    line: Line = [("  " + text.escape("  ".join(told)), "bad")]
    if after := tokens.retry_after(data):
        line.append((f"  {text.escape(after)}", "dim"))
    return line


def attempts_words(tries: list[Call]) -> str:
    """`3 attempts, 429, 529, ok`."""
    return f"{text.count(len(tries), 'attempt')}, {', '.join(map(outcome_word, tries))}"


def outcome_word(call: Call) -> str:
    """`ok`, `529`, `broken off`, `no answer`: how a call ended, in a word."""
    if call.response is None:
        return "no answer"
    status, ending = tokens.status_of(call.response.data), str(call.response.data.get("ending", ""))
    if status >= 400:
        return str(status)
    return "ok" if ending == "complete" else ENDINGS.get(ending, ending)


def agent_mark(agent: str, context: Context) -> Line:
    """Which agent, where there are several: `↳ a2` for one that a tool call of another started."""
    turns = context.story.turns if context.story is not None else None
    if turns is None or len(turns.agents) < 2:
        return []
    return [("↳ " * min(turns.depth(agent), 8) + text.escape(agent) + " ", "dim")]


def _asked_by(context: Context, lineage: Lineage) -> Line:
    """Who asked the model, where several processes did."""
    turns = context.story.turns if context.story is not None else None
    several = turns is not None and len({agent.span for agent in turns.agents.values()}) > 1
    chain = whom(lineage) if several else []
    return [("  ", ""), *chain] if chain else []


def _request(row: Row, context: Context, lineage: Lineage) -> Parts:
    """One line for a call. In a file that grows, the answer has a line of its own."""
    call = context.story.turns.calls.get(str(row.data.get("call"))) if context.story is not None else None
    response = None if context.live or call is None else call.response
    parts = Parts("model", model_name(row, response), role="name")
    parts.head = agent_mark(str(row.data.get("agent", "")), context)
    if response is not None:
        _answer(parts, response, response.at_ns - row.at_ns)
    elif context.live:
        parts.tail.append((f"  asked, {text.count(number(row.data.get('messages')), 'message')}", "dim"))
    else:
        parts.right.append(("no answer seen", "gap"))
    if number(row.data.get("attempt"), 1) > 1:
        parts.tail.append((f"  attempt {number(row.data.get('attempt'))}", "dim"))
    parts.right += _asked_by(context, lineage)
    return parts


def _response(row: Row, context: Context, lineage: Lineage) -> Parts:
    call = context.story.turns.calls.get(str(row.data.get("call"))) if context.story is not None else None
    parts = Parts("model", model_name(row, call.request if call is not None else None), role="name")
    parts.head = agent_mark(str(row.data.get("agent", "")), context)
    asked_ns = number(row.data.get("requested_ns"))
    _answer(parts, row, row.at_ns - asked_ns if asked_ns else None)
    parts.right += _asked_by(context, lineage)
    return parts


def _answer(parts: Parts, response: Row, elapsed_ns: int | None) -> None:
    parts.tail = [*tokens.of_call(response.data), *trouble(response.data)]
    told = [text.duration(elapsed_ns)] if elapsed_ns is not None else []
    usd = tokens.amount(response.data.get("cost_usd"))
    if usd is not None:
        told.append(f"est {tokens.money(usd)}")
    parts.right = [("  ".join(told), "dim")] if told else []


def tool_status(context: Context, tool: str, result: Row | None) -> Line:
    """`exit 1`, `ok`, `error`: what the kernel saw of the command, else what the agent said."""
    ended = context.story.status_of(tool) if context.story is not None else ""
    error = result.data.get("error") if result is not None else None
    if ended and not (error is True and ended == "exit 0"):
        return [(outcome(ended), "dim" if ended == "exit 0" else "bad")]
    if result is None:
        return [] if context.live else [("no result seen", "gap")]
    if error is True:
        return [("error", "bad")]
    return [("ok" if error is False else "done", "dim")]


def tool_brief(row: Row, context: Context) -> str:
    """The argument that says most, on one line."""
    if row.kind != "tool.call":
        return ""
    told = brief(read(foreign_text(row.data.get("arguments"))).brief)
    return context.path(told)


def _tool(row: Row, context: Context, lineage: Lineage) -> Parts:
    """One line for a tool call. In a file that grows, its result has a line of its own."""
    use = context.story.turns.tools.get(str(row.data.get("tool"))) if context.story is not None else None
    parts = Parts("tool", tool_brief(row, context))
    name = text.escape(brief(row.subject))
    parts.head = [*agent_mark(str(row.data.get("agent", "")), context), (f"{name}  ", "name")]
    if row.data.get("provider_side"):
        parts.right = [("run by the provider", "dim")]
    elif not context.live:
        parts.right = tool_status(context, str(row.data.get("tool")), use.result if use is not None else None)
        if use is not None and use.end_ns is not None:
            parts.right.append((f"  {text.duration(use.end_ns - row.at_ns)}", "dim"))
    parts.right += _asked_by(context, lineage)
    return parts


def _result(row: Row, context: Context, lineage: Lineage) -> Parts:
    use = context.story.turns.tools.get(str(row.data.get("tool"))) if context.story is not None else None
    name = brief(row.subject) or (brief(foreign_text(use.asked.data.get("name"))) if use is not None else "?")
    parts = Parts("tool", tool_brief(use.asked, context) if use is not None else "")
    parts.head = [*agent_mark(str(row.data.get("agent", "")), context), (text.escape(name) + "  ", "name")]
    parts.right = [("result  ", "dim"), *tool_status(context, str(row.data.get("tool")), row)]
    if use is not None:
        parts.right.append((f"  {text.duration(row.at_ns - use.at_ns)}", "dim"))
    parts.right.append((f"  {text.size(number(row.data.get('size')))}", "dim"))
    parts.right += _asked_by(context, lineage)
    return parts


def _exchange(row: Row, _context: Context, lineage: Lineage) -> Parts:
    data = row.data
    status, asked_ns = number(data.get("status")), number(data.get("requested_ns"))
    parts = Parts("http", brief(row.subject))
    head = str(status) if status else "no answer"
    parts.head = [(head + "  ", "bad" if status >= 400 or not status else "dim")]
    if data.get("ending", "complete") != "complete":
        parts.tail.append((f"  {text.escape(str(data['ending']))}", "bad"))
    if data.get("detail"):
        parts.tail.append((f"  {text.escape(foreign_text(data['detail']))}", "dim"))
    sizes = [number(mapping(data.get(name)).get("size")) for name in ("request", "response")]
    parts.right = [(f"↑{text.size(sizes[0])} ↓{text.size(sizes[1])}", "dim")]
    if asked_ns:
        parts.right.append((f"  {text.duration(row.at_ns - asked_ns)}", "dim"))
    chain = whom(lineage)
    parts.right += [("  ", ""), *chain] if chain else []
    return parts


def _claim(row: Row, _context: Context, lineage: Lineage) -> Parts:
    """A program's own word: marked as one, whatever it says."""
    data = row.data
    parts = Parts("claim", brief(row.subject), right=whom(lineage))
    parts.head = [("says  ", "gap"), (text.escape(str(data.get("said", ""))) + "  ", "dim")]
    if data.get("status"):
        parts.tail.append((f"  {text.escape(brief(foreign_text(data['status'])))}", ""))
    if data.get("data"):
        parts.tail.append((f"  {text.escape(brief(foreign_text(data['data'])))[:200]}", "dim"))
    return parts


def _session(row: Row, context: Context, _lineage: Lineage) -> Parts:
    data = row.data
    parts = Parts("log", context.path(foreign_text(data.get("path"))), keep_end=True)
    parts.head = [(text.escape(str(data.get("agent", ""))) + "  ", "dim")]
    content = mapping(data.get("content"))
    parts.tail = [(f"  {text.size(number(content.get('size')))}", "dim")]
    joined = data.get("joined")
    if isinstance(joined, list) and joined:
        parts.tail.append((f"  {text.count(len(joined), 'id')} joined", "dim"))
    return parts


MODEL: dict[str, Maker] = {
    "claim": _claim,
    "http.exchange": _exchange,
    "model.request": _request,
    "model.response": _response,
    "session.file": _session,
    "tool.call": _tool,
    "tool.result": _result,
}
