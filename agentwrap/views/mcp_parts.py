"""What the lines of MCP say: sessions, calls, judgements, tools, findings, messages."""

import msgspec

from agentwrap import text
from agentwrap.evidence.mcp_calls import FAILED, McpUse, elapsed_ns, size_of
from agentwrap.rows import Row, number
from agentwrap.views.context import Context, Lineage, brief, command_line
from agentwrap.views.egress_parts import short_rule
from agentwrap.views.model_parts import agent_mark
from agentwrap.views.parts_base import Maker, Parts, whom
from agentwrap.views.source import foreign_text, mapping, texts
from agentwrap.views.styled import Line, Piece, Role

_ENDINGS = {
    "complete": "ok",
    "tool-error": "tool error",
    "input-required": "asks for more",
    "expired": "approval expired",
    "unanswered": "no answer",
}
_ENDED = {"server-exited": "the server exited", "lost": "lost: who told of it died", "run-ended": "ended with the run"}
FINDINGS = {
    "tool-changed": "tool changed",
    "tool-shadowed": "tool shadowed",
    "unknown-reply": "reply to nothing",
    "repeated-reply": "second reply",
    "repeated-id": "id used again",
    "not-json": "no JSON",
    "not-mcp": "no MCP",
    "ambiguous-json": "ambiguous JSON",
    "self-approval": "self-approval",
    "late-reply": "late reply",
    "too-long": "line too long",
}
_LONGEST_VALUE = 60


def server_of(row: Row) -> str:
    """The server's name."""
    return text.escape(brief(foreign_text(row.data.get("server"))) or "?")


def ending_words(use: McpUse, *, live: bool = False) -> Line:
    """`ok 410ms 8.1KB`, `denied`, `no answer`: how a call ended."""
    if use.result is None:
        return [] if live else [("no end seen", "gap")]
    role: Role = "deny" if use.ending == "denied" else "bad" if use.ending in FAILED else "dim"
    told: Line = [(text.escape(_ENDINGS.get(use.ending, use.ending)), role)]
    took = elapsed_ns(use)
    if took is not None and use.ending != "denied":
        told.append((f" {text.duration(took)}", "dim"))
    if size_of(use) and use.ending not in ("denied", "expired"):
        told.append((f" {text.size(size_of(use))}", "dim"))
    return told


def arguments_brief(row: Row, context: Context) -> str:
    """Arguments on one line: `q="billing flaky" limit=10`."""
    given = foreign_text(row.data.get("arguments"))
    try:
        fields = msgspec.json.decode(given.encode("utf-8", "surrogateescape")) if given else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return brief(given)
    if not isinstance(fields, dict):
        return brief(given)
    told = []
    for name, given_value in fields.items():
        value = context.path(given_value) if isinstance(given_value, str) else given_value
        shown = msgspec.json.encode(value).decode("utf-8", "replace")
        if len(shown) > _LONGEST_VALUE:
            path = isinstance(value, str) and value.startswith("/")
            shown = f"…{shown[1 - _LONGEST_VALUE :]}" if path else f"{shown[: _LONGEST_VALUE - 1]}…"
        told.append(f"{name}={shown}")
    return brief(" ".join(told))


def _use(row: Row, context: Context) -> McpUse | None:
    return context.story.mcp.calls.get(str(row.data.get("call"))) if context.story is not None else None


def _agent_of(row: Row, context: Context) -> Line:
    story = context.story
    use = story.turns.tools.get(story.mcp.tool_of(row)) if story is not None else None
    return agent_mark(use.agent, context) if use is not None else []


def name_of(row: Row) -> str:
    """The tool, or the method with what it names."""
    tool, method = (brief(foreign_text(row.data.get(name))) for name in ("tool", "method"))
    if tool and method in ("tools/call", ""):
        return text.escape(tool)
    return text.escape(f"{method} {tool}".strip())


def _call(row: Row, context: Context, _lineage: Lineage) -> Parts:
    """One line for a call. In a file that grows, its result has a line of its own."""
    use = _use(row, context)
    told = row.data.get("method") in ("tools/call", "prompts/get")
    parts = Parts("mcp", arguments_brief(row, context) if told else "")
    up = row.data.get("up") is not False
    parts.head = [*_agent_of(row, context), (f"{server_of(row)}  ", ""), ("" if up else "asks for ", "dim")]
    parts.head.append((f"{name_of(row)}  ", "name"))
    if row.data.get("retry_of"):
        parts.tail.append((f"  again after {text.escape(str(row.data['retry_of']))}", "dim"))
    if use is not None:
        parts.right = ending_words(use, live=context.live)
    return parts


def _result(row: Row, context: Context, _lineage: Lineage) -> Parts:
    use = _use(row, context)
    parts = Parts("mcp", arguments_brief(use.asked, context) if use is not None else "")
    parts.head = [*_agent_of(row, context), (f"{server_of(row)}  ", ""), (f"{name_of(row)}  ", "name")]
    if row.data.get("error"):
        parts.tail.append((f"  {text.escape(brief(foreign_text(row.data['error'])))[:200]}", "bad"))
    if use is not None:
        parts.right = [("result  ", "dim"), *ending_words(McpUse(use.id, use.session, use.asked, result=row))]
    return parts


def verdict_piece(row: Row) -> Piece:
    """`deny`, `would-deny`, `approved`."""
    approved = row.verdict == "allow" and row.data.get("ask")
    return ("approved" if approved else text.escape(row.verdict), "good" if row.verdict == "allow" else "deny")


