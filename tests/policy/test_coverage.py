import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.errors import AgentwrapError
from agentwrap.events import CoverageKind, Tier
from agentwrap.policy import coverage
from agentwrap.policy.coverage import Hole, Requirement, Statement, judge, parse_requirements

SEEN = frozenset({"wall", "guard", "witness"})
STATEMENTS = [
    Statement("process", "witness", "ptrace"),
    Statement("exec", "witness", "ptrace"),
    Statement("connect", "witness", "notify"),
    Statement("connect", "wall", "netns"),
    Statement("dns", "none", "", "names not read"),
]


def judged(required: str, holes: tuple[Hole, ...] = (), unseen_end: str = "") -> list[tuple[str, str, tuple[str, ...]]]:
    found = judge(parse_requirements(required), STATEMENTS, holes, unseen_end=unseen_end)
    assert all(one.covered is not bool(one.reasons) for one in found)
    return [(one.kind, one.tier, one.reasons) for one in found]


def test_the_words_are_those_of_the_vocabulary() -> None:
    assert typing.get_args(CoverageKind) == coverage.KINDS
    assert typing.get_args(Tier) == coverage.TIERS


def test_requirements_name_kinds_strengths_or_both() -> None:
    assert parse_requirements("exec, file-write") == (Requirement("exec", SEEN), Requirement("file-write", SEEN))
    assert parse_requirements("connect:wall|guard") == (Requirement("connect", frozenset({"wall", "guard"})),)
    assert parse_requirements("wall|guard,connect,exec:witness") == (
        Requirement("connect", frozenset({"wall", "guard"})),
        Requirement("exec", frozenset({"witness"})),
    )
    assert [one.kind for one in parse_requirements("wall")] == list(coverage.DEFAULT_KINDS)


@pytest.mark.parametrize("text", ["", "exce", "exec,", "exec:strong", "connect:", "exec:none", "none", "wall|exec"])
def test_what_cannot_be_required_is_a_usage_error_that_marks_the_word(text: str) -> None:
    with pytest.raises(AgentwrapError) as caught:
        parse_requirements(text)
    assert caught.value.kind == "usage"
    assert "^" in caught.value.evidence


@given(st.text(st.sampled_from("exec,:|walguridfnp- "), max_size=30))
def test_any_text_is_requirements_or_a_usage_error(text: str) -> None:
    try:
        found = parse_requirements(text)
    except AgentwrapError as failure:
        assert failure.kind == "usage"  # noqa: PT017 - both ways out are right
        return
    assert found
    assert all(one.kind in coverage.KINDS for one in found)


def test_the_strongest_statement_counts() -> None:
    assert judged("connect:wall") == [("connect", "wall", ())]
    assert judged("exec:wall|guard") == [("exec", "witness", ("covered by witness, wall or guard is required",))]


def test_what_nobody_stated_is_not_covered() -> None:
    assert judged("model") == [("model", "none", ("no observer stated that it covers it",))]
    assert judged("dns") == [("dns", "none", ("not observed: names not read",))]


def test_gaps_of_the_kind_and_of_processes_count_against_it() -> None:
    lost = Hole("exec", "lost")
    holes = (lost, lost, Hole("process", "not-dumpable"), Hole("file-write", "over-cap"))
    assert judged("exec", holes) == [("exec", "witness", ("2 gaps: lost", "1 gap: not-dumpable"))]


def test_an_end_that_was_not_seen_covers_nothing() -> None:
    assert judged("exec", unseen_end="torn") == [("exec", "witness", ("torn",))]
