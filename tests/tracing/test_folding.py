"""Folding are few rows and exact counts, whatever the times are."""

from hypothesis import given
from hypothesis import strategies as st

from agentwrap.tracing.folding import MAX_KEYS, TOLD_EACH, WINDOW_NS, Folding


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, WINDOW_NS)), max_size=300))
def test_no_count_is_lost(steps: list[tuple[int, int]]) -> None:
    repeats: Folding[int] = Folding()
    now = told = 0
    for key, later in steps:
        now += later
        told += repeats.due(key, now)
    assert told + sum(count for _, count in repeats.rest()) == len(steps)
    assert list(repeats.rest()) == []


def test_a_flood_is_few_rows() -> None:
    repeats: Folding[str] = Folding()
    rows = sum(repeats.due("a", now * 1000) > 0 for now in range(100_000))
    assert rows == TOLD_EACH
    assert dict(repeats.rest()) == {"a": 100_000 - TOLD_EACH}


def test_more_kinds_than_are_told_apart_are_told_each() -> None:
    repeats: Folding[int] = Folding()
    assert [repeats.due(key, 0) for key in range(MAX_KEYS + 5)] == [1] * (MAX_KEYS + 5)
    assert list(repeats.rest()) == []
