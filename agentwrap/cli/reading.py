"""What the reading commands share: which recording is meant, the filter words, how times are told."""

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentwrap import text
from agentwrap.errors import AgentwrapError
from agentwrap.views.filter import Filter, is_filter, parse
from agentwrap.views.summary import started_at

if TYPE_CHECKING:
    from agentwrap.recording.reader import Reader, Row

_BATCH = 2_000
SUFFIX = ".agentlog"
_NEGATED = re.compile(r'-(?:[a-z]+:|%|")')


class FilterCommand(click.Command):
    """A command that takes filter words: a negated one (`-path:*.lock`) is not an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move negated filter words behind a `--`, where click leaves them alone."""
        own, after = (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
        negated = [word for word in own if _NEGATED.match(word)]
        if negated:
            args = [*(word for word in own if not _NEGATED.match(word)), "--", *after, *negated]
        return super().parse_args(ctx, args)


def file_and_filter(words: Sequence[str]) -> tuple[Path, Filter]:
    """`[FILE] [FILTER...]` as given: the recording (the latest one if none is named) and the filter.

    The first word is a file if it names one that exists, has a slash, or ends in `.agentlog`; a later one if it ends
    so.
    Raises AgentwrapError `not-found`, `usage`.
    """
    for index, word in enumerate(words):
        if not is_filter(word) and (_means_file(word) if index == 0 else word.endswith(SUFFIX)):
            return Path(word), parse(*words[:index], *words[index + 1 :])
    chosen = parse(*words)
    return latest(), chosen


def _means_file(word: str) -> bool:
    return "/" in word or word.endswith(SUFFIX) or os.path.lexists(word)


def latest() -> Path:
    """The latest recording. Raises AgentwrapError `not-found`."""
    from agentwrap.recording import places

    path = places.latest_recording(os.environ)
    if path is None:
        raise AgentwrapError(
            "not-found",
            "there is no recording yet",
            evidence=f"looked in {places.recordings_dir(os.environ)}",
            hint="`agentwrap -- COMMAND` makes one",
        )
    return path


def open_recording(path: Path) -> "Reader":
    """Open a recording. Raises AgentwrapError with one clear reason."""
    from agentwrap.recording.reader import Reader

    return Reader.open(path)


def rows_of(source: "Reader", kinds: Collection[str] | None = None, after: int = 0) -> "Iterator[Row]":
    """Rows as they are read; of a live file in batches, with nothing held open in between.

    A reader that waits for its pager inside a read transaction would keep the recorder from emptying the -wal
    (sqlite.org/wal.html, "Avoiding Excessively Large WAL Files"), so the file could not be closed as one.
    """
    if source.state() != "live":
        yield from source.rows(after=after, kinds=kinds)
        return
    while True:
        batch = list(source.rows(after=after, kinds=kinds, limit=_BATCH))
        yield from batch
        if len(batch) < _BATCH:
            return
        after = batch[-1].seq


def utc(unix_ns: int, *, fraction: int = 3) -> str:
    """RFC 3339 in UTC with `fraction` decimals."""
    from agentwrap.export.stamps import rfc3339

    return rfc3339(unix_ns, fraction)


def utc_clock(meta: Any) -> Callable[[int], str]:
    """A clock that tells `at_ns` as the time of day in UTC: `03:01:12.102`."""
    started_ns = started_at(meta)
    return lambda at_ns: utc(started_ns + at_ns)[11:23]


def started_words(meta: Any, *, in_utc: bool) -> str:
    """When the run began, in local time, or in UTC."""
    started_ns = started_at(meta)
    if not started_ns:
        return ""
    if in_utc:
        return utc(started_ns, fraction=0)
    from datetime import datetime

    try:
        # Local time is what a person at this machine asks for.
        return datetime.fromtimestamp(started_ns // 10**9).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return ""


def count_of(number: int, noun: str) -> str:
    """`1 event`, `2 events`."""
    return text.count(number, noun)
