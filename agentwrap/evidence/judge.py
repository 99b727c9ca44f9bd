"""A recording judged by a policy afterwards: what it would have refused, and what cannot be said.

The same decision as everywhere (`policy.decide`). Nothing here enforces; an act that broke the policy has happened.
"""

from agentwrap.evidence.asked import Recording, Unclear, asked
from agentwrap.evidence.judged import CannotTell, Judged, Violation
from agentwrap.policy.decide import decide
from agentwrap.policy.questions import Answer, Call, Question
from agentwrap.policy.rules import Policy

_MAX_KEPT = 10_000
_MAX_ANSWERS = 200_000


def judge(recording: Recording, policy: Policy) -> Judged:
    """Ask the policy about every act of a recording."""
    judged = Judged(policy.name, violations=[], cannot_tell=[])
    answers: dict[Question, Answer] = {}
    violations: dict[tuple[str, str], Violation] = {}
    unclear: dict[str, CannotTell] = {}
    for one in asked(recording):
        judged.acts += 1
        if isinstance(one, Unclear):
            _unclear(unclear, one.why, one.seq, one.what)
            continue
        answer = answers.get(one.question)
        if answer is None:
            if len(answers) > _MAX_ANSWERS:
                answers.clear()
            answer = decide(policy, one.question)
            if not isinstance(one.question, Call):  # with its arguments it may be large, and it is seldom asked again
                answers[one.question] = answer
        if answer.verdict == "unknown":
            _unclear(unclear, answer.why, one.seq, str(one.question))
        elif answer.verdict != "allow":
            judged.violated += 1
            what = str(one.question)
            known = violations.get((what, one.who))
            if known is not None:
                known.count += 1
            elif len(violations) < _MAX_KEPT:
                violations[what, one.who] = Violation(
                    one.seq, what, one.who, str(answer.rule), answer.why, answer.change
                )
    judged.violations = list(violations.values())
    judged.cannot_tell = list(unclear.values())
    return judged


def _unclear(found: dict[str, CannotTell], why: str, seq: int, what: str) -> None:
    if why in found:
        found[why].count += 1
    else:
        found[why] = CannotTell(why, seq, what)
