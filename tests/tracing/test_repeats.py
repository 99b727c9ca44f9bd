from hypothesis import given
from hypothesis import strategies as st

from agentwrap.events.egress import ActDenied
from agentwrap.tracing.repeats import WINDOW_NS, Repeats


def event(target: int, at_ns: int) -> ActDenied:
    return ActDenied(at_ns=at_ns, decision="deny", by="witness", act="write", target=b"%d" % target, span="p1")


def test_the_first_is_told_at_once_and_its_repeats_once_a_window() -> None:
    told: list[ActDenied] = []
    repeats = Repeats(told.append)
    assert [repeats.tell(event(1, at)) for at in range(3)] == [True, False, False]
    repeats.settle(WINDOW_NS - 1)
    assert len(told) == 1
    repeats.settle(WINDOW_NS)
    assert [one.count for one in told] == [1, 2]
    repeats.tell(event(1, WINDOW_NS + 5))
    repeats.settle(WINDOW_NS + 10)
    assert len(told) == 2
    repeats.settle(WINDOW_NS + 10, everything=True)
    assert [one.count for one in told] == [1, 2, 1]


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=300), st.integers(1, 8))
def test_no_count_is_lost_however_few_are_remembered(acts: list[tuple[int, bool]], max_keys: int) -> None:
    told: list[ActDenied] = []
    repeats = Repeats(told.append, max_keys=max_keys)
    now_ns = 0
    for target, settles in acts:
        repeats.tell(event(target, now_ns))
        now_ns += WINDOW_NS // 3
        if settles:
            repeats.settle(now_ns)
        assert len(repeats._rows) <= max_keys
    repeats.settle(now_ns, everything=True)
    assert not repeats.waiting
    for target in range(21):
        count = sum(one.count for one in told if one.target == b"%d" % target)
        assert count == len([1 for asked, _ in acts if asked == target])
