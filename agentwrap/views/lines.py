"""One line per event: time, turn, kind, what, result, who. The stream view of `show`, `tail` and `run --stream`.

Knows how a line fits a terminal. What it says comes from `parts`; which rows are shown is decided elsewhere (`noise`,
`filter`).
"""

from agentwrap import text
from agentwrap.rows import Row
from agentwrap.views.context import Context
from agentwrap.views.parts import parts_of
from agentwrap.views.parts_base import Parts
from agentwrap.views.styled import Line, Role

# Columns of the picture in docs: time 7, turn 2, kind 6, what 44, then result and who.
WHAT_COLUMNS = 44
LONGEST = 4000
_LEAST_COLUMNS = 16


def stream_line(row: Row, context: Context) -> Line:
    """The line of one event."""
    lineage = context.lineage(row.span)
    return lay_out(parts_of(row, context, lineage), row.at_ns, context.turn_of(row, lineage), context)


def lay_out(parts: Parts, at_ns: int, turn: str, context: Context) -> Line:
    """Place the parts in their columns, cutting what does not fit."""
    time, kind = context.clock(at_ns), text.pad(text.clip(parts.word, 6), 6)
    role: Role = "deny" if parts.role == "deny" else ""
    prefix: Line = [(f"{time:>7} ", "dim"), (f"{turn:<{context.turn_columns()}} ", "dim"), (f"{kind} ", role)]
    room, column, right = LONGEST, WHAT_COLUMNS, parts.right
    fixed = columns_of(parts.head) + columns_of(parts.tail)
    if context.columns is not None:
        whole = context.columns - columns_of(prefix)
        wanted = text.width(shorten(parts.what, whole, keep_end=parts.keep_end))
        # Who did it gives way before what was done, down to half of the line.
        most = min(max(whole // 2, whole - fixed - wanted - 2), whole - fixed - min(wanted, _LEAST_COLUMNS) - 2)
        right = _cut(right, most)
        room = whole - fixed - (columns_of(right) + 2 if right else 0)
        column = min(max(WHAT_COLUMNS, whole - 42), whole - columns_of(right) - 3)
    what = shorten(parts.what, max(room, _LEAST_COLUMNS // 2), keep_end=parts.keep_end)
    line: Line = [*prefix, *parts.head, (what, parts.role), *parts.tail]
    if right:
        line += [(" " * max(2, column - fixed - text.width(what) + 1), ""), *right]
    return line if context.columns is None else fit(line, context.columns)


def columns_of(pieces: Line) -> int:
    """Columns that pieces take, already escaped."""
    return sum([text.width(piece[0]) for piece in pieces])


def fit(pieces: Line, columns: int) -> Line:
    """Pieces cut at their end to `columns`."""
    fitting: Line = []
    for content, role in pieces:
        if columns <= 0:
            break
        shown = text.clip(content, columns)
        fitting.append((shown, role))
        columns -= text.width(shown)
    return fitting


def _cut(pieces: Line, columns: int) -> Line:
    """Pieces in `columns`: the exec chain at their end loses its start, or goes."""
    over = columns_of(pieces) - columns
    if over <= 0 or not pieces:
        return pieces
    chain, role = pieces[-1]
    left = text.width(chain) - over
    if left >= _LEAST_COLUMNS // 2:
        return [*pieces[:-1], (text.clip_start(chain, left), role)]
    return fit(pieces[:-1], max(columns, 0))


def shorten(content: str, room: int, *, keep_end: bool = False) -> str:
    """Escaped text in `room` columns. Past the longest line ever printed, the number of characters left out is told."""
    if len(content) > LONGEST and room >= LONGEST:
        return f"{text.escape(content[:LONGEST])}…+{len(content) - LONGEST:,}"
    content = content[-room - 1 :] if keep_end else content[: room + 1]  # escaping only makes it longer
    return text.clip_start(content, room) if keep_end else text.clip(content, room)
