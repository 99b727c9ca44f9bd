"""The spans of a recording as they end, while its rows pass: for formats that are made of spans.

A process, a connection, a call of a model, a tool or an MCP server are told when they end; what has only a moment (a
file, a socket) or is told in one row (an exchange) at once; what belongs to a span and is none (a decision, a gap, an
exec, a file that a program keeps for itself) is a `Note` of it. At the end come those that nobody saw end, and those
that another one names as its parent, so that what is told is always a tree. Holds what is open, never all rows. Knows
no format.
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from agentwrap.evidence.linking import Link, Linker
from agentwrap.evidence.turns import KINDS as MODEL_KINDS
from agentwrap.rows import Row, Span, number, word
from agentwrap.views.source import Source

Kind = Literal["run", "process", "connection", "agent", "turn", "model", "tool", "session", "mcp", "moment", "exchange"]

MOMENTS = (
    *("file.edit", "file.rename", "file.directory", "file.mode", "file.link", "file.special", "file.read"),
    *("net.connect", "net.bind", "net.listen", "net.send", "net.refused", "dns.server", "dns.query", "act.denied"),
)
FILES = tuple(kind for kind in MOMENTS if kind.startswith("file."))
# What a program does for itself: thousands of rows that would hide what they are beside.
_BESIDE = ("agent-state", "cache", "temporary", "device", "system", "stdio")
_MOST_NOTES = 1000
_MOST_HELD = 100_000
_KINDS: dict[str, Kind] = {
    "p": "process", "c": "connection", "a": "agent", "t": "turn", "m": "model", "x": "tool", "s": "session",
    "k": "mcp", "r": "run",
}  # fmt: skip
# Messages are what calls are made of; what was listed as before is no news.
_UNTOLD = ("mcp.message", "mcp.joined")


class Note(msgspec.Struct):
    """Something of a span at one moment: a row, and the span that the row is about."""

    row: Row
    span: str


class Ended(msgspec.Struct):
    """One span, with what belongs to it. Times in ns since the start of the run.

    `ended`: whether its end was seen. `row`: the row of a moment or an exchange; `asked` and `answered`: rows of a call
    of a model or of a tool. `link`: why it stands under a tool call, or (with another `parent`) which one caused it.
    `lost`: notes that are left out.
    """

    id: str
    parent: str
    kind: Kind
    name: str
    start_ns: int
    end_ns: int
    ended: bool = True
    status: str = ""
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    row: Row | None = None
    asked: Row | None = None
    answered: Row | None = None
    link: Link | None = None
    notes: list[Note] = msgspec.field(default_factory=list)
    lost: int = 0


class Ending:
    """Spans of rows. `story`: what the wire and the kernel told; it is fed by whoever owns it."""

    def __init__(self, source: Source, story: Linker) -> None:
        self._source, self._story = source, story
        self._notes: dict[str, list[Note]] = {}
        self._lost: dict[str, int] = {}
        self._held = 0
        self._told: set[str] = set()
        self._wanted: dict[str, None] = {"run": None}
        self._caused: dict[str, Link] = {}
        self._turns: dict[str, str] = {}
        self._closing: dict[str, str] = {}
        self._last_ns = 0

    def take(self, row: Row) -> Iterator[Ended]:
        """The spans that end with a row."""
        self._last_ns = max(self._last_ns, row.at_ns)
        kind, data = row.kind, row.data
        if self._beside(row):
            self._note(row, row.span or "run")
        elif kind in MOMENTS or (kind == "net.decision" and not data.get("connection")):
            yield self._moment(row)
        elif kind == "http.exchange":
            yield self._moment(row, number(data.get("requested_ns")) or row.at_ns, "exchange")
        elif kind in MODEL_KINDS:
            yield from self._model(row)
        elif kind.startswith("mcp."):
            yield from self._mcp(row)
        elif kind == "process.exit":
            yield from self._end(row.span, row)
        elif kind == "net.closed":
            yield from self._end(word(data.get("connection")), row)
        elif kind == "process.start":
            self._want(row.span)
        elif kind not in ("run.start", "run.end"):
            connection = word(data.get("connection")) if kind == "net.decision" else ""
            own = self._own_link(row) if connection else None
            if own is not None:
                self._caused[connection] = own
            self._note(row, connection or row.span or "run")

    def finish(self) -> Iterator[Ended]:
        """What is left: spans without an end, and the parents of what was told."""
        while self._wanted:
            wanted, self._wanted = self._wanted, {}
            for one in wanted:
                yield from self._end(one, None)

    # Rows

    def _moment(self, row: Row, start_ns: int | None = None, kind: Kind = "moment") -> Ended:
        own = self._own_link(row)
        parent = own.call or own.tool if own is not None else row.span or "run"
        self._want(parent)
        notes = [Note(row, row.span or "run")] if row.verdict else []
        return Ended(
            f"e{row.seq}", parent, kind, row.kind, min(start_ns if start_ns is not None else row.at_ns, row.at_ns),
            row.at_ns, row=row, link=own, notes=notes,
        )  # fmt: skip

    def _beside(self, row: Row) -> bool:
        """Whether a moment is of no interest by itself."""
        data = row.data
        if row.kind in FILES:
            small = data.get("klass") in _BESIDE
        else:
            small = row.kind == "net.connect" and data.get("family") in ("unix", "netlink")
        return small and not row.verdict and self._own_link(row) is None

    def _own_link(self, row: Row) -> Link | None:
        """The tool call that a row itself, and not its process, is known to be of."""
        link = self._story.link_of(row)
        if link is None or link.seq != row.seq:
            return None
        above = self._story.link_of_span(row.span)
        return link if above is None or above.tool != link.tool else None

    def _model(self, row: Row) -> Iterator[Ended]:
        data = row.data
        if row.kind == "model.request":
            agent, turn = word(data.get("agent")), word(data.get("turn"))
            for one in (agent, turn, word(data.get("call"))):
                self._want(one)
            before = self._turns.get(agent)
            if before not in (None, turn):
                self._closing[agent] = str(before)
            self._turns[agent] = turn
        elif row.kind == "model.response":
            yield from self._end(word(data.get("call")), row)
            # The results of the turn before came with the request.
            over = self._closing.pop(word(data.get("agent")), "")
            if over:
                yield from self._end(over, row)
        elif row.kind == "tool.call":
            self._want(word(data.get("tool")))
            if data.get("provider_side") is True:
                yield from self._end(word(data.get("tool")), row)
        elif row.kind == "tool.result":
            if data.get("tool"):
                yield from self._end(word(data.get("tool")), row)
            else:
                self._note(row, row.span or "run")

    def _mcp(self, row: Row) -> Iterator[Ended]:
        data = row.data
        session, call = word(data.get("session")), word(data.get("call"))
        if row.kind == "mcp.session":
            self._want(session)
        elif row.kind == "mcp.call":
            self._want(call)
        elif row.kind == "mcp.result":
            yield from self._end(call, row)
        elif row.kind == "mcp.ended":
            yield from self._end(session, row)
        elif row.kind not in _UNTOLD and data.get("change") != "same":
            self._note(row, next((one for one in (call, session) if one and one not in self._told), row.span or "run"))

    def _note(self, row: Row, span: str) -> None:
        home = span if span and span not in self._told else "run"
        self._want(home)
        notes = self._notes.setdefault(home, [])
        if len(notes) >= _MOST_NOTES or self._held >= _MOST_HELD:
            self._lost[home] = self._lost.get(home, 0) + 1
            return
        self._held += 1
        notes.append(Note(row, span))

    def _want(self, span: str | None) -> None:
        if span and span not in self._told:
            self._wanted[span] = None

    # Spans

    def _end(self, span: str, row: Row | None) -> Iterator[Ended]:
        if not span or span in self._told:
            return
        self._told.add(span)
        self._wanted.pop(span, None)
        found = self._source.span(span)
        ended = self._ended(span, found, row)
        self._want(ended.parent)
        ended.notes = self._notes.pop(span, [])
        ended.lost = self._lost.pop(span, 0)
        self._held -= len(ended.notes)
        yield ended

    def _ended(self, span: str, found: Span | None, row: Row | None) -> Ended:
        last_ns = max(self._last_ns, row.at_ns if row is not None else 0)
        if found is None:
            # A file made by hand, or a view of one that has no spans.
            at_ns = row.at_ns if row is not None else 0
            above = row.span if row is not None and row.span != span else None
            parent = above or ("" if span == "run" else "run")
            return Ended(span, parent, _kind_of(span), span, at_ns, last_ns, ended=False)
        kind = next((kind for kind in _KINDS.values() if kind == found.kind), _kind_of(span))
        end_ns = found.end_ns if found.end_ns is not None else last_ns
        parent = "" if found.parent in (None, span) else str(found.parent)
        made = Ended(
            span, parent or ("" if span == "run" else "run"), kind, found.name, found.start_ns,
            max(found.start_ns, end_ns), ended=found.end_ns is not None, status=found.status or "", data=found.data,
        )  # fmt: skip
        turns = self._story.turns
        if kind == "model" and span in turns.calls:
            made.asked, made.answered = turns.calls[span].request, turns.calls[span].response
        elif kind == "tool" and span in turns.tools:
            made.asked, made.answered = turns.tools[span].asked, turns.tools[span].result
        elif kind == "mcp" and span in self._story.mcp.calls:
            use = self._story.mcp.calls[span]
            made.asked, made.answered = use.asked, use.result
        elif kind in ("process", "connection"):
            self._under_a_tool(made)
        return made

    def _under_a_tool(self, made: Ended) -> None:
        caused = self._caused.pop(made.id, None)
        link = caused or self._story.link_of_span(made.id)
        if link is None or (link.span != made.id and caused is None):
            return
        made.link = link
        tool = self._story.turns.tools.get(link.tool)
        # A process that was there before (a shell that an agent keeps) stays where it is.
        if tool is not None and made.start_ns >= tool.since_ns:
            made.parent = link.call or link.tool


def _kind_of(span: str) -> Kind:
    return _KINDS.get(span[:1], "process")
