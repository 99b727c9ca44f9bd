"""An answer that is being put together from its deltas. Pure; knows no API.

Texts are kept as they came until the end, so that a hundred thousand deltas cost a hundred thousand steps.
"""

import json
from collections.abc import Hashable
from typing import Any, Literal

import msgspec

from agentwrap.models.json_slices import FAULTS, inside, read
from agentwrap.models.loose import mapping, sequence, text, word
from agentwrap.models.shape import Block, ResponseFacts, Usage
from agentwrap.models.sse import Event
from agentwrap.models.stream import Form

Kind = Literal["text", "thinking", "tool", "provider-tool", "refusal", "other"]
Field = Literal["text", "arguments"]

PARTS_MAX = 10_000
_UNKNOWN_MAX = 50
_LINES_MAX = 1000  # numbers of `Event.lines`
_SEARCHES_MAX = 16
_MESSAGE_CHARACTERS = 4096


class Part:
    """A block under construction."""

    __slots__ = ("_said", "_where", "id", "kind", "name", "otherwise")

    def __init__(self, kind: Kind, ident: bytes = b"", name: bytes = b"") -> None:
        self.kind = kind
        self.id = ident
        self.name = name
        self.otherwise = b""  # the arguments, unless deltas come
        self._said: dict[Field, list[str]] = {"text": [], "arguments": []}
        self._where: dict[Field, list[int]] = {"text": [], "arguments": []}

    def add(self, field: Field, value: object, place: tuple[int, int] | None = None) -> None:
        """More of a text; `place`: of its raw characters in the body."""
        if isinstance(value, str) and value:
            self._said[field].append(value)
            if place is not None:
                self._where[field] += place

    def replace(self, field: Field, value: object) -> None:
        """The whole of a text, whatever came of it before."""
        if isinstance(value, str):
            self._said[field] = [value]

    def has(self, field: Field) -> bool:
        """Whether anything came of a text."""
        return bool(self._said[field])

    def block(self) -> Block:
        """As far as it is there."""
        said = {field: text("".join(parts)) for field, parts in self._said.items()}
        return Block(self.kind, said["text"], self.id, self.name, said["arguments"] or self.otherwise)

    def scattered(self) -> list[tuple[int, ...]]:
        """Where its texts lie in the body."""
        return [tuple(where) for where in self._where.values() if where]


