from agentwrap.evidence.check import Report
from agentwrap.evidence.judged import CannotTell, Judged, Violation
from agentwrap.views.coverage import report_lines
from agentwrap.views.styled import plain


def report(judged: Judged, word: str = "violated", status: int = 1) -> list[str]:
    return [plain(line) for line in report_lines(Report(word, status, "closed", (), 0, (), 0, judged))]


def violation(what: str, count: int = 1) -> Violation:
    return Violation(7, what, "sh\x1b[31m", "network.default `deny` (ci.toml:4)", "no rule allows it", "add it", count)


def test_a_violation_is_told_with_event_program_and_rule_and_nothing_foreign_gets_through() -> None:
    told = report(Judged("ci", 3, 2, [violation("connect a\u202eb:1", 2)], []))
    assert told[0] == "  violated    event 7  connect a\\u202eb:1  by sh\\x1b[31m  2 times"
    assert told[1].strip() == "network.default `deny` (ci.toml:4): no rule allows it"
    assert told[-1] == "violated: the policy `ci` refuses 2 of 3 acts"


def test_a_flood_of_violations_is_counted_and_not_all_shown() -> None:
    told = report(Judged("ci", 80, 80, [violation(f"write /{n}") for n in range(80)], []))
    assert sum("violated    " in line for line in told) == 50
    assert "  and 30 more violations (--json lists them)" in told


def test_what_cannot_be_told_is_no_clean_verdict() -> None:
    open_ = CannotTell("the name is not known", 4, "connect 192.0.2.1:443", 3)
    told = report(Judged("ci", 5, 0, [], [open_]), "not covered", 3)
    assert told[0] == "  cannot tell 3 acts: the name is not known  event 4, connect 192.0.2.1:443"
    assert told[-1].startswith("clean but not covered: nothing it refuses was recorded; about 3 acts")
