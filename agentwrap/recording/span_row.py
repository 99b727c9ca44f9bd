"""One row of `span`, and what a fold takes from an event. Pure."""

from typing import Any, NamedTuple

import msgspec

from agentwrap.recording.foreign import to_bytes

_encode = msgspec.json.Encoder().encode


class SpanRow(msgspec.Struct):
    """One row of `span`. Times in ns since the start of the run; `end_ns` None while open or where nobody saw it."""

    id: str
    parent: str | None
    kind: str
    name: str
    start_ns: int
    end_ns: int | None = None
    status: str | None = None
    data: dict[str, Any] = msgspec.field(default_factory=dict)

    def columns(self) -> tuple[str, str | None, str, str, int, int | None, str | None, str]:
        """The row as it is stored."""
        text = _encode(self.data).decode()
        return (self.id, self.parent, self.kind, self.name, self.start_ns, self.end_ns, self.status, text)


class Fact(NamedTuple):
    """The columns of one event row that a span may need."""

    at_ns: int
    span: str
    pid: int | None
    subject: str
    data: dict[str, Any]
    seq: int = 0


def text_of(value: Any) -> str:
    """A foreign value of `data` as text for `name`; empty for what is none."""
    try:
        return to_bytes(value).decode(errors="backslashreplace")
    except ValueError:
        return ""
