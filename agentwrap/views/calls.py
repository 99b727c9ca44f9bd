"""One model call or one tool call in full: what was asked, what came back, when, and over which attempts."""

from collections.abc import Iterator
from typing import Any

import msgspec

from agentwrap import text
from agentwrap.evidence.contexts import Comparison, whole
from agentwrap.evidence.turns import Call, ToolUse, Turns
from agentwrap.rows import Row, number
from agentwrap.views import tokens
from agentwrap.views.context import Context, brief
from agentwrap.views.conversation import counted, group
from agentwrap.views.model_parts import attempts_words, model_name, tool_status, trouble
from agentwrap.views.source import foreign_text, mapping
from agentwrap.views.styled import Line, line
from agentwrap.views.tools import Caused, provider

_LINES = 400
JOINED = {
    "id": "exact: the client named the model's tool call",
    "content": "inferred: same tool, same arguments",
    "time": "inferred: the only one open then",
}
_LONGEST = 20_000


def call_lines(call: Call, context: Context, turns: Turns, compared: Comparison) -> Iterator[Line]:
    """The whole of a call."""
    row, response = call.request, call.response
    place = f"  {call.turn}, agent {call.agent}"
    yield line((f"{call.id} ", "title"), (model_name(row, response), "name"), (place, "dim"))
    if row is not None:
        yield from _asked(row, context, turns, call)
    yield from _attempts(call, turns)
    if response is not None:
        yield from _answer(response, row)
    yield line()
    if compared.problem:
        yield line((f"asked: {compared.problem}", "gap"))
        yield from counted(call)
    yield from group("asked anew", "title", compared.added, turns, context.columns)
    if compared.repeated or compared.dropped:
        told = f"{len(compared.repeated):,} sent again, {len(compared.dropped):,} dropped"
        yield line((f"  {told} (`show --context {call.id}`)", "dim"))
    yield from _said(response, context)
    for title, one in (("request", row), ("response", response)):
        yield from _headers(title, one)


def _asked(row: Row, context: Context, turns: Turns, call: Call) -> Iterator[Line]:
    data = row.data
    place = f"{foreign_text(data.get('host'))}:{number(data.get('port'))}{foreign_text(data.get('path'))}"
    how = ["streamed"] if data.get("stream") else []
    how += ["over a WebSocket"] if data.get("transport") == "websocket" else []
    yield _fact("to", f"{foreign_text(data.get('method', 'POST'))} {brief(place)}  {data.get('api')}"
                f"{'  ' + ', '.join(how) if how else ''}")  # fmt: skip
    chain = context.lineage(row.span).chain()
    if chain:
        yield line(("  by          ", "dim"), (chain, "who"))
    parent = turns.agents[call.agent].parent if call.agent in turns.agents else ""
    started = turns.tools.get(parent)
    if started is not None:
        name = foreign_text(started.asked.data.get("name"))
        yield _fact("agent of", f"{parent} {brief(name)}, a tool call of {started.agent} in {started.turn}")
    size = number(mapping(data.get("request")).get("size"))
    counted = text.count(number(data.get("messages")), "message")
    yield _fact("sent", f"{counted}, {text.count(number(data.get('tools')), 'tool')}, {text.size(size)}")
    if data.get("problem"):
        yield line(("  problem     ", "dim"), (text.escape(foreign_text(data["problem"])), "gap"))


def _attempts(call: Call, turns: Turns) -> Iterator[Line]:
    tries = turns.attempts(call)
    if len(tries) > 1:
        yield _fact("attempts", attempts_words(tries))


def _answer(response: Row, request: Row | None) -> Iterator[Line]:
    data = response.data
    said = [word for word in (str(data.get("status") or ""), foreign_text(data.get("stop"))) if word]
    told = "  ".join(said) or "no status"
    yield line(("  answer      ", "dim"), (text.escape(brief(told)), ""), *trouble(data))
    asked_ns = request.at_ns if request is not None else number(data.get("requested_ns"))
    times = [("headers", number(data.get("headers_ns"))), ("first token", number(data.get("first_token_ns"))),
             ("end", response.at_ns)]  # fmt: skip
    after = [f"{name} after {text.duration(at_ns - asked_ns)}" for name, at_ns in times if at_ns]
    yield _fact("times", ", ".join(after))
    counted = [(heading, tokens.told(data, sort)) for heading, sort in zip(tokens.HEADINGS, tokens.SORTS, strict=True)]
    known = [f"{heading} {value:,}" for heading, value in counted if value is not None]
    yield _fact("tokens", ", ".join(known) or tokens.NOT_TOLD)
    usd = tokens.amount(data.get("cost_usd"))
    if usd is not None:
        yield _fact("cost", f"est {tokens.money(usd)} by {data.get('prices')}")
    ids = [foreign_text(data.get(name)) for name in ("response_id", "request_id") if data.get(name)]
    if ids:
        yield _fact("ids", brief("  ".join(ids)))
    unknown = data.get("unknown")
    if isinstance(unknown, list) and unknown:
        yield line(("  not known   ", "dim"), (text.escape(", ".join(map(foreign_text, unknown))), "gap"))


