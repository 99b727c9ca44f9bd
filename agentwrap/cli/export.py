"""`agentwrap export`: a recording's events in another format, to standard output or a file."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import click

from agentwrap.cli import reading
from agentwrap.cli.new_file import write_new
from agentwrap.cli.output import Output, common_options, pass_output
from agentwrap.export import FORMATS, exporter
from agentwrap.views.context import Context
from agentwrap.views.summary import started_at

Function = TypeVar("Function", bound=Callable[..., object])


def _format_options(function: Function) -> Function:
    """One flag for each format there is."""
    for name in reversed(FORMATS):
        function = click.option(f"--{name}", "format_name", flag_value=name, help=FORMATS[name])(function)
    return function


@click.command(cls=reading.FilterCommand)
@click.argument("words", metavar="[FILE] [FILTER]...", nargs=-1)
@_format_options
@click.option("-o", "--output", "target", metavar="FILE", help="Write to FILE, which must not exist.")
@common_options()
@pass_output
def command(output: Output, words: tuple[str, ...], format_name: str | None, target: str | None) -> int:
    """Write the events of a recording, all of them or those that pass the FILTER words, in another format.

    Without FILE, the latest recording; without a format, JSON lines. In these, every object has `schema`, `type`,
    `seq`, `ts`, `mono_ns`, `span`, `pid`, `subject`, `verdict` and `data`; fields are only ever added.
    """
    format_name = format_name or "jsonl"
    path, chosen = reading.file_and_filter(words)
    with reading.open_recording(path) as source:
        context = Context(source)
        # Closed before the recording is: a broken pipe leaves it in the middle of a question to SQLite.
        with closing(row for row in reading.rows_of(source, chosen.kinds()) if chosen(row, context.span)) as rows:
            chunks = exporter(format_name)(source, rows, started_at(source.meta))
            if target is None or target == "-":
                output.write_bytes(chunks)
            else:
                write_new(Path(target), chunks)
    return 0
