"""Control 7: does every call that was forwarded have an outcome? Pure."""

from agentwrap.evidence.report.controls import Control, Test
from agentwrap.evidence.report.facts import MCP, Facts
from agentwrap.evidence.report.story import ANSWERED, Story

_NEVER_ARRIVED = ("denied", "expired")


class Results:
    """The control."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._test = Test(
            "outcome",
            "Each request that went on was matched with its result row, and each answer with the message that it was "
            "given in, whose id was read again from its bytes.",
        )  # fmt: skip

    def take(self, story: Story) -> None:
        """One call."""
        story.limit(self._test)
        if story.forwarded is False or (story.forwarded is None and (story.denied or not story.called)):
            return
        test = self._test
        test.population += 1
        rows = story.rows
        if story.forwarded is None:
            test.unclear("no message tells whether it went on", *rows, about=story.name)
        if not story.results:
            test.fails("it went on, and no outcome is recorded", *rows, about=story.name)
            return
        seq, ending = story.results[0]
        if len(story.results) > 1:
            test.fails("it has two outcomes", *rows, seq, story.results[1][0], about=story.name)
        if ending == "unanswered":
            test.fails("it went on, and nobody knows what came of it", *rows, seq, about=story.name)
        elif ending in _NEVER_ARRIVED and story.forwarded:
            test.fails(f"its outcome is `{ending}`, and it went on", *rows, seq, about=story.name)
        elif ending in ANSWERED:
            self._answer(story, seq, ending)

    def _answer(self, story: Story, seq: int, ending: str) -> None:
        answers = [one for one in story.responses if not one.ours]
        if not answers:
            self._test.unclear("the answer itself is not in the recording", *story.rows, seq, about=story.name)
            return
        answer = answers[0]
        if answer.said is None:
            why = "cannot be read" if answer.kept else "was not kept as it came"
            self._test.unclear(f"the answer {why}", *story.rows, answer.seq, about=story.name)
            return
        asked = story.request.said if story.request else None
        if asked is not None and asked.id != answer.said.id:
            self._test.fails("the answer has another id than the request", *story.rows, answer.seq, about=story.name)
        if answer.said.error != (ending == "error"):
            self._test.fails(f"its outcome is `{ending}`, and the answer says otherwise", seq, answer.seq,
                             about=story.name)  # fmt: skip

    def result(self) -> Control:
        """The control's outcome."""
        self._facts.limits(self._test, MCP)
        return self._test.result()
