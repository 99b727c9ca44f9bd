"""What is asked of a recording that is read: event rows and spans. Anything with these will do (the reader, a fake).

Also how words and numbers of a row's `data` are read: a file made by hand may hold anything there.
"""

from collections.abc import Collection, Iterator
from typing import Any, Protocol, TypeGuard

_MOST = 1 << 63


class Row(Protocol):
    """One event row; `data` holds the fields of the event's struct, defaults left out.

    `span`, `subject`, `verdict` are empty and `pid` 0 where the file has none; `subject` is foreign text.
    """

    @property
    def seq(self) -> int: ...  # noqa: D102
    @property
    def at_ns(self) -> int: ...  # noqa: D102
    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def span(self) -> str: ...  # noqa: D102
    @property
    def pid(self) -> int: ...  # noqa: D102
    @property
    def subject(self) -> str: ...  # noqa: D102
    @property
    def verdict(self) -> str: ...  # noqa: D102
    @property
    def data(self) -> dict[str, Any]: ...  # noqa: D102


class Span(Protocol):
    """One span: a process, a turn, a call. `end_ns` is None while it is open or where nobody saw it end."""

    id: str
    parent: str | None
    kind: str
    name: str
    start_ns: int
    end_ns: int | None
    status: str | None
    data: dict[str, Any]


class Rows(Protocol):
    """Where rows come from."""

    def rows(self, after: int = 0, kinds: Collection[str] | None = None, limit: int | None = None) -> Iterator[Row]:
        """Rows in the order of `seq`, those past `after`, of `kinds` only."""
        ...


def is_number(value: object) -> TypeGuard[int]:
    """Whether it can be a number of ours: none has more than 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and -_MOST <= value < _MOST


def number(value: Any, default: int = 0) -> int:
    """A number of a row's data, or the default for anything else."""
    return value if is_number(value) else default


def word(value: Any) -> str:
    """A word of our own, or an id, of a row's data; nothing for anything else."""
    return value if isinstance(value, str) else ""
