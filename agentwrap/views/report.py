"""A review on a terminal: the controls with their outcomes, what each found, and what it is evidence for. Pure."""

from collections.abc import Iterator

from agentwrap import text
from agentwrap.evidence.report.controls import Control, Exceptional, Outcome
from agentwrap.evidence.report.frameworks import WORDS, evidence_for
from agentwrap.evidence.report.reviewed import Review
from agentwrap.views.styled import Line, Role, line

_ROLES: dict[Outcome, Role] = {"pass": "good", "fail": "deny", "cannot-tell": "gap", "not-applicable": "dim"}
_SHOWN, _ALIKE = 12, 3
_WIDE = 14


def report_lines(review: Review, *, full: bool = False) -> Iterator[Line]:
    """The report. `full`: every exception that is kept, and how each control was tested."""
    recorded = review.recorded
    yield line((text.escape(recorded.name), "title"), f"  {recorded.events:,} events, {recorded.verdict}")
    yield line(("  $ ", "dim"), text.escape(recorded.command))
    policy = f"policy {recorded.policy}, mode {recorded.mode}" if recorded.policy else "no policy"
    yield line((f"  {text.escape(policy)}", "dim"))
    yield line()
    for number, control in enumerate(review.controls, 1):
        yield from _control(number, control, full=full)
    for one in review.findings:
        told, where = f"{one.count:,} of {text.escape(one.what)}", ", ".join(map(str, one.rows[:_SHOWN]))
        yield line((f"{'finding':<{_WIDE}} ", "gap"), told, (f"  event {where}", "dim"))
    yield line()
    yield line((f"sha256 {recorded.sha256}", "dim"))


def _control(number: int, control: Control, *, full: bool) -> Iterator[Line]:
    role = _ROLES[control.outcome]
    tested = f"  {control.tested}"
    yield line((f"{control.outcome:<{_WIDE}} ", role), (f"{number}. {control.title}", "name"), (tested, "dim"))
    if full:
        yield line((f"{'':<{_WIDE}} {control.how}", "dim"))
    shown = 0
    for alike in _by_kind(control.exceptions):
        told = alike if full else alike[:_ALIKE]
        shown += len(told)
        yield from map(_exceptional, told)
        if len(told) < len(alike):
            shown += len(alike) - len(told)
            yield line((f"{'':<{_WIDE}} and {len(alike) - len(told):,} more like it", "dim"))
    if (left := control.broken + control.unclear - shown) > 0:
        yield line((f"{'':<{_WIDE}} and {left:,} more", "dim"))
    for note in control.notes:
        yield line((f"{'':<{_WIDE}} note: {text.escape(note)}", "dim"))
    if full:
        named = [f"{framework.name}: {', '.join(ids)}" for framework, ids in evidence_for(control.id)]
        yield line((f"{'':<{_WIDE}} {WORDS} {'; '.join(named)}", "dim"))


def _by_kind(exceptions: tuple[Exceptional, ...]) -> list[list[Exceptional]]:
    """Exceptions of one kind together, in the order in which the kinds came."""
    kinds: dict[tuple[bool, str], list[Exceptional]] = {}
    for one in exceptions:
        kinds.setdefault((one.broken, one.why), []).append(one)
    return list(kinds.values())


def _exceptional(one: Exceptional) -> Line:
    mark = text.pad("  broken" if one.broken else "  cannot tell", _WIDE)
    where = f"  event {', '.join(map(str, one.rows))}" if one.rows else ""
    about = f": {text.escape(one.about)}" if one.about else ""
    return line((f"{mark} ", "deny" if one.broken else "gap"), text.escape(one.why) + about, (where, "dim"))
