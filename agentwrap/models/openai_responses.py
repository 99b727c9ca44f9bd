"""OpenAI's Responses (platform.openai.com/docs/api-reference/responses): POST .../responses, in events or in one.

Also over a WebSocket, that a GET of the same path opens: each `response.create` message is a request, and the messages
down until the last one of the response are the answer, read as lines (`stream.LINES`), one message a line.
"""

import re
from typing import Any, Final

from agentwrap.events import Api
from agentwrap.models.gathering import PARTS_MAX, Gathering, Part, error_of, type_of, value_of
from agentwrap.models.identity import content, identity, without
from agentwrap.models.loose import mapping, number, sequence, word
from agentwrap.models.remembered import Remembered
from agentwrap.models.requests import Document, Said, message, role_of, value_in
from agentwrap.models.responses_items import DELTAS, KNOWN_EVENTS, first_parts, outcomes, parts
from agentwrap.models.shape import RequestFacts, ResponseFacts, Usage
from agentwrap.models.sse import Event
from agentwrap.models.stream import Form, form, messages

_PATH = re.compile(rb"(?:/|.*/(?:v\d+|codex|openai)/)responses")

# Ids and notes that a client makes anew for the same item.
_OWN: Final = ("id", "status", "cache_control", "created_by", "internal_chat_message_metadata_passthrough")
_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_PREFIXES: Final = ("codex.", "keepalive")  # what ChatGPT's own backend adds


def _said_by(raw: bytes) -> Said:
    item = mapping(value_in(raw))
    return Said(role_of(item.get("role") or item.get("type")), identity(_kept(item), raw), tuple(outcomes(item)))


_said = Remembered(_said_by)


class OpenAiResponses:
    """Reader of this API."""

    api: Api = "openai.responses"
    provider = "openai"

    def matches(self, method: bytes, host: bytes, path: bytes) -> bool:  # noqa: ARG002
        """As Shape.matches. A GET is a call only where it is upgraded."""
        return method in (b"POST", b"GET") and _PATH.fullmatch(path) is not None

    def request(self, body: bytes, path: bytes) -> RequestFacts:  # noqa: ARG002
        """As Shape.request."""
        document = Document(body, "input")
        said, results = document.said(_said.of)
        asked = document.get("input")
        if isinstance(asked, str) and document.top is not None:
            kept = identity(_kept({"role": "user", "content": asked}), b"")
            said.append(message("user", kept, document.top["input"]))
        return RequestFacts(
            model=word(document.get("model")),
            stream=document.get("stream") is True,
            messages=tuple(said),
            outcomes=tuple(results),
            tools=document.length("tools"),
            session=_session(document),
            previous=word(document.get("previous_response_id")),
            pieces=document.pieces(),
            problem=document.problem,
        )

    def response(self, body: bytes, media: bytes) -> ResponseFacts:
        """As Shape.response; the messages of a WebSocket come as `stream.LINES`."""
        made = form(body, media)
        answer = _Answer(streamed=made != "document")
        for event in messages(body, media):
            value = value_of(event)
            if isinstance(value, dict):
                answer.take(event, value)
            elif event.complete and event.data.strip() != b"[DONE]":
                answer.gathering.met("no object")
        return answer.facts(made)


def _kept(item: dict[str, Any]) -> dict[str, Any]:
    """What an item says: an `item_reference` says its id."""
    kept: dict[str, Any] = without(item, _OWN if item.get("type") != "item_reference" else _OWN[1:])
    if "role" in kept:
        kept["type"] = "message"
        kept["content"] = content(kept.get("content"), "output_text" if kept["role"] == "assistant" else "input_text")
    return kept


def _session(document: Document) -> bytes:
    conversation = document.get("conversation")
    told = conversation if isinstance(conversation, str) else mapping(conversation).get("id")
    thread = mapping(document.get("client_metadata")).get("thread_id")  # Codex
    return word(told) or word(thread) or word(document.get("prompt_cache_key"))