def _decision(row: Row, context: Context, _lineage: Lineage) -> Parts:
    data = row.data
    word, role = verdict_piece(row)
    parts = Parts("mcp", name_of(row), role="name")
    parts.head = [*_agent_of(row, context), (f"{word}  ", role), (f"{server_of(row)}  ", "")]
    if data.get("rule") and row.verdict != "allow":
        parts.tail.append((f"  rule {text.escape(brief(short_rule(foreign_text(data['rule']))))}", "dim"))
    if data.get("ask"):
        parts.tail.append((f"  {text.escape(str(data['ask']))}", "dim"))
    if data.get("why"):
        parts.tail.append((f"  {text.escape(brief(foreign_text(data['why'])))}", "dim"))
    return parts


def _session(row: Row, context: Context, lineage: Lineage) -> Parts:
    data = row.data
    transport = text.escape(str(data.get("transport", "stdio")))
    what = foreign_text(data.get("url")) or command_line(texts(data.get("command")))
    parts = Parts("mcp", brief(what))
    parts.head = [("server  ", "dim"), (f"{server_of(row)}  ", "name"), (f"{transport}  ", "dim")]
    if data.get("how", "config") == "traffic":
        parts.tail.append(("  not declared", "gap"))
    talk = context.story.mcp.sessions.get(str(data.get("session"))) if context.story is not None else None
    if talk is not None and talk.ended is not None and not context.live:
        parts.right = [(f"{text.count(number(talk.ended.data.get('messages')), 'message')}  ", "dim")]
        parts.right.append((text.duration(talk.ended.at_ns - row.at_ns), "dim"))
    elif not context.live:
        chain = whom(lineage)
        parts.right += chain
    return parts


def _hello(row: Row, _context: Context, _lineage: Lineage) -> Parts:
    names = [" ".join(brief(foreign_text(row.data.get(f"{side}_{field}"))) for field in ("name", "version")).strip()
             for side in ("client", "server")]  # fmt: skip
    parts = Parts("mcp", f"{names[0] or '?'} speaks with {names[1] or '?'}")
    parts.head = [("hello  ", "dim"), (f"{server_of(row)}  ", "")]
    parts.tail = [(f"  {text.escape(brief(foreign_text(row.data.get('protocol'))))}", "dim")]
    return parts


def _ended(row: Row, _context: Context, _lineage: Lineage) -> Parts:
    data = row.data
    ending = str(data.get("ending", ""))
    parts = Parts("mcp", "")
    bad = ending == "lost"
    parts.head = [("ended  ", "dim"), (f"{server_of(row)}  ", "name")]
    parts.head.append((text.escape(_ENDED.get(ending, ending.replace("-", " "))), "bad" if bad else "dim"))
    if data.get("detail"):
        parts.tail.append((f"  {text.escape(brief(foreign_text(data['detail'])))}", "dim"))
    parts.right = [(text.count(number(data.get("messages")), "message"), "dim")]
    return parts


def _tool(row: Row, _context: Context, _lineage: Lineage) -> Parts:
    data = row.data
    change = str(data.get("change", "new"))
    parts = Parts("mcp", brief(foreign_text(data.get("description"))).split("\n")[0])
    role: Role = "bad" if change == "changed" else "dim"
    parts.head = [(f"{text.escape(change)}  ", role), (f"{server_of(row)}  ", "")]
    parts.head.append((f"{text.escape(brief(foreign_text(data.get('name'))))}  ", "name"))
    if data.get("shadows"):
        parts.tail.append((f"  shadows {text.escape(brief(foreign_text(data['shadows'])))}", "gap"))
    return parts


def _finding(row: Row, _context: Context, _lineage: Lineage) -> Parts:
    data = row.data
    parts = Parts("mcp", brief(foreign_text(data.get("detail"))))
    what = text.escape(FINDINGS.get(str(data.get("what")), str(data.get("what"))))
    parts.head = [("finding  ", "gap"), (f"{server_of(row)}  ", ""), (f"{what}  ", "gap")]
    if data.get("tool"):
        parts.head.append((f"{text.escape(brief(foreign_text(data['tool'])))}  ", "name"))
    return parts


def _message(row: Row, _context: Context, _lineage: Lineage) -> Parts:
    data = row.data
    what = " ".join(part for part in (foreign_text(data.get("method")), foreign_text(data.get("id"))) if part)
    parts = Parts("mcp", brief(what))
    arrow = "→" if data.get("up") else "←"
    session, sort = (text.escape(str(data.get(name, ""))) for name in ("session", "sort"))
    parts.head = [(f"{arrow} {session}  {sort}  ", "dim")]
    if data.get("ours"):
        parts.tail.append(("  said by agentwrap", "gap"))
    if data.get("passed") is False:
        parts.tail.append(("  did not pass", "deny"))
    parts.right = [(text.size(number(mapping(data.get("body")).get("size"))), "dim")]
    return parts


def _joined(row: Row, _context: Context, _lineage: Lineage) -> Parts:
    data = row.data
    told = f"{data.get('call', '')} carries out {data.get('tool_call', '')} (by {data.get('joined', '')})"
    return Parts("mcp", told)


MCP: dict[str, Maker] = {
    "mcp.call": _call,
    "mcp.decision": _decision,
    "mcp.ended": _ended,
    "mcp.finding": _finding,
    "mcp.hello": _hello,
    "mcp.joined": _joined,
    "mcp.message": _message,
    "mcp.result": _result,
    "mcp.session": _session,
    "mcp.tool": _tool,
}
