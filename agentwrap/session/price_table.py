"""Loads the table of `genai-prices` without what that needs only to fetch a newer one over the network.

The package loads a web client and `pydantic` for updates, which nobody here asks for: without them it takes a quarter
of the time, while the first model call is under way. Knows nothing of prices. A version that does not load this way is
loaded as it is. For a process in which nobody else loads these packages at the same moment.
"""

import contextlib
import functools
import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from agentwrap.models import prices
from agentwrap.models.prices import Price
from agentwrap.models.shape import Usage

_TABLE = "genai_prices"
_UPDATES = f"{_TABLE}.update_prices"
_SCHEMAS = "pydantic"
# What describes updates, and makes nothing. A version that asks for more may rely on what it makes.
_DESCRIBING = frozenset(("Tag", "Discriminator", "Field", "TypeAdapter", "ConfigDict"))
_FETCHING = frozenset(("UpdatePrices", "wait_prices_updated_async", "wait_prices_updated_sync"))
_one_at_a_time = threading.Lock()


class _Unused:
    """Stands for every class and function that has to do with updates."""

    def __init__(self, *_given: object, **_named: object) -> None:
        pass


def _stand_in(name: str, has: frozenset[str]) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(dict.fromkeys(has, _Unused))
    return module


def load() -> None:
    """Load it, and what it makes of its table when it is first asked. Without the package there is nothing to load."""
    with contextlib.suppress(Exception):  # whoever asks for a price meets the same, and tells it
        estimate("", b"", Usage(0, 0, 0, 0))


@functools.cache
def _load() -> None:
    if _TABLE in sys.modules:
        return
    try:
        with _without_updates():
            importlib.import_module(_TABLE)
    except Exception:  # another version, which uses them for more
        for name in [name for name in sys.modules if name.partition(".")[0] == _TABLE]:
            del sys.modules[name]


def estimate(provider: str, model: bytes, usage: Usage) -> Price | None:
    """As `prices.estimate`, by the table that is loaded here."""
    with _one_at_a_time:  # whoever comes second must not find half of it in sys.modules
        _load()
    return prices.estimate(provider, model, usage)


@contextmanager
def _without_updates() -> Iterator[None]:
    given = {_UPDATES: _stand_in(_UPDATES, _FETCHING), _SCHEMAS: _stand_in(_SCHEMAS, _DESCRIBING)}
    given = {name: module for name, module in given.items() if name not in sys.modules}
    sys.modules.update(given)
    try:
        yield
    finally:
        for name in given:
            sys.modules.pop(name, None)
