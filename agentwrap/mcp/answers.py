"""What agentwrap itself says to a client or server: why a request did not go on, and that it still waits. Pure.

A refused call of a tool is a result that says so, as the protocol wants for what the model should read; anything else
is a JSON-RPC error. Its code lies outside of what JSON-RPC and MCP keep for themselves (-32768 to -32000).
"""

from functools import lru_cache

import msgspec

from agentwrap.policy.mcp_rules import TOOL_CALL
from agentwrap.policy.questions import Answer
from agentwrap.text import clip, escape

CODE_DENIED = -31403
_LONG = 400  # columns of any foreign text
_OURS = "This answer comes from agentwrap, the program that this run is wrapped in. It does not come from the server:"
_encode = msgspec.json.Encoder().encode


def denial_text(answer: Answer, what: str, *, received: bool = False) -> str:
    """Why a request was refused, for a model and for people. `received`: the other side has seen it."""
    change = escape(answer.change) if answer.change else "ask the person who runs this"
    lines = [f"agentwrap denied: {clip(what, _LONG)}"]
    lines.append(f"{_OURS} {'its answer was kept back' if received else 'nothing was sent there'}.")
    lines.append(f"Rule: {clip(str(answer.rule), _LONG)}")
    if answer.why:
        lines.append(f"Why: {clip(answer.why, _LONG)}")
    lines.append("Trying again, or in another way, gives the same answer.")
    lines.append(f"A person may allow it: {clip(change, _LONG)}")
    return "\n".join(lines)


def unapproved_text(rule: str, what: str, why: str) -> str:
    """Why a request that waited for a human did not go on."""
    return "\n".join(
        [
            f"agentwrap did not let this go on: {clip(what, _LONG)}",
            f"{_OURS} nothing was sent there.",
            f"Rule: {clip(rule, _LONG)}",
            f"Why: {clip(why, _LONG)}",
            "A person may allow it when it is asked again: agentwrap pending",
        ]
    )


def refusal(raw_id: bytes, method: str, text: str, rule: str, *, modern: bool) -> bytes:
    """The whole answer to a request that does not go on; none for what has no id."""
    if not raw_id:
        return b""
    if method == TOOL_CALL:
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (raw_id, _refused_call(text, modern))
    return error(raw_id, text, rule)


@lru_cache(maxsize=64)
def _refused_call(text: str, modern: bool) -> bytes:
    kind = b',"resultType":"complete"' if modern else b""
    return b'{"content":[{"type":"text","text":%b}],"isError":true%b}' % (_encode(escape_lines(text)), kind)


def error(raw_id: bytes, text: str, rule: str) -> bytes:
    """A JSON-RPC error. Without an id it is for `null`, as for what cannot be read (JSON-RPC 2.0, 5)."""
    data = b'{"by":"agentwrap","rule":%b}' % _encode(escape(rule))
    told = b'{"code":%d,"message":%b,"data":%b}' % (CODE_DENIED, _encode(escape_lines(text)), data)
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (raw_id or b"null", told)


def escape_lines(text: str) -> str:
    """Safe text that keeps its own line breaks."""
    return "\n".join(map(escape, text.split("\n")))


def progress(token: bytes, count: int, text: bytes) -> bytes:
    """That a call still waits. The steps are tiny: progress has to grow, and the server's own begins after ours."""
    told = _encode(escape(text))
    head = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":'
    return b'%b%b,"progress":%b,"message":%b}}' % (head, token, _encode(max(count, 0) / 1_000_000), told)


def oddness(name: str) -> str:
    """What is odd about a name for somebody who only sees it; empty if nothing is."""
    if name.isascii() and name.isprintable():
        return ""
    from unicodedata import name as name_of

    shown = escape(name)
    if shown != name:
        return f"the name has characters that cannot be seen: {shown}"
    if any("a" <= one.casefold() <= "z" for one in name):
        odd = next(one for one in name if not one.isascii())
        return f"the name may not be what it looks like: it has U+{ord(odd):04X} {name_of(odd, 'without a name')}"
    return ""
