"""Words and numbers of rows, whatever a file holds instead."""

import pytest

from agentwrap.rows import number, word


@pytest.mark.parametrize("value", [None, True, "7", 7.0, [7], {"b64": "/w=="}, 1 << 63, -(1 << 63) - 1, 10**400])
def test_what_is_no_number_of_ours_is_the_default(value: object) -> None:
    assert (number(value), number(value, -1)) == (0, -1)


@pytest.mark.parametrize("value", [0, -5, (1 << 63) - 1, -(1 << 63)])
def test_numbers_of_64_bits_are_taken(value: int) -> None:
    assert number(value, 9) == value


def test_what_is_no_word_is_nothing() -> None:
    assert [word(one) for one in ("m1", "", None, 7, ["m1"], {"b64": "/w=="})] == ["m1", "", "", "", "", ""]
