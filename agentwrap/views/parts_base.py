"""What a line says before it is laid out, and the pieces that lines of every kind share."""

from collections.abc import Callable

import msgspec

from agentwrap.rows import Row, number
from agentwrap.views.context import Context, Lineage
from agentwrap.views.styled import Line, Role


class Parts(msgspec.Struct):
    """What a line says, before it is laid out. Only `what` is cut to fit; `keep_end` cuts its start (paths)."""

    word: str
    what: str
    head: Line = msgspec.field(default_factory=list)
    tail: Line = msgspec.field(default_factory=list)
    right: Line = msgspec.field(default_factory=list)
    keep_end: bool = False
    role: Role = ""


Maker = Callable[[Row, Context, Lineage], Parts]


def whom(lineage: Lineage) -> Line:
    """The exec chain of who did it, or nothing."""
    chain = lineage.chain()
    return [(chain, "who")] if chain else []


def times(row: Row) -> Line:
    """How often, where it was more than once."""
    count = number(row.data.get("count"), 1)
    return [(f"  {count:,} times", "dim")] if count > 1 else []
