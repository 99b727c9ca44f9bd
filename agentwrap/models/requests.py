"""What the requests of all APIs have in common: one JSON object, with a list of messages among its members. Pure."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from agentwrap.models.json_slices import FAULTS, Place, elements, members, read
from agentwrap.models.loose import text
from agentwrap.models.pieces import cut
from agentwrap.models.shape import Message, Outcome

MESSAGES_MAX = 20_000
OUTCOME_BYTES = 4096


class Document:
    """A request's body. Never raises.

    `turns`: the name of the member that holds the messages; `within`: of a member that may hold all of it once more.
    """

    def __init__(self, body: bytes, turns: str, within: str = "") -> None:
        self._body = body
        self._turns = turns
        self.top = members(body)
        self.places: list[Place] = []
        if self.top is not None and turns not in self.top and within in self.top:
            inner = members(body, *self.top[within])
            self.top = self.top if inner is None else {**self.top, **inner}
            self.top.pop(within)
            self.top = dict(sorted(self.top.items(), key=lambda named: named[1]))
        if self.top is not None and turns in self.top:
            self.places = elements(body, *self.top[turns]) or []
        self.problem = ""
        if self.top is None:
            self.problem = "empty" if not body.strip() else "no JSON object that can be read"
        elif len(self.places) > MESSAGES_MAX:
            self.problem = f"only the first {MESSAGES_MAX} of {len(self.places)} messages were read"
            del self.places[MESSAGES_MAX:]

    def get(self, name: str) -> Any:
        """A member's value, None where there is none that can be read."""
        return self.at(self.top[name]) if self.top is not None and name in self.top else None

    def at(self, place: Place) -> Any:
        """The value of a slice, None where it cannot be read."""
        return value_in(self.raw(place))

    def raw(self, place: Place) -> bytes:
        """The bytes of a slice."""
        return self._body[place[0] : place[1]]

    def said(self, read_one: Callable[[bytes], "Said"]) -> tuple[list[Message], list[Outcome]]:
        """All messages, and the tool results in them, in order."""
        messages: list[Message] = []
        outcomes: list[Outcome] = []
        for place in self.places:
            one = read_one(self.raw(place))
            messages.append(one.at(place))
            outcomes += one.outcomes
        return messages, outcomes

    def length(self, name: str) -> int:
        """How many elements a member has."""
        place = (self.top or {}).get(name)
        return len(elements(self._body, *place) or ()) if place else 0

    def pieces(self) -> tuple[Place, ...]:
        """Slices of the whole."""
        return cut(self._body, self.top, self._turns, self.places)


class Said(NamedTuple):
    """What one message is, wherever it stands: its role as the client calls it, and the tool results in it."""

    role: str
    identity: bytes
    outcomes: tuple[Outcome, ...]

    def at(self, place: Place) -> Message:
        """It, as a message that stands there."""
        return Message(self.role, self.identity, *place)


def value_in(raw: bytes) -> Any:
    """The value of a slice of a body that was read, None where it cannot be."""
    try:
        return read(raw, held=True)
    except FAULTS:
        return None


def message(role: object, identity: bytes, place: Place) -> Message:
    """A message of that role, whatever a client calls it."""
    return Message(role_of(role), identity, *place)


def role_of(said: object) -> str:
    """A role's name, of bounded length."""
    return text(said).decode()[:32]


def outcome(ident: bytes, texts: Iterable[object], name: bytes = b"", error: bool | None = None) -> Outcome:
    """A tool's result that says these texts, one a line."""
    whole = b"\n".join(text(one) for one in texts)
    return Outcome(ident, name, error, len(whole), whole[:OUTCOME_BYTES])
