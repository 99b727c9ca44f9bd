"""The report as CSV (RFC 4180): a line for each control, and one for each exception. Pure.

Spreadsheets take a cell that begins with `=`, `+`, `-` or `@` for a formula: every cell passes through `cell`, which
puts an apostrophe before it.
"""

import csv
from collections.abc import Iterator
from io import StringIO

from agentwrap import text
from agentwrap.evidence.report.controls import Control, Exceptional
from agentwrap.evidence.report.reviewed import Review

MEDIA = "text/csv"
COLUMNS = (
    "number", "control", "title", "outcome", "population", "unit", "kind", "why", "about", "events", "event_sha256",
    "recording_sha256",
)  # fmt: skip
# The wide forms are read as the others (Unicode, Halfwidth and Fullwidth Forms).
_FORMULA = frozenset("=+-@|%\uff1d\uff0b\uff0d\uff20\t\r\n")


def cell(foreign: str | int) -> str:
    """A cell that no spreadsheet computes: one line, no control characters, never the beginning of a formula."""
    if isinstance(foreign, int):
        return str(foreign)
    shown = text.escape(foreign)
    return f"'{shown}" if shown.lstrip(" \u3000'")[:1] in _FORMULA and shown.strip(" \u3000'") else shown


def render(review: Review) -> Iterator[bytes]:
    """The table."""
    yield _line(*COLUMNS)
    for number, control in enumerate(review.controls, 1):
        yield _row(number, control, None, review)
        for one in control.exceptions:
            yield _row(number, control, one, review)


def _row(number: int, control: Control, one: Exceptional | None, review: Review) -> bytes:
    about = (control.id, control.title, control.outcome, control.population, control.unit)
    if one is None:
        return _line(number, *about, "control", control.how, "", "", "", review.recorded.sha256)
    kind = "exception" if one.broken else "cannot-tell"
    rows = " ".join(map(str, one.rows))
    digests = " ".join(review.digests.get(seq, "") for seq in one.rows)
    return _line(number, *about, kind, one.why, one.about, rows, digests, review.recorded.sha256)


def _line(*cells: str | int) -> bytes:
    written = StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerow(map(cell, cells))
    return written.getvalue().encode("utf-8", "replace")
