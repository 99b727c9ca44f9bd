"""Google's Gemini (ai.google.dev/api/generate-content): POST .../models/NAME:generateContent, :streamGenerateContent.

A stream is of events (`alt=sse`) or one JSON array. Vertex AI serves it, too, and Code Assist, in one more object.

Most calls have no id. They get one of their name and how many of that name the answer has before, `NAME#1`; the results
that follow on the answer are in the same order. Of results without ids only those of the last answer are read.
"""

import re
from collections import Counter
from typing import Any

from agentwrap.events import Api
from agentwrap.models.gathering import Gathering, Kind, error_of, spelled, value_of
from agentwrap.models.identity import identity, without
from agentwrap.models.loose import mapping, number, sequence, word
from agentwrap.models.requests import Document, message, outcome
from agentwrap.models.shape import Message, Outcome, RequestFacts, ResponseFacts, Usage
from agentwrap.models.sse import Event
from agentwrap.models.stream import Form, form, messages

_PATH = re.compile(rb".*/(?:models/([^/:]{1,256})|v1internal):(streamG|g)enerateContent")

_OTHERS = frozenset(("inlineData", "fileData", "codeExecutionResult", "functionResponse"))
_MARKS = frozenset(("text", "thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"))


class GeminiGenerate:
    """Reader of this API."""

    api: Api = "gemini.generate"
    provider = "google"

    def matches(self, method: bytes, host: bytes, path: bytes) -> bool:  # noqa: ARG002
        """As Shape.matches."""
        return method == b"POST" and _PATH.fullmatch(path) is not None

    def request(self, body: bytes, path: bytes) -> RequestFacts:
        """As Shape.request."""
        document = Document(body, "contents", "request")
        said: list[Message] = []
        outcomes: list[Outcome] = []
        names: Counter[bytes] = Counter()
        for place in document.places:
            held = mapping(document.at(place))
            parts = [without(part, ("thoughtSignature",)) for part in sequence(held.get("parts"))]
            kept = identity([held.get("role"), parts], document.raw(place))
            said.append(message(held.get("role"), kept, place))
            if held.get("role") == "model":
                outcomes = [one for one in outcomes if not _is_made(one)]
                names.clear()
            outcomes += [one for part in parts for one in _outcomes(mapping(part), names)]
        named = _PATH.fullmatch(path)
        return RequestFacts(
            model=(named[1] if named else None) or word(document.get("model")),
            stream=named is not None and named[2] == b"streamG",
            messages=tuple(said),
            outcomes=tuple(outcomes),
            tools=sum(map(_declared, sequence(document.get("tools")))),
            session=word(document.get("session_id")),
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
            elif event.complete:
                answer.gathering.met("no object")
        return answer.facts(made)


def _declared(tool: object) -> int:
    return len(sequence(mapping(tool).get("functionDeclarations"))) or 1  # one of Google's own has none


def _made_id(name: bytes, names: Counter[bytes]) -> bytes:
    names[name] += 1
    return b"%s#%d" % (name, names[name])


def _is_made(one: Outcome) -> bool:
    return one.id.rpartition(b"#")[0] == one.name


def _outcomes(part: dict[str, Any], names: Counter[bytes]) -> list[Outcome]:
    if not isinstance(part.get("functionResponse"), dict):
        return []
    told = part["functionResponse"]
    result = mapping(told.get("response"))
    only = result.get("output", result.get("result", result.get("error")))
    said = only if len(result) == 1 and isinstance(only, str) else spelled(told.get("response")).decode()
    error = True if "error" in result and "output" not in result else None
    name = word(told.get("name"))
    return [outcome(word(told.get("id")) or _made_id(name, names), [said], name, error)]


class _Answer:
    """An answer under way. A part goes on as long as its kind does."""

    def __init__(self, *, streamed: bool) -> None:
        self.gathering = Gathering(streamed=streamed)
        self._counted: object = None  # the last chunk's count
        self._names: Counter[bytes] = Counter()
        self._last: dict[int, tuple[Kind, int]] = {}

    def take(self, event: Event, value: dict[str, Any]) -> None:
        """Take one chunk, or the whole."""
        gathering = self.gathering
        value = mapping(value["response"]) if isinstance(value.get("response"), dict) else value
        if "candidates" not in value and "usageMetadata" not in value and "promptFeedback" not in value:
            gathering.error = error_of(value)
            if not any(gathering.error):
                gathering.met(value.get("type") or next(iter(value), "no object"))
        gathering.model = word(value.get("modelVersion")) or gathering.model
        gathering.id = word(value.get("responseId")) or gathering.id
        self._counted = value.get("usageMetadata") or self._counted
        blocked = mapping(value.get("promptFeedback")).get("blockReason")
        for candidate in map(mapping, sequence(value.get("candidates"))):
            index = number(candidate.get("index")) or 0
            for part in sequence(mapping(candidate.get("content")).get("parts")):
                self._part(event, index, mapping(part))
            blocked = blocked or candidate.get("finishReason")
        if blocked:
            gathering.complete = True
            gathering.stop = word(blocked)

    def facts(self, made: Form) -> ResponseFacts:
        """What came."""
        gathering = self.gathering
        gathering.usage = _usage(mapping(self._counted))
        return gathering.answer(made)

    def _part(self, event: Event, index: int, part: dict[str, Any]) -> None:
        gathering = self.gathering
        if isinstance(part.get("text"), str):
            if part["text"]:
                kept = gathering.part(*self._key(index, "thinking" if part.get("thought") else "text"))
                gathering.delta(kept, "text", event, b"text", part["text"])
        elif isinstance(part.get("functionCall"), dict):
            called = part["functionCall"]
            kept = gathering.part(*self._key(index, "tool", anew=True))
            kept.name = word(called.get("name"))
            kept.id = word(called.get("id")) or _made_id(kept.name, self._names)
            kept.otherwise = spelled(called.get("args") or {})
            gathering.began(event.lines[0])
        elif isinstance(part.get("executableCode"), dict):
            kept = gathering.part(*self._key(index, "provider-tool", anew=True))
            kept.name = b"code_execution"
            gathering.delta(kept, "arguments", event, b"code", part["executableCode"].get("code"))
        else:
            name = next((name for name in part if name not in _MARKS), None)
            if name is not None:
                gathering.part(*self._key(index, "other", anew=True)).name = word(name)
            if name is not None and name not in _OTHERS:
                gathering.met(name)

    def _key(self, index: int, kind: Kind, *, anew: bool = False) -> tuple[tuple[int, int], Kind]:
        last, count = self._last.get(index, ("other", 0))
        if anew or last != kind:
            count += 1
        self._last[index] = (kind, count)
        return (index, count), kind


def _usage(told: dict[str, Any]) -> Usage:
    """`promptTokenCount` has the cached ones in it; what was thought is counted beside what was said."""
    said, thought = number(told.get("candidatesTokenCount")), number(told.get("thoughtsTokenCount"))
    return Usage(
        number(told.get("promptTokenCount")),
        number(told.get("cachedContentTokenCount")),
        None,
        None if said is None and thought is None else (said or 0) + (thought or 0),
        thought,
    )
