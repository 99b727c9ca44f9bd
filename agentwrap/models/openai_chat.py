"""OpenAI's Chat Completions (platform.openai.com/docs/api-reference/chat): POST .../chat/completions.

Spoken by many servers: the fields that some of them add for thinking are read, and what some leave out is not needed.
"""

import re
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

from agentwrap.events import Api
from agentwrap.models.gathering import Gathering, Kind, error_of, spelled, type_of, value_of
from agentwrap.models.identity import content, identity, without
from agentwrap.models.loose import mapping, number, sequence, word
from agentwrap.models.remembered import Remembered
from agentwrap.models.requests import Document, Said, outcome, role_of, value_in
from agentwrap.models.shape import Outcome, RequestFacts, ResponseFacts, Usage
from agentwrap.models.sse import Event
from agentwrap.models.stream import Form, form, messages

_PATH = re.compile(rb"(?:.*/)?chat/completions")
_DEPLOYMENT = re.compile(rb".*/deployments/([^/]{1,256})/chat/completions")  # Azure names the model in the path

_THINKING = ("reasoning_content", "reasoning")  # DeepSeek, vLLM; OpenRouter, Ollama
_TEXTS: Final[dict[str, Kind]] = {"content": "text", "refusal": "refusal"}
_SILENT = ("role", "name", "annotations")


def _said_by(raw: bytes) -> Said:
    held = mapping(value_in(raw))
    kept = without(held, ("cache_control",))
    if "content" in kept:
        kept["content"] = content(kept["content"])
    return Said(role_of(held.get("role")), identity(kept, raw), tuple(_outcomes(held)))


_said = Remembered(_said_by)


class OpenAiChat:
    """Reader of this API."""

    api: Api = "openai.chat"
    provider = "openai"

    def matches(self, method: bytes, host: bytes, path: bytes) -> bool:  # noqa: ARG002
        """As Shape.matches."""
        return method == b"POST" and _PATH.fullmatch(path) is not None

    def request(self, body: bytes, path: bytes) -> RequestFacts:
        """As Shape.request."""
        document = Document(body, "messages")
        said, outcomes = document.said(_said.of)
        deployment = _DEPLOYMENT.fullmatch(path)
        return RequestFacts(
            model=word(document.get("model")) or (deployment[1] if deployment else b""),
            stream=document.get("stream") is True,
            messages=tuple(said),
            outcomes=tuple(outcomes),
            tools=document.length("tools") or document.length("functions"),
            session=word(document.get("prompt_cache_key")) or word(document.get("session_id")),
            pieces=document.pieces(),
            problem=document.problem,
        )

    def response(self, body: bytes, media: bytes) -> ResponseFacts:
        """As Shape.response."""
        made = form(body, media)
        answer = _Answer(streamed=made != "document")
        for event in messages(body, media):
            value = value_of(event)
            if isinstance(value, dict):
                answer.take(event, value)
            elif event.data.strip() == b"[DONE]":
                answer.gathering.complete = True
            elif event.complete:
                answer.gathering.met("no object")
        return answer.facts(made)


def _outcomes(held: dict[str, Any]) -> list[Outcome]:
    if held.get("role") not in ("tool", "function"):
        return []
    said = held.get("content")
    texts = [said] if isinstance(said, str) else [part.get("text") for part in map(mapping, sequence(said))]
    return [outcome(word(held.get("tool_call_id")), texts, word(held.get("name")))]


