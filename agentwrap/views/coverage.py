"""The coverage table and the gaps, as lines: what could have been seen, how strongly, and what could hide.

Shared by `show --gaps`, `show --require` and `check`. Says what was not seen; never that something did not happen.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from agentwrap import text
from agentwrap.evidence.check import Report
from agentwrap.evidence.judged import Judged
from agentwrap.policy.coverage import KINDS, Judgement, Statement
from agentwrap.rows import Row, number
from agentwrap.views.source import Source, foreign_text
from agentwrap.views.styled import Line, Role, line

_TIER_WORDS = {
    "wall": "enforced by the kernel",
    "guard": "performed on behalf",
    "witness": "observed, not enforced",
    "none": "not observed",
}


_SHOWN_VIOLATIONS = 50
# What programs say of themselves is nobody's to observe.
_SAID = {"claims"}


def coverage_table(statements: Sequence[Statement]) -> Iterator[Line]:
    """One line for each kind of thing that could be covered, also for those nobody stated."""
    yield line(("coverage", "title"))
    stated = {statement.kind for statement in statements}
    rows = [*statements, *(Statement(kind, "none", "", "no observer") for kind in KINDS if kind not in _SAID | stated)]
    order = {kind: index for index, kind in enumerate(KINDS)}
    for one in sorted(rows, key=lambda row: order.get(row.kind, len(order))):
        role: Role = "gap" if one.tier == "none" else ""
        name: Role = role or "name"
        words = [_TIER_WORDS.get(one.tier, ""), *([one.mechanism] if one.mechanism else [])]
        if one.note:
            words.append(one.note)
        kind, tier = text.pad(text.escape(one.kind), 11), text.pad(text.escape(one.tier), 8)
        yield line((f"  {kind} ", name), (f"{tier} ", role), (text.escape("; ".join(words)), "dim"))


def gap_lines(source: Source, clock: Callable[[int], str] = text.clock) -> Iterator[Line]:
    """Every gap in full: since when and until when, what, why, what it is about, what could hide in it."""
    yield line(("gaps", "title"))
    none = True
    for row in source.rows(kinds=("gap",)):
        none = False
        yield from _gap(row, clock)
    if none:
        yield line("  no gap was recorded")


def _gap(row: Row, clock: Callable[[int], str]) -> Iterator[Line]:
    data = row.data
    start, end = number(data.get("from_ns")), number(data.get("to_ns"))
    window = f"{clock(start)} to {clock(end) if end else 'the end of the run'}"
    what, cause = text.escape(str(data.get("what", ""))), text.escape(str(data.get("cause", "")))
    owner = f"  {text.escape(row.span)}" if row.span and row.span != "run" else ""
    yield line(("  " + text.pad(what, 11) + " ", "gap"), (cause, "name"), (f"  {window}{owner}", "dim"))
    if "detail" in data:
        yield line(("      ", ""), (text.escape(foreign_text(data["detail"])), ""))
    if data.get("could_hide"):
        yield line(("      could hide: ", "dim"), (text.escape(str(data["could_hide"])), ""))


def judgement_lines(judgements: Iterable[Judgement]) -> Iterator[Line]:
    """One line for each requirement, its reasons below where it is not covered."""
    for one in judgements:
        word: tuple[str, Role] = ("covered     ", "good") if one.covered else ("not covered ", "gap")
        kind, tier = text.pad(text.escape(one.kind), 11), text.pad(text.escape(one.tier), 8)
        how = "; ".join(filter(None, (one.mechanism, one.note)))
        yield line("  ", word, (f"{kind} ", "name"), (f"{tier} ", ""), (text.escape(how), "dim"))
        for reason in one.reasons:
            yield line((" " * 14, ""), (text.escape(reason), ""))


def report_lines(report: Report) -> Iterator[Line]:
    """The whole of `check` for a person. Claims no more than is known."""
    yield from judgement_lines(report.judgements)
    elsewhere = report.gaps - len({hole.seq for one in report.judgements for hole in one.holes})
    if elsewhere:
        yield line((f"  {text.count(elsewhere, 'gap')} in what was not asked about (`agentwrap show --gaps`)", "dim"))
    for denial in report.shown_denials:
        told = [denial.kind, denial.subject, *([f"{denial.count:,} times"] if denial.count > 1 else [])]
        told += [denial.rule, denial.why]
        yield line(("  deny        ", "deny"), ("  ".join(text.escape(part) for part in told if part), ""))
    left = report.denials - sum(one.count for one in report.shown_denials)
    if left:
        yield line((f"  and {text.count(left, 'more denial')} (`agentwrap show --denied`)", "deny"))
    if report.judged is not None:
        yield from judged_lines(report.judged)
    yield line()
    yield _closing(report)


def judged_lines(judged: Judged) -> Iterator[Line]:
    """What a policy says to a recording: violations with event, program and rule, then what cannot be told."""
    for one in judged.violations[:_SHOWN_VIOLATIONS]:
        times = f"  {one.count:,} times" if one.count > 1 else ""
        who = f"  by {text.escape(one.who)}" if one.who else ""
        yield line(("  violated    ", "deny"), (f"event {one.seq}  ", "dim"), (text.escape(one.what), "name"),
                   (who, "who"), times)  # fmt: skip
        why = f": {one.why}" if one.why else ""
        yield line((" " * 14 + text.escape(one.rule) + text.escape(why), ""))
    if len(judged.violations) > _SHOWN_VIOLATIONS:
        more = len(judged.violations) - _SHOWN_VIOLATIONS
        yield line((f"  and {text.count(more, 'more violation')} (--json lists them)", "deny"))
    for open_ in judged.cannot_tell:
        told = f"{text.count(open_.count, 'act')}: {text.escape(open_.why)}"
        yield line(("  cannot tell ", "gap"), (told, ""), (f"  event {open_.seq}, {text.escape(open_.what)}", "dim"))


def _closing(report: Report) -> Line:
    denied = f"; {text.count(report.denials, 'denial')} recorded" if report.denials else ""
    judged = report.judged
    if judged is not None and judged.violated:
        acts = f"{judged.violated:,} of {text.count(judged.acts, 'act')}"
        return line(("violated", "deny"), (f": the policy `{text.escape(judged.policy)}` refuses {acts}{denied}", ""))
    if report.word == "violated":
        return line(("violated", "deny"), (f": {text.count(report.denials, 'denial')} recorded", ""))
    if report.word == "covered":
        told = f": what was required could be seen from start to end, no gap touches it{denied}"
        return line(("clean and covered" if not report.denials else "covered", "good"), (told, ""))
    missing = [one.kind for one in report.judgements if not one.covered]
    if judged is not None and judged.cannot_tell and not missing:
        unclear = sum(one.count for one in judged.cannot_tell)
        told = f": nothing it refuses was recorded; about {text.count(unclear, 'act')} it cannot be told{denied}"
        return line(("clean but not covered" if not report.denials else "not covered", "gap"), (told, ""))
    told = f": {text.words(missing)} could have held things that are not in the recording{denied}"
    return line(("clean but not covered" if not report.denials else "not covered", "gap"), (told, ""))
