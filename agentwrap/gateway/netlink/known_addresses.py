"""Addresses that names were answered with, as many as the filter's set holds; the oldest give way.

Knows which addresses are in the set, so there is one of these for a namespace; knows no names.
"""

import socket
from collections.abc import Iterable

from agentwrap.gateway.netlink import rules


class KnownAddresses:
    """Lets TCP to these addresses reach the gateway. `sock`: as for `rules.install`."""

    def __init__(self, sock: socket.socket, size: int = rules.KNOWN_SIZE) -> None:
        self._sock = sock
        self._size = size
        self._known: dict[int, dict[rules.Address, None]] = {4: {}, 6: {}}

    def add(self, addresses: Iterable[rules.Address]) -> None:
        """Add some, at most as many as the set holds; what was added longest ago is forgotten for them.

        Works before the program hears an answer: the kernel has it when this returns. Raises OSError when the kernel
        refuses; then nothing is added.
        """
        wanted = dict.fromkeys(addresses)
        new = [one for one in wanted if one not in self._known[one.version]]
        gone: list[rules.Address] = []
        for version, known in self._known.items():
            excess = len(known) + sum(one.version == version for one in new) - self._size
            if excess > 0:
                # Not one that is wanted now.
                gone += [one for one in known if one not in wanted][:excess]
        if gone:
            rules.forget_known(self._sock, gone)
            for one in gone:
                del self._known[one.version][one]
        if new:
            rules.add_known(self._sock, new)
        for one in wanted:
            self._known[one.version].pop(one, None)
            self._known[one.version][one] = None
