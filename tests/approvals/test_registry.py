"""The registry against a model: whatever happens in whatever order, a question ends once, and everybody hears how."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentwrap.approvals.registry import ANSWERS, Answer, Given, Refusal, Registry, Waiting


def waiting(ask: str = "a1", since_ns: int = 0, until_ns: int = 100, **more: object) -> Waiting:
    return Waiting(ask, f"connect {ask}.example:443", "curl (7)", since_ns, until_ns, **more)  # type: ignore[arg-type]


def test_the_first_answer_counts_and_the_second_approver_is_told() -> None:
    registry = Registry()
    assert registry.add(waiting()) is None
    first = registry.answer("a1", "once", 5, approver="ann", uid=1, pid=2)
    assert first == Given(waiting(), "once", 5, "ann", 1, 2)
    assert registry.answer("a1", "deny", 6, approver="bob") == Refusal("answered", first)
    assert registry.waiting() == ()


def test_an_answer_at_the_deadline_is_too_late_although_nobody_has_looked_yet() -> None:
    registry = Registry()
    registry.add(waiting(until_ns=100))
    late = registry.answer("a1", "once", 100)
    assert isinstance(late, Refusal)
    assert late.given is not None
    assert late.given.outcome == "expired"
    # The run's side still has to be told.
    assert [one.outcome for one in registry.expire(100)] == ["expired"]
    assert registry.expire(101) == []
    assert registry.answer("a1", "once", 102) == Refusal("answered", Given(waiting(), "expired", 100))


def test_an_id_is_used_once() -> None:
    registry = Registry()
    registry.add(waiting())
    with pytest.raises(ValueError, match="a1 was asked before"):
        registry.add(waiting())
    registry.answer("a1", "once", 1)
    with pytest.raises(ValueError, match="a1 was asked before"):
        registry.add(waiting())


def test_only_what_is_offered_can_be_answered() -> None:
    registry = Registry()
    registry.add(waiting(offers=("once", "deny")))
    assert registry.answer("a1", "always", 1) == Refusal("not-offered")
    assert [one.ask for one in registry.waiting()] == ["a1"]


def test_too_many_questions_are_denied_and_the_rest_goes_on() -> None:
    registry = Registry(max_waiting=2)
    assert [registry.add(waiting(f"a{n}")) is None for n in range(3)] == [True, True, False]
    assert [one.ask for one in registry.waiting()] == ["a0", "a1"]
    denied = registry.answer("a2", "once", 1)
    assert isinstance(denied, Refusal)
    assert denied.given is not None
    assert denied.given.reason == "2 questions wait already"
    registry.answer("a0", "once", 1)
    assert registry.add(waiting("a3")) is None


def test_what_is_withdrawn_cannot_be_answered() -> None:
    registry = Registry()
    registry.add(waiting())
    assert registry.withdraw("a1", 3, reason="closed") is not None
    assert registry.withdraw("a1", 4) is None
    answer = registry.answer("a1", "run", 5)
    assert isinstance(answer, Refusal)
    assert answer.given is not None
    assert answer.given.outcome == "withdrawn"


class Asking(RuleBasedStateMachine):
    """Two approvers, a clock, a run that asks and gives up."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = Registry(max_waiting=4, max_remembered=6)
        self.now = 0
        self.open: dict[str, Waiting] = {}
        self.ended: dict[str, Given] = {}
        self.count = 0

    @rule(lasts=st.integers(0, 20))
    def asks(self, lasts: int) -> None:
        self.count += 1
        one = waiting(f"a{self.count}", self.now, self.now + lasts)
        denied = self.registry.add(one)
        if len(self.open) >= 4:
            assert denied is not None
            assert denied.outcome == "deny"
            self.ended[one.ask] = denied
        else:
            assert denied is None
            self.open[one.ask] = one

    @precondition(lambda self: self.count)
    @rule(data=st.data(), answer=st.sampled_from(ANSWERS), approver=st.sampled_from(["ann", "bob"]))
    def answers(self, data: st.DataObject, answer: Answer, approver: str) -> None:
        ask = f"a{data.draw(st.integers(1, self.count + 1))}"
        result = self.registry.answer(ask, answer, self.now, approver=approver)
        if ask in self.open and self.now < self.open[ask].until_ns:
            assert result == Given(self.open.pop(ask), answer, self.now, approver)
            assert isinstance(result, Given)
            self.ended[ask] = result
        elif ask in self.open:
            assert isinstance(result, Refusal)
            assert result.given is not None
            assert result.given.outcome == "expired"
        elif ask in list(self.ended)[-6:]:
            assert result == Refusal("answered", self.ended[ask])
        else:
            assert isinstance(result, Refusal)

    @rule(by=st.integers(0, 10))
    def time_passes(self, by: int) -> None:
        self.now += by

    @rule()
    def expires(self) -> None:
        ended = self.registry.expire(self.now)
        late = [ask for ask, one in self.open.items() if one.until_ns <= self.now]
        assert [one.waiting.ask for one in ended] == late
        for one in ended:
            self.ended[one.waiting.ask] = one
            del self.open[one.waiting.ask]

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def gives_up(self, data: st.DataObject) -> None:
        ask = data.draw(st.sampled_from(sorted(self.open)))
        given = self.registry.withdraw(ask, self.now)
        assert given is not None
        self.ended[ask] = given
        del self.open[ask]

    @invariant()
    def what_waits_is_what_was_not_ended(self) -> None:
        assert [one.ask for one in self.registry.waiting()] == list(self.open)
        assert len(self.registry.waiting()) <= 4


TestAsking = Asking.TestCase
TestAsking.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