class _Answer:
    """An answer under way. `_items`: those that came whole, by their index."""

    def __init__(self, *, streamed: bool) -> None:
        self.gathering = Gathering(streamed=streamed)
        self._items: dict[int, dict[str, Any]] = {}

    def take(self, event: Event, value: dict[str, Any]) -> None:
        """Take one event, or the whole."""
        gathering = self.gathering
        kind = type_of(value, event)
        index = number(value.get("output_index"))
        at = -1 if index is None else index
        item = mapping(value.get("item"))
        if value.get("object") == "response" and "output" in value:
            self._response(value)
            gathering.began(event.lines[0])
        elif kind == "error":
            gathering.error = error_of(value) if "error" in value else error_of({"error": _flat(value)})
        elif kind in DELTAS:
            self._delta(event, kind, at, value)
        elif kind == "response.output_item.added":
            for key, part in first_parts(item):
                gathering.put((at, key), part)
                gathering.began(event.lines[0])
        elif kind == "response.output_item.done":
            if len(self._items) < PARTS_MAX:
                self._items[at] = item
            if any(block.kind in ("tool", "provider-tool", "text", "refusal") for block in parts(item)):
                gathering.began(event.lines[0])
        elif "response" in value and kind in KNOWN_EVENTS:
            self._response(mapping(value["response"]))
        elif kind not in KNOWN_EVENTS and not kind.startswith(_PREFIXES):
            gathering.error = gathering.error if any(gathering.error) else error_of(value)
            if not any(gathering.error):
                gathering.met(kind)
        if kind in _ENDS:
            gathering.complete = True

    def facts(self, made: Form) -> ResponseFacts:
        """What came. The last event holds the whole answer, or (ChatGPT's own backend) none of it."""
        gathering = self.gathering
        if gathering.whole is None and self._items:
            begun: dict[int, list[Any]] = {}
            for (index, _), part in gathering.items():
                begun.setdefault(index, []).append(part)
            begun |= {index: self._parts(item) for index, item in self._items.items()}
            gathering.whole = [part for index in sorted(begun) for part in begun[index]]
        return gathering.answer(made)

    def _response(self, told: dict[str, Any]) -> None:
        gathering = self.gathering
        gathering.id = word(told.get("id")) or gathering.id
        gathering.model = word(told.get("model")) or gathering.model
        if isinstance(told.get("usage"), dict):
            gathering.usage = _usage(told["usage"])
        if told.get("error"):
            gathering.error = error_of(told)
        status = told.get("status")
        if status in ("completed", "incomplete", "cancelled", "failed"):
            gathering.complete = True
            gathering.stop = word(mapping(told.get("incomplete_details")).get("reason")) or word(status)
        elif status not in (None, "queued", "in_progress"):
            gathering.met(f"status.{status}")
        if gathering.complete and sequence(told.get("output")):
            gathering.whole = [part for item in map(mapping, told["output"]) for part in self._parts(item)]

    def _parts(self, item: dict[str, Any]) -> list[Part]:
        found = parts(item)
        if any(part.kind == "other" and not part.name for part in found):
            self.gathering.met(item.get("type"))
        return found

    def _delta(self, event: Event, kind: str, at: int, value: dict[str, Any]) -> None:
        gathering = self.gathering
        delta, told = DELTAS[kind], value.get("delta")
        if delta.kind is None:
            for name, text in mapping(told).items() if isinstance(told, dict) else (("delta", told),):
                gathering.echo((kind, at, name), event, name.encode("utf-8", "replace"), text)
            return
        within = number(value.get(delta.index)) if delta.index else None
        part = gathering.part((at, "call" if delta.field == "arguments" else (kind, within)), delta.kind)
        gathering.delta(part, delta.field, event, b"delta", told)


def _flat(value: dict[str, Any]) -> dict[str, Any]:
    return {"type": value.get("code") or "error", "message": value.get("message")}


def _usage(told: dict[str, Any]) -> Usage:
    asked, said = mapping(told.get("input_tokens_details")), mapping(told.get("output_tokens_details"))
    return Usage(
        number(told.get("input_tokens")),
        number(asked.get("cached_tokens")),
        number(asked.get("cache_write_tokens")),
        number(told.get("output_tokens")),
        number(said.get("reasoning_tokens")),
    )
