"""The report as Markdown (CommonMark). Pure.

Everything foreign stands in a code span, made by `code` alone: in it nothing is markup, a link, or HTML (CommonMark
0.31, 6.1). There are no tables around foreign text, as a `|` would end a cell even there.
"""

from collections.abc import Iterator

from agentwrap import text
from agentwrap.evidence.report.controls import Control
from agentwrap.evidence.report.frameworks import WORDS, evidence_for
from agentwrap.evidence.report.reviewed import Review
from agentwrap.export.reports import wording

MEDIA = "text/markdown"
LONGEST = 2_000


def code(foreign: str | bytes) -> str:
    """Foreign text as a code span: one line, fenced by more backticks than stand in it."""
    shown = text.escape(foreign)
    if len(shown) > LONGEST:
        shown = f"{shown[:LONGEST]}…"
    if not shown.strip(" "):
        return "(empty)"
    fence = "`"
    while fence in shown:
        fence += "`"
    # One space at each end is taken off again where both are there and something else is between them.
    pad = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def render(review: Review) -> Iterator[bytes]:
    """The whole report."""
    for line in _lines(review):
        yield line.encode("utf-8", "replace") + b"\n"


def _lines(review: Review) -> Iterator[str]:
    recorded = review.recorded
    yield f"# {wording.TITLE}"
    yield ""
    yield f"- recording: {code(recorded.name)}, {recorded.events:,} events, {recorded.verdict}"
    yield f"- SHA-256: {code(recorded.sha256)}"
    yield f"- run: {code(recorded.run)}, begun {wording.started(recorded)}"
    yield f"- command: {code(recorded.command)}"
    if recorded.policy:
        yield f"- policy: {code(recorded.policy)}, mode {code(recorded.mode)}, SHA-256 {code(recorded.policy_sha256)}"
    else:
        yield "- policy: none"
    yield f"- outcome: {wording.summary(review)}"
    yield ""
    yield wording.CAVEAT
    yield ""
    yield "| control | outcome | tested |"
    yield "|---|---|---|"
    for number, control in enumerate(review.controls, 1):
        told = wording.counted(control)
        tested = control.tested + (f"; {told}" if told else "")
        yield f"| {number}. {control.title} | **{control.outcome}** | {tested} |"
    for number, control in enumerate(review.controls, 1):
        yield ""
        yield from _control(number, control, review)
    yield from _findings(review)


def _control(number: int, control: Control, review: Review) -> Iterator[str]:
    yield f"## {number}. {control.title}: {control.outcome}"
    yield ""
    yield f"Tested: {control.tested}. {control.how}"
    told = [f"{framework.name}: {', '.join(ids)}" for framework, ids in evidence_for(control.id)]
    if told:
        yield ""
        yield f"{WORDS.capitalize()}: {'; '.join(told)}."
    if control.exceptions:
        yield ""
    for one in control.exceptions:
        mark = "" if one.broken else "cannot tell: "
        where = f" ({wording.rows(one)})" if one.rows else ""
        about = f": {code(one.about)}" if one.about else ""
        yield f"- {mark}{code(one.why)}{about}{where}"
        for seq in one.rows:
            if seq in review.digests:
                yield f"  - event {seq}: {code(review.digests[seq])}"
    if left := wording.left_out(control):
        yield f"- and {left:,} more"
    if control.notes:
        yield ""
        yield from (f"Note: {code(note)}" for note in control.notes)


def _findings(review: Review) -> Iterator[str]:
    if review.findings:
        yield from ("", "## Findings of the recorder", "")
    for one in review.findings:
        yield f"- {code(one.what)}: {one.count:,}, {wording.places(one.rows)}"
