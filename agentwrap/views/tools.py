"""Every tool call on a line: what was asked for, what came of it, and what it caused, with how that is known."""

from collections.abc import Iterable, Iterator

import msgspec

from agentwrap import text
from agentwrap.evidence.linking import ALONE, FILES, PROCESSES, SOCKETS, Link, Linker
from agentwrap.evidence.turns import ToolUse
from agentwrap.views import noise
from agentwrap.views.context import Context, brief
from agentwrap.views.lines import columns_of, fit, shorten
from agentwrap.views.model_parts import agent_mark, tool_brief, tool_status
from agentwrap.views.source import Source, foreign_text
from agentwrap.views.styled import Line, line

KINDS = (*PROCESSES, *FILES, *SOCKETS)
_MOST = 100_000


class Caused(msgspec.Struct):
    """What a tool call caused, each once, and the links that say so."""

    processes: set[str] = msgspec.field(default_factory=set)
    files: set[str] = msgspec.field(default_factory=set)
    connections: set[str] = msgspec.field(default_factory=set)
    links: list[Link] = msgspec.field(default_factory=list)

    def words(self) -> str:
        """`2 processes, 1 file`, nothing for nothing."""
        counted = [(self.processes, "process", "processes"), (self.files, "file", "files")]
        counted.append((self.connections, "connection", "connections"))
        return ", ".join(text.count(len(found), noun, plural) for found, noun, plural in counted if found)

    def how(self) -> str:
        """How it is known: `exact`, or `inferred` and by what, the best reason first."""
        if not self.links:
            return ""
        reasons = dict.fromkeys(link.evidence for link in self.links)
        said = sorted(reasons, key=lambda reason: reason == ALONE)
        word = "exact" if all(link.how == "exact" for link in self.links) else "inferred"
        ambiguous = "; another call explains it as well" if any(link.ambiguous for link in self.links) else ""
        return f"{word}: {'; '.join(said[:3])}{ambiguous}"


def caused(source: Source, story: Linker) -> dict[str, Caused]:
    """What each tool call caused, by its id. Noise is not counted as a file."""
    found = {tool: Caused() for tool in story.turns.tools}
    for link in story.links:
        if link.tool in found:
            found[link.tool].links.append(link)
    left = _MOST
    for row in source.rows(kinds=KINDS) if story.links else ():
        why = story.link_of(row)
        of = found.get(why.tool) if why is not None else None
        if of is None or left <= 0:
            continue
        left -= 1
        if row.kind in PROCESSES:
            of.processes.add(row.span)
        elif row.kind in FILES:
            if not noise.hidden(row):
                of.files.add(foreign_text(row.data.get("path")))
        elif row.data.get("family") not in ("unix", "netlink") and not noise.hidden(row):
            of.connections.add(row.subject)
    return found


def tool_lines(tools: Iterable[ToolUse], context: Context, found: dict[str, Caused]) -> Iterator[Line]:
    """Two lines for each: the call with its result, then what it caused and how that is known."""
    for use in tools:
        yield _call(use, context)
        yield from _effects(found.get(use.id, Caused()), 11 + 2 * context.turn_columns())


def _call(use: ToolUse, context: Context) -> Line:
    name = text.escape(brief(foreign_text(use.asked.data.get("name"))))
    turn, ident = text.escape(use.turn), text.escape(use.id)
    wide = context.turn_columns()
    place = f"{context.clock(use.at_ns):>7} {turn:<{wide}} {ident:<{wide + 1}} "
    head: Line = [(place, "dim"), *agent_mark(use.agent, context), (f"{name}  ", "name")]
    right = provider(use) or tool_status(context, use.id, use.result)
    if use.end_ns is not None:
        right = [*right, (f"  {text.duration(use.end_ns - use.at_ns)}", "dim")]
    room = 4000 if context.columns is None else context.columns - columns_of(head) - columns_of(right) - 2
    told = line(*head, (shorten(tool_brief(use.asked, context), max(room, 16)), ""), "  ", *right)
    return told if context.columns is None else fit(told, context.columns)


def provider(use: ToolUse) -> Line:
    """That the provider ran it, if it did."""
    return [("run by the provider", "dim")] if use.asked.data.get("provider_side") else []


def _effects(of: Caused, indent: int) -> Iterator[Line]:
    told = of.words()
    if told or of.links:
        yield line((" " * indent, ""), (told or "nothing that is shown", ""), (f"  ({of.how()})", "dim"))
