"""Repeats are counted, rows are few, and no count is lost."""

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.events import repeats
from agentwrap.events.egress import ActDenied, DnsQuery, NetDecision, NetRefused
from agentwrap.events.repeats import OTHERS, Teller, Told

MS = 1_000_000


def denied(at_ns: int = 0, host: bytes = b"x.example", **more: object) -> NetDecision:
    fields = {"span": "p1", "decision": "deny", "by": "wall", "port": 443, **more}
    return NetDecision(at_ns=at_ns, host=host, **fields)  # type: ignore[arg-type]


def act(target: bytes, at_ns: int = 0, **more: object) -> ActDenied:
    fields = {"span": "p1", "decision": "deny", "by": "witness", "act": "write", **more}
    return ActDenied(at_ns=at_ns, target=target, **fields)  # type: ignore[arg-type]


def test_the_first_is_told_at_once_and_its_repeats_together_after_the_window() -> None:
    rows: list[Told] = []
    teller: Teller[Told] = Teller(rows.append)
    assert teller.tell(denied(0))
    assert not teller.waiting
    assert [row.count for row in rows] == [1]
    for step in range(1, 1001):
        assert not teller.tell(denied(step * 10_000, connection=f"c{step}"))
    teller.flush(100 * MS)
    assert len(rows) == 1
    assert teller.waiting
    teller.flush(251 * MS)
    assert [row.count for row in rows] == [1, 1000]
    assert rows[1].connection == "c1000"  # type: ignore[union-attr]
    teller.flush(1000 * MS)
    assert len(rows) == 2


def test_a_kind_is_a_process_a_destination_a_rule_and_a_verdict() -> None:
    rows: list[Told] = []
    teller: Teller[Told] = Teller(rows.append)
    first = denied()
    others = [
        denied(span="p2"), denied(host=b"y.example"), denied(port=80), denied(rule=b"r"), denied(decision="would-deny"),
        DnsQuery(at_ns=0, decision="deny", by="wall", name=b"x.example", qtype="A"),
        DnsQuery(at_ns=0, decision="deny", by="wall", name=b"x.example", qtype="AAAA"),
        NetRefused(at_ns=0, decision="deny", by="wall", host=b"x.example", port=443),
        act(b"x.example"), act(b"/x"), act(b"/x", act="exec"), act(b"/x", rule=b"r"), act(b"/x", span="p2"),
    ]  # fmt: skip
    assert [teller.tell(event) for event in (first, *others)] == [True] * 14
    assert [teller.tell(event) for event in (first, *others)] == [False] * 14


def test_what_does_not_fit_is_counted_under_others() -> None:
    rows: list[Told] = []
    teller: Teller[Told] = Teller(rows.append, max_keys=10)
    for number in range(1000):
        teller.tell(denied(number, host=b"%d.example" % number))
        teller.tell(DnsQuery(at_ns=number, decision="deny", by="wall", name=b"%d" % number, qtype="A"))
        teller.tell(act(b"/%d" % number, number))
    teller.flush(MS, everything=True)
    assert len(rows) < 20
    assert sum(row.count for row in rows) == 3000
    assert sum(row.count for row in rows if row.subject.startswith(OTHERS)) > 2900


def test_who_was_silent_for_a_minute_makes_room() -> None:
    rows: list[Told] = []
    teller: Teller[Told] = Teller(rows.append, max_keys=2)
    teller.tell(denied(0, host=b"a"))
    teller.tell(denied(0, host=b"b"))
    teller.tell(denied(1, host=b"b"))
    teller.flush(MS, everything=True)
    assert teller.tell(denied(repeats.IDLE_NS, host=b"c"))
    assert [row.host for row in rows] == [b"a", b"b", b"b", b"c"]  # type: ignore[union-attr]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 400 * MS), st.booleans()), max_size=300))
def test_counts_are_exact_whatever_comes(steps: list[tuple[int, int, bool]]) -> None:
    rows: list[Told] = []
    teller: Teller[Told] = Teller(rows.append, max_keys=8)
    now = 0
    sent: Counter[bytes] = Counter()
    for who, passed, flush in steps:
        now += passed
        host = b"%d.example" % who
        sent[host] += 1
        teller.tell(denied(now, host=host))
        if flush:
            teller.flush(now)
    teller.flush(now, everything=True)
    got: Counter[bytes] = Counter()
    for row in rows:
        got[row.host] += row.count  # type: ignore[union-attr]
    assert sum(got.values()) == sum(sent.values())
    assert all(got[host] <= sent[host] for host in got if host != OTHERS)


def test_a_row_is_a_whole_event() -> None:
    rows: list[Told] = []
    teller: Teller[Told] = Teller(rows.append, max_keys=1)
    for host in (b"a", b"b", b"b"):
        teller.tell(denied(host=host))
    teller.flush(0, everything=True)
    assert all(msgspec.msgpack.encode(row) for row in rows)
