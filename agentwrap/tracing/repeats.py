"""How often an act was refused, told how often: the first at once, its repeats counted and told together. Pure.

The gateway counts its own denials by the same rule (`gateway.told`): however many there are, memory and rows stay
bounded, and no count is lost.
"""

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from agentwrap.events.egress import ActDenied

WINDOW_NS = 250_000_000
MAX_KEYS = 4_096
Key = tuple[str, str, bytes, bytes]


class _Row:
    __slots__ = ("count", "last", "told_ns")

    def __init__(self, last: ActDenied, now_ns: int) -> None:
        self.last = last
        self.count = 0
        self.told_ns = now_ns


class Repeats:
    """Of a kind are refusals of one process with the same act, target and rule."""

    def __init__(self, put: Callable[[ActDenied], None], *, max_keys: int = MAX_KEYS) -> None:
        self._put = put
        self._max_keys = max_keys
        self._rows: OrderedDict[Key, _Row] = OrderedDict()
        self._waiting: dict[Key, _Row] = {}

    def tell(self, event: ActDenied) -> bool:
        """Tell a refusal, now or with its repeats. True: it is the first of its kind and was put just now."""
        key = (event.span, event.act, event.target, event.rule)
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= self._max_keys:
                self._forget_oldest()
            self._rows[key] = _Row(event, event.at_ns)
            self._put(event)
            return True
        row.last = event
        row.count += event.count
        self._rows.move_to_end(key)
        self._waiting[key] = row
        return False

    @property
    def waiting(self) -> bool:
        """Whether repeats wait to be told."""
        return bool(self._waiting)

    def settle(self, now_ns: int, *, everything: bool = False) -> None:
        """Tell repeats that have waited for `WINDOW_NS`, or all of them."""
        for key, row in list(self._waiting.items()):
            if everything or now_ns - row.told_ns >= WINDOW_NS:
                del self._waiting[key]
                self._tell_count(row)
                row.told_ns = now_ns

    def _tell_count(self, row: _Row) -> None:
        self._put(msgspec.structs.replace(row.last, count=row.count))
        row.count = 0

    def _forget_oldest(self) -> None:
        key, row = self._rows.popitem(last=False)
        if self._waiting.pop(key, None) is not None:
            self._tell_count(row)
