"""What was made of bytes before, by their digest: a conversation is sent again with every call. Pure."""

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Generic, TypeVar

_SIZE = 16
_LITTLE_BYTES = 512
MOST_BYTES = 16 << 20

Made = TypeVar("Made")


class Remembered(Generic[Made]):
    """The latest results of a function of bytes, which must depend on nothing else and not be changed.

    As many as were made of `most_bytes` in all: what is made of bytes takes no more room than they, and a little.
    """

    def __init__(self, make: Callable[[bytes], Made], most_bytes: int = MOST_BYTES) -> None:
        self._make = make
        self._left = most_bytes
        self._known: OrderedDict[bytes, tuple[int, Made]] = OrderedDict()

    def of(self, raw: bytes) -> Made:
        """What the function makes of `raw`."""
        digest = blake2b(raw, digest_size=_SIZE).digest()
        found = self._known.get(digest)
        if found is not None:
            self._known.move_to_end(digest)
            return found[1]
        made = self._make(raw)
        cost = len(raw) + _LITTLE_BYTES
        self._known[digest] = cost, made
        self._left -= cost
        while self._left < 0:
            self._left += self._known.popitem(last=False)[1][0]
        return made
