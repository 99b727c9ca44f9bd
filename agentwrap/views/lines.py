"""One line per event: time, turn, kind, what, result, who. The stream view of `show`, `tail` and `run --stream`.

Knows how a line fits a terminal. What it says comes from `parts`; which rows are shown is decided elsewhere (`noise`,
`filter`).
"""

from agentwrap import text
from agentwrap.views.context import Context
from agentwrap.views.parts import Parts, parts_of
from agentwrap.views.source import Row
from agentwrap.views.styled import Line

# Columns of the picture in docs: time 7, turn 2, kind 6, what 44, then result and who.
PREFIX_COLUMNS = 18
WHAT_COLUMNS = 44
LONGEST = 4000


def stream_line(row: Row, context: Context) -> Line:
    """The line of one event."""
    lineage = context.ancestors(row.span)
    return lay_out(parts_of(row, context, lineage), row.at_ns, context.turn(lineage), context)


def lay_out(parts: Parts, at_ns: int, turn: str, context: Context) -> Line:
    """Place the parts in their columns, cutting what does not fit."""
    time, kind = context.clock(at_ns), text.pad(text.clip(parts.word, 6), 6)
    prefix: Line = [(f"{time:>7} ", "dim"), (f"{turn} ", "dim"), (f"{kind} ", "deny" if parts.role == "deny" else "")]
    room = LONGEST
    right, right_columns = parts.right, sum(text.width(piece[0]) for piece in parts.right)
    column = WHAT_COLUMNS
    fixed = sum(text.width(piece[0]) for piece in (*parts.head, *parts.tail))
    if context.columns is not None:
        whole = max(context.columns - PREFIX_COLUMNS - max(0, len(time) - 7), 30)
        if right_columns > whole // 2:
            right = _cut(right, whole // 2)
            right_columns = sum(text.width(piece[0]) for piece in right)
        room = whole - fixed - (right_columns + 2 if right else 0)
        column = min(max(WHAT_COLUMNS, whole - 42), whole - right_columns - 2)
    what = shorten(parts.what, max(room, 8), keep_end=parts.keep_end)
    line: Line = [*prefix, *parts.head, (what, parts.role), *parts.tail]
    if right:
        used = fixed + text.width(what)
        line += [(" " * max(2, column - used + 1), ""), *right]
    return line


def shorten(content: str, room: int, *, keep_end: bool = False) -> str:
    """Escaped text in `room` columns. Past the longest line ever printed, the number of characters left out is told."""
    if len(content) > LONGEST and room >= LONGEST:
        return f"{text.escape(content[:LONGEST])}…+{len(content) - LONGEST:,}"
    content = content[-room - 1 :] if keep_end else content[: room + 1]  # escaping only makes it longer
    return text.clip_start(content, room) if keep_end else text.clip(content, room)


def _cut(pieces: Line, columns: int) -> Line:
    """Pieces cut at their start to `columns`: the end of an exec chain says most."""
    kept: Line = []
    for content, role in reversed(pieces):
        if columns <= 1:
            break
        shown = text.clip_start(content, columns)
        kept.insert(0, (shown, role))
        columns -= text.width(shown)
    return kept
