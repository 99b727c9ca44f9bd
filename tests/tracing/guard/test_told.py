"""What is told of refusals: at once the first time, counted after that, exact at the end."""

from ipaddress import IPv4Address

from agentwrap.events import ActDenied, Gap, Item, NetRefused
from agentwrap.tracing.guard.sockaddr import Endpoint
from agentwrap.tracing.guard.told import Told
from agentwrap.tracing.processes import Process

TO = Endpoint(IPv4Address("203.0.113.1"), 443)


class Clock:
    ns = 0

    def __call__(self) -> int:
        return self.ns


def _made() -> tuple[Told, Clock, list[Item]]:
    clock, items = Clock(), list[Item]()
    return Told(items.append, clock), clock, items


def _counts(items: list[Item]) -> list[int]:
    return [item.count for item in items if isinstance(item, NetRefused)]


def test_repeats_are_one_row_every_quarter_of_a_second_and_no_one_is_lost() -> None:
    told, clock, items = _made()
    process = Process(7, "p1", None)
    for _ in range(1000):
        clock.ns += 1_000_000
        told.refused(process, TO)
    rows = len(items)
    assert rows <= 5
    told.settle(everything=True)
    assert sum(_counts(items)) == 1000
    told.settle(everything=True)
    assert len(items) == rows + 1
    assert {(item.host, item.port, item.by, item.decision) for item in items if isinstance(item, NetRefused)} == {
        (b"203.0.113.1", 443, "guard", "deny")
    }


def test_a_pause_is_told_by_the_clock_of_the_run_not_by_the_next_refusal() -> None:
    told, clock, items = _made()
    process = Process(7, "p1", None)
    for _ in range(3):
        told.refused(process, TO)
    told.settle()
    assert _counts(items) == [1]
    clock.ns += 300_000_000
    told.settle()
    assert _counts(items) == [1, 2]


def test_many_destinations_stay_bounded_and_exact() -> None:
    told, _clock, items = _made()
    process = Process(7, "p1", None)
    for _ in range(2):
        for port in range(10_000):
            told.refused(process, Endpoint(TO.ip, port))
    told.settle(everything=True)
    assert sum(_counts(items)) == 20_000
    assert len(told._counts) <= 4096


def test_what_is_the_same_for_a_process_is_told_once() -> None:
    told, _clock, items = _made()
    process = Process(7, "p1", None)
    for _ in range(3):
        told.socket(process, "inet raw icmp", 1)
        told.unknown(process, "connect", "socket:[1]")
    assert [type(item) for item in items] == [ActDenied, Gap]
