"""Files that came and went: which paths the run made and left nothing of.

Told by a look at all edits before the first line is shown, so for recordings with very many edits it is left out.
"""

from agentwrap.rows import Row
from agentwrap.views.source import Source, foreign_text

MOST_EDITS = 40_000


def passed(source: Source) -> frozenset[str]:
    """Paths of the run's own making that are not there in the end: temporary files, moved away or removed."""
    left: dict[str, bool] = {}
    for number, row in enumerate(source.rows(kinds=("file.edit",), limit=MOST_EDITS + 1)):
        if number == MOST_EDITS:
            return frozenset()
        note(left, row)
    return frozenset(path for path, gone in left.items() if gone)


def note(left: dict[str, bool], row: Row) -> None:
    """Follow one edit: what it leaves behind, by path, and whether that path has gone again."""
    data = row.data
    path, change = foreign_text(data.get("path")), data.get("change")
    if change == "create":
        left[path] = False
    elif change == "transient" or (change == "delete" and path in left):
        left[path] = True
    if data.get("temporary"):
        temporary = foreign_text(data["temporary"])
        if temporary in left:
            left[temporary] = True


def of_a_passing_file(row: Row, gone: frozenset[str]) -> bool:
    """Whether a row tells of a file that came and went."""
    return row.kind == "file.edit" and not row.verdict and foreign_text(row.data.get("path")) in gone
