"""The process tree: who started whom, what it became, how it ended, and how much it touched.

Reads every span and counts rows, so it holds one small record per process; the deepest tree is drawn without recursion.
"""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from agentwrap import text
from agentwrap.rows import Row, Span, number
from agentwrap.views.context import command_line, ending
from agentwrap.views.source import Source, texts
from agentwrap.views.styled import Line, line

_JUDGED = ("net.decision", "dns.query", "net.refused", "act.denied", "mcp.decision")
COUNTED = (*_JUDGED, "file.edit", "file.rename", "file.directory", "file.mode", "file.link", "file.special",
           "net.connect", "net.bind", "net.listen", "net.send", "dns.server", "process.exec", "process.denied",
           "gap")  # fmt: skip

# Below this the depth is told as a number: a hostile tree would need megabytes of indentation.
DEEPEST_DRAWN = 40


class Touched(msgspec.Struct):
    """What one process did, in numbers, and the programs it has been, in order."""

    files: int = 0
    sockets: int = 0
    gaps: int = 0
    denied: int = 0
    execs: list[str] = msgspec.field(default_factory=list)


class Tree(msgspec.Struct):
    """The spans by parent, and what each touched."""

    spans: Mapping[str, Span]
    children: dict[str | None, list[str]]
    touched: dict[str, Touched]

    def roots(self) -> list[str]:
        """Processes whose parent is no process here."""
        return [
            span.id
            for span in self.spans.values()
            if span.kind == "process" and (span.parent is None or not _is_process(self.spans.get(span.parent)))
        ]


def _is_process(span: Span | None) -> bool:
    return span is not None and span.kind == "process"


def build(source: Source, wanted: Callable[[Row], bool] = lambda _row: True) -> Tree:
    """The tree of a recording, counting the rows that are `wanted`."""
    spans = source.spans()
    children: dict[str | None, list[str]] = {}
    for span in spans.values():
        if span.kind == "process" and span.parent != span.id:
            children.setdefault(span.parent, []).append(span.id)
    touched: dict[str, Touched] = {}
    for row in source.rows(kinds=COUNTED):
        if row.span and wanted(row):
            _count(touched.setdefault(row.span, Touched()), row)
    return Tree(spans, children, touched)


def _count(touched: Touched, row: Row) -> None:
    if row.verdict == "deny":
        touched.denied += number(row.data.get("count"), 1) if row.kind in _JUDGED else 1
    if row.kind in _JUDGED:
        return  # the system call behind it is counted
    if row.kind.startswith("file."):
        touched.files += 1
    elif row.kind.startswith(("net.", "dns.")):
        touched.sockets += 1
    elif row.kind == "gap":
        touched.gaps += 1
    elif row.kind == "process.exec" and row.data.get("confirmed", True) and len(touched.execs) < 50:
        program = command_line(texts(row.data.get("argv"))[:40])[:2000] or row.subject
        if touched.execs and touched.execs[-1] == f"/usr/bin/env {program}":
            touched.execs.pop()  # the look-up of a script's interpreter
        touched.execs.append(program)


def tree_lines(tree: Tree, columns: int | None = None) -> Iterator[Line]:
    """The tree, drawn; every process once, also where a file made by hand has its parents in a circle."""
    names: dict[str, str] = {}
    roots = tree.roots()
    stack = [(root, "", "", 0) for root in reversed(roots)]
    while stack:
        span_id, indent, branch, depth = stack.pop()
        if span_id in names:
            continue
        span = tree.spans[span_id]
        names[span_id] = name = span.name or names.get(span.parent or "", "")
        yield _process(span, name, tree.touched.get(span_id, Touched()), indent + branch, columns)
        below = indent if not branch else indent + ("   " if branch.startswith("└") else "│  ")
        if depth >= DEEPEST_DRAWN:
            below = f"[{depth + 1} deep] "
        children = tree.children.get(span_id, [])
        last = len(children) - 1
        stack.extend((children[at], below, "└─ " if at == last else "├─ ", depth + 1) for at in range(last, -1, -1))
    left = sum(1 for span in tree.spans.values() if span.kind == "process" and span.id not in names)
    if left:
        yield line((f"{text.count(left, 'process', 'processes')} without a way to the root are not drawn", "gap"))


def _process(span: Span, name: str, touched: Touched, prefix: str, columns: int | None) -> Line:
    """One process: pid, what it ran (each exec), how it ended, what it touched."""
    pid = f"{number(span.data.get('pid'))} "
    right = ending(span.status, span.end_ns - span.start_ns if span.end_ns is not None else None)
    if span.end_ns is None:
        right = [("end not seen", "gap")]
    for amount, noun in ((touched.files, "file"), (touched.sockets, "socket"), (touched.gaps, "gap")):
        if amount:
            right.append((f"  {text.count(amount, noun)}", "gap" if noun == "gap" else ""))
    if touched.denied:
        right.append((f"  {touched.denied:,} denied", "deny"))
    if span.data.get("ended_by"):
        right.append(("  ended by agentwrap", "bad"))
    what = " → ".join(touched.execs) if touched.execs else f"({name or '?'})"
    prefix = text.clip_start(prefix, max(20, columns // 2)) if columns is not None else prefix
    if columns is not None:
        used = text.width(prefix) + len(pid) + 2 + sum(text.width(piece[0]) for piece in right)
        what = text.clip(what[: columns + 1], max(columns - used, 16))
    else:
        what = text.escape(what)
    return line((prefix, "dim"), (pid, "who"), (what, "name" if touched.execs else "dim"), "  ", *right)
