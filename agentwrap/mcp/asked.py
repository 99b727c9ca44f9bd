"""What a request of MCP asks for and what a response says, from their JSON. Pure; raises nothing for foreign bytes."""

import re
from collections.abc import Iterator

import msgspec

from agentwrap.events.mcp import McpResultEnding
from agentwrap.mcp.rpc import TEXT_BYTES, Rpc, is_true, read_members, string
from agentwrap.models.json_slices import elements, elements_of_a_cut_array

PROTOCOL = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
_TAKE_ARGUMENTS = frozenset({b"tools/call", b"prompts/get"})
_MARKS_MAX, _MARK_BYTES = 16, 200
# Where clients are known to name the model's tool call (Claude Code, Codex); elsewhere a short text is no such id.
_NAMED, _SURE_BYTES = frozenset({"claudecode/toolUseId", "callId"}), 8
_CLAIMS = {
    "durationms": 1_000_000, "elapsedms": 1_000_000, "latencyms": 1_000_000, "tookms": 1_000_000,
    "durationseconds": 1_000_000_000, "elapsedseconds": 1_000_000_000, "durationns": 1, "elapsedns": 1,
}  # fmt: skip
_CLAIMED_MAX_NS = 10**18
_LOOKED_AT_BYTES = 256 << 10
_STRING_BYTES = 6 * TEXT_BYTES + 64  # each byte may be an escape
_TEXT = re.compile(rb'"text"\s*:\s*"')
_BEGUN = re.compile(rb'"(?:[^"\\]|\\(?:u[0-9a-fA-F]{4}|[^u]))*', re.DOTALL)


class Asked(msgspec.Struct, frozen=True):
    """A request. `arguments`: of a tool or prompt, else all `params`, as they came. `token`: for progress, JSON text.

    `marks`: the texts in its `_meta`, among which a client may name the model's tool call. `state`: `requestState`;
    `again`: it brings what an `input_required` asked for.
    """

    tool: bytes = b""
    arguments: bytes = b""
    token: bytes = b""
    marks: tuple[bytes, ...] = ()
    modern: bool = False
    protocol: bytes = b""
    client_info: bytes = b""
    cursor: bytes = b""
    state: bytes = b""
    again: bool = False


def asked(rpc: Rpc) -> Asked:
    """Read a request."""
    params = read_members(rpc.params)
    meta = read_members(params.get("_meta", b""))
    protocol = string(meta.get(PROTOCOL, b""))
    return Asked(
        tool=string(params.get("name", b"") or params.get("uri", b""))[:1024],
        arguments=params.get("arguments", b"") if rpc.method in _TAKE_ARGUMENTS else rpc.params,
        token=meta.get("progressToken", b"")[:_MARK_BYTES],
        marks=tuple(_marks(meta)),
        modern=PROTOCOL in meta,
        protocol=protocol or string(params.get("protocolVersion", b"")),
        client_info=meta.get(CLIENT_INFO, b"") or params.get("clientInfo", b""),
        cursor=params.get("cursor", b""),
        state=params.get("requestState", b""),
        again="inputResponses" in params or "requestState" in params,
    )


def _marks(meta: dict[str, bytes]) -> Iterator[bytes]:
    count = 0
    for name, raw in meta.items():
        value = string(raw) if len(raw) <= _MARK_BYTES else b""
        if count < _MARKS_MAX and (name in _NAMED if len(value) < _SURE_BYTES else name != "progressToken"):
            count += 1
            yield value


class Answered(msgspec.Struct, frozen=True):
    """A response. `members`: of its result."""

    ending: McpResultEnding
    members: dict[str, bytes]
    error: bytes = b""
    text: bytes = b""
    claimed_ns: int = 0
    state: bytes = b""


def answered(rpc: Rpc) -> Answered:
    """Read a response."""
    if rpc.error:
        held = read_members(rpc.error)
        parts = (held.get("code", b""), string(held.get("message", b"")))
        return Answered("error", {}, b" ".join(part for part in parts if part)[:TEXT_BYTES] or rpc.error[:TEXT_BYTES])
    held = read_members(rpc.result)
    ending: McpResultEnding = "tool-error" if is_true(held.get("isError", b"")) else "complete"
    if string(held.get("resultType", b"")) == b"input_required":
        ending = "input-required"
    meta = read_members(held.get("_meta", b""))
    return Answered(
        ending,
        held,
        text=text_of(held),
        claimed_ns=_claimed(meta) or _claimed(read_members(held.get("structuredContent", b""))),
        state=held.get("requestState", b""),
    )


def text_of(result: dict[str, bytes]) -> bytes:
    """What of a result is text, clipped after 4 KB."""
    told = b""
    for raw in (result.get(name, b"") for name in ("content", "contents", "messages")):
        for text in _texts(raw, 0):
            told += (b"\n" if told else b"") + text
            if len(told) > TEXT_BYTES:
                return told[:TEXT_BYTES]
    return told or result.get("structuredContent", b"")[:TEXT_BYTES]


def _texts(raw: bytes, depth: int) -> Iterator[bytes]:
    if depth > 2:
        return
    if raw[:1] == b"[":
        small = len(raw) <= _LOOKED_AT_BYTES
        places = elements(raw) or () if small else elements_of_a_cut_array(raw[:_LOOKED_AT_BYTES])
        found = False
        for start, end in places:
            found = True
            yield from _texts(raw[start:end], depth + 1)
        if not found and (begun := _TEXT.search(raw[:_LOOKED_AT_BYTES])):
            yield _clipped(raw[begun.end() - 1 :])
    elif raw[:1] == b"{":
        held = read_members(raw)
        text = _clipped(held.get("text", b""))
        if text:
            yield text
        yield from _texts(held.get("content", b""), depth + 1)
        yield from _texts(held.get("resource", b""), depth + 1)


def _clipped(raw: bytes) -> bytes:
    """A string as far as it is kept: of a long one what lies before an escape that would be cut."""
    if raw[:1] != b'"' or len(raw) <= _STRING_BYTES:
        return string(raw)
    begun = _BEGUN.match(raw, 0, _STRING_BYTES)
    return string(begun[0] + b'"') if begun else b""


def _claimed(held: dict[str, bytes]) -> int:
    """A duration that the server states, in ns; 0 if it states none that can be one."""
    for name, raw in held.items():
        unit = _CLAIMS.get(name.rpartition("/")[2].replace("_", "").replace("-", "").replace(".", "").lower())
        if unit is None or len(raw) > 32:
            continue
        try:
            claimed = float(raw) * unit
        except ValueError:
            continue
        if 0 < claimed < _CLAIMED_MAX_NS:
            return int(claimed)
    return 0
