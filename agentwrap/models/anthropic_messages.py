"""Anthropic's Messages (docs.anthropic.com, "Messages" and "Streaming Messages"): POST .../v1/messages.

Also as Vertex AI serves it (.../publishers/anthropic/models/NAME:rawPredict, :streamRawPredict).
"""

import re
from typing import Any, Final

from agentwrap.events import Api
from agentwrap.models.gathering import Gathering, Kind, Part, error_of, spelled, type_of, value_of
from agentwrap.models.identity import content, identity
from agentwrap.models.json_slices import FAULTS, read
from agentwrap.models.loose import mapping, number, sequence, text, word
from agentwrap.models.remembered import Remembered
from agentwrap.models.requests import Document, Said, outcome, role_of, value_in
from agentwrap.models.shape import Outcome, RequestFacts, ResponseFacts, Usage
from agentwrap.models.sse import Event
from agentwrap.models.stream import form, messages

_PATH = re.compile(rb"(?:.*/)?v1/messages|.*/publishers/anthropic/models/[^/:]+:(?:streamRawP|rawP)redict")
_VERTEX_MODEL = re.compile(rb".*/models/([^/:]+):")
_SESSION = re.compile(rb".*session_([0-9A-Za-z-]{8,64})$")

_KINDS: Final[dict[str, Kind]] = {
    "text": "text",
    "thinking": "thinking",
    "redacted_thinking": "thinking",
    "tool_use": "tool",
    "server_tool_use": "provider-tool",
    "mcp_tool_use": "provider-tool",
    **dict.fromkeys(
        ("container_upload", "compaction", "fallback", "mcp_tool_listing", "tool_addition", "tool_removal"), "other"
    ),
}
_RESULT = "_tool_result"  # web_search_tool_result, mcp_tool_result, ...: tools that the provider ran
_DELTAS: Final = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "text"),
    "compaction_delta": ("content", "text"),
    "input_json_delta": ("partial_json", "arguments"),
}
_INPUTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_COUNTS = (*_INPUTS, "output_tokens")
_SILENT = ("signature_delta", "citations_delta")


def _said_by(raw: bytes) -> Said:
    held = mapping(value_in(raw))
    kept = [held.get("role"), content(held.get("content"))]
    return Said(role_of(held.get("role")), identity(kept, raw), tuple(_outcomes(held)))


_said = Remembered(_said_by)


class AnthropicMessages:
    """Reader of this API."""

    api: Api = "anthropic.messages"
    provider = "anthropic"

    def matches(self, method: bytes, host: bytes, path: bytes) -> bool:  # noqa: ARG002
        """As Shape.matches."""
        return method == b"POST" and _PATH.fullmatch(path) is not None

    def request(self, body: bytes, path: bytes) -> RequestFacts:
        """As Shape.request."""
        document = Document(body, "messages")
        said, outcomes = document.said(_said.of)
        named = _VERTEX_MODEL.match(path)
        return RequestFacts(
            model=word(document.get("model")) or (named[1] if named else b""),
            stream=document.get("stream") is True,
            messages=tuple(said),
            outcomes=tuple(outcomes),
            tools=document.length("tools"),
            session=_session(mapping(document.get("metadata")).get("user_id")),
            pieces=document.pieces(),
            problem=document.problem,
        )

    def response(self, body: bytes, media: bytes) -> ResponseFacts:
        """As Shape.response."""
        made = form(body, media)
        gathering = Gathering(streamed=made != "document")
        for event in messages(body, media):
            value = value_of(event)
            if isinstance(value, dict):
                _take(gathering, event, value)
            elif event.complete:
                gathering.met("no object")
        return gathering.answer(made)


def _outcomes(held: dict[str, Any]) -> list[Outcome]:
    found = []
    for block in map(mapping, sequence(held.get("content"))):
        if block.get("type") == "tool_result":
            error = block.get("is_error")
            result = block.get("content")
            parts = map(mapping, sequence(result))
            texts = [result] if isinstance(result, str) else [part["text"] for part in parts if "text" in part]
            mark = error if isinstance(error, bool) else None
            found.append(outcome(word(block.get("tool_use_id")), texts, error=mark))
    return found


