import sample_run
from fake_recording import FakeRecording

from agentwrap.events import Event, Gap, RunEnd
from agentwrap.policy.coverage import Hole, Statement
from agentwrap.views import summary
from agentwrap.views.coverage import coverage_table
from agentwrap.views.styled import plain

RUN = [item for item in sample_run.items() if isinstance(item, Event)]
SEEN = [Statement(kind, "witness") for kind in ("process", "exec", "file-write", "connect")]


def totals(statements: list[Statement], holes: list[Hole], tally: summary.Tally | None = None) -> str:
    return plain(next(iter(summary.totals(tally or summary.Tally(), statements, holes))))


def test_nought_is_told_with_how_it_was_observed() -> None:
    assert totals(SEEN, []) == "no process seen, no file change seen, no connection seen"
    assert totals([], []).endswith("no connection seen (not observed)")
    assert totals(SEEN, [Hole("connect", "lost")]).endswith("no file change seen, no connection seen (there are gaps)")
    assert totals(SEEN, [Hole("process", "lost")]).count("(there are gaps)") == 3


def test_numbers_with_gaps_are_at_least() -> None:
    tally = summary.Tally()
    for row in FakeRecording(RUN).rows():
        tally.add(row)
    assert totals(SEEN, [], tally) == "4 processes (2 failed), 3 files changed, 1 host connected to"
    assert totals(SEEN, [Hole("process", "x")], tally) == (
        "at least 4 processes (2 failed), at least 3 files changed, at least 1 host connected to"
    )


def test_the_header_says_what_state_the_file_is_in() -> None:
    for state in ("closed", "live", "torn"):
        lines = [plain(line) for line in summary.header(FakeRecording(RUN, state=state, meta=sample_run.meta()), "now")]
        assert lines[0] == f"agent -p 'fix the billing tests'  now  4.0s  exit 0  {state}"
        assert len(lines) == (1 if state == "closed" else 2)
    reason = RunEnd(at_ns=5 * 10**9, signal=9, reason="timeout")
    (line,) = summary.header(FakeRecording([RUN[0], reason], meta=sample_run.meta()), "")
    assert plain(line).endswith("  5.0s  killed by SIGKILL (timeout)  closed")


def test_the_command_is_that_of_the_run_where_meta_has_none() -> None:
    assert summary.command_of(FakeRecording(RUN)) == "agent -p 'fix the billing tests'"
    assert summary.command_of(FakeRecording(RUN, meta={"command": "not json"})) == "not json"
    assert summary.command_of(FakeRecording(RUN, meta={"command": '["a", {"b64": "/w=="}]'})) == "a '\udcff'"


def test_one_line_after_a_run_has_gaps_and_denials_last() -> None:
    assert plain(summary.summarize(FakeRecording(RUN))) == (
        "agentwrap 4 processes (2 failed), at least 3 files changed, 1 host connected to, 1 gap, "
        "1 denied: agentwrap show --denied"
    )


def test_gaps_are_counted_by_cause() -> None:
    gap = Gap(at_ns=0, what="exec", cause="lost", could_hide="x", from_ns=0)
    holes = [Hole(gap.what, gap.cause), Hole(gap.what, gap.cause), Hole("dns", "not-read")]
    (line,) = summary.gap_summary(holes)
    assert plain(line).startswith("3 gaps: exec lost (2), dns not-read")
    assert list(summary.gap_summary([])) == []


def test_what_nobody_observes_is_in_the_coverage_table() -> None:
    lines = [plain(line) for line in coverage_table([Statement("exec", "wall", "x", "y")])]
    assert "  exec        wall     enforced by the kernel; x; y" in lines
    assert "  connect     none     not observed; no observer" in lines
    (told,) = summary.uncovered([Statement("exec", "wall")], ("exec", "connect"))
    assert plain(told).startswith("not observed: connect")


def test_distinct_things_are_counted_in_bounded_memory() -> None:
    many: set[str] = set()
    for n in range(summary.MOST_DISTINCT + 5):
        summary._remember(many, str(n))
    assert summary._distinct(many, "file") == "at least 20,000 files"
