"""Columns that are as wide as what stands in them."""

from collections.abc import Sequence

from agentwrap import text
from agentwrap.views.styled import Line, Piece

Cell = str | Piece


def table(headings: Sequence[str], rows: Sequence[Sequence[Cell]], *, right: Sequence[int] = ()) -> list[Line]:
    """A heading and rows. `right`: columns that are set to the right. Cells are escaped here."""
    cells = [[_piece(cell) for cell in row] for row in rows]
    titles: list[Piece] = [(heading, "title") for heading in headings]
    wide = [max(text.width(row[at][0]) for row in [titles, *cells]) for at in range(len(headings))]
    lines: list[Line] = []
    for row in [titles, *cells]:
        line: Line = []
        for at, (content, role) in enumerate(row):
            room = wide[at] - text.width(content)
            last = at == len(row) - 1
            before, after = (" " * room, "") if at in right else ("", "" if last else " " * room)
            line += [(f"  {before}", ""), (content, role), (after, "")]
        lines.append(line)
    return lines


def _piece(cell: Cell) -> Piece:
    return (text.escape(cell), "") if isinstance(cell, str) else (text.escape(cell[0]), cell[1])
