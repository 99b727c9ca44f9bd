import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_texts import network, policy

from agentwrap.policy.decide import decide
from agentwrap.policy.layers import Layer, Name, decide_layers, mode_of
from agentwrap.policy.questions import Connect, Question, Write
from agentwrap.policy.rules import Policy

A, B = Connect("a.example", 443), Connect("b.example", 443)


def said(question: Question, *layers: Layer) -> str:
    return decide_layers(layers, question).verdict


def test_a_project_may_only_narrow_until_it_is_trusted() -> None:
    user = Layer("user", network("a.example"))
    wider, narrower = network("a.example", "b.example"), network("b.example")
    assert said(B, user, Layer("project", wider, trusted=False)) == "deny"
    assert said(A, user, Layer("project", wider, trusted=False)) == "allow"
    assert said(A, user, Layer("project", narrower, trusted=False)) == "deny"
    assert said(B, user, Layer("project", wider, trusted=True)) == "allow"


def test_a_project_that_nobody_trusts_opens_nothing_that_is_closed_by_default() -> None:
    hook = Write("/w/.git/hooks/pre-commit")
    opened = policy('[files.write]\nallow = ["$CWD/**", "$CWD/.git/hooks/pre-commit"]\n')
    user = Layer("user", policy('[files.write]\nallow = ["$CWD/**"]\n'))
    assert said(hook, user, Layer("project", opened, trusted=False)) == "deny"
    assert said(hook, user, Layer("flags", opened)) == "allow"


def test_what_one_layer_leaves_open_no_default_of_another_closes() -> None:
    waiting, closed = network("config:pip"), network("b.example", default="deny")
    assert said(A, Layer("flags", waiting), Layer("user", closed)) == "unknown"
    assert said(A, Layer("flags", closed), Layer("user", waiting)) == "unknown"
    assert said(B, Layer("flags", waiting), Layer("user", closed)) == "allow"


def test_a_denial_by_name_is_a_floor() -> None:
    system = Layer("system", network(default="allow", deny=("*.example",)))
    for name in ("flags", "project", "user"):
        answer = decide_layers([Layer(name, network("a.example")), system], A)  # type: ignore[arg-type]
        assert (answer.verdict, answer.rule.where) == ("deny", "network.deny")


def test_the_first_layer_that_says_something_counts() -> None:
    flags, user = Layer("flags", network("a.example")), Layer("user", network("b.example"))
    for layers in itertools.permutations((flags, user)):
        assert (said(A, *layers), said(B, *layers), said(Connect("c.example", 1), *layers)) == (
            "allow",
            "allow",
            "deny",
        )
    silent = Layer("flags", policy(""))
    assert said(Connect("c.example", 1), silent, Layer("user", network(default="allow"))) == "allow"


def test_a_project_alone_is_its_own_answer() -> None:
    assert said(A, Layer("project", network("a.example"), trusted=False)) == "allow"
    assert said(B, Layer("project", network("a.example"), trusted=False)) == "deny"


def test_no_layer_is_no_answer() -> None:
    with pytest.raises(ValueError, match="no policy"):
        decide_layers([], A)


def test_the_mode_is_never_made_weaker_by_a_project() -> None:
    strict, loose = network("a.example"), policy("", mode="observe")
    assert mode_of([Layer("user", strict), Layer("project", loose, trusted=False)]) == "enforce"
    assert mode_of([Layer("user", loose), Layer("project", strict, trusted=False)]) == "enforce"
    assert mode_of([Layer("user", strict), Layer("project", loose)]) == "observe"


POLICIES = [
    network("a.example"), network("b.example", deny=("a.example",)), network(default="allow"), network(),
    policy("", mode="observe"),
]  # fmt: skip
NAMED = st.tuples(st.sampled_from(["flags", "user", "system"]), st.sampled_from(POLICIES))


@given(
    st.sampled_from(POLICIES),
    st.lists(NAMED, min_size=1, max_size=3, unique_by=lambda pair: pair[0]),
    st.sampled_from([A, B]),
)
def test_with_an_untrusted_project_nothing_is_allowed_that_was_not(
    project: Policy, others: list[tuple[Name, Policy]], question: Question
) -> None:
    trusted = [Layer(name, one) for name, one in others]
    with_project = said(question, *trusted, Layer("project", project, trusted=False))
    if with_project == "allow":
        assert said(question, *trusted) == "allow"
        assert decide(project, question).verdict == "allow"


@given(st.sampled_from(POLICIES), st.sampled_from(["flags", "project", "user", "system"]), st.sampled_from([A, B]))
def test_one_layer_says_what_its_policy_says(of: Policy, name: Name, question: Question) -> None:
    assert said(question, Layer(name, of)) == decide(of, question).verdict
