"""Judging a recorded call again: the same gate as in the run, made of the policy's text that the recording holds. Pure.

What a pin says depends on what the server had listed by then, so a gate is told the listings that were recorded before
the call, in their order.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from agentwrap.evidence.report.facts import Facts
from agentwrap.evidence.report.story import Message, Story
from agentwrap.mcp.gate import Gate, Verdict
from agentwrap.policy.layers import Layer

_GATES = 64


class Again(msgspec.Struct, frozen=True):
    """What came of judging again. `verdict` None: it could not be, `why` says for what reason."""

    verdict: Verdict | None
    why: str = ""


class Judge:
    """Judges calls of one recording again. `listings`: by server, definitions of pinned tools with their rows."""

    def __init__(self, facts: Facts, listings: dict[bytes, list[tuple[int, bytes]]]) -> None:
        self._facts, self._listings = facts, listings
        self._gates: OrderedDict[tuple[bytes, int], Gate] = OrderedDict()

    def again(self, story: Story) -> Again:
        """The verdict about a call's request."""
        facts = self._facts
        if len(facts.policies) > 1:
            return Again(None, "the recording has more than one policy")
        if facts.policies and facts.policies[0].unreadable:
            return Again(None, facts.policies[0].unreadable)
        request = story.request
        if request is None:
            return Again(None, "the request itself is not in the recording")
        if not request.kept:
            return Again(None, "the request was not kept as it came")
        verdicts = self._gate(story.server, request.seq, facts.layers).judge(request.body, up=story.up)
        return Again(_of(verdicts, request))

    def _gate(self, server: bytes, seq: int, layers: Sequence[Layer]) -> Gate:
        listed = self._listings.get(server, [])
        before = bisect_left(listed, seq, key=lambda one: one[0])
        gate = self._gates.get((server, before))
        if gate is None:
            gate = self._gates[server, before] = Gate(layers, server)
            for _, definition in listed[:before]:
                gate.judge(b'{"jsonrpc":"2.0","id":0,"result":{"tools":[%b]}}' % definition, up=False)
            if len(self._gates) > _GATES:
                self._gates.popitem(last=False)
        self._gates.move_to_end((server, before))
        return gate


def _of(verdicts: Sequence[Verdict], request: Message) -> Verdict:
    """Of a batch's verdicts, the one about this member."""
    if len(verdicts) == 1:
        return verdicts[0]
    return next((one for one in verdicts if one.id == request.id), verdicts[0])
