import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.policy.expressions import endless_within_endless


@pytest.mark.parametrize(
    ("pattern", "slow"),
    [
        ("^(main|release/.*)$", False), ("a+b+c*", False), ("(a+)", False), ("(a+)?", False), ("(a+){3}", False),
        ("(a+)+", True), ("(a+)*", True), ("(a*?)+?", True), ("(?:a+){2,}", True), ("((a+)b)*", True),
        ("(x(a{2,}))+", True), ("(?>(a+)+)", True),
        ("(?>a+)+", False), ("(a++)+", False), ("(a+)++", False), ("(a{2,}+)*", False), ("(?P<n>a+)*", True),
        (r"(a\+)+", False), ("([+*]b)+", False), ("([]+]b)+", False), (r"([\]+]b)+", False), ("(a{x}+)+", True),
        ("(a{,}b)+", True), ("(a{1,2})+", False), (r"(\w+\s)*", True), (r"\(a+\)+", False), ("a{", False),
    ],
)  # fmt: skip
def test_repetitions_within_repetitions(pattern: str, slow: bool) -> None:
    re.compile(pattern)
    assert endless_within_endless(pattern) is slow


PARTS = st.lists(st.sampled_from([*"ab()[]{}*+?\\,|^12", "(?:", "(?>", "{2,}", "++"]), max_size=10).map("".join)


@given(PARTS | st.text(max_size=20))
def test_any_text_is_looked_at(text: str) -> None:
    assert endless_within_endless(text) in (True, False)


def depth_of_repetition(tree: object) -> int:
    """How deep endless repetitions lie in each other, by re's own reading."""
    deepest = 0
    for word, value in tree:  # type: ignore[attr-defined]
        name, inner, own = str(word), [], 0
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            own = int(str(value[1]) == "MAXREPEAT")
            inner = [value[2]]
        elif name == "SUBPATTERN":
            inner = [value[3]]
        elif name == "BRANCH":
            inner = list(value[1])
        elif name in ("ATOMIC_GROUP", "POSSESSIVE_REPEAT"):
            below = depth_of_repetition(value if name == "ATOMIC_GROUP" else value[2])
            own = below if below > 1 else 0
        deepest = max([deepest, *(own + depth_of_repetition(one) for one in inner), own])
    return deepest


@given(PARTS)
def test_the_answer_is_that_of_res_own_parser(pattern: str) -> None:
    import re._parser as parser  # type: ignore[import-not-found]

    try:
        tree = parser.parse(pattern)
    except (re.error, FutureWarning):
        return
    assert endless_within_endless(pattern) is (depth_of_repetition(tree) > 1)
