from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from agentwrap.export.stamps import civil, rfc3339

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.integers(-60_000_000_000, 250_000_000_000), st.integers(0, 999_999_999))
def test_dates_are_those_of_the_calendar(seconds: int, nanoseconds: int) -> None:
    expected = (EPOCH + timedelta(seconds=seconds)).strftime("-%m-%dT%H:%M:%S")
    shown = rfc3339(seconds * 10**9 + nanoseconds)
    assert shown[4:] == f"{expected}.{nanoseconds:09d}Z"


def test_decimals_are_cut_not_rounded() -> None:
    assert rfc3339(1_764_471_672_999_999_999, 3) == "2025-11-30T03:01:12.999Z"
    assert rfc3339(1_764_471_672_999_999_999, 0) == "2025-11-30T03:01:12Z"
    assert civil(0) == (1970, 1, 1)
    assert civil(19_782) == (2024, 2, 29)
