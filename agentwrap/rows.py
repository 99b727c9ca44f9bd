"""What is asked of a recording that is read: event rows and spans. Anything with these will do (the reader, a fake).

How their fields are read is each reader's own matter: a file made by hand may hold anything in `data`.
"""

from collections.abc import Collection, Iterator
from typing import Any, Protocol


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
