"""A gap of one process, from this moment on. Pure."""

from agentwrap.events import CoverageKind, Gap
from agentwrap.tracing.processes import Process


def gap_of(
    process: Process,
    at_ns: int,
    what: CoverageKind,
    cause: str,
    could_hide: str,
    detail: str | bytes = b"",
    *,
    passing: bool = False,
) -> Gap:
    """What could not be seen of `process`; see `events.Gap`. `passing`: over at once, else until the end of the run."""
    return Gap(
        at_ns=at_ns,
        span=process.span,
        pid=process.pid,
        what=what,
        cause=cause,
        could_hide=could_hide,
        from_ns=at_ns,
        to_ns=at_ns if passing else 0,
        detail=detail if isinstance(detail, bytes) else detail.encode("utf-8", "backslashreplace"),
    )
