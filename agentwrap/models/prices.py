"""What a call may have cost, by the table of the optional package `genai-prices`.

A model that is not in it has no cost, which is not the same as a cost of nothing.
"""

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec

from agentwrap.models.shape import Usage


class Price(msgspec.Struct, frozen=True):
    """US dollars as a decimal text, and the table's name and version."""

    usd: str
    table: str


_UNKNOWN_MAX, _NAME_BYTES = 1000, 256
_unknown: set[tuple[str, bytes]] = set()
"""Models that are not in the table: the package looks through all of it for each call of one."""

Pricing = Callable[[str, bytes, Usage], Price | None]
"""Provider, model, usage -> price."""


def unknown(_provider: str, _model: bytes, _usage: Usage) -> Price | None:
    """For whoever has no table."""
    return None


@functools.cache
def load() -> tuple[Any, str] | None:
    """The package, and the name and version of its table; None where it is missing."""
    try:
        import importlib.metadata

        import genai_prices
    except ImportError:
        return None
    return genai_prices, f"genai-prices {importlib.metadata.version('genai-prices')}"


def estimate(provider: str, model: bytes, usage: Usage) -> Price | None:
    """The price of one call; None where the package, the model or the numbers are missing."""
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    table = load()
    if table is None or (provider, model) in _unknown:
        return None
    package, name = table
    counted = package.Usage(
        input_tokens=usage.input_tokens or 0,
        cache_read_tokens=usage.cache_read_tokens or 0,
        cache_write_tokens=usage.cache_write_tokens or 0,
        output_tokens=usage.output_tokens or 0,
    )
    try:
        cost = package.calc_price(counted, model_ref=model.decode("utf-8", "replace"), provider_id=provider).total_price
    except (LookupError, ValueError) as error:
        if type(error) is LookupError and len(model) <= _NAME_BYTES and len(_unknown) < _UNKNOWN_MAX:
            _unknown.add((provider, model))
        return None
    return Price(f"{Decimal(cost):f}", name)