class Gathering:
    """What is known of an answer so far. `streamed`: texts come in pieces, and where they lie is to be told."""

    def __init__(self, *, streamed: bool = True) -> None:
        self._streamed = streamed
        self.model = self.id = self.stop = b""
        self.usage = Usage()
        self.counts: dict[str, int] = {}  # numbers as the provider names them, where they come one by one
        self.complete = False
        self.error = (b"", b"")
        self.problem = ""
        self.first_token = -1
        self.whole: list[Part] | None = None  # the answer as its end repeats it, instead of its parts
        self._parts: dict[Hashable, Part] = {}
        self._echoes: dict[Hashable, Part] = {}
        self._found = (-1, 0, 0)  # an event, where in it the last text ended, and how many were not behind each other
        self._unknown: dict[bytes, None] = {}

    def part(self, key: Hashable, kind: Kind) -> Part:
        """The part with that key, a new one of that kind where there is none."""
        return self._parts.get(key) or self.put(key, Part(kind))

    def put(self, key: Hashable, part: Part) -> Part:
        """A part that is known from its beginning, or the whole of it."""
        if len(self._parts) >= PARTS_MAX and key not in self._parts:
            self.met("too many parts")
            return self._echoes.setdefault("too many parts", part)
        self._parts[key] = part
        return part

    def items(self) -> list[tuple[Any, Part]]:
        """All parts with their keys, in the order in which they began."""
        return list(self._parts.items())

    def get(self, key: Hashable) -> Part | None:
        """The part with that key, if there is one."""
        return self._parts.get(key)

    def delta(self, part: Part, field: Field, event: Event, key: bytes, value: object) -> None:
        """More of a text, that the event's member `key` holds."""
        if not isinstance(value, str) or not value:
            return
        place = self._place(event, key, value)
        part.add(field, value, place)
        self.began(place[0] if place is not None else event.lines[0])

    def echo(self, name: Hashable, event: Event, key: bytes, value: object) -> None:
        """More of a text that says again what a part says, or belongs to none: only where it lies counts."""
        if isinstance(value, str) and value:
            part = self._echoes.setdefault(name, Part("other"))
            part.add("text", value, self._place(event, key, value))

    def _place(self, event: Event, key: bytes, value: str) -> tuple[int, int] | None:
        if not self._streamed or len(event.lines) > _LINES_MAX:
            return None
        last, again = self._found[1:] if self._found[0] == event.start else (0, 0)
        # Of two equal texts in one event the second is behind the first; an event of texts in no order is not searched
        # from its beginning for each of them.
        place = inside(event.data, key, value, last) if again < _SEARCHES_MAX else None
        if place is None and again < _SEARCHES_MAX:
            again += 1
            place = inside(event.data, key, value)
        self._found = (event.start, place[1] if place else last, again)
        return event.place(*place) if place else None

    def began(self, offset: int) -> None:
        """Content lies at this offset of the body."""
        if self.first_token < 0:
            self.first_token = offset + 1 if self._streamed else 0

    def met(self, kind: object) -> None:
        """A type of event or part that is not known."""
        if len(self._unknown) < _UNKNOWN_MAX:
            self._unknown[word(kind)[:64] or b"?"] = None

    def facts(self) -> ResponseFacts:
        """What came."""
        failed = self.error != (b"", b"")
        parts = self._parts.values() if self.whole is None else self.whole
        placed = (*self._parts.values(), *self._echoes.values())
        return ResponseFacts(
            model=self.model,
            id=self.id,
            stop=self.stop,
            usage=self.usage,
            blocks=tuple(part.block() for part in parts),
            complete=self.complete and not failed,
            error=self.error,
            first_token=self.first_token,
            scattered=tuple(places for part in placed for places in part.scattered()),
            unknown=tuple(self._unknown),
            problem=self.problem,
        )

    def answer(self, made: Form) -> ResponseFacts:
        """What came in a body of that form, all of it: nothing that is known is a problem."""
        facts = self.facts()
        if facts == ResponseFacts():
            self.problem = "empty" if made == "nothing" else "no answer of this API"
            facts = self.facts()
        return facts


def value_of(event: Event) -> object:
    """What an event's data says, None where it is no JSON."""
    try:
        return read(event.data)
    except FAULTS:
        return None


def type_of(value: dict[str, Any], event: Event) -> str:
    """The type of an event, as its data says it or else its `event` field."""
    kind = value.get("type")
    return kind if isinstance(kind, str) else event.type.decode("utf-8", "replace")


def spelled(value: object) -> bytes:
    """A value as JSON text, empty where it has none."""
    try:
        return msgspec.json.encode(value)
    except FAULTS:
        try:
            return json.dumps(value).encode()
        except FAULTS:
            return b""


def error_of(document: object) -> tuple[bytes, bytes]:
    """Type and message of an error document, whoever wrote it: `{"error": {...}}`, in an array, `{"detail": ...}`."""
    if isinstance(document, list):
        return error_of(document[0]) if document and isinstance(document[0], dict) else (b"", b"")
    held = mapping(document)
    error = held.get("error")
    if isinstance(error, dict):
        kind = error.get("type") or error.get("status") or error.get("code")
        kind = str(kind) if isinstance(kind, int) else kind
        return _clipped(kind if word(kind) else "error", error.get("message"))
    if isinstance(error, str):
        return _clipped("error", error)
    for name in ("detail", "message"):
        said = held.get(name)
        if isinstance(said, str) and held.keys() <= {name, "code", "status", "type", "request_id", "error_code"}:
            return _clipped("error", said)
    if "detail" in held and len(held) == 1:
        found = [mapping(one).get("msg") for one in sequence(held["detail"])]
        return _clipped("error", "; ".join(one for one in found if isinstance(one, str)))
    return b"", b""


def _clipped(kind: object, message: object) -> tuple[bytes, bytes]:
    return word(kind), text(message[:_MESSAGE_CHARACTERS] if isinstance(message, str) else None)
