"""Fields of event rows, read with care: whoever made the file may have put anything anywhere. Pure."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Protocol

from agentwrap import rows
from agentwrap.recording.foreign import to_bytes
from agentwrap.rows import Row, Rows, Span


class Source(Rows, Protocol):
    """What is asked of a recording."""

    @property
    def meta(self) -> Mapping[str, str]: ...  # noqa: D102

    def grouped(self, key: str, kinds: Collection[str]) -> Iterator[Row]:
        """Rows of some kinds in the order of a field of `data`, those of one value in their own order."""
        ...

    def span(self, id: str) -> Span | None:  # noqa: A002 - the interface's word
        """One span, or None."""
        ...

    def body(self, seq: int, field: str) -> Iterator[bytes | None]:
        """Pieces of a body; None for one that was not kept."""
        ...

    def state(self) -> str:
        """`closed`, `live` or `torn`."""
        ...


def raw(data: Mapping[str, Any], key: str) -> bytes:
    """A foreign field; nothing where it is absent or no foreign field at all."""
    try:
        return to_bytes(data.get(key))
    except ValueError:
        return b""


def shown(value: bytes) -> str:
    """Foreign bytes as text, other bytes than UTF-8 as surrogates; not escaped."""
    return value.decode("utf-8", "surrogateescape")


def text(data: Mapping[str, Any], key: str) -> str:
    """A foreign field as text."""
    return shown(raw(data, key))


def word(data: Mapping[str, Any], key: str) -> str:
    """A word of our own vocabulary, or an id."""
    return rows.word(data.get(key))


def number(data: Mapping[str, Any], key: str, otherwise: int = 0) -> int:
    """A number."""
    return rows.number(data.get(key), otherwise)


def flag(data: Mapping[str, Any], key: str, *, otherwise: bool = False) -> bool:
    """A truth value."""
    value = data.get(key, otherwise)
    return value if isinstance(value, bool) else otherwise
