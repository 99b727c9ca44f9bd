"""By which names the addresses of a run were asked for. The newest first, and never more than a bound.

Knows what it was taught. Refuses to know about time to live: a program may keep an address for as long as it likes.
"""

from collections import OrderedDict
from collections.abc import Iterable

from agentwrap.policy.hosts import Address

NAMES_MAX = 4096
PER_NAME_MAX = 32
PER_ADDRESS_MAX = 64


class KnownNames:
    """Names in the normal form of `parse_host` and addresses, both ways. Not for several threads."""

    def __init__(self, names_max: int = NAMES_MAX) -> None:
        self._names_max = names_max
        self._addresses: OrderedDict[str, tuple[Address, ...]] = OrderedDict()  # oldest first
        self._names: dict[Address, OrderedDict[str, None]] = {}  # oldest first

    def learn(self, name: str, addresses: Iterable[Address]) -> None:
        """`name` led to `addresses` just now. What it led to before is kept behind them, up to a bound."""
        newest = list(dict.fromkeys(addresses))
        kept = tuple(dict.fromkeys([*newest, *self._addresses.get(name, ())]))
        self._addresses[name] = kept[:PER_NAME_MAX]
        self._addresses.move_to_end(name)
        for address in reversed(newest[:PER_NAME_MAX]):
            names = self._names.setdefault(address, OrderedDict())
            names[name] = None
            names.move_to_end(name)
            if len(names) > PER_ADDRESS_MAX:
                self._unlink(next(iter(names)), address)
        for address in kept[PER_NAME_MAX:]:
            self._drop(address, name)
        if len(self._addresses) > self._names_max:
            oldest, lost = self._addresses.popitem(last=False)
            for address in lost:
                self._drop(address, oldest)

    def names_of(self, address: Address) -> tuple[str, ...]:
        """The names that led to `address`, the newest first."""
        return tuple(reversed(self._names.get(address, OrderedDict())))

    def addresses_of(self, name: str) -> tuple[Address, ...]:
        """Where `name` led to, the newest answer first."""
        return self._addresses.get(name, ())

    def __len__(self) -> int:
        return len(self._addresses)

    def _unlink(self, name: str, address: Address) -> None:
        """One pair less, on both sides."""
        left = tuple(one for one in self._addresses.get(name, ()) if one != address)
        if left:
            self._addresses[name] = left
        else:
            self._addresses.pop(name, None)
        self._drop(address, name)

    def _drop(self, address: Address, name: str) -> None:
        names = self._names.get(address)
        if names is None:
            return
        names.pop(name, None)
        if not names:
            del self._names[address]
