"""MCP in full: sessions with their tools and calls, and how each call was joined; one call with all that it caused."""

from collections.abc import Iterable, Iterator

from agentwrap import text
from agentwrap.evidence.contexts import whole
from agentwrap.evidence.linking import FILES, PROCESSES, SOCKETS, Linker
from agentwrap.evidence.mcp_calls import HOUSEKEEPING, McpTalk, McpUse
from agentwrap.rows import Row, number
from agentwrap.views import noise
from agentwrap.views.calls import JOINED, paragraph, spelled
from agentwrap.views.context import Context, brief, command_line
from agentwrap.views.egress_parts import short_rule
from agentwrap.views.lines import columns_of, fit, shorten, stream_line
from agentwrap.views.mcp_parts import FINDINGS, arguments_brief, ending_words, name_of, verdict_piece
from agentwrap.views.source import Source, foreign_text, texts
from agentwrap.views.styled import Line, line

ACTS = (*PROCESSES, *FILES, *SOCKETS)
_MOST_ACTS = 2_000
_MOST_TOOLS = 200


def session_lines(
    talks: Iterable[McpTalk], story: Linker, context: Context, *, everything: bool, limit: int | None = None
) -> Iterator[Line]:
    """Each session: who speaks with whom, tools, then a line for each call."""
    left = limit
    for talk in talks:
        yield from session_head(talk, context)
        uses = [story.mcp.calls[call] for call in talk.calls]
        shown = [use for use in uses if everything or _matters(use)]
        for use in shown if left is None else shown[:left]:
            yield use_line(use, story, context)
        if left is not None:
            left = max(0, left - len(shown))
        hidden = len(uses) - len(shown)
        if hidden:
            yield line((f"        {text.count(hidden, 'request')} for tools and the like (`--all`)", "dim"))
        yield line()


def _matters(use: McpUse) -> bool:
    return use.method not in HOUSEKEEPING or use.ending not in ("", "complete", "cancelled")


def session_head(talk: McpTalk, context: Context) -> Iterator[Line]:
    """What a session is, without its calls."""
    data = talk.began.data
    name = text.escape(brief(foreign_text(data.get("server"))))
    transport = text.escape(str(data.get("transport", "stdio")))
    place = foreign_text(data.get("url")) or command_line(texts(data.get("command")))
    yield line((f"{text.escape(talk.id)} ", "title"), (name, "name"), (f"  {transport}  ", "dim"),
               (text.escape(brief(place)), ""))  # fmt: skip
    how, config = text.escape(str(data.get("how", "config"))), brief(foreign_text(data.get("config")))
    words = {"config": "declared in", "hand": "by hand", "pattern": "by a pattern of the policy"}
    told = words.get(how, "not declared: seen in traffic")
    yield _fact("named", f"{told} {config}".strip())
    if talk.hello is not None:
        yield _fact("speak", _hello(talk.hello))
    chain = context.lineage(talk.began.span).chain()
    if chain:
        yield line(("  process     ", "dim"), (chain, "who"))
    if talk.tools:
        names = [brief(foreign_text(row.data.get("name"))) for row in talk.tools.values()]
        more = f" and {len(names) - _MOST_TOOLS:,} more" if len(names) > _MOST_TOOLS else ""
        yield _fact("tools", f"{len(names):,}: {', '.join(names[:_MOST_TOOLS])}{more}")
    for row in talk.findings:
        what = FINDINGS.get(str(row.data.get("what")), str(row.data.get("what")))
        detail = brief(foreign_text(row.data.get("detail")))
        about = brief(foreign_text(row.data.get("tool")))
        yield line(("  finding     ", "dim"), (text.escape(f"{what}  {about}  {detail}".replace("    ", "  ")), "gap"))
    if talk.ended is not None:
        ended = talk.ended.data
        size = f"↑{text.size(number(ended.get('up_bytes')))} ↓{text.size(number(ended.get('down_bytes')))}"
        detail = brief(foreign_text(ended.get("detail")))
        took = text.duration(talk.ended.at_ns - talk.began.at_ns)
        counted = text.count(number(ended.get("messages")), "message")
        yield _fact("ended", f"{ended.get('ending')} after {took}, {counted}, {size}  {detail}".rstrip())
    elif not context.live:
        yield line(("  ended       ", "dim"), ("no end was seen", "gap"))