def _fact(name: str, told: str) -> Line:
    return line((f"  {name:<11} ", "dim"), (text.escape(told), ""))


def _said(response: Row | None, context: Context) -> Iterator[Line]:
    """The answer put together: texts, thinking, calls of tools."""
    if response is None:
        yield line(("answered: no answer was seen", "gap"))
        return
    body = whole(context.source, response, "message")
    if body is None:
        if number(mapping(response.data.get("message")).get("size")):
            yield line(("answered: the text was not kept", "gap"))
        return
    yield line(("answered", "title"))
    for block in _blocks(body):
        kind = str(block.get("kind", "other"))
        if kind in ("tool", "provider-tool"):
            yield line(("  calls ", "dim"), (text.escape(brief(str(block.get("name", "?")))), "name"))
            yield from paragraph(str(block.get("arguments", "")), "    ")
            continue
        if kind != "text":
            yield line((f"  ({text.escape(kind)})", "dim"))
        yield from paragraph(str(block.get("text", "")), "  ")


def _blocks(body: bytes) -> list[dict[str, Any]]:
    try:
        message = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [{"kind": "other", "text": body.decode("utf-8", "replace")}]
    blocks = mapping(message).get("blocks")
    return [block for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []


def paragraph(content: str, indent: str) -> Iterator[Line]:
    """Foreign text line by line; what is very long is cut, and says so."""
    shown = content[:_LONGEST].split("\n")
    for part in shown[:_LINES]:
        yield line((indent, ""), (text.escape(brief(part), tabs=True), ""))
    if len(content) > _LONGEST or len(shown) > _LINES:
        yield line((f"{indent}… {len(content):,} characters in all (`--json` has them)", "dim"))


def _headers(title: str, row: Row | None) -> Iterator[Line]:
    yield from _pairs(f"{title} headers", row.data.get("headers") if row is not None else None)


def _pairs(title: str, pairs: Any) -> Iterator[Line]:
    if not isinstance(pairs, list) or not pairs:
        return
    yield line((title, "title"))
    for pair in pairs[:200]:
        if isinstance(pair, list) and len(pair) == 2:
            name, value = (text.escape(brief(foreign_text(part))) for part in pair)
            yield line((f"  {name}: ", "dim"), (value, ""))


def tool_lines(use: ToolUse, context: Context, of: Caused) -> Iterator[Line]:
    """The whole of a tool call, without the rows it caused."""
    data = use.asked.data
    name = brief(foreign_text(data.get("name")))
    place = f"  {use.turn}, {use.call}, agent {use.agent}"
    yield line((f"{use.id} ", "title"), (text.escape(name), "name"), (place, "dim"))
    took = f"  {text.duration(use.end_ns - use.at_ns)}" if use.end_ns is not None else ""
    yield line(("  result      ", "dim"), *(provider(use) or tool_status(context, use.id, use.result)), (took, "dim"))
    if use.result is not None:
        yield _fact("told in", f"{use.result.data.get('call')} ({use.result.data.get('turn')})")
    for call in context.story.mcp.of_tool(use.id) if context.story is not None else ():
        server, tool = (brief(foreign_text(call.asked.data.get(name))) for name in ("server", "tool"))
        yield _fact("over MCP", f"{call.id} {server} {tool}  ({JOINED.get(call.joined, call.joined)})")
    if of.words() or of.links:
        yield _fact("caused", f"{of.words() or 'nothing that is shown'}  ({of.how()})")
    if data.get("id"):
        yield _fact("id", brief(foreign_text(data["id"])))
    yield line(("arguments", "title"))
    yield from paragraph(spelled(foreign_text(data.get("arguments"))), "  ")
    if number(data.get("omitted_bytes")):
        yield line((f"  … {text.size(number(data.get('omitted_bytes')))} more", "dim"))
    if use.result is not None:
        size = number(use.result.data.get("size"))
        yield line(("result", "title"), (f"  {text.size(size)}", "dim"))
        yield from paragraph(foreign_text(use.result.data.get("text")), "  ")


def spelled(arguments: str) -> str:
    """JSON with one member a line, its texts as they are; other text unchanged."""
    try:
        fields = msgspec.json.decode(arguments.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return arguments
    if not isinstance(fields, dict):
        return arguments
    told = (value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in fields.values())
    return "\n".join(f"{name}: {value}" for name, value in zip(fields, told, strict=True))


def exchange_lines(row: Row, context: Context) -> Iterator[Line]:
    """An exchange that was no model call, with its headers and its bodies as far as they are text."""
    data = row.data
    yield line((f"{data.get('exchange')} ", "title"), (text.escape(brief(row.subject)), "name"))
    yield _fact("answer", f"{data.get('status') or 'none'}  {data.get('ending', 'complete')}")
    chain = context.lineage(row.span).chain()
    if chain:
        yield line(("  by          ", "dim"), (chain, "who"))
    for field in ("request", "response"):
        yield from _pairs(f"{field} headers", data.get(f"{field}_headers"))
        body = whole(context.source, row, field)
        if body:
            yield line((field, "title"), (f"  {text.size(len(body))}", "dim"))
            yield from paragraph(body.decode("utf-8", "backslashreplace"), "  ")
