"""Control 9: which gaps are there, and was the coverage that the policy requires? Pure."""

from agentwrap.evidence.report.controls import Control, Test
from agentwrap.evidence.report.facts import Facts
from agentwrap.policy.coverage import Requirement, judge


def gaps(facts: Facts) -> Control:
    """The control."""
    test = Test(
        "gaps",
        "What the policy's text requires, or restricts, was compared with what each observer stated at the start and "
        "with every gap since; every gap is listed here, whatever it is about.",
    )  # fmt: skip
    for told in facts.policies:
        if told.unreadable:
            test.unclear(f"what has to be covered is not known: {told.unreadable}", told.seq)
    wanted = requirements(facts)
    test.population = len(wanted)
    listed: set[int] = set()
    for one in judge(wanted, facts.statements, facts.holes):
        if not one.covered:
            listed |= {hole.seq for hole in one.holes}
            rows = tuple(hole.seq for hole in one.holes[:20])
            test.fails(f"{one.kind} has to be covered: {'; '.join(one.reasons)}", *rows)
    for hole in facts.holes:
        hides = hole.could_hide or "anything"
        test.unclear(f"a gap in {hole.kind}: {hole.cause}; it could hide {hides}", hole.seq, about=hole.detail)
    if facts.more_holes:
        test.unclear(f"there are {facts.more_holes:,} more gaps than were looked at")
    if facts.unseen_end:
        test.unclear(facts.unseen_end)
    if facts.word in ("tampered", "truncated"):
        test.unclear(f"the recording is {facts.word}: what is left of it proves nothing")
    return test.result()


def requirements(facts: Facts) -> tuple[Requirement, ...]:
    """What the policies require; where they require nothing, what they restrict."""
    policies = [layer.policy for layer in facts.layers]
    stated = {one.kind: one for policy in policies for one in policy.require}
    if stated:
        return tuple(stated.values())
    observed = frozenset({"wall", "guard", "witness"})
    kinds = dict.fromkeys(kind for policy in policies for kind in policy.restricts())
    return tuple(Requirement(kind, observed) for kind in kinds)
