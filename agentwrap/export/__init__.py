"""A recording in other people's formats: pure functions from rows to bytes, one module per format.

A format is a module with `MEDIA` and `export(source, rows, started_unix_ns) -> Iterator[bytes]`: `rows` are those that
were asked for, `source` is the recording they are of (bodies, spans, meta). Its name is its option
(`agentwrap export --jsonl`). To add one: write the module, put its name here.
"""

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import cast

from agentwrap.rows import Row
from agentwrap.views.source import Source

Exporter = Callable[[Source, Iterable[Row], int], Iterator[bytes]]

FORMATS = {
    "jsonl": "One JSON object per line and event.",
    "otlp": "OTLP: spans with GenAI names, in protobuf, for a collector.",
    "perfetto": "A timeline for ui.perfetto.dev and chrome://tracing.",
    "atif": "ATIF v1.7: conversations as trajectories, a line for each agent.",
    "har": "HAR 1.2: HTTP exchanges and model calls, for browsers and mitmproxy.",
}


def exporter(name: str) -> Exporter:
    """The export function of a format in FORMATS."""
    return cast("Exporter", import_module(f"agentwrap.export.{name}").export)
