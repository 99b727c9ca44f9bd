import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.policy.globs import Glob


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("merge_*", "merge_pr", True), ("merge_*", "merge_", True), ("merge_*", "Merge_pr", False),
        ("*mcp*", "npx -y a/mcp b\nc", True), ("a?", "ab", True), ("a?", "a", False), ("[ab]x", "bx", True),
        ("[!ab]x", "bx", False), ("a.b", "axb", False), ("[*]", "*", True), ("a", "a\n", False),
    ],
)  # fmt: skip
def test_names(pattern: str, name: str, fits: bool) -> None:
    assert Glob(pattern).fits(name) is fits


TEXTS = st.text(st.sampled_from("ab*?[]!"), max_size=5)
NAMES = st.text(st.sampled_from("ab*["), max_size=5)


@given(TEXTS, TEXTS, NAMES)
def test_what_is_covered_fits_the_wider_one_and_what_both_fit_may_meet(wide: str, narrow: str, name: str) -> None:
    one, other = Glob(wide), Glob(narrow)
    if one.covers(other) and other.fits(name):
        assert one.fits(name)
    if one.fits(name) and other.fits(name):
        assert one.may_meet(other)
        assert other.may_meet(one)


@given(st.text(max_size=8))
def test_a_name_that_is_written_out_fits_itself_alone(name: str) -> None:
    escaped = re.sub(r"([*?\[])", r"[\1]", name)
    assert Glob(escaped).fits(name)
    assert not Glob(escaped).fits(name + "x")
