"""`agentwrap tail`: events as they are recorded, until the run is over."""

import time
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import click

from agentwrap import text
from agentwrap.cli import reading
from agentwrap.cli.output import Output, common_options, pass_output
from agentwrap.evidence import check
from agentwrap.rows import Row
from agentwrap.views import noise, summary
from agentwrap.views.context import Context, outcome
from agentwrap.views.filter import Filter
from agentwrap.views.filter_keys import Surroundings
from agentwrap.views.lines import stream_line

if TYPE_CHECKING:
    from agentwrap.recording.reader import Reader

# A look at the file's change counter costs some microseconds; the recorder commits within 20 ms.
_LOOK_EVERY_S = 0.05
# An OFD lock has no notification; whether the writer is still there is asked this often.
_ALIVE_EVERY_LOOKS = 5


@click.command(cls=reading.FilterCommand)
@click.argument("words", metavar="[FILE] [FILTER]...", nargs=-1)
@click.option("-a", "--all", "everything", is_flag=True, help="Show also what is left out as noise.")
@click.option("--new", "only_new", is_flag=True, help="Begin with what comes next, not at the start of the run.")
@click.option("--utc", "in_utc", is_flag=True, help="Time of day in UTC instead of seconds since the start.")
@common_options(json_output=True)
@pass_output
def command(output: Output, words: tuple[str, ...], everything: bool, only_new: bool, in_utc: bool) -> int:
    """Print events as they are recorded, and end when the run is over; of a finished recording, print them all.

    Without FILE, the latest recording. FILTER words are those of `agentwrap show`. With --json, one object per line.
    """
    path, chosen = reading.file_and_filter(words)
    with (
        reading.open_recording(path) as source,
        closing(follow(source, after=source.count() if only_new else 0)) as rows,
    ):
        if output.json:
            _objects(output, source, rows, chosen)
        else:
            _lines(output, source, rows, chosen, everything=everything, in_utc=in_utc)
    return 0


def follow(source: "Reader", after: int = 0) -> Generator[Row | None, None, None]:
    """Rows as they come, None whenever there are no more for now; ends when the recording does."""
    looks = 0
    state = source.state()
    while True:
        if source.changed() or state != "live":
            for row in reading.rows_of(source, after=after):
                after = row.seq
                yield row
            yield None
        if state != "live":
            return
        time.sleep(_LOOK_EVERY_S)
        looks += 1
        if looks % _ALIVE_EVERY_LOOKS == 0:
            # Asked before the last read of the rows: what was committed before the end is not missed.
            state = source.state()


def _chosen(output: Output, rows: Iterator[Row | None], context: Context, chosen: Filter) -> Iterator[Row]:
    """What the filter lets through; where there is no more for now, what was printed goes out."""
    spans = Surroundings(context.span, context.story)
    for row in rows:
        if row is None:
            context.refresh()
            output.flush()
            continue
        context.follow(row)
        if chosen(row, spans):
            yield row


def _objects(output: Output, source: "Reader", rows: Iterator[Row | None], chosen: Filter) -> None:
    from agentwrap.export.jsonl import event_object

    started_ns = summary.started_at(source.meta)
    context = Context(source, live=True)
    for row in _chosen(output, rows, context, chosen):
        output.record(event_object(row, started_ns))


def _lines(
    output: Output,
    source: "Reader",
    rows: Iterator[Row | None],
    chosen: Filter,
    *,
    everything: bool,
    in_utc: bool,
) -> None:
    live = source.state() == "live"
    clock = reading.utc_clock(source.meta) if in_utc else text.clock
    context = Context(source, columns=output.columns(), live=True, clock=clock)
    for row in _chosen(output, rows, context, chosen):
        if everything or not noise.hidden(row, live=True, spans=context.span, walled=context.walled):
            output.line(stream_line(row, context))
    state = source.state()
    if state == "torn":
        output.lines(list(summary.header(source, ""))[1:])
    elif live:
        run = source.span("run")
        ended = outcome(run.status) if run is not None and run.status else "its end was not recorded"
        output.line([("the run is over", "title"), (f": {ended}", "")])
    output.lines(summary.gap_summary(check.holes(source)))
    output.flush()
