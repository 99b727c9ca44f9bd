"""The views of `agentwrap show` about MCP: sessions with their calls, and one call or session in full."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from agentwrap.cli.show_views import Wish
from agentwrap.errors import AgentwrapError
from agentwrap.evidence.linking import Linker
from agentwrap.evidence.mcp_calls import McpTalk, McpUse
from agentwrap.rows import Row
from agentwrap.views import mcp
from agentwrap.views.context import Context
from agentwrap.views.lines import fit
from agentwrap.views.source import foreign_text
from agentwrap.views.styled import Line, line

if TYPE_CHECKING:
    from agentwrap.recording.reader import Reader


def _story(wish: Wish) -> Linker:
    return wish.story or Linker()


def _chosen(wish: Wish, context: Context) -> list[McpTalk]:
    """Sessions that the filter lets through: by their own rows, or by that of a call."""
    found = _story(wish).mcp
    if not wish.chosen:
        return list(found.sessions.values())
    chosen = []
    for talk in found.sessions.values():
        rows: list[Row | None] = [talk.began, talk.hello, talk.ended, *talk.findings]
        rows += [row for call in talk.calls for row in (found.calls[call].asked, found.calls[call].result)]
        if any(wish.chosen(row, context.span) for row in rows if row is not None):
            chosen.append(talk)
    return chosen


def _mcp(_source: "Reader", wish: Wish, context: Context) -> Iterator[Line]:
    talks = _chosen(wish, context)
    yield from mcp.session_lines(talks, _story(wish), context, everything=wish.everything, limit=wish.limit)
    if not talks:
        yield line(("no session with an MCP server was recorded", "dim"))
        yield line()


def about(_source: "Reader", wish: Wish, context: Context) -> Iterator[Line]:
    """One call (`k3`) or one session (`s1`) in full. Raises AgentwrapError `usage`."""
    story, name = _story(wish), wish.about
    if name.startswith("s"):
        talk = story.mcp.sessions.get(name)
        if talk is None:
            raise _no_such(name, "session")
        yield from mcp.session_lines([talk], story, context, everything=wish.everything)
        return
    use = story.mcp.calls.get(name)
    if use is None:
        raise _no_such(name, "MCP call")
    lines = (*mcp.use_lines(use, story, context), *mcp.act_lines(use, story, context))
    yield from lines if context.columns is None else (fit(one, context.columns) for one in lines)
    yield line()


def _no_such(name: str, what: str) -> AgentwrapError:
    return AgentwrapError(
        "usage", f"there is no {what} `{name}` in this recording", hint="`agentwrap show --mcp` lists the calls"
    )


MCP_VIEWS: dict[str, Callable[["Reader", Wish, Context], Iterator[Line]]] = {"mcp": _mcp}


def document_of(wish: Wish, context: Context) -> dict[str, Any]:
    """What the JSON document says beside the rows."""
    story = _story(wish)
    talks = _chosen(wish, context)
    calls = [story.mcp.calls[call] for talk in talks for call in talk.calls]
    return {"mcp": {"sessions": [_session(talk) for talk in talks], "calls": [_call(use, story) for use in calls]}}


def _session(talk: McpTalk) -> dict[str, Any]:
    return {
        **talk.began.data,
        "span": talk.began.span,
        "at_ns": talk.began.at_ns,
        "hello": talk.hello.data if talk.hello is not None else None,
        "tools": [foreign_text(row.data.get("name")) for row in talk.tools.values()],
        "findings": [row.data for row in talk.findings],
        "ended": {"at_ns": talk.ended.at_ns, **talk.ended.data} if talk.ended is not None else None,
    }


def _call(use: McpUse, story: Linker) -> dict[str, Any]:
    return {
        **use.asked.data,
        "at_ns": use.at_ns,
        "end_ns": use.end_ns,
        "tool_call": use.tool_call or None,
        "joined": use.joined or None,
        "verdict": use.decision.verdict if use.decision is not None else None,
        "rule": use.decision.data.get("rule") if use.decision is not None else None,
        "result": use.result.data if use.result is not None else None,
        "links": [link.seq or link.span for link in story.links if link.call == use.id],
    }
