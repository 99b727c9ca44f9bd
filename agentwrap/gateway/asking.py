"""Connections that wait for a human: one question for each destination, however many wait for it.

Silence is a denial. Knows nothing of terminals and of who answers: answers come as words from the supervisor.
"""

from collections.abc import Callable
from typing import Literal

import trio

from agentwrap.events import endpoint
from agentwrap.events.egress import AskAnswered, AskWaiting
from agentwrap.gateway.judging import Verdict

Answered = Literal["once", "run", "always", "deny", "expired"]
_MAX_WAITING = 256
_DENIED_S = 30.0  # a program that tries again at once does not ask again at once
# The supervisor says when time is up, and whether an answer came before it. This is for a supervisor that is silent.
_SILENT_S = 5.0
_WORDS: dict[str, Answered] = {
    "once": "once", "run": "run", "always": "always", "deny": "deny", "expired": "expired"
}  # fmt: skip

Key = tuple[str, int, str]


class Question:
    """Something that a human is asked. `done` is set once there is an `answer`; `reason`: why they denied it."""

    __slots__ = ("answer", "ask", "done", "reason")

    def __init__(self, ask: str) -> None:
        self.ask = ask
        self.done = trio.Event()
        self.answer: Answered = "expired"
        self.reason = b""


class Asks:
    """Questions to the human of a run. `put` tells events; `now` is in nanoseconds of the run."""

    def __init__(
        self, put: "Callable[[AskWaiting | AskAnswered], None]", now: Callable[[], int], wait_s: float
    ) -> None:
        self._put = put
        self._now = now
        self._wait_s = wait_s
        self._count = 0
        self._waiting: dict[Key, Question] = {}
        self._by_id: dict[str, Question] = {}
        self._denied: dict[Key, float] = {}

    def answered(self, ask: str, answer: str) -> None:
        """A line of the supervisor's. What nobody asks any more, and words that are none, change nothing."""
        question = self._by_id.get(ask)
        if question is not None and answer in _WORDS:
            question.answer = _WORDS[answer]
            question.done.set()

    def because(self, ask: str, reason: bytes) -> None:
        """Why the next line denies it."""
        if (question := self._by_id.get(ask)) is not None:
            question.reason = reason

    async def ask(self, verdict: Verdict, address: str, span: str, pid: int) -> Answered:
        """Ask, or wait with those who asked, for a connection to the verdict's host and port at `address`."""
        key = (verdict.host, verdict.port, address)
        if self._denied.get(key, 0.0) > trio.current_time():
            return "deny"
        question = self._waiting.get(key)
        if question is not None:
            await question.done.wait()
            return question.answer
        if len(self._waiting) >= _MAX_WAITING:
            return "deny"
        return await self._put_to_human(key, verdict, span, pid)

    async def _put_to_human(self, key: Key, verdict: Verdict, span: str, pid: int) -> Answered:
        self._count += 1
        question = Question(f"a{self._count}")
        self._waiting[key] = self._by_id[question.ask] = question
        until = self._now() + int(self._wait_s * 1e9)
        text = b"connect to " + endpoint(verdict.host.encode(), verdict.port)
        if key[2] and key[2] != verdict.host:
            text += b" at " + key[2].encode()
        waiting = AskWaiting(at_ns=self._now(), span=span, pid=pid, ask=question.ask, question=text, until_ns=until)
        self._put(waiting)
        try:
            with trio.move_on_after(self._wait_s + _SILENT_S):
                await question.done.wait()
            if not question.done.is_set():
                self._put(AskAnswered(at_ns=self._now(), span=span, pid=pid, ask=question.ask, answer="expired"))
        finally:
            del self._waiting[key], self._by_id[question.ask]
            question.done.set()
        if question.answer in ("deny", "expired"):
            self._forget_old()
            self._denied[key] = trio.current_time() + _DENIED_S
        return question.answer

    def begin(self, asking: Callable[[str, int, int], AskWaiting]) -> Question | None:
        """Ask about one call. `asking`: makes the event of id, time, and until when. None: too many wait already.

        Wait for `done`, no longer than `patience_s`; then `end` it.
        """
        if len(self._by_id) >= _MAX_WAITING:
            return None
        self._count += 1
        question = Question(f"a{self._count}")
        self._by_id[question.ask] = question
        now = self._now()
        self._put(asking(question.ask, now, now + int(self._wait_s * 1e9)))
        return question

    @property
    def patience_s(self) -> float:
        """So long a question waits, if the supervisor does not say that time is up."""
        return self._wait_s + _SILENT_S

    def end(self, question: Question, reason: bytes) -> None:
        """Nobody waits for it any more. `reason`: why it was given up, where it has no answer."""
        if self._by_id.pop(question.ask, None) is not None and not question.done.is_set():
            answer: Literal["expired", "withdrawn"] = "withdrawn" if reason else "expired"
            self._put(AskAnswered(at_ns=self._now(), ask=question.ask, answer=answer, reason=reason))

    def _forget_old(self) -> None:
        now = trio.current_time()
        self._denied = {key: until for key, until in self._denied.items() if until > now}
