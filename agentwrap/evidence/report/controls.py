"""A control as a value: what was asked, of how much, with which outcome and which exceptions. Pure.

The one rule about outcomes stands here: something broken is `fail`; something that cannot be said, or a gap, is
`cannot-tell`; nothing to test is `not-applicable`; only what is left is `pass`.
"""

from typing import Literal

import msgspec

from agentwrap.text import count

Outcome = Literal["pass", "fail", "not-applicable", "cannot-tell"]
OUTCOMES: tuple[Outcome, ...] = ("pass", "fail", "not-applicable", "cannot-tell")
MOST_KEPT = 200
"""Exceptions of one kind that are told one by one; the others are counted."""

CONTROLS: dict[str, tuple[str, str, str]] = {
    "complete": ("The recording is complete and unaltered", "event", "events"),
    "attributed": ("Every call is attributed", "call", "calls"),
    "approved": ("Calls that needed approval ran only under a valid one", "call to approve", "calls to approve"),
    "separated": ("Nobody approved their own agent", "approval", "approvals"),
    "decided": ("Decisions contradict no rule, and denied calls have no result", "decision", "decisions"),
    "tools": ("Tool definitions are unchanged without review", "listed tool", "listed tools"),
    "outcome": ("Every forwarded call has an outcome", "forwarded call", "forwarded calls"),
    "connections": ("Every denied connection stayed denied", "denied connection", "denied connections"),
    "gaps": ("Every gap is listed, and what had to be covered was", "requirement", "requirements"),
}
"""Title, and what is counted (one, many), of every control by its id, in the order in which they are told."""


class Exceptional(msgspec.Struct, frozen=True):
    """One thing that keeps a control from passing.

    `rows`: numbers of the event rows that show it (`seq`), none where it is about the file. `why`: in our words.
    `about`: what it is about, foreign text, not escaped. `broken`: the control does not hold; else nobody can say.
    """

    why: str
    rows: tuple[int, ...] = ()
    about: str = ""
    broken: bool = True


class Control(msgspec.Struct, frozen=True):
    """One control, performed. `population` things of the kind `unit` were tested.

    `how`: the test, in a sentence. `broken`, `unclear`: how many exceptions there were, of which `exceptions` holds the
    first. `notes`: what a reader should know besides; they change no outcome.
    """

    id: str
    title: str
    outcome: Outcome
    population: int
    unit: str
    how: str
    broken: int = 0
    unclear: int = 0
    exceptions: tuple[Exceptional, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def tested(self) -> str:
        """`1 call`, `12 calls`."""
        _, one, many = CONTROLS[self.id]
        return count(self.population, one, many)


class Test:
    """Collects what one control finds."""

    __test__ = False  # not one of pytest's

    def __init__(self, id: str, how: str) -> None:  # noqa: A002 - the field's name
        self.id, self.how = id, how
        self.title, _, self.unit = CONTROLS[id]
        self.population = 0
        self._broken: list[Exceptional] = []
        self._unclear: list[Exceptional] = []
        self._counts = {True: 0, False: 0}
        self._notes: list[str] = []
        self._more_notes = 0

    def fails(self, why: str, *rows: int, about: str = "") -> None:
        """The control does not hold here."""
        self._take(Exceptional(why, tuple(filter(None, rows)), about), self._broken)

    def unclear(self, why: str, *rows: int, about: str = "") -> None:
        """Nobody can say whether it holds here."""
        self._take(Exceptional(why, tuple(filter(None, rows)), about, broken=False), self._unclear)

    def _take(self, one: Exceptional, kept: list[Exceptional]) -> None:
        self._counts[one.broken] += 1
        if len(kept) < MOST_KEPT:
            kept.append(one)

    def note(self, text: str) -> None:
        """What a reader should know and that changes nothing."""
        if len(self._notes) < MOST_KEPT:
            self._notes.append(text)
        else:
            self._more_notes += 1

    def result(self) -> Control:
        """The control with its outcome."""
        broken, unclear = self._counts[True], self._counts[False]
        outcome: Outcome = "pass"
        if broken:
            outcome = "fail"
        elif unclear:
            outcome = "cannot-tell"
        elif not self.population:
            outcome = "not-applicable"
        more = (f"and {count(self._more_notes, 'note')} more",) if self._more_notes else ()
        return Control(
            self.id, self.title, outcome, self.population, self.unit, self.how, broken, unclear,
            (*self._broken, *self._unclear), (*self._notes, *more),
        )  # fmt: skip
