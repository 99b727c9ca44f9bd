"""Messages that wait for a human: when they are told to wait on, and what was answered. One caller, one thread.

Silence is a denial. Knows nothing of terminals and of who answers: answers come as words from the supervisor.
"""

import time
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from agentwrap.events.egress import AskAnswered, AskWaiting
from agentwrap.mcp.gate import Verdict
from agentwrap.tracing.wire import Message

Answered = Literal["once", "run", "always", "deny", "expired"]
MAX_WAITING, MAX_BYTES = 256, 64 << 20
_PROGRESS_S = 5.0
# The supervisor says when time is up, and whether an answer came before it. This is for a supervisor that is silent.
_SILENT_S = 5.0
_WORDS: dict[str, Answered] = {
    "once": "once", "run": "run", "always": "always", "deny": "deny", "expired": "expired"
}  # fmt: skip


class Telling(Protocol):
    """Who takes what is told."""

    def put(self, item: Message) -> None:
        """The next news."""
        ...


class Held(msgspec.Struct):
    """One message that waits. `data`: its bytes as they came; `line`: its place among the lines of its side.

    `progress`: says to the sender that it still waits; `settle`: it is over, in one of the words.
    """

    up: bool
    line: int
    data: bytes
    verdict: Verdict
    progress: "Callable[[Held], None]"
    settle: "Callable[[Held, Answered], None]"
    ask: str = ""
    count: int = 0  # how often its sender was told
    reason: bytes = b""  # of a human who denied it
    asked: bool = False
    gone: bool = False
    _until: float = 0.0
    _next: float = 0.0


class Asks:
    """All questions of a run. `now`: ns of the run; `wait_s`: how long a human has; `unattended`: there is none."""

    def __init__(self, link: Telling, now: Callable[[], int], wait_s: float, *, unattended: bool) -> None:
        self._link, self._now, self._wait_s = link, now, wait_s
        self._unattended = unattended
        self._count = self._bytes = 0
        self._waiting: dict[str, Held] = {}

    def begin(self, held: Held) -> str:
        """It is to wait; why it may not, empty if it does. It has its id now."""
        if self._unattended:
            return "nobody can be asked in this run"
        if len(self._waiting) >= MAX_WAITING or self._bytes + len(held.data) > MAX_BYTES:
            return "too much waits for a human already"
        self._count += 1
        held.ask = f"r{self._count}"
        self._bytes += len(held.data)
        self._waiting[held.ask] = held
        held._until = time.monotonic() + self._wait_s + _SILENT_S
        held._next = time.monotonic()
        return ""

    def put_to_human(self, held: Held, asking: "Callable[[int, int], AskWaiting]") -> None:
        """Ask, and tell the sender that it waits. `asking`: the question, from and until when (ns of the run)."""
        held.asked = True
        now = self._now()
        self._link.put(asking(now, now + int(self._wait_s * 1e9)))
        self.tick()

    def answered(self, ask: str, answer: str) -> None:
        """A line of the supervisor's. What nobody asks any more, and words that are none, change nothing."""
        held = self._waiting.get(ask)
        if held is None or answer not in _WORDS:
            return
        self._remove(held)
        held.settle(held, _WORDS[answer])

    def because(self, ask: str, reason: bytes) -> None:
        """Why the next line denies it, as its sender is told."""
        if (held := self._waiting.get(ask)) is not None:
            held.reason = reason

    def withdraw(self, held: Held, reason: bytes) -> None:
        """Who asked is gone, or wants it no more: there is nothing to answer."""
        if held.ask in self._waiting:
            self._remove(held)
            if held.asked:
                self._link.put(AskAnswered(at_ns=self._now(), ask=held.ask, answer="withdrawn", reason=reason))

    def due_s(self) -> float | None:
        """After how many seconds `tick` has something to do."""
        due = [min(one._next, one._until) for one in self._waiting.values() if one.asked]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def tick(self) -> None:
        """Tell senders that they wait, and end what has waited too long."""
        now = time.monotonic()
        for held in [one for one in self._waiting.values() if one.asked]:
            if now >= held._until:
                self._remove(held)
                self._link.put(AskAnswered(at_ns=self._now(), ask=held.ask, answer="expired"))
                held.settle(held, "expired")
            elif now >= held._next:
                held._next = now + _PROGRESS_S
                held.count += 1
                held.progress(held)

    def _remove(self, held: Held) -> None:
        del self._waiting[held.ask]
        self._bytes -= len(held.data)
        held.gone = True