def _session(user: object) -> bytes:
    """The session in `metadata.user_id`: Claude Code's own, as JSON or at the end of `user_..._session_...`."""
    name = text(user)
    if name.startswith(b"{"):
        try:
            return word(mapping(read(name)).get("session_id"))
        except FAULTS:
            return b""
    found = _SESSION.match(name)
    return found[1] if found else b""


def _take(gathering: Gathering, event: Event, value: dict[str, Any]) -> None:
    kind = type_of(value, event)
    index = value.get("index")
    match kind:
        case "content_block_delta":
            _delta(gathering, event, number(index), mapping(value.get("delta")))
        case "message_start":
            _begin(gathering, event, mapping(value.get("message")), whole=False)
        case "message":
            _begin(gathering, event, value, whole=True)
        case "content_block_start":
            _start(gathering, event, number(index), mapping(value.get("content_block")))
        case "message_delta":
            gathering.stop = word(mapping(value.get("delta")).get("stop_reason")) or gathering.stop
            _count(gathering, mapping(value.get("usage")))
        case "message_stop":
            gathering.complete = True
        case "error":
            gathering.error = error_of(value)
        case "content_block_stop":
            _stop(gathering.get(number(index)))
        case "ping":
            pass
        case _:
            gathering.error = error_of(value) if gathering.error == (b"", b"") else gathering.error
            if gathering.error == (b"", b""):
                gathering.met(kind)


def _begin(gathering: Gathering, event: Event, told: dict[str, Any], *, whole: bool) -> None:
    gathering.model = word(told.get("model"))
    gathering.id = word(told.get("id"))
    gathering.stop = word(told.get("stop_reason"))
    _count(gathering, mapping(told.get("usage")))
    for index, block in enumerate(sequence(told.get("content"))):
        _start(gathering, event, index, mapping(block))
        _stop(gathering.get(index))
    gathering.complete = whole


def _start(gathering: Gathering, event: Event, index: int | None, block: dict[str, Any]) -> None:
    name = block.get("type")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        kind = "other"
        if not (isinstance(name, str) and name.endswith(_RESULT)):
            gathering.met(name)
    ident = block.get("id") or block.get("tool_use_id")
    label = block.get("name") if kind in ("tool", "provider-tool") else name if kind == "other" else ""
    part = gathering.put(index, Part(kind, word(ident), word(label)))
    part.add("text", block.get("thinking" if kind == "thinking" else "text"))
    if block.get("input"):
        part.otherwise = spelled(block["input"])
    if kind in ("tool", "provider-tool") or part.has("text"):
        gathering.began(event.lines[0])


def _stop(part: Part | None) -> None:
    if part is not None and part.kind in ("tool", "provider-tool"):
        part.otherwise = part.otherwise or b"{}"  # no deltas: no arguments


def _delta(gathering: Gathering, event: Event, index: int | None, delta: dict[str, Any]) -> None:
    kind = delta.get("type")
    if not isinstance(kind, str) or kind not in _DELTAS:
        if kind not in _SILENT:
            gathering.met(kind)
        return
    key, field = _DELTAS[kind]
    default: Kind = "tool" if field == "arguments" else "thinking" if key == "thinking" else "text"
    part = gathering.part(index, default)
    gathering.delta(part, "arguments" if field == "arguments" else "text", event, key.encode(), delta.get(key))


def _count(gathering: Gathering, usage: dict[str, Any]) -> None:
    """Numbers of a message_delta are totals: what it has counts, what it leaves out stays."""
    counts = gathering.counts
    counts |= {name: told for name in _COUNTS if (told := number(usage.get(name))) is not None}
    thought = number(mapping(usage.get("output_tokens_details")).get("thinking_tokens"))
    if thought is not None:
        counts["thinking_tokens"] = thought
    parts = [counts[name] for name in _INPUTS if name in counts]
    gathering.usage = Usage(
        sum(parts) if parts else None,
        counts.get("cache_read_input_tokens"),
        counts.get("cache_creation_input_tokens"),
        counts.get("output_tokens"),
        counts.get("thinking_tokens"),
    )
