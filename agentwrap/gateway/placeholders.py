"""Addresses that stand for names nobody has looked up yet. Pure.

Out of 198.18.0.0/15 (RFC 2544), where nobody lives: a program that may have to wait for a human gets one, connects to
it, and is known by it. Bounded: the oldest stand-ins are given to new names.
"""

from collections import OrderedDict
from ipaddress import IPv4Address, IPv4Network

from agentwrap.policy.hosts import Address

BLOCK = IPv4Network("198.18.0.0/15")
MAX_NAMES = 16_384


class Placeholders:
    """Stand-ins of one run, both ways."""

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, IPv4Address] = OrderedDict()
        self._names: dict[Address, str] = {}

    def for_name(self, name: str) -> IPv4Address:
        """The stand-in of a name in normal form, the same each time."""
        address = self._addresses.get(name)
        if address is None:
            if len(self._addresses) >= MAX_NAMES:
                _, address = self._addresses.popitem(last=False)
            else:
                address = BLOCK[len(self._addresses) + 1]
            self._addresses[name] = address
            self._names[address] = name
        self._addresses.move_to_end(name)
        return address

    def name_of(self, address: Address) -> str | None:
        """Whose stand-in it is."""
        return self._names.get(address)
