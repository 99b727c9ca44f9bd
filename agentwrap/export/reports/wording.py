"""Words that every form of a report shares. Pure."""

from agentwrap import text
from agentwrap.evidence.report.controls import Control, Exceptional, Outcome
from agentwrap.evidence.report.reviewed import Recorded, Review
from agentwrap.export.stamps import rfc3339

TITLE = "Review of a recorded agent run"
MEANINGS: dict[Outcome, str] = {
    "pass": "tested in full, nothing found",
    "fail": "something found that must not be",
    "not-applicable": "there was nothing to test",
    "cannot-tell": "what would have to be known is not in the recording",
}
CAVEAT = (
    "Each control was performed again from the recording alone. A control that passed is evidence for the requirements "
    "named beside it; whether they are met is for an assessor to say."
)


def counted(control: Control) -> str:
    """How many exceptions there are; empty for none."""
    told = []
    if control.broken:
        told.append(text.count(control.broken, "exception"))
    if control.unclear:
        told.append(f"{control.unclear:,} that cannot be told")
    return ", ".join(told)


def left_out(control: Control) -> int:
    """How many exceptions are counted and not told."""
    return control.broken + control.unclear - len(control.exceptions)


def rows(one: Exceptional) -> str:
    """`event 12`, `events 12, 14`."""
    return places(one.rows)


def places(numbers: tuple[int, ...]) -> str:
    """The same for numbers of rows; nothing for none."""
    if not numbers:
        return ""
    return f"{'event' if len(numbers) == 1 else 'events'} {', '.join(map(str, numbers))}"


def summary(review: Review) -> str:
    """`5 passed, 1 failed, 2 cannot be told, 1 had nothing to test`."""
    counts = review.counts
    told = [
        f"{counts['pass']} passed" if counts["pass"] else "",
        f"{counts['fail']} failed" if counts["fail"] else "",
        f"{counts['cannot-tell']} cannot be told" if counts["cannot-tell"] else "",
        f"{counts['not-applicable']} had nothing to test" if counts["not-applicable"] else "",
    ]
    return ", ".join(filter(None, told))


def started(recorded: Recorded) -> str:
    """When the run began, RFC 3339."""
    return rfc3339(recorded.started_unix_ns, 3)


def ended(recorded: Recorded) -> str:
    """When its last recorded moment was, RFC 3339."""
    return rfc3339(recorded.started_unix_ns + recorded.ended_ns, 3)