class _Answer:
    """An answer under way."""

    def __init__(self, *, streamed: bool) -> None:
        self.gathering = Gathering(streamed=streamed)
        self._counted: object = None  # some servers count in every chunk
        self._ended: dict[int, bool] = {}
        self._thinking: dict[int, str] = {}
        self._last_tool: dict[int, tuple[int, bytes]] = {}

    def take(self, event: Event, value: dict[str, Any]) -> None:
        """Take one chunk, or the whole."""
        gathering = self.gathering
        if value.get("error"):
            gathering.error = error_of(value)
        elif "choices" not in value and "usage" not in value:
            gathering.error = error_of(value)
            if gathering.error == (b"", b""):
                gathering.met(value.get("object") or type_of(value, event))
        gathering.model = word(value.get("model")) or gathering.model
        gathering.id = word(value.get("id")) or gathering.id
        self._counted = value.get("usage") or self._counted
        for choice in map(mapping, sequence(value.get("choices"))):
            index = number(choice.get("index")) or 0
            self._ended.setdefault(index, False)
            if "message" in choice:
                self._message(event, index, mapping(choice["message"]), whole=True)
            self._message(event, index, mapping(choice.get("delta")), whole=False)
            if choice.get("logprobs"):
                for token in _tokens(choice):
                    gathering.echo((index, "logprobs"), event, b"token", token)
            if choice.get("finish_reason"):
                self._ended[index] = True
                gathering.stop = gathering.stop or word(choice["finish_reason"])

    def facts(self, made: Form) -> ResponseFacts:
        """What came."""
        gathering = self.gathering
        gathering.usage = _usage(mapping(self._counted))
        gathering.complete = gathering.complete or (bool(self._ended) and all(self._ended.values()))
        return gathering.answer(made)

    def _message(self, event: Event, index: int, said: dict[str, Any], *, whole: bool) -> None:
        gathering = self.gathering
        for name, held in said.items():
            if held is None or name in _SILENT:
                continue
            if name in _TEXTS:
                for member, text in ((name, held),) if isinstance(held, str) else _parts(held):
                    if text:
                        part = gathering.part((index, name), _TEXTS[name])
                        gathering.delta(part, "text", event, member.encode(), text)
            elif name in _THINKING:
                self._thought(event, index, name, held)
            elif name == "tool_calls":
                for position, call in enumerate(map(mapping, sequence(held))):
                    self._tool(event, index, position if whole else None, call)
            elif name == "function_call":
                self._call(event, (index, name), mapping(held), "arguments")
            elif name == "audio":
                part = gathering.part((index, name), "other")
                gathering.delta(part, "text", event, b"transcript", mapping(held).get("transcript"))
            elif name == "reasoning_details":
                for detail, key in product(map(mapping, sequence(held)), ("text", "summary")):
                    gathering.echo((index, key), event, key.encode(), detail.get(key))
            else:
                gathering.met(f"delta.{name}")

    def _thought(self, event: Event, index: int, name: str, text: object) -> None:
        """Some servers say it under two names: the one that came first counts."""
        if self._thinking.setdefault(index, name) == name:
            part = self.gathering.part((index, "thinking"), "thinking")
            self.gathering.delta(part, "text", event, name.encode(), text)
        else:
            self.gathering.echo((index, name), event, name.encode(), text)

    def _tool(self, event: Event, index: int, position: int | None, call: dict[str, Any]) -> None:
        ident = word(call.get("id"))
        at = number(call.get("index"))
        last, last_id = self._last_tool.get(index, (-1, b""))
        if at is None:
            # Some servers number nothing: what has another id is another call.
            another = last < 0 or (ident and ident != last_id)
            at = position if position is not None else last + 1 if another else last
        self._last_tool[index] = (at, ident or last_id)
        custom = call.get("custom")
        made = mapping(custom) if isinstance(custom, dict) else mapping(call.get("function"))
        self._call(event, (index, at), made, "input" if isinstance(custom, dict) else "arguments")
        part = self.gathering.part((index, at), "tool")
        part.id = part.id or ident

    def _call(self, event: Event, key: tuple[int, object], made: dict[str, Any], field: str) -> None:
        part = self.gathering.part(key, "tool")
        part.name = part.name or word(made.get("name"))
        self.gathering.began(event.lines[0])
        given = made.get(field)
        if isinstance(given, dict):
            part.otherwise = spelled(given)
        self.gathering.delta(part, "arguments", event, field.encode(), given)


def _parts(said: object) -> Iterator[tuple[str, Any]]:
    """(name of the member, its text) of text parts."""
    for part in map(mapping, sequence(said)):
        yield "text", part.get("text")


def _tokens(choice: dict[str, Any]) -> Iterator[Any]:
    told = mapping(choice.get("logprobs"))
    for name in ("content", "refusal"):
        yield from (mapping(one).get("token") for one in sequence(told.get(name)))


def _usage(told: dict[str, Any]) -> Usage:
    """Totals: what was cached is part of the prompt, what was thought is part of the completion."""
    asked, said = mapping(told.get("prompt_tokens_details")), mapping(told.get("completion_tokens_details"))
    cached = number(asked.get("cached_tokens"))
    return Usage(
        number(told.get("prompt_tokens")),
        number(told.get("prompt_cache_hit_tokens")) if cached is None else cached,  # DeepSeek
        number(asked.get("cache_write_tokens")),
        number(told.get("completion_tokens")),
        number(said.get("reasoning_tokens")),
    )