def _hello(row: Row) -> str:
    sides = [
        " ".join(brief(foreign_text(row.data.get(f"{side}_{field}"))) for field in ("name", "version")).strip()
        for side in ("client", "server")
    ]
    return f"{sides[0] or '?'} with {sides[1] or '?'}, protocol {brief(foreign_text(row.data.get('protocol'))) or '?'}"


def _fact(name: str, told: str) -> Line:
    return line((f"  {name:<11} ", "dim"), (text.escape(told), ""))


def use_line(use: McpUse, story: Linker, context: Context) -> Line:
    """One call: when, in which turn, what, how it ended, of which tool call of the model."""
    row = use.asked
    tool = story.turns.tools.get(use.tool_call)
    turn = text.escape(tool.turn) if tool is not None else "--"
    wide = context.turn_columns()
    head: Line = [(f"{context.clock(use.at_ns):>7} {turn:<{wide}} {text.escape(use.id):<{wide + 2}} ", "dim")]
    if not use.up:
        head.append(("server asks  ", "dim"))
    head.append((f"{name_of(row)}  ", "name"))
    right = [*ending_words(use, live=context.live)]
    if use.decision is not None and (use.decision.verdict != "allow" or use.decision.data.get("ask")):
        word, role = verdict_piece(use.decision)
        rule = short_rule(foreign_text(use.decision.data.get("rule")))
        right.append((f"  {word}", role))
        right.append((f" {text.escape(brief(rule))}" if rule else "", "dim"))
    if use.tool_call:
        right.append((f"  {text.escape(use.tool_call)} ({text.escape(use.joined)})", "dim"))
    elif use.of_a_tool and story.turns:
        right.append(("  of no tool call that was seen", "gap"))
    what = arguments_brief(row, context) if use.method in ("tools/call", "prompts/get") else ""
    room = 4000 if context.columns is None else context.columns - columns_of(head) - columns_of(right) - 2
    told = line(*head, (shorten(what, max(room, 16)), ""), "  ", *right)
    return told if context.columns is None else fit(told, context.columns)


def use_lines(use: McpUse, story: Linker, context: Context) -> Iterator[Line]:
    """The whole of a call: arguments, decision, result, the model's tool call, and what the server did meanwhile."""
    row = use.asked
    server = text.escape(brief(foreign_text(row.data.get("server"))))
    place = f"  {server}, {text.escape(use.session)}" + ("" if use.up else ", asked by the server")
    yield line((f"{text.escape(use.id)} ", "title"), (name_of(row), "name"), (place, "dim"))
    yield line(("  result      ", "dim"), *ending_words(use, live=context.live))
    yield from _whose(use, story)
    yield _fact("method", f"{use.method}  id {brief(foreign_text(row.data.get('id')))}")
    acting = [brief(foreign_text(row.data.get(name))) for name in ("agent", "on_behalf_of")]
    if any(acting):
        yield _fact("acts", f"{acting[0] or 'an agent'} for {acting[1] or 'nobody that the policy names'}")
    if row.data.get("retry_of"):
        yield _fact("again", f"after {row.data['retry_of']} asked for more")
    if use.decision is not None:
        yield from _decision(use.decision, context)
    claimed = number(use.result.data.get("claimed_ns")) if use.result is not None else 0
    if claimed:
        yield _fact("claimed", f"{text.duration(claimed)}, says the server; nobody checked it")
    for finding in _findings(use, story):
        what = FINDINGS.get(str(finding.data.get("what")), str(finding.data.get("what")))
        detail = brief(foreign_text(finding.data.get("detail")))
        yield line(("  finding     ", "dim"), (text.escape(f"{what}  {detail}"), "gap"))
    yield from _arguments(row)
    yield from _answer(use, context)


