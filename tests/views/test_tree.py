import sample_run
from fake_recording import FakeRecording

from agentwrap import text
from agentwrap.events import Event, ProcessStart
from agentwrap.views.styled import plain
from agentwrap.views.tree import build, tree_lines


def drawn(recording: FakeRecording, columns: int | None = None) -> list[str]:
    return [plain(line) for line in tree_lines(build(recording), columns)]


def started(span: str, parent: str, pid: int) -> ProcessStart:
    return ProcessStart(at_ns=0, span=span, pid=pid, parent=parent, how="fork", comm=f"c{pid}".encode())


def test_branches_join_children_to_parents() -> None:
    tree = [("p1", "run"), ("p2", "p1"), ("p3", "p2"), ("p4", "p1"), ("p5", "p4")]
    events = [started(span, parent, n) for n, (span, parent) in enumerate(tree, 1)]
    assert [line.removesuffix("  end not seen") for line in drawn(FakeRecording(events))] == [
        "1 (c1)",
        "├─ 2 (c2)",
        "│  └─ 3 (c3)",
        "└─ 4 (c4)",
        "   └─ 5 (c5)",
    ]


def test_a_process_tells_what_it_touched() -> None:
    recording = FakeRecording([item for item in sample_run.items() if isinstance(item, Event)])
    assert drawn(recording)[-1] == (
        "   └─ 4130 pytest -x tests/billing  exit 1  3.1s  6 files  4 sockets  1 gap  1 denied"
    )


def test_a_very_deep_tree_is_drawn_and_cut_to_the_terminal() -> None:
    events = [started(f"p{n}", f"p{n - 1}" if n > 1 else "run", n) for n in range(1, 3000)]
    lines = drawn(FakeRecording(events), 80)
    assert len(lines) == 2999
    assert max(map(text.width, lines)) <= 80
    assert lines[2000] == "[2000 deep] └─ 2001 (c2001)  end not seen"


def test_parents_in_a_circle_are_told() -> None:
    recording = FakeRecording([started("p1", "run", 1), started("p2", "p3", 2), started("p3", "p2", 3)])
    lines = drawn(recording)
    assert lines[0].startswith("1 (c1)")
    assert lines[-1] == "2 processes without a way to the root are not drawn"


def test_orphans_are_roots() -> None:
    assert len(drawn(FakeRecording([started("p5", "p4", 5)]))) == 1
