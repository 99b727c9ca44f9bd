"""The header and the summary of a recording: what ran, when, how it ended, how much happened, what was not seen.

Counts while rows stream by, in bounded memory. Says "none recorded" only together with whether it would have been
recorded: absence is not claimed under partial coverage.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from agentwrap import text
from agentwrap.evidence.check import holes as holes_of
from agentwrap.evidence.check import statements as statements_of
from agentwrap.policy.coverage import Hole, Statement, strongest
from agentwrap.rows import Row, number
from agentwrap.views import passing
from agentwrap.views.context import brief, command_line, outcome
from agentwrap.views.noise import hidden
from agentwrap.views.source import Source, foreign_text, texts
from agentwrap.views.styled import Line, Piece, line

if TYPE_CHECKING:
    from agentwrap.views import tokens

# Past this many different ones, the number is told as "at least".
MOST_DISTINCT = 20_000
LONGEST_COMMAND = 400
_JUDGED = ("net.decision", "dns.query", "net.refused", "act.denied", "mcp.decision")
_COUNTED = (
    *_JUDGED,
    "coverage",
    "process.start", "process.exit", "process.denied", "file.edit", "net.connect", "net.send", "net.bind", "net.listen",
    "model.request", "model.response", "tool.call", "mcp.call", "mcp.result", "mcp.finding",
)  # fmt: skip


class Tally:
    """Counts of one recording, or of the rows a filter let through."""

    def __init__(self) -> None:
        self.events = self.processes = self.failed = self.denials = self.by_policy = self.would_deny = 0
        self.last_ns = 0
        self._files: set[str] = set()
        self._made: dict[str, bool] = {}
        self._hosts: set[str] = set()
        self._through: set[str] | None = None  # the gateway's word, where there is one
        self.calls = self.tools = self.mcp = self.mcp_denied = self.findings = 0
        self._used: tokens.Sum | None = None
        self._models: dict[str, str] = {}

    def add(self, row: Row) -> None:
        """Count one row."""
        self.events += 1
        self.last_ns = max(self.last_ns, row.at_ns)
        kind, data = row.kind, row.data
        times = number(data.get("count"), 1) if kind in _JUDGED else 1
        if row.verdict == "deny":
            self.denials += times
            self.by_policy += times if kind in _JUDGED else 0
        self.would_deny += times if row.verdict == "would-deny" else 0
        if kind.startswith(("model.", "tool.")):
            self._model(row)
        elif kind.startswith("mcp."):
            self._mcp(row)
        elif kind == "process.start":
            self.processes += 1
        elif kind == "process.exit":
            self.failed += bool(data.get("status") or data.get("signal"))
        elif kind == "file.edit":
            if not hidden(row):
                _remember(self._files, foreign_text(data.get("path")))
            self._passed(row)
        elif kind in ("net.connect", "net.send") and data.get("family") in ("inet", "inet6"):
            _remember(self._hosts, foreign_text(data.get("host")))
        elif kind == "coverage" and data.get("what") == "connect" and data.get("tier") in ("wall", "guard"):
            self._through = set() if self._through is None else self._through
        elif kind == "net.decision" and row.verdict != "deny" and self._through is not None:
            _remember(self._through, foreign_text(data.get("host")))

    def _model(self, row: Row) -> None:
        call = str(row.data.get("call"))
        if row.kind == "model.request":
            self.calls += 1
            if len(self._models) < MOST_DISTINCT:
                self._models[call] = foreign_text(row.data.get("model"))
        elif row.kind == "model.response":
            model = foreign_text(row.data.get("model")) or self._models.get(call, "")
            self._models.pop(call, None)
            from agentwrap.views import tokens  # most recordings have no model traffic

            self._used = self._used or tokens.Sum()
            self._used.add(row.data, brief(model) or "?")
        elif row.kind == "tool.call":
            self.tools += 1

    def _mcp(self, row: Row) -> None:
        method = row.data.get("method")
        if row.kind == "mcp.call":
            self.mcp += method == "tools/call" and row.data.get("up") is not False
        elif row.kind == "mcp.result":
            self.mcp_denied += method == "tools/call" and row.data.get("ending") == "denied"
        elif row.kind == "mcp.finding":
            self.findings += 1

    def _mcp_words(self) -> str:
        """`3 MCP calls (1 denied), 2 findings`."""
        denied = f" ({self.mcp_denied:,} denied)" if self.mcp_denied else ""
        told = [f"{text.count(self.mcp, 'MCP call')}{denied}"] if self.mcp else []
        told += [text.count(self.findings, "MCP finding")] if self.findings else []
        return ", ".join(told)

    @property
    def model_traffic(self) -> str:
        """`4 model calls, 71k tokens in (68k cached), 1.2k out, est $0.12; 5 tool calls; 2 MCP calls`, or nothing."""
        calls = text.count(self.calls, "model call") if self.calls else ""
        told = ", ".join(part for part in (calls, self._used.words() if self._used else "") if part)
        tools = text.count(self.tools, "tool call") if self.tools else ""
        return "; ".join(part for part in (told, tools, self._mcp_words()) if part)

    def _passed(self, row: Row) -> None:
        """What the run made and removed again is no file changed."""
        passing.note(self._made, row)
        for path in (row.data.get("path"), row.data.get("temporary")):
            if path and self._made.get(foreign_text(path)):
                self._files.discard(foreign_text(path))
        if len(self._made) > MOST_DISTINCT:
            self._made.clear()

    @property
    def files(self) -> str:
        """`3 files`, `at least 20,000 files`, nothing for none."""
        return _distinct(self._files, "file")

    @property
    def hosts(self) -> str:
        """`1 host`, nothing for none."""
        return _distinct(self._hosts if self._through is None else self._through, "host")


def _remember(distinct: set[str], item: str) -> None:
    if len(distinct) < MOST_DISTINCT:
        distinct.add(item)


def _distinct(items: set[str], noun: str) -> str:
    if len(items) >= MOST_DISTINCT:
        return f"at least {text.count(MOST_DISTINCT, noun)}"
    return text.count(len(items), noun) if items else ""


def command_of(source: Source) -> str:
    """The command of the run as a shell would take it (`meta.command` is a JSON list)."""
    told = source.meta.get("command", "")
    if not told:
        started = next(source.rows(kinds=("run.start",), limit=1), None)
        return command_line(texts(started.data.get("command"))) if started is not None else ""
    try:
        words = json.loads(told)
    except ValueError:
        return brief(told)
    return command_line([foreign_text(word) for word in words]) if isinstance(words, list) else told


def started_at(meta: Mapping[str, str]) -> int:
    """When the run began, nanoseconds since 1970 UTC, 0 if the file does not say."""
    told = meta.get("started_unix_ns", "")
    return int(told) if told.isascii() and told.isdigit() and len(told) < 20 else 0


_BADGES: dict[str, Piece] = {
    "closed": ("closed", "good"),
    "live": ("live", "bad"),
    "torn": ("torn", "gap"),
}


_STATES: dict[str, Piece] = {
    "torn": ("torn: the recorder ended without closing the file; what came after its last event is not in it", "gap"),
    "live": ("live: the run is not over, or is still being written (`agentwrap tail` follows it)", "bad"),
}


def header(source: Source, started: str, columns: int | None = None) -> Iterator[Line]:
    """The first lines: command, when it began (`started`, in words), how long, how it ended, state of the file."""
    run = source.span("run")
    state = source.state()
    facts = [started] if started else []
    if run is not None and run.end_ns is not None:
        facts.append(text.duration(run.end_ns - run.start_ns))
    pieces: Line = [(f"  {fact}", "dim") for fact in facts]
    if run is not None and run.status:
        pieces += [("  ", ""), (outcome(run.status), "good" if run.status == "exit 0" else "bad")]
    reason = run.data.get("reason", "") if run is not None else ""
    if reason not in ("", "exit", "signal"):
        pieces.append((f" ({text.escape(str(reason))})", "bad"))
    pieces += [("  ", ""), _BADGES.get(state, (text.escape(state), ""))]
    room = LONGEST_COMMAND
    if columns is not None:
        room = max(columns - sum([text.width(piece[0]) for piece in pieces]), 20)
    yield [(text.clip(command_of(source), room), "title"), *pieces]
    if state in _STATES:
        yield line(_STATES[state])
    if source.meta.get("shape_only", "") in ("1", "true", "yes"):
        yield line(("shape only: names and contents are replaced by keyed hashes", "dim"))


def totals(tally: Tally, statements: Sequence[Statement], holes: Sequence[Hole]) -> Iterator[Line]:
    """What happened in numbers; where a number is nought, whether it could have been seen."""
    if tally.model_traffic:
        yield line((text.escape(tally.model_traffic), ""))
    failed = f" ({tally.failed:,} failed)" if tally.failed else ""
    processes = text.count(tally.processes, "process", "processes") + failed if tally.processes else ""
    files, hosts = tally.files, tally.hosts
    parts = [
        _told(processes, "process", "process", statements, holes),
        _told(f"{files} changed" if files else "", "file-write", "file change", statements, holes),
        _told(f"{hosts} connected to" if hosts else "", "connect", "connection", statements, holes),
    ]
    yield line((", ".join(parts), ""))
    if tally.denials:
        yield line((text.count(tally.denials, "denial"), "deny"), (" (`--denied`)", "dim"))
    if tally.would_deny:
        yield line((f"{tally.would_deny:,} would have been denied", "deny"), (" (`--denied`; mode observe)", "dim"))


def _told(seen: str, kind: str, noun: str, statements: Sequence[Statement], holes: Sequence[Hole]) -> str:
    """What was seen, or that nothing was, with what has to be said beside it where the kind was not wholly observed."""
    best = strongest(statements, kind)
    observed = best is not None and best.tier != "none"
    whole = observed and not any(hole.kind in (kind, "process") for hole in holes)
    if seen:
        return seen if whole else f"at least {seen.removeprefix('at least ')}"
    if not observed:
        return f"no {noun} seen (not observed)"
    return f"no {noun} seen" if whole else f"no {noun} seen (there are gaps)"


def gap_summary(holes: Sequence[Hole]) -> Iterator[Line]:
    """The gaps by kind and cause, in one line; said at the end of every view of facts."""
    if not holes:
        return
    counted = Counter((hole.kind, hole.cause) for hole in holes)
    times = {key: f" ({number:,})" if number > 1 else "" for key, number in counted.items()}
    told = ", ".join(f"{kind} {cause}{times[kind, cause]}" for kind, cause in counted)
    yield line((f"{text.count(len(holes), 'gap')}: {text.escape(told)}", "gap"), (" (`--gaps` tells more)", "dim"))


def uncovered(statements: Sequence[Statement], kinds: Sequence[str]) -> Iterator[Line]:
    """The kinds among `kinds` that nobody observed, in one line."""
    missing = [kind for kind in kinds if (best := strongest(statements, kind)) is None or best.tier == "none"]
    if missing:
        yield line((f"not observed: {text.words(missing)}", "gap"), (" (`--gaps` tells more)", "dim"))


def hidden_summary(counted: Mapping[str, int], noise: frozenset[str]) -> Iterator[Line]:
    """What the default view left out, by reason, and how to see it."""
    most_first = sorted(counted.items(), key=lambda item: -item[1])
    told = [f"{reason} ({number:,})" for reason, number in most_first if reason in noise]
    if told:
        yield line((f"hidden: {', '.join(told)} (`--all` shows them)", "dim"))


def tally_of(source: Source) -> Tally:
    """The counts that the line after a run needs."""
    tally = Tally()
    for row in source.rows(kinds=_COUNTED):
        tally.add(row)
    return tally


def summarize(source: Source, tally: Tally | None = None) -> Line:
    """One line after a run: what happened, what was not seen, denials last."""
    tally = tally or tally_of(source)
    statements, holes = statements_of(source), holes_of(source)
    first, *others = totals(tally, statements, holes)
    pieces: Line = [("agentwrap ", "dim"), *first]
    if tally.model_traffic:
        pieces += [("; ", ""), *others[0]]
    if holes:
        pieces.append((f", {text.count(len(holes), 'gap')}", "gap"))
    if tally.would_deny:
        pieces.append((f", {tally.would_deny:,} would have been denied", "deny"))
    if tally.denials:
        pieces.append((f", {tally.denials:,} denied: agentwrap show --denied", "deny"))
    elif tally.would_deny:
        pieces.append((": agentwrap show --denied", "deny"))
    return pieces
