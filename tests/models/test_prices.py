"""Estimates come from the optional table; what it does not know has no cost."""

from decimal import Decimal

import pytest

from agentwrap.models import prices
from agentwrap.models.shape import Usage

needs_table = pytest.mark.skipif(prices.load() is None, reason="genai-prices is not installed")


@needs_table
def test_cached_input_costs_less() -> None:
    whole = prices.estimate("anthropic", b"claude-sonnet-4-5", Usage(10_000, 0, 0, 100))
    cached = prices.estimate("anthropic", b"claude-sonnet-4-5", Usage(10_000, 10_000, 0, 100))
    assert whole is not None
    assert cached is not None
    assert Decimal(whole.usd) > Decimal(cached.usd) > 0
    assert whole.table.startswith("genai-prices ")


@needs_table
@pytest.mark.parametrize("model", [b"no-such-model", b"", b"\xff\xfe"])
def test_a_model_that_is_not_in_the_table_has_no_cost(model: bytes) -> None:
    for _ in range(2):
        assert prices.estimate("anthropic", model, Usage(10, 0, 0, 1)) is None
        assert prices.estimate("anthropic", b"claude-sonnet-4-5", Usage(10, 0, 0, 1)) is not None


def test_without_numbers_there_is_no_cost() -> None:
    assert prices.estimate("anthropic", b"claude-sonnet-4-5", Usage()) is None


def test_nobody_has_a_price_where_there_is_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "load", lambda: None)
    assert prices.estimate("anthropic", b"claude-sonnet-4-5", Usage(10, 0, 0, 1)) is None
    assert prices.unknown("anthropic", b"claude-sonnet-4-5", Usage(10, 0, 0, 1)) is None
