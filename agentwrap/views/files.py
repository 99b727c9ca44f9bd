"""What changed on disk, by path: the sum of all edits of each, and each edit with its diff."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from agentwrap import text
from agentwrap.rows import Row
from agentwrap.views import diff
from agentwrap.views.context import Context, who
from agentwrap.views.lines import shorten
from agentwrap.views.parts import CHANGE_LETTERS, parts_of
from agentwrap.views.source import foreign_text, mapping
from agentwrap.views.styled import Line, Piece, line

CHANGES = ("file.edit", "file.rename", "file.directory", "file.mode", "file.link", "file.special")
_PATH_COLUMNS = 44


class Changed(msgspec.Struct):
    """All edits of one path: the first state, the last one, and who wrote."""

    path: str
    before: dict[str, Any]
    after: dict[str, Any]
    edits: int = 0
    writers: list[str] = msgspec.field(default_factory=list)
    moved_from: str = ""

    @property
    def letter(self) -> str:
        """`A`, `M`, `D`, `R`, or `T` for one that came and went."""
        if self.moved_from:
            return "R"
        absent = diff.is_absent(self.before), diff.is_absent(self.after)
        return {(True, False): "A", (False, True): "D", (True, True): "T"}.get(absent, "M")


def collect(rows: Iterator[Row], context: Context) -> dict[str, Changed]:
    """Changes by path, in the order in which each was first touched. Renames carry their history along."""
    found: dict[str, Changed] = {}
    for row in rows:
        data = row.data
        path = foreign_text(data.get("path"))
        if row.kind == "file.edit":
            before, after = mapping(data.get("before")), mapping(data.get("after"))
            temporary = found.get(foreign_text(data.get("temporary")))
            if temporary is not None and diff.is_absent(temporary.before):
                del found[temporary.path]  # it has become this file
            if data.get("change") == "transient" and path not in found:
                before = after  # made by the run itself, without a row of its own
            changed = found.setdefault(path, Changed(path, before, after))
            changed.after, changed.edits = after, changed.edits + 1
            if diff.is_absent(after) and changed.moved_from:
                changed = _removed_aside(found, changed, before)
        elif row.kind == "file.rename" and data.get("type", "file") != "directory" and not data.get("exchange"):
            target = foreign_text(data.get("target"))
            changed = found.pop(path) if path in found else Changed(target, {}, {})
            if not diff.is_absent(changed.before):
                changed.moved_from = changed.moved_from or path
            changed.path = target
            found[target] = changed
        else:
            continue
        name = who(context.lineage(row.span), 1)
        if name and name not in changed.writers and len(changed.writers) < 4:
            changed.writers.append(name)
    return found


def _removed_aside(found: dict[str, Changed], aside: Changed, before: dict[str, Any]) -> Changed:
    """What the removal of `aside`, which was moved, is told as: a removal of the name that it had before.

    Editors move a file out of the way and make a new one of its name: that is a change, not a file that was added.
    """
    origin = aside.moved_from
    anew = found.get(origin)
    if anew is None:
        del found[aside.path]
        aside.path, aside.moved_from, aside.before = origin, "", aside.before or before
        found[origin] = aside
        return aside
    if diff.is_absent(anew.before):
        del found[aside.path]
        anew.before, anew.edits = aside.before or before, anew.edits + aside.edits
        return anew
    return aside


def file_lines(changes: dict[str, Changed], context: Context) -> Iterator[Line]:
    """One line for each path: letter, path, lines added and removed over the whole run, who."""
    for changed in changes.values():
        letter = changed.letter
        role = {"A": "add", "D": "remove", "R": "name", "T": "dim"}.get(letter, "name")
        path = context.path(changed.path)
        if changed.moved_from:
            path = f"{context.path(changed.moved_from)} -> {path}"
        tail = _sum(changed, context)
        right = ", ".join(changed.writers)
        room = 4000
        if context.columns is not None:
            room = max(context.columns - 4 - sum(text.width(piece[0]) for piece in tail) - text.width(right), 16)
        shown = shorten(path, room, keep_end=True)
        letter_piece: Piece = (f"{letter} ", role)  # type: ignore[assignment]
        used = text.width(shown) + sum(text.width(piece[0]) for piece in tail)
        gap = " " * max(2, min(_PATH_COLUMNS, room) + 14 - used) if right else ""
        yield line(letter_piece, (shown, "name"), *tail, gap, (right, "who"))


def _sum(changed: Changed, context: Context) -> Line:
    """`+3 -1` between the first state and the last, or the size; `2 edits` where there were several."""
    tail: Line = []
    counted = diff.counts_of_edit(context.source, {"before": changed.before, "after": changed.after})
    if changed.edits == 0:
        pass
    elif counted is not None:
        added, removed = counted
        tail += [(f"  +{added}", "add" if added else "dim"), (f" -{removed}", "remove" if removed else "dim")]
    elif not diff.is_absent(changed.after):
        tail.append((f"  {diff.describe(changed.after)}", "dim"))
    if changed.edits > 1:
        tail.append((f"  {text.count(changed.edits, 'edit')}", "dim"))
    return tail


def diff_lines(rows: Iterator[Row], context: Context, wanted: Callable[[Row], bool]) -> Iterator[Line]:
    """Each edit in order: a heading with time, letter, path and who, then its diff."""
    first = True
    for row in rows:
        if not wanted(row):
            continue
        if not first:
            yield line()
        first = False
        yield _heading(row, context)
        if row.kind == "file.edit":
            yield from diff.of_edit(context.source, row.data, context.path(foreign_text(row.data.get("path"))))


def _heading(row: Row, context: Context) -> Line:
    lineage = context.lineage(row.span)
    parts = parts_of(row, context, lineage)
    letter: Line = parts.head or [CHANGE_LETTERS.get("modify", ("M", ""))]
    what: Piece = (text.escape(parts.what), "title")
    return line((f"{context.clock(row.at_ns)} ", "dim"), *letter, what, *parts.tail, "  ", *parts.right)
