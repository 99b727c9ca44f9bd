"""Controls 3 and 4: calls that needed approval ran only under a valid one, and nobody approved their own agent. Pure.

Whether a call needed approval is judged again by the policy's text; which arguments an approval was for is
compared with the digest of the recorded bytes, not with what any row says of them.
"""

from collections.abc import Collection, Mapping

from agentwrap.evidence.report.again import Again
from agentwrap.evidence.report.asks import APPROVING, Answered, Asked, Asks
from agentwrap.evidence.report.controls import Control, Test
from agentwrap.evidence.report.facts import MCP, Facts
from agentwrap.evidence.report.fields import shown
from agentwrap.evidence.report.principal import Principal
from agentwrap.evidence.report.said import clipped
from agentwrap.evidence.report.story import Decision, Story
from agentwrap.text import count

_REFUSED = "refused:"  # what the desk says of an answer that did not count


class Approvals:
    """Control 3."""

    def __init__(self, facts: Facts, asks: Asks) -> None:
        self._facts, self._asks = facts, asks
        self._used: dict[str, tuple[int, tuple[bytes, str, str]]] = {}
        self._test = Test(
            "approved",
            "Each request was judged again by the policy's text; where that asks for a human, the approval was looked "
            "up and compared with the server, the tool, the digest of the recorded arguments, its time of expiry, "
            "with the moment the call went on, and with every other use of it.",
        )  # fmt: skip

    def take(self, story: Story, again: Again) -> None:
        """One call."""
        story.limit(self._test)
        if again.verdict is None:
            # What no rule was said to be about either may have needed approval all the same.
            if self._facts.policies:
                self._test.unclear(again.why, *story.rows, about=story.name)
            return
        if again.verdict.decision != "hold":
            return
        test = self._test
        test.population += 1
        rows = story.rows
        decision = story.held_until
        if story.forwarded is False:
            return
        if story.forwarded is None:
            test.unclear("no message tells whether it went on", *rows, about=story.name)
        elif decision is None:
            test.fails("it needed approval and went on without", *rows, about=story.name)
        else:
            self._approval(story, decision, again.verdict.digest)

    def _approval(self, story: Story, decision: Decision, digest: str) -> None:
        test, rows = self._test, (*story.rows, decision.seq)
        asked, answered = self._asks.asked.get(decision.ask), self._asks.answered.get(decision.ask)
        if asked is None or answered is None:
            missing = "question" if asked is None else "answer"
            test.fails(f"the {missing} that its approval is said to be is not in the recording", *rows,
                       about=story.name)  # fmt: skip
            return
        rows = (*rows, asked.seq, answered.seq)
        for why in self._faults(decision, asked, answered):
            test.fails(why, *rows, about=story.name)
        self._bound(story, decision, asked, digest, rows)
        self._use(story, decision, answered, (story.server, asked.tool, digest))

    def _faults(self, decision: Decision, asked: Asked, answered: Answered) -> list[str]:
        told = []
        if answered.answer not in APPROVING:
            told.append(f"the answer was `{answered.answer}`")
        if answered.at_ns >= asked.until_ns:
            told.append("its approval had expired when it was given")
        if answered.seq > decision.seq or answered.at_ns > decision.at_ns:
            told.append("it went on before its approval was given")
        if asked.seq > answered.seq:
            told.append("its approval was given before anybody was asked")
        if not answered.approver and answered.uid < 0:
            told.append("nobody is named who approved it")
        return told

    def _bound(self, story: Story, decision: Decision, asked: Asked, digest: str, rows: tuple[int, ...]) -> None:
        request = story.request
        told = request.said if request else None
        tool = (told.tool or told.method) if told else ""
        for what, of_ask, of_call in (
            ("server", shown(asked.server), shown(story.server)),
            ("tool", clipped(asked.tool), clipped(tool)),
            ("arguments", asked.digest, digest),
            ("arguments", decision.digest, digest),
        ):  # fmt: skip
            if of_ask != of_call:
                self._test.fails(f"its approval is for another {what}" if what != "arguments" else
                                 "its approval is for other arguments", *rows, about=story.name)  # fmt: skip
                return

    def _use(self, story: Story, decision: Decision, answered: Answered, bound: tuple[bytes, str, str]) -> None:
        before = self._used.setdefault(decision.ask, (decision.seq, bound))
        if before[0] == decision.seq:
            return
        if answered.answer == "once" or before[1] != bound:
            self._test.fails("its approval was used before", *story.rows, decision.seq, before[0], about=story.name)

    def result(self) -> Control:
        """The control's outcome."""
        for ask, seq in self._asks.again:
            self._test.fails(f"{ask} was asked or answered twice", seq)
        lasting = sum(self._asks.granted_by(ask) is not None for ask in self._asks.approvals)
        if lasting:
            self._test.note(f"{lasting:,} went on by an approval that a human gave for the whole run, not once")
        if self._asks.more:
            self._test.unclear("there are more approvals than were looked at")
        self._facts.limits(self._test, MCP)
        return self._test.result()


def separation(
    facts: Facts, asks: Asks, principal: Principal, own_pids: Collection[int], noticed: Mapping[int, str]
) -> Control:
    """Control 4. `own_pids`: of the approvers' processes, those that belonged to the run when they answered.

    `noticed`: rows in which the recorder itself told of a self-approval, with what it said.
    """
    test = Test(
        "separated",
        "The name in each approval was compared with the agent and with the person it acts for, by the policy's text "
        "and by the question; the approver's process was looked for among the processes of the run.",
    )  # fmt: skip
    test.population = len(asks.approvals)
    found: set[str] = set()
    same_user = 0
    for ask, answered in asks.approvals.items():
        asked = asks.asked.get(ask)
        rows = (asked.seq if asked else 0, answered.seq)
        persons = {name for name in (principal.on_behalf_of, asked.on_behalf_of if asked else "") if name}
        agents = {name for name in (principal.agent, asked.agent if asked else "") if name}
        same_user += answered.uid == facts.started.uid
        if answered.pid in own_pids and asks.granted_by(ask) is None:
            test.fails("a process of the run itself gave it", *rows, about=answered.approver)
        if _is_among(answered.approver, persons | agents):
            found.add(ask)
            test.fails("whom the agent acts for gave it", *rows, about=answered.approver)
        elif not answered.approver:
            test.unclear("it is not told who gave it", *rows)
        elif not persons:
            test.unclear("it is not told for whom the agent acts", *rows, about=answered.approver)
    _told_by_the_recorder(test, noticed, found)
    if same_user:
        told = "approvals were" if same_user != 1 else "approval was"
        test.note(
            f"{same_user:,} {told} given by the user id that the run had, too: the kernel cannot tell these people "
            "apart, and a name is what the approver said"
        )
    facts.limits(test, ("process",))
    return test.result()


def _told_by_the_recorder(test: Test, noticed: Mapping[int, str], found: Collection[str]) -> None:
    """`found`: the questions of which the review has found it by itself."""
    refused = 0
    for seq, said in noticed.items():
        ask, _, became = said.partition(" ")
        if became.startswith(_REFUSED):
            refused += 1
        elif ask not in found:  # the account, not the name, is that person's
            test.fails("the recorder told of a self-approval", seq, about=said)
    if refused:
        test.note(f"{count(refused, 'try', 'tries')} of whom the agent acts for to approve it: refused")


def _is_among(name: str, names: Collection[str]) -> bool:
    return name.strip().casefold() in {one.strip().casefold() for one in names} if name.strip() else False
