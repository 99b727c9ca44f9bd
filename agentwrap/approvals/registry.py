"""What waits for an answer, and what became of it. Pure: the time is passed in, and nobody is told from here.

Knows that an answer is given once: the first one counts, whoever comes later is told what it was. Refuses to know what
is asked about (a connection, a call of a tool) and who may answer.
"""

from collections import OrderedDict
from typing import Literal

import msgspec

Answer = Literal["once", "run", "always", "deny"]
Outcome = Literal["once", "run", "always", "deny", "expired", "unattended", "withdrawn"]
ANSWERS: tuple[Answer, ...] = ("once", "run", "always", "deny")
MAX_WAITING = 256  # more than a human reads; an agent that asks in a loop is denied from here on
MAX_REMEMBERED = 1024  # answered ones, so that a second approver hears what the first one said


class Waiting(msgspec.Struct, frozen=True):
    """One question. Texts are escaped already.

    `ask`: its id within the run. `question`: in words, `who`: the process that asks and what led to it. `since_ns`,
    `until_ns`: run time; from `until_ns` on it is denied. `bound`: what else the answer is bound to, as name and text.
    `agent`, `on_behalf_of`: who acts for whom. `arguments`: of a call, clipped.
    """

    ask: str
    question: str
    who: str
    since_ns: int
    until_ns: int
    bound: tuple[tuple[str, str], ...] = ()
    offers: tuple[Answer, ...] = ANSWERS
    agent: str = ""
    on_behalf_of: str = ""
    arguments: str = ""


class Given(msgspec.Struct, frozen=True):
    """How a question ended. `approver`: as they said, `uid` and `pid`: as the kernel says (-1 and 0: nobody)."""

    waiting: Waiting
    outcome: Outcome
    at_ns: int
    approver: str = ""
    uid: int = -1
    pid: int = 0
    reason: str = ""


class Refusal(msgspec.Struct, frozen=True):
    """Why an answer does not count. `given`: what counts instead, where there is something."""

    kind: Literal["unknown", "answered", "not-offered"]
    given: Given | None = None


class Registry:
    """The questions of one run. One caller at a time."""

    def __init__(self, *, max_waiting: int = MAX_WAITING, max_remembered: int = MAX_REMEMBERED) -> None:
        self._waiting: dict[str, Waiting] = {}
        self._given: OrderedDict[str, Given] = OrderedDict()
        self._max_waiting, self._max_remembered = max_waiting, max_remembered

    def add(self, waiting: Waiting) -> Given | None:
        """Begin to wait; None, or the denial where too many wait already.

        Raises ValueError for an id that was used before: an answer to the old question would count for the new one.
        """
        if waiting.ask in self._waiting or waiting.ask in self._given:
            raise ValueError(f"{waiting.ask} was asked before")
        if len(self._waiting) >= self._max_waiting:
            told = f"{self._max_waiting} questions wait already"
            return self._end(Given(waiting, "deny", waiting.since_ns, reason=told))
        self._waiting[waiting.ask] = waiting
        return None

    def waiting(self) -> tuple[Waiting, ...]:
        """What waits, in the order in which it began."""
        return tuple(self._waiting.values())

    def find(self, ask: str) -> Waiting | None:
        """The question of that id, if it waits."""
        return self._waiting.get(ask)

    def answer(
        self, ask: str, answer: Answer, at_ns: int, *, approver: str = "", uid: int = -1, pid: int = 0, reason: str = ""
    ) -> Given | Refusal:
        """Somebody answers. What comes at `until_ns` or later is too late, also where `expire` has not been called."""
        waiting = self._waiting.get(ask)
        if waiting is None:
            given = self._given.get(ask)
            return Refusal("answered", given) if given else Refusal("unknown")
        if at_ns >= waiting.until_ns:
            # It still waits for `expire`, which tells whoever has to be told.
            return Refusal("answered", Given(waiting, "expired", waiting.until_ns))
        if answer not in waiting.offers:
            return Refusal("not-offered")
        return self._end(Given(waiting, answer, at_ns, approver, uid, pid, reason))

    def expire(self, now_ns: int) -> list[Given]:
        """End what has waited too long; each is returned once."""
        late = [one for one in self._waiting.values() if now_ns >= one.until_ns]
        return [self._end(Given(one, "expired", now_ns)) for one in late]

    def withdraw(self, ask: str, at_ns: int, *, reason: str = "") -> Given | None:
        """Who asked is gone, so that there is nothing to answer. None where it did not wait."""
        waiting = self._waiting.get(ask)
        return self._end(Given(waiting, "withdrawn", at_ns, reason=reason)) if waiting else None

    def _end(self, given: Given) -> Given:
        self._waiting.pop(given.waiting.ask, None)
        self._given[given.waiting.ask] = given
        while len(self._given) > self._max_remembered:
            self._given.popitem(last=False)
        return given
