"""Control 5: does no decision contradict the rules, and did nothing come of what was denied? Pure."""

from agentwrap.evidence.report.again import Again
from agentwrap.evidence.report.controls import Control, Test
from agentwrap.evidence.report.facts import MCP, Facts
from agentwrap.evidence.report.story import ANSWERED, Decision, Story
from agentwrap.mcp.gate import Verdict
from agentwrap.policy.layers import mode_of


class Decisions:
    """The control."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.test = self._test = Test(
            "decided",
            "Each request was judged again by the policy's text out of its recorded bytes and compared with the "
            "decision row; of each denied call every message and result was looked at; connections and lookups that "
            "the gateway allowed were judged again, too.",
        )  # fmt: skip

    def take(self, story: Story, again: Again) -> None:
        """One call."""
        test, verdict = self._test, again.verdict
        story.limit(test)
        if story.decisions or (verdict is not None and verdict.ruled):
            test.population += 1
        if len({one.decision for one in story.decisions}) > 1:
            rows = [one.seq for one in story.decisions]
            test.fails("its decisions contradict each other", *rows, about=story.name)
        elif verdict is not None:
            self._compare(story, verdict, story.decisions[0] if story.decisions else None)
        elif self._facts.policies or story.decisions:
            test.unclear(again.why, *story.rows, about=story.name)
        if story.denied is not None:
            self._denied(story, story.denied)

    def _compare(self, story: Story, verdict: Verdict, decision: Decision | None) -> None:
        """Whether a decision is what the rules say."""
        test, word = self._test, decision.decision if decision else ""
        rows = (*story.rows, decision.seq) if decision else story.rows
        if verdict.decision == "deny" and word != "deny":
            if story.forwarded is not False:
                test.fails("the rules deny it, and it was not denied", *rows, about=story.name)
        elif verdict.decision == "hold" and word == "allow" and decision is not None and not decision.ask:
            test.fails("the rules want a human for it, and nobody was asked", *rows, about=story.name)
        elif verdict.decision == "hold" and not word and story.forwarded is not False:
            test.fails("the rules want a human for it, and no decision is recorded", *rows, about=story.name)
        elif verdict.decision == "pass" and word in ("deny", "would-deny"):
            test.fails(f"it says `{word}`, and no rule denies it", *rows, about=story.name)
        elif verdict.decision == "would-deny" and word == "deny":
            test.fails("it was denied in mode `observe`", *rows, about=story.name)
        elif verdict.decision == "would-deny" and word != "would-deny":
            test.fails("the rules would deny it, and that is not told", *rows, about=story.name)
        if decision is not None and verdict.ruled and decision.digest != verdict.digest:
            test.fails("its decision is about other arguments", *rows, about=story.name)

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
        facts, test = self._facts, self._test
        for told in facts.policies:
            if told.layers and mode_of(told.layers) != told.mode:
                test.fails("the policy's text has another mode than its row says", told.seq, about=told.mode)
        if len(facts.policies) > 1:
            test.fails("the run has more than one policy", *(told.seq for told in facts.policies))
        facts.limits(test, MCP)
        return test.result()
