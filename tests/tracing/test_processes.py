"""The process tree: what holds after any sequence of births, execs and deaths."""

from hypothesis import given
from hypothesis import strategies as st

from agentwrap.tracing.processes import ProcessTree


def test_a_family() -> None:
    tree = ProcessTree()
    root = tree.start(10, None)
    child = tree.start(11, root)
    tree.start_thread(12, child)
    assert (root.span, child.span, child.parent) == ("p1", "p2", root)
    assert tree.tasks[12] is child
    assert child.threads_seen == 2
    assert tree.end_task(12) is None
    assert tree.end_task(11) is child
    assert [process.pid for process in tree.processes()] == [10]


def test_an_exec_leaves_one_thread_which_has_the_leaders_number() -> None:
    tree = ProcessTree()
    process = tree.start(10, None)
    tree.start_thread(11, process)
    tree.start_thread(12, process)
    assert tree.exec(10) is process
    assert (process.tids, process.execs, set(tree.tasks)) == ({10}, 1, {10})
    assert tree.end_task(11) is None  # its death may be told after the exec


def test_what_is_not_known_is_nobody() -> None:
    tree = ProcessTree()
    assert tree.exec(1) is None
    assert tree.end_task(1) is None


def test_a_reused_number_is_another_span() -> None:
    tree = ProcessTree()
    root = tree.start(10, None)
    first = tree.start(11, root)
    tree.end_task(11)
    second = tree.start(11, root)
    assert first.span != second.span
    assert tree.root is root


def test_children_see_the_files_their_parent_saw() -> None:
    tree = ProcessTree()
    root = tree.start(10, None)
    root.foreign = True
    assert tree.start(11, root).foreign


def test_a_fact_is_told_once_a_process() -> None:
    process = ProcessTree().start(10, None)
    assert (process.once("x"), process.once("x"), process.once("y")) == (True, False, True)


numbers = st.integers(1, 8)
steps = st.lists(st.tuples(st.sampled_from(["start", "thread", "exec", "end"]), numbers, numbers), max_size=60)


@given(steps)
def test_the_books_agree(steps: list[tuple[str, int, int]]) -> None:
    tree = ProcessTree()
    spans: set[str] = set()
    for what, number, other in steps:
        known = tree.tasks.get(other)
        if what == "start" and number not in tree.tasks:
            process = tree.start(number, known)
            assert process.span not in spans
            spans.add(process.span)
        elif what == "thread" and number not in tree.tasks and known is not None:
            tree.start_thread(number, known)
        elif what == "exec" and known is not None and known.pid == other:
            tree.exec(other)
        elif what == "end" and known is not None and (other != known.pid or known.tids == {other}):
            tree.end_task(other)
        for tid, process in tree.tasks.items():
            assert tid in process.tids
        for process in tree.processes():
            assert all(tree.tasks[tid] is process for tid in process.tids)
