"""How often is told how often: the first of a kind at once, its repeats counted and told together. Pure.

Of a kind are judgements with the same process, destination or target, rule and verdict. However many there are, memory
and rows are bounded; what does not fit any more is counted under "(others)". No count is ever lost.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar, cast

import msgspec

from agentwrap.events.egress import ActDenied, DnsQuery, NetDecision, NetRefused

Told = NetDecision | DnsQuery | NetRefused | ActDenied
AnyTold = TypeVar("AnyTold", bound=Told)
Key = tuple[object, ...]

WINDOW_NS = 250_000_000
MAX_KEYS = 10_000
IDLE_NS = 60_000_000_000
OTHERS = b"(others)"


class _Row(Generic[AnyTold]):
    __slots__ = ("count", "last", "seen_ns", "times", "told_ns")

    def __init__(self, last: AnyTold, now: int) -> None:
        self.last = last
        self.count = 0
        self.times = 1
        self.seen_ns = self.told_ns = now


def _key(event: Told) -> Key:
    if isinstance(event, NetDecision):
        return ("c", event.span, event.host, event.port, event.rule, event.decision)
    if isinstance(event, DnsQuery):
        return ("d", event.span, event.name, event.qtype, event.rule, event.decision, event.answers)
    if isinstance(event, NetRefused):
        return ("r", event.span, event.host, event.port, event.protocol_number, event.decision)
    return ("a", event.span, event.act, event.target, event.rule, event.decision)


def _folded(event: Told) -> Told:
    """The same without what makes it one of its kind."""
    if isinstance(event, NetDecision):
        return NetDecision(
            at_ns=event.at_ns, decision=event.decision, by=event.by, host=OTHERS, port=0, count=event.count,
            why=b"more destinations than are told apart",
        )  # fmt: skip
    if isinstance(event, DnsQuery):
        return DnsQuery(
            at_ns=event.at_ns, decision=event.decision, by=event.by, name=OTHERS, qtype="", count=event.count,
            why=b"more names than are told apart",
        )  # fmt: skip
    if isinstance(event, NetRefused):
        return NetRefused(
            at_ns=event.at_ns, decision=event.decision, by=event.by, host=OTHERS, count=event.count,
            why=b"more destinations than are told apart",
        )  # fmt: skip
    return ActDenied(
        at_ns=event.at_ns, decision=event.decision, by=event.by, act=event.act, target=OTHERS, count=event.count,
        why=b"more acts than are told apart",
    )  # fmt: skip


class Teller(Generic[AnyTold]):
    """Tells judgements to `put`. Times are nanoseconds of the run, taken from the events."""

    def __init__(self, put: Callable[[AnyTold], None], *, max_keys: int = MAX_KEYS) -> None:
        self._put = put
        self._max_keys = max_keys
        self._rows: OrderedDict[Key, _Row[AnyTold]] = OrderedDict()
        self._counted: dict[Key, _Row[AnyTold]] = {}

    @property
    def waiting(self) -> bool:
        """Whether repeats wait to be told."""
        return bool(self._counted)

    def tell(self, event: AnyTold) -> bool:
        """Tell a judgement, now or with its repeats. True: it is the first of its kind and was put just now."""
        key = _key(event)
        row = self._rows.get(key)
        if row is None and len(self._rows) >= self._max_keys and not self._forget_idle(event.at_ns):
            event = cast("AnyTold", _folded(event))  # an event of the same type
            key = _key(event)
            row = self._rows.get(key)
        if row is None:
            self._rows[key] = _Row(event, event.at_ns)
            self._put(event)
            return True
        row.last = event
        row.count += event.count
        row.times += 1
        row.seen_ns = event.at_ns
        self._rows.move_to_end(key)
        self._counted[key] = row
        return False

    def times(self, event: AnyTold) -> int:
        """How often a judgement of this kind was told; 0 where it is not told apart."""
        row = self._rows.get(_key(event))
        return row.times if row is not None else 0

    def flush(self, now_ns: int, *, everything: bool = False) -> None:
        """Tell repeats that have waited for `WINDOW_NS`, or all of them."""
        for key, row in list(self._counted.items()):
            if everything or now_ns - row.told_ns >= WINDOW_NS:
                del self._counted[key]
                self._put(msgspec.structs.replace(row.last, count=row.count))
                row.count, row.told_ns = 0, now_ns

    def _forget_idle(self, now_ns: int) -> bool:
        """Make room: whoever was silent for a while is first of its kind again. Whether there is room now."""
        while self._rows:
            key, row = next(iter(self._rows.items()))
            if row.count or now_ns - row.seen_ns < IDLE_NS:
                break
            del self._rows[key]
        return len(self._rows) < self._max_keys
