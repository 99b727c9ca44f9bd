"""Control 1: is the recording complete and unaltered? By what `verify` recomputed, and the gaps. Pure."""

from collections.abc import Sequence
from typing import Protocol

from agentwrap.evidence.report.controls import Control, Test
from agentwrap.evidence.report.facts import Facts
from agentwrap.text import count

_MOST_ROWS = 20


class Check(Protocol):
    """One thing that `verify` looked at."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def ok(self) -> bool | None: ...  # noqa: D102
    @property
    def detail(self) -> str: ...  # noqa: D102


class Verified(Protocol):
    """What `evidence.verify` says."""

    @property
    def word(self) -> str: ...  # noqa: D102
    @property
    def seq(self) -> int | None: ...  # noqa: D102
    @property
    def detail(self) -> str: ...  # noqa: D102
    @property
    def events(self) -> int: ...  # noqa: D102
    @property
    def checks(self) -> Sequence[Check]: ...  # noqa: D102


def completeness(verified: Verified, facts: Facts) -> Control:
    """The control."""
    test = Test(
        "complete",
        "Every hash, root, signature and stored content was computed again from the file, the seal over its bytes "
        "included; then every gap that it tells was counted.",
    )  # fmt: skip
    test.population = verified.events
    place = verified.seq or 0
    if verified.word in ("tampered", "truncated"):
        test.fails(f"{verified.word}: {verified.detail}", place)
        for check in verified.checks:
            if check.ok is False and check.detail not in verified.detail:
                test.fails(f"{check.name}: {check.detail}")
    elif verified.word == "torn" and facts.state == "live":
        test.unclear(f"the run is not over: {verified.detail}")
    elif verified.word == "torn":
        test.fails(f"torn: {verified.detail}", place)
    elif verified.word == "unsigned":
        test.unclear(f"whoever changed it could have computed every hash anew: {verified.detail}")
    if facts.holes:
        many = len(facts.holes) + facts.more_holes
        test.unclear(f"it tells of {count(many, 'gap')} itself", *(hole.seq for hole in facts.holes[:_MOST_ROWS]))
    if facts.unseen_end and verified.word not in ("torn", "tampered", "truncated"):
        test.unclear(facts.unseen_end)
    for check in verified.checks:
        if check.ok is None:
            test.note(f"{check.name}: {check.detail}")
    return test.result()
