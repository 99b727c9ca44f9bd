import os
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.approvals.oneself import account, is_oneself


@pytest.mark.parametrize(
    ("approver", "names", "same"),
    [
        ("dana", ("bot", "Dana"), True),
        ("BOT", ("bot", ""), True),
        ("ﬀ", ("FF",), True),
        ("STRASSE", ("straße",), True),
        ("lee", ("bot", "dana"), False),
        ("dana2", ("dana",), False),
        ("", ("", ""), False),
    ],
)
def test_names_are_compared_as_people_read_them(approver: str, names: tuple[str, ...], same: bool) -> None:
    assert is_oneself(approver, 4_000_000_000, names) is same


def test_without_a_name_of_their_own_an_approver_is_their_account() -> None:
    mine = account(os.getuid())
    assert mine
    assert is_oneself("", os.getuid(), (mine.upper(),))
    assert not is_oneself("somebody", os.getuid(), (mine,))
    assert account(4_000_000_000) == account(-1) == ""


@given(st.text(), st.lists(st.text(), max_size=3))
def test_any_text_is_compared(approver: str, names: list[str]) -> None:
    nameless = not normalize("NFKC", approver).casefold().strip()
    assert is_oneself(approver, 4_000_000_000, [*names, approver]) is not nameless
