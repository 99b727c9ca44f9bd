"""A recording in other people's formats: pure functions from rows to bytes, one module per format.

A format is a module with `MEDIA` and `export(rows, started_unix_ns) -> Iterator[bytes]`; its name is its option
(`agentwrap export --jsonl`). To add one: write the module, put its name here.
"""

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import cast

from agentwrap.views.source import Row

Exporter = Callable[[Iterable[Row], int], Iterator[bytes]]

FORMATS = {
    "jsonl": "One JSON object per line and event.",
}


def exporter(name: str) -> Exporter:
    """The export function of a format in FORMATS."""
    return cast("Exporter", import_module(f"agentwrap.export.{name}").export)
