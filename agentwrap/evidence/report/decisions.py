"""Control 5: does no decision contradict the rules, and did nothing come of what was denied? Pure."""

from agentwrap.evidence.report.controls import Control, Test
from agentwrap.evidence.report.facts import MCP, Facts
from agentwrap.evidence.report.story import ANSWERED, Decision, Story


class Decisions:
    """The control."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._test = Test(
            "decided", "Decisions contradict no rule, and denied calls have no result", "calls that were judged",
            "Each request was judged again by the policy's text out of its recorded bytes and compared with the "
            "decision row; of each denied call every message and result was looked at.",
        )  # fmt: skip

    def take(self, story: Story) -> None:
        """One call."""
        if not story.decisions:
            return
        self._test.population += 1
        denied = story.denied
        if len({one.decision for one in story.decisions}) > 1:
            rows = [one.seq for one in story.decisions]
            self._test.fails("its decisions contradict each other", *rows, about=story.name)
        if denied is not None:
            self._denied(story, denied)

    def _denied(self, story: Story, denied: Decision) -> None:
        test = self._test
        passed = [one.seq for one in story.requests if one.passed]
        if passed:
            test.fails("it was denied, and it went on", denied.seq, *passed, about=story.name)
        elif not story.requests:
            test.unclear("it was denied, and no message tells whether it went on", denied.seq, about=story.name)
        answered = [one.seq for one in story.responses if not one.ours]
        if answered:
            test.fails("it was denied, and the other side answered", denied.seq, *answered, about=story.name)
        results = [seq for seq, ending in story.results if ending in ANSWERED]
        if results:
            test.fails("it was denied, and has a result", denied.seq, *results, about=story.name)

    def result(self) -> Control:
        """The control's outcome."""
        self._facts.limits(self._test, MCP)
        return self._test.result()
