"""`agentwrap export`: a recording's events in another format, to standard output, a file, or a server."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from agentwrap.cli import reading
from agentwrap.cli.new_file import write_new
from agentwrap.cli.output import Output, common_options, pass_output
from agentwrap.errors import EXIT_FINDING, AgentwrapError
from agentwrap.export import FORMATS, exporter
from agentwrap.rows import Row
from agentwrap.views.context import Context
from agentwrap.views.summary import started_at

if TYPE_CHECKING:
    from agentwrap.recording.reader import Reader

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
@click.option("--to", "url", metavar="URL", help="With --otlp: send the spans there (OTLP over HTTP).")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE",
    help="With --to: a header to send; OTEL_EXPORTER_OTLP_HEADERS is heeded, too.",
)
@click.option("--no-content", is_flag=True, help="With --otlp: leave out what models and tools were told and said.")
@click.option("--follow", is_flag=True, hidden=True, help="With --to: send spans as they end, until the run is over.")
@common_options()
@pass_output
def command(
    output: Output,
    words: tuple[str, ...],
    format_name: str | None,
    target: str | None,
    url: str | None,
    headers: tuple[str, ...],
    no_content: bool,
    follow: bool,
) -> int:
    """Write the events of a recording, all of them or those that pass the FILTER words, in another format.

    Without FILE, the latest recording; without a format, JSON lines. In these, every object has `schema`, `type`,
    `seq`, `ts`, `mono_ns`, `span`, `pid`, `subject`, `verdict` and `data`; fields are only ever added.
    """
    format_name = format_name or ("otlp" if url else "jsonl")
    _check(format_name, url, target, otlp_only=bool(headers) or no_content or follow)
    path, chosen = reading.file_and_filter(words)
    with reading.open_recording(path) as source:
        if follow and url:
            return _follow(output, source, url, headers, content=not no_content)
        context = Context(source)
        # Closed before the recording is: a broken pipe leaves it in the middle of a question to SQLite.
        with closing(row for row in reading.rows_of(source, chosen.kinds()) if chosen(row, context.span)) as rows:
            chunks = _chunks(format_name, source, rows, content=not no_content)
            if url is not None:
                return _send(output, chunks, url, headers)
            if target is None or target == "-":
                output.write_bytes(chunks)
            else:
                write_new(Path(target), chunks)
    return 0


def _check(format_name: str, url: str | None, target: str | None, *, otlp_only: bool) -> None:
    if (url is not None or otlp_only) and format_name != "otlp":
        raise AgentwrapError("usage", f"only --otlp can be sent, not --{format_name}", hint="agentwrap export --otlp")
    if url is not None and target is not None:
        raise AgentwrapError("usage", "--to and --output: one of them", hint="agentwrap export --otlp -o FILE")


def _chunks(format_name: str, source: "Reader", rows: Iterable[Row], *, content: bool) -> Iterator[bytes]:
    if format_name == "otlp" and not content:
        from agentwrap.export.otlp import requests

        return requests(source, rows, started_at(source.meta), content=False)
    return exporter(format_name)(source, rows, started_at(source.meta))


def _send(output: Output, chunks: Iterable[bytes], url: str, headers: tuple[str, ...]) -> int:
    from agentwrap.cli import otlp
    from agentwrap.delivery.endpoint import endpoint

    return EXIT_FINDING if otlp.deliver(output, chunks, endpoint(url, headers, output.env)) else 0


def _follow(output: Output, source: "Reader", url: str, headers: tuple[str, ...], *, content: bool) -> int:
    from agentwrap.cli import otlp
    from agentwrap.delivery.endpoint import endpoint

    return otlp.follow(output, source, endpoint(url, headers, output.env), content=content)