def _whose(use: McpUse, story: Linker) -> Iterator[Line]:
    tool = story.turns.tools.get(use.tool_call)
    if tool is not None:
        name = brief(foreign_text(tool.asked.data.get("name")))
        yield _fact("carries out", f"{tool.id} {name}, {tool.turn}, agent {tool.agent}")
        yield _fact("joined", JOINED.get(use.joined, use.joined))
    elif use.tool_call:
        yield _fact("carries out", f"{use.tool_call}, of which there is no more")
    elif use.of_a_tool:
        yield line(("  carries out ", "dim"), ("no tool call of a model that was seen", "gap"))


def _decision(row: Row, context: Context) -> Iterator[Line]:
    data = row.data
    word, role = verdict_piece(row)
    rule, why = (brief(foreign_text(data.get(name))) for name in ("rule", "why"))
    told = ": ".join(part for part in (rule, why) if part)
    yield line(("  decision    ", "dim"), (word, role), (f"  {text.escape(told)}" if told else "", ""))
    ask = str(data.get("ask", ""))
    if ask:
        answers = (one for one in context.source.rows(kinds=("ask.answered",)) if one.data.get("ask") == ask)
        answer = next(answers, None)
        by = brief(foreign_text(answer.data.get("approver"))) if answer is not None else ""
        uid = f" (uid {number(answer.data.get('uid'), -1)})" if answer is not None else ""
        said = f", {answer.data.get('answer')} by {by or '?'}{uid}" if answer is not None else ""
        yield _fact("asked", f"{ask}{said}")


def _findings(use: McpUse, story: Linker) -> list[Row]:
    talk = story.mcp.sessions.get(use.session)
    return [row for row in talk.findings if row.data.get("call") == use.id] if talk is not None else []


def _arguments(row: Row) -> Iterator[Line]:
    given = foreign_text(row.data.get("arguments"))
    omitted = number(row.data.get("omitted_bytes"))
    digest = text.escape(str(row.data.get("digest", "")))[:16]
    yield line(("arguments", "title"), (f"  sha256 {digest}…" if digest else "", "dim"))
    yield from paragraph(spelled(given), "  ") if given else ()
    if omitted:
        yield line((f"  … {text.size(omitted)}{' more' if given else ' not kept'}", "dim"))


def _answer(use: McpUse, context: Context) -> Iterator[Line]:
    if use.result is None:
        return
    data = use.result.data
    yield line(("result", "title"), (f"  {text.size(number(data.get('size')))}", "dim"))
    if data.get("error"):
        yield line(("  ", ""), (text.escape(brief(foreign_text(data["error"]))), "bad"))
    said = foreign_text(data.get("text"))
    if said:
        yield from paragraph(said, "  ")
        return
    message = _message_of(use, context)
    body = whole(context.source, message, "body") if message is not None else None
    if body:
        yield from paragraph(body.decode("utf-8", "backslashreplace"), "  ")


def _message_of(use: McpUse, context: Context) -> Row | None:
    """The message that answers a call."""
    rows = context.source.rows(after=use.asked.seq, kinds=("mcp.message",))
    mine = (row for row in rows if row.data.get("call") == use.id and row.data.get("sort") == "response")
    return next(mine, None)


def acts_of(use: McpUse, story: Linker, source: Source) -> Iterator[Row]:
    """What the server's process, and those below it, did while the call was under way."""
    count = 0
    for row in source.rows(kinds=ACTS):
        if row.at_ns < use.at_ns:
            continue
        found = story.serving(row, joined=False)
        if found is None or found[0] is not use or noise.hidden(row):
            continue
        count += 1
        if count > _MOST_ACTS:
            return
        yield row


def act_lines(use: McpUse, story: Linker, context: Context) -> Iterator[Line]:
    """A line for each of these."""
    yield line(("the server meanwhile", "title"))
    judged_up = use.decision is None or use.decision.data.get("up") is not False
    if use.ending in ("denied", "expired") and judged_up is use.up:  # and not its answer
        yield line(("  the call never reached it", "dim"))
        return
    shown = 0
    for row in acts_of(use, story, context.source):
        shown += 1
        yield stream_line(row, context)
    if not shown:
        talk = story.mcp.sessions.get(use.session)
        local = talk is not None and talk.began.data.get("transport", "stdio") == "stdio"
        yield line(("  nothing that is shown" if local else "  runs elsewhere: nothing of it is seen", "dim"))
