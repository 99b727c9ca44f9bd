"""What a view needs of a recording: rows, spans, blobs.

Also the few ways to read a field of a row's `data`: foreign bytes stand there as text or as `{"b64": ...}`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from agentwrap.rows import Rows, Span


class Source(Rows, Protocol):
    """A recording being read."""

    @property
    def meta(self) -> Mapping[str, str]: ...  # noqa: D102

    def span(self, id: str) -> Span | None:  # noqa: A002 - the interface's word
        """One span, or None."""
        ...

    def spans(self) -> Mapping[str, Span]:
        """All spans by id."""
        ...

    def blob(self, sha256_hex: str) -> bytes | None:
        """Stored content, or None where it was not kept."""
        ...

    def body(self, seq: int, field: str) -> Iterable[bytes | None]:
        """The pieces of a body of an event, in order; None for one that was not kept, none where there is no body."""
        ...

    def count(self) -> int:
        """How many rows there are."""
        ...

    def state(self) -> str:
        """`closed`, `live` or `torn`, without proving it."""
        ...


def foreign_text(value: Any) -> str:
    """A foreign field as text (not yet escaped); bytes that are not UTF-8 as surrogates, which `text.escape` shows."""
    if isinstance(value, str):
        return value
    return foreign_bytes(value).decode("utf-8", "surrogateescape")


def foreign_bytes(value: Any) -> bytes:
    """A foreign field as the bytes it was; a field of another shape (a file made by hand) as its text."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, dict) and isinstance(value.get("b64"), str):
        import binascii

        try:
            return bytes(binascii.a2b_base64(value["b64"]))
        except ValueError:
            return str(value["b64"]).encode("utf-8", "surrogateescape")
    return b"" if value is None else str(value).encode("utf-8", "surrogateescape")


def mapping(value: Any) -> dict[str, Any]:
    """A JSON object of a row's data, or an empty one."""
    return value if isinstance(value, dict) else {}


def texts(value: Any) -> list[str]:
    """A list of foreign fields as texts."""
    return [foreign_text(item) for item in value] if isinstance(value, list) else []
