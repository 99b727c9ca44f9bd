"""Control 8: did every denied connection stay denied? Pure.

Looked at are connections through the gateway: what it decided about each, and whether anything was said over one after
it was refused, or to the same place over another one that nobody allowed.
"""

from collections.abc import Iterable

import msgspec

from agentwrap.evidence.report.controls import Control, Test
from agentwrap.evidence.report.facts import Facts
from agentwrap.evidence.report.fields import number, text, word
from agentwrap.rows import Row

DECIDED = "net.decision"
TRAFFIC = ("net.closed", "http.exchange", "model.request")
_MOST = 100_000
_OTHERS = "(others)"
_REFUSED_BY_US = 403

Place = tuple[str, int]


class _Connection(msgspec.Struct):
    id: str
    decision: str = ""
    place: Place = ("", 0)
    seq: int = 0
    at_ns: int = 0
    passed: bool = False


def connections(facts: Facts, denials: Iterable[Row], grouped: Iterable[Row]) -> Control:
    """The control. `denials`: rows of DECIDED; `grouped`: of it and TRAFFIC, in the order of their `connection`."""
    test = Test(
        "connections",
        "Each connection that the gateway refused was followed to its end: bytes, requests and answers after the "
        "refusal without a new decision, and connections to the same place that nobody allowed, were looked for.",
    )  # fmt: skip
    denied = _denied(denials, test)
    one: _Connection | None = None
    for row in grouped:
        ident = word(row.data, "connection")
        if not ident:
            continue
        if one is None or one.id != ident:
            one = _Connection(ident)
        if row.kind == DECIDED:
            place = text(row.data, "host"), number(row.data, "port")
            one.decision, one.place, one.seq, one.at_ns = row.verdict, place, row.seq, row.at_ns
            one.passed |= row.verdict != "deny"
        else:
            _traffic(test, row, one, denied)
    facts.limits(test, ("connect",))
    return test.result()


def _denied(rows: Iterable[Row], test: Test) -> dict[Place, int]:
    """Where a connection was refused, with the first row."""
    found: dict[Place, int] = {}
    left_out = 0
    for row in rows:
        if row.verdict != "deny":
            continue
        test.population += number(row.data, "count", 1)
        place = text(row.data, "host"), number(row.data, "port")
        if place[0] == _OTHERS:
            test.unclear("more connections were refused than could be told apart", row.seq)
        elif place in found or len(found) < _MOST:
            found.setdefault(place, row.seq)
        else:
            left_out = left_out or row.seq
    if left_out:
        test.unclear("connections to more places were refused than were looked at", left_out)
    return found


def _traffic(test: Test, row: Row, one: _Connection, denied: dict[Place, int]) -> None:
    data = row.data
    place = text(data, "host"), number(data, "port")
    told = f"{place[0]}:{place[1]}"
    if one.decision == "deny":
        if row.kind == "net.closed":
            carried = number(data, "up_bytes") or number(data, "down_bytes")
            if not one.passed and carried:
                test.fails("bytes went over it though it was never allowed", one.seq, row.seq, about=told)
            elif word(data, "ending") == "closed":
                test.fails("it was refused, and went on to an end of its own", one.seq, row.seq, about=told)
        elif number(data, "requested_ns", row.at_ns) > one.at_ns and number(data, "status") != _REFUSED_BY_US:
            test.fails("a request went over it after it was refused", one.seq, row.seq, about=told)
    elif not one.decision and place in denied:
        test.fails("nobody allowed it, and its place was refused before", denied[place], row.seq, about=told)
