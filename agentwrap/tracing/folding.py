"""The same connect again and again: the first ones are told each, then they are counted and told together. Pure.

However often a program tries, the rows stay few; the counts are exact once the process has ended. Judgements are
counted by another rule (`events.repeats`): only the first is told at once there, and a clock tells the rest.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

TOLD_EACH = 16
WINDOW_NS = 250_000_000
MAX_KEYS = 4096
Key = TypeVar("Key")


@dataclass(slots=True)
class _Seen:
    told: int = 0
    waiting: int = 0
    last_ns: int = 0


class Folding(Generic[Key]):
    """Counts of one process, by what is repeated."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[Key, _Seen] = {}

    def due(self, key: Key, now_ns: int) -> int:
        """One more of `key`. How many a row that is told now stands for; 0: it is told later."""
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= MAX_KEYS:
                return 1
            seen = self._seen[key] = _Seen()
        if seen.told < TOLD_EACH:
            seen.told += 1
            seen.last_ns = now_ns
            return 1
        seen.waiting += 1
        if now_ns - seen.last_ns < WINDOW_NS:
            return 0
        count, seen.waiting, seen.last_ns = seen.waiting, 0, now_ns
        return count

    def rest(self) -> Iterator[tuple[Key, int]]:
        """What was counted and not told, at the end."""
        for key, seen in self._seen.items():
            if seen.waiting:
                count, seen.waiting = seen.waiting, 0
                yield key, count
