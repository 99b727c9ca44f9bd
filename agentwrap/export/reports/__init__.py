"""A review in other people's formats: pure functions from a `Review` to bytes, one module per format.

A format is a module with `MEDIA` and `render(review) -> Iterator[bytes]`. Everything in a review that was recorded is
foreign; each module has one function that all of it passes through. To add one: write the module, put its name here.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import cast

from agentwrap.evidence.report.reviewed import Review

Renderer = Callable[[Review], Iterator[bytes]]

FORMATS = {
    "md": "markdown",
    "html": "page",
    "csv": "table",
    "json": "document",
    "oscal": "oscal",
    "sarif": "sarif",
}
"""The word that `--format` takes, and the module."""


def renderer(name: str) -> Renderer:
    """The function for a format in FORMATS."""
    return cast("Renderer", import_module(f"agentwrap.export.reports.{FORMATS[name]}").render)
