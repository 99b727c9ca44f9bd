"""Our own lines stand between the other side's lines, never in one; nothing is lost, whatever is taken at a time."""

from hypothesis import given
from hypothesis import strategies as st

from agentwrap.mcp.relay.outgoing import Outgoing

OURS = b"\x00ours\n"
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.sampled_from([b"a", b"bc", b"\n"]), max_size=6).map(b"".join)),
        st.tuples(st.just("say"), st.just(OURS)),
        st.tuples(st.just("take"), st.integers(1, 5)),
    )
)


@given(STEPS)
def test_our_lines_are_whole_and_between_theirs(steps: list[tuple[str, bytes | int]]) -> None:
    queue, taken, given_in, said = Outgoing(), b"", b"", 0

    def take(count: int) -> bytes:
        front = bytes(queue.front()[:count])
        queue.sent(len(front))
        return front

    wanted = 0
    for what, value in steps:
        if isinstance(value, int):
            taken += take(value) if queue.size else b""
        elif what == "put":
            said += len(queue.put(value))
            given_in += value
        else:
            said += len(queue.say(value))
            wanted += 1
        at_an_end = not given_in or given_in.endswith(b"\n")
        assert (queue.unsaid == 0) or not at_an_end
        assert said * len(OURS) + queue.unsaid == wanted * len(OURS)
    while queue.size:
        taken += take(3)
    assert taken.replace(OURS, b"") == given_in
    assert taken.count(OURS) == said
    assert all(line in (b"", b"\x00ours") or 0 not in line for line in taken.split(b"\n"))
