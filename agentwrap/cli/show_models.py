"""The views of `agentwrap show` about model traffic: tools, tokens, cost, what a model was told, one call in full."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from agentwrap.cli.show_views import Wish, stream_of
from agentwrap.errors import AgentwrapError
from agentwrap.evidence import contexts
from agentwrap.evidence.linking import Linker
from agentwrap.evidence.turns import Call, ToolUse
from agentwrap.views import calls, conversation, tokens, tools, usage
from agentwrap.views.context import Context
from agentwrap.views.filter import parse
from agentwrap.views.lines import fit
from agentwrap.views.styled import Line, line

if TYPE_CHECKING:
    from agentwrap.recording.reader import Reader


def _story(wish: Wish) -> Linker:
    return wish.story or Linker()


def _chosen(wish: Wish, context: Context) -> tuple[list[Call], list[ToolUse]]:
    """Calls and tool calls that the filter lets through, by their rows."""
    turns = _story(wish).turns
    if not wish.chosen:
        return list(turns.calls.values()), list(turns.tools.values())
    passes = wish.chosen
    found = [
        call
        for call in turns.calls.values()
        if any(passes(row, context.span) for row in (call.request, call.response) if row is not None)
    ]
    used = [
        use
        for use in turns.tools.values()
        if any(passes(row, context.span) for row in (use.asked, use.result) if row is not None)
    ]
    return found, used


def _tools(source: "Reader", wish: Wish, context: Context) -> Iterator[Line]:
    story = _story(wish)
    _, used = _chosen(wish, context)
    yield from tools.tool_lines(used[: wish.limit], context, tools.caused(source, story))
    if not used:
        yield line(("no tool call was recorded", "dim"))
    yield line()


def _fitting(lines: Iterator[Line], context: Context) -> Iterator[Line]:
    """Lines cut to the terminal."""
    return lines if context.columns is None else (fit(one, context.columns) for one in lines)


def _tokens(_source: "Reader", wish: Wish, context: Context) -> Iterator[Line]:
    yield from _fitting(usage.token_lines(_chosen(wish, context)[0]), context)
    yield line()


def _cost(_source: "Reader", wish: Wish, context: Context) -> Iterator[Line]:
    yield from _fitting(usage.cost_lines(_chosen(wish, context)[0]), context)
    yield line()


def _context(source: "Reader", wish: Wish, context: Context) -> Iterator[Line]:
    found = compared(source, wish)
    lines = conversation.context_lines(found, _story(wish).turns, context.columns, wish.find)
    yield from _fitting(lines, context)
    yield line()


def compared(source: "Reader", wish: Wish) -> contexts.Comparison:
    """The comparison that `--context` asks for. Raises AgentwrapError `usage`."""
    turns = _story(wish).turns
    call = turns.call_of(wish.about)
    if call is None:
        raise _no_such(wish.about, "call or turn")
    return contexts.compare(source, turns, call, wish.find)


def _no_such(name: str, what: str) -> AgentwrapError:
    return AgentwrapError(
        "usage", f"there is no {what} `{name}` in this recording", hint="`agentwrap show --tokens` lists the calls"
    )


def _about(source: "Reader", wish: Wish, context: Context) -> Iterator[Line]:
    """One call, turn, tool call, agent, exchange, MCP call or MCP session in full."""
    name, story = wish.about, _story(wish)
    letter = name[0]
    if letter in "ks":
        from agentwrap.cli import show_mcp

        yield from show_mcp.about(source, wish, context)
        return
    if letter == "m":
        call = story.turns.calls.get(name)
        if call is None:
            raise _no_such(name, "call")
        yield from _call(source, call, story, context)
        return
    if letter == "x":
        use = story.turns.tools.get(name)
        if use is None:
            raise _no_such(name, "tool call")
        yield from calls.tool_lines(use, context, tools.caused(source, story)[name])
        yield line()
    elif letter == "t":
        yield from _turn(source, name, story, context)
    elif letter == "a" and name not in story.turns.agents:
        raise _no_such(name, "agent")
    elif letter == "h":
        yield from _exchange(source, name, context)
        return
    chosen = parse({"x": f"tool:{name}", "t": f"turn:{name}", "a": f"agent:{name}"}[letter])
    yield from stream_of(source, msgspec.structs.replace(wish, view="stream", chosen=chosen), context)


def _call(source: "Reader", call: Call, story: Linker, context: Context) -> Iterator[Line]:
    yield from calls.call_lines(call, context, story.turns, contexts.compare(source, story.turns, call))
    yield line()


def _turn(source: "Reader", name: str, story: Linker, context: Context) -> Iterator[Line]:
    call = story.turns.call_of(name)
    if call is None:
        raise _no_such(name, "turn")
    yield from _call(source, call, story, context)
    used = [use for use in story.turns.tools.values() if use.turn == name]
    if used:
        yield line(("tools", "title"))
        yield from tools.tool_lines(used, context, tools.caused(source, story))
        yield line()
    yield line(("events", "title"))


def _exchange(source: "Reader", name: str, context: Context) -> Iterator[Line]:
    row = next((row for row in source.rows(kinds=("http.exchange",)) if row.data.get("exchange") == name), None)
    if row is None:
        raise _no_such(name, "exchange")
    yield from calls.exchange_lines(row, context)
    yield line()


MODEL_VIEWS: dict[str, Callable[["Reader", Wish, Context], Iterator[Line]]] = {
    "tools": _tools,
    "tokens": _tokens,
    "cost": _cost,
    "context": _context,
    "about": _about,
}


def document_of(source: "Reader", wish: Wish, context: Context) -> dict[str, Any]:
    """What the JSON document says beside the rows: totals, what tools caused, what a model was told."""
    story = _story(wish)
    if wish.view in ("tokens", "cost"):
        total, by_model = usage.sums(_chosen(wish, context)[0])
        return {"totals": _sum(total), "models": {name: _sum(one) for name, one in by_model.items()}}
    if wish.view == "tools":
        _, used = _chosen(wish, context)
        found = tools.caused(source, story)
        return {"tools": [_tool(use, found[use.id], story) for use in used]}
    if wish.view == "context":
        told = msgspec.to_builtins(compared(source, wish), str_keys=True)
        assert isinstance(told, dict)
        return {"context": told}
    return {}


def _sum(one: tokens.Sum) -> dict[str, Any]:
    return {
        "answers": one.calls,
        "tokens": one.tokens,
        "not_told": one.untold,
        "cost_usd": str(one.usd) if one.priced else None,
        "priced": one.priced,
        "unpriced": one.unpriced,
        "prices": one.tables,
    }


def _tool(use: ToolUse, of: tools.Caused, story: Linker) -> dict[str, Any]:
    return {
        "tool": use.id,
        "turn": use.turn,
        "call": use.call,
        "agent": use.agent,
        "name": use.asked.data.get("name"),
        "arguments": use.asked.data.get("arguments"),
        "at_ns": use.at_ns,
        "end_ns": use.end_ns,
        "status": story.status_of(use.id) or None,
        "result": use.result is not None,
        "error": use.result.data.get("error") if use.result is not None else None,
        "processes": sorted(of.processes),
        "files": sorted(of.files),
        "connections": sorted(of.connections),
        "how": of.how(),
    }
