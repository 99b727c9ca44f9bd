"""Which processes, file changes and connections a tool call caused, and what says so.

The wire tells what a model asked for, the kernel what was done; no id joins the two for a shell tool. So a link is
*inferred* from what they have in common, in this order, and carries its reason in words:

a. a process below the one that asked the model runs the tool's command;
b. a file that the tool's arguments name was changed while the call was open;
c. an MCP server that carried out a call of the tool did it, while that call was under way;
d. what nothing else explains, while this was the only tool call open that could have done it.

Descendants of a linked process belong to the same tool call, however long they live. Fed rows in order of `seq` it can
be used on a growing file; told all model rows first (`of_recording`), it knows every interval before it judges.
"""

import posixpath
from bisect import insort
from collections import deque
from collections.abc import Mapping
from typing import Literal

import msgspec

from agentwrap.evidence import mcp_calls
from agentwrap.evidence import turns as turns_
from agentwrap.evidence.mcp_calls import McpCalls, McpUse
from agentwrap.evidence.tool_arguments import SHELLS, Named, read
from agentwrap.evidence.turns import ToolUse, Turns
from agentwrap.recording.foreign import to_bytes
from agentwrap.rows import Row, Rows, number, word

FILES = ("file.edit", "file.rename", "file.directory", "file.mode", "file.link", "file.special")
SOCKETS = ("net.decision", "net.connect", "net.send", "net.listen", "act.denied", "net.refused")
PROCESSES = ("process.start", "process.exec", "process.exit")
KINDS = (*turns_.KINDS, *mcp_calls.KINDS, *PROCESSES, *FILES, *SOCKETS)

How = Literal["exact", "inferred"]

RUNS = "runs its command"
CONTAINS = "its command is part of this command line"
TEXT = "what was run is part of the call's text"
ELSEWHERE = "runs its command, but not below the process that asked"
NAMED = "its arguments name this path"
ABOVE = "made on the way to a path that its arguments name"
ALONE = "only tool call open then"
SERVED = "done by the MCP server during its call"

# The agent's own files are no tool's work.
_OWN_CLASSES = ("agent-state", "stdio", "system", "device")
_SHORTEST_ELSEWHERE = 8
# A change may be told this much later than it was made; when it was made, the file's mtime says.
_TOLD_LATE_NS = 10 * 10**9
# mtime is that of the last tick (current_time(), fs/inode.c); a tick is 10 ms at most.
_TICK_NS = 10_000_000
_FOREVER_NS = 1 << 63
_MOST_OPEN = 128
_MOST_PROCESSES = 100_000
_DEEPEST = 1000
_REMEMBERED = 400
_MOST_LINKS = 200_000
_QUOTING = str.maketrans("", "", "'\"\\")


class Link(msgspec.Struct, frozen=True):
    """A tool call caused a process and what descends from it (`span`), or one row (`seq`).

    `ambiguous`: another call explains it as well. `status`: this process ran the command itself, so its exit is the
    tool's. `call`: the MCP call that it was done for.
    """

    tool: str
    evidence: str
    span: str = ""
    seq: int = 0
    how: How = "inferred"
    ambiguous: bool = False
    status: bool = False
    call: str = ""


class _Process(msgspec.Struct):
    parent: str
    start_ns: int
    cwd: str = ""
    ended: str | None = None


class _Open(msgspec.Struct):
    """A tool call while it may still do something."""

    use: ToolUse
    named: Named
    commands: tuple[str, ...]
    processes: int = 0
    files: int = 0


class _Asker:
    """The tool calls of one process that asks models, as time goes by."""

    def __init__(self) -> None:
        self._coming: list[tuple[int, int, _Open]] = []
        self._begun: list[_Open] = []

    def take(self, one: _Open) -> None:
        """A tool call that is known, begun or not."""
        insort(self._coming, (-one.use.since_ns, -one.use.asked.seq, one), key=lambda item: item[:2])

    def open_at(self, at_ns: int) -> list[_Open]:
        """Those that were open at a moment, or whose answer had begun. Moments come nearly in order."""
        while self._coming and -self._coming[-1][0] <= at_ns:
            self._begun.append(self._coming.pop()[2])
        if len(self._begun) > _MOST_OPEN // 8:
            self._begun = [one for one in self._begun if _until(one) >= at_ns - _TOLD_LATE_NS][-_MOST_OPEN:]
        return [one for one in self._begun if one.use.since_ns <= at_ns <= _until(one)]


def _until(one: _Open) -> int:
    return _FOREVER_NS if one.use.until_ns is None else one.use.until_ns


class Linker:
    """Links of one recording. `cwd`: where the command ran, for relative paths; `started_unix_ns`: when it began."""

    def __init__(
        self, cwd: str = "", started_unix_ns: int = 0, turns: Turns | None = None, mcp: McpCalls | None = None
    ) -> None:
        self.turns = turns or Turns()
        self.mcp = mcp or McpCalls()
        self._servers: dict[str, list[str]] = {}
        """Sessions of each server's process."""
        self._started_ns = started_unix_ns
        self._told_until_ns = 0 if turns is None else _FOREVER_NS
        self.links: list[Link] = []
        self._cwd = cwd
        self._by_span: dict[str, Link] = {}
        self._by_seq: dict[int, Link] = {}
        self._processes: dict[str, _Process] = {}
        self._askers: dict[str, _Asker] = {}
        self._known: dict[str, _Open] = {}
        self._runs: dict[str, str] = {}
        self._exits: dict[str, str] = {}
        self._recent: deque[Row] = deque(maxlen=_REMEMBERED)
        self._above: set[str] = set()
        if turns is not None:
            for tool in turns.tools.values():
                self._opened(tool)
        for talk in self.mcp.sessions.values():
            self._serves(talk.began)

    def feed(self, row: Row) -> list[Link]:
        """Take a row; returns the links it made."""
        before = len(self.links)
        if row.kind in turns_.KINDS:
            self._told(row)
        elif row.kind in mcp_calls.KINDS:
            self.mcp.follow(row)
            if row.kind == "mcp.session":
                self._serves(row)
        elif row.kind in PROCESSES:
            self._process(row)
        elif row.kind in FILES or row.kind in SOCKETS:
            self._act(row)
        return self.links[before:]

    def link_of(self, row: Row) -> Link | None:
        """The link that a row belongs to: its own, or that of the process that did it or of one above."""
        return self._by_seq.get(row.seq) or self.link_of_span(row.span)

    def link_of_span(self, span: str | None) -> Link | None:
        """The link of a process, or of the nearest one above that has one."""
        return next((self._by_span[one] for one in self._lineage(span) if one in self._by_span), None)

    def turn_of(self, row: Row) -> str:
        """The turn a row belongs to, or nothing."""
        if row.kind in turns_.KINDS:
            return word(row.data.get("turn"))
        if row.kind.startswith("mcp."):
            tool = self.turns.tools.get(self.mcp.tool_of(row))
            return tool.turn if tool is not None else ""
        link = self.link_of(row)
        tool = self.turns.tools.get(link.tool) if link is not None else None
        return tool.turn if tool is not None else ""

    def status_of(self, tool: str) -> str:
        """How the process that ran a tool's command ended (`exit 1`), or nothing."""
        return self._exits.get(tool, "")

    # What the wire told

    def _told(self, row: Row) -> None:
        self.turns.follow(row)
        self._told_until_ns = max(self._told_until_ns, row.at_ns)
        tool = self.turns.tools.get(word(row.data.get("tool"))) if row.kind == "tool.call" else None
        if tool is not None and tool.asked is row:
            self._opened(tool)
        # The kernel's word may come before the gateway's.
        late = list(self._recent)
        self._recent.clear()
        for act in late:
            if self.link_of(act) is None:
                self._exec(act, act.span or "") if act.kind == "process.exec" else self._act(act)

    def _opened(self, tool: ToolUse) -> None:
        arguments = to_text(tool.asked.data.get("arguments"))
        named = read(arguments)
        commands = tuple(bare for command in named.commands if (bare := bared(command)))
        one = self._known[tool.id] = _Open(tool, named, commands)
        self._askers.setdefault(tool.span, _Asker()).take(one)
        agent = self.turns.agents.get(tool.agent)
        if agent is not None and agent.parent in self.turns.tools:
            self._above.add(agent.parent)

    # What the kernel told

    def _process(self, row: Row) -> None:
        span = row.span
        if row.kind == "process.start":
            if span not in self._processes:
                self._processes[span] = _Process(word(row.data.get("parent")) or "run", row.at_ns)
                self._forget()
            return
        if row.kind == "process.exit":
            if span in self._processes:
                self._processes[span].ended = _exit(row)
            tool = self._runs.pop(span, "")
            if tool:
                self._exits[tool] = _exit(row)
            return
        if row.data.get("confirmed") is False or not span:
            return
        known = self._processes.setdefault(span, _Process("run", row.at_ns))
        known.cwd = to_text(row.data.get("cwd"))
        self._exec(row, span)

    def _forget(self) -> None:
        """Let go of processes that were over first; what they began may still be running, and then stands alone."""
        if len(self._processes) > _MOST_PROCESSES:
            over = [span for span, process in self._processes.items() if process.ended is not None]
            for span in over[: _MOST_PROCESSES // 2]:
                del self._processes[span]

    def _exec(self, row: Row, span: str) -> None:
        words = _words(row)
        line = bared(" ".join(words))
        run = bared(words[-1]) if len(words) > 2 and words[0].rsplit("/", 1)[-1] in SHELLS else line
        path = self._lineage(span)
        linked: Link | None = None
        served = self.serving(row, path)
        if served is not None and path[0] not in self._servers and self.link_of_span(span) is None:
            self._add(Link(served[0].tool_call, SERVED, span=span, ambiguous=served[1], call=served[0].id))
            return
        for at, above in enumerate(path):
            if above in self._askers and at:
                open_ = self._askers[above].open_at(row.at_ns)
                if linked is not None:
                    open_ = [one for one in open_ if one.use.id == linked.tool]
                if (found := self._running(open_, run, line)) is not None:
                    self._link_process(found, path[:at], linked)
                    return
                if linked is None and (alone := self._alone(open_, row, row.at_ns)) is not None:
                    self._add(Link(alone.use.id, ALONE, span=self._topmost(path[:at], alone.use.at_ns)))
                    return
            linked = linked or self._by_span.get(above)
        if linked is None and not self._elsewhere(run, row, span):
            self._recent.append(row)

    def _running(self, open_: list[_Open], run: str, line: str) -> "_Found | None":
        """The open call whose command this is."""
        for evidence, fits in _FITS:
            fitting = [(length, one) for one in open_ if (length := fits(one, run, line))]
            if not fitting:
                continue
            longest = max(length for length, _ in fitting)
            same = [one for length, one in fitting if length == longest]
            # Of equal calls the first that has no process yet: agents start them in the order in which they were asked.
            chosen = min(same, key=lambda one: one.processes)
            return _Found(chosen, evidence, len(same) > 1)
        return None

    def _link_process(self, found: "_Found", path: list[str], linked: Link | None) -> None:
        """Link the process, or what started it: a sandbox or a wrapper that the agent put around the command."""
        one, span = found.one, path[0]
        # The innermost that runs the command itself says how it ended.
        if found.evidence == RUNS or one.use.id not in self._runs.values():
            self._runs = {at: tool for at, tool in self._runs.items() if tool != one.use.id}
            self._runs[span] = one.use.id
            ended = self._processes[span].ended if span in self._processes else None
            if ended is not None:
                self._exits[one.use.id] = ended
        if linked is not None and linked.evidence == ALONE and span not in self._by_span:
            self._add(Link(one.use.id, found.evidence, span=span, ambiguous=found.ambiguous, status=True))
        if linked is None:
            one.processes += 1
            top = self._topmost(path, one.use.since_ns)
            self._add(Link(one.use.id, found.evidence, span=top, ambiguous=found.ambiguous, status=top == span))

    def _topmost(self, path: list[str], since_ns: int) -> str:
        """The outermost of nested processes that began after the call was made."""
        young = [span for span in path if span in self._processes and self._processes[span].start_ns >= since_ns]
        return young[-1] if young else path[0]

    def _elsewhere(self, run: str, row: Row, span: str) -> bool:
        """A command long enough to be no coincidence, run by a process that does not descend from who asked."""
        if len(run) < _SHORTEST_ELSEWHERE:
            return False
        fitting = [
            one for asker in self._askers.values() for one in asker.open_at(row.at_ns) if run in one.commands
        ]
        if len(fitting) == 1:
            fitting[0].processes += 1
            self._runs[span] = fitting[0].use.id
            self._add(Link(fitting[0].use.id, ELSEWHERE, span=span, status=True))
        return len(fitting) == 1

    def _act(self, row: Row) -> None:
        """A file or a socket: explained by its process, by its path, or by there being no other."""
        path = self._lineage(row.span)
        if self._served(row, path):
            return
        for at, above in enumerate(path):
            if above in self._askers and self._explained(row, above, path[:at]):
                return
            if above in self._by_span:
                self._underline(row, self._by_span[above])
                return  # its process is linked, or one above it
        self._recent.append(row)

    # What MCP servers did

    def _serves(self, row: Row) -> None:
        """A session with a server that is a process of the run: over HTTP the span is the client's."""
        if row.data.get("transport", "stdio") == "stdio" and row.span not in (None, "run"):
            self._servers.setdefault(str(row.span), []).append(word(row.data.get("session")))

    def _served(self, row: Row, path: list[str]) -> bool:
        """Whether an MCP server did it, or a process below it, while it carried out a tool call."""
        found = self.serving(row, path)
        if found is None:
            return False
        use, several = found
        self._add(Link(use.tool_call, SERVED, seq=row.seq, ambiguous=several, call=use.id))
        return True

    def serving(
        self, row: Row, path: list[str] | None = None, *, joined: bool = True
    ) -> tuple[McpUse, bool] | None:
        """The MCP call that a server's process did something for, and whether another one may be meant.

        `joined`: only one that is known to carry out a model's tool call.
        """
        path = self._lineage(row.span) if path is None else path
        above = next((one for one in path if one in self._servers), None)
        if above is None or row.data.get("klass") in _OWN_CLASSES:
            return None
        at_ns = self._moment(row)
        since_ns = at_ns if at_ns == row.at_ns else at_ns - _TICK_NS  # of a file's time the tick is all that is known
        uses = (use for session in self._servers[above] for use in self.mcp.open_at(session, since_ns, at_ns))
        open_ = [use for use in uses if use.tool_call or not joined]
        if not open_:
            return None
        changed = {_clean(to_text(row.data.get(key)), self._cwd) for key in ("path", "target") if row.data.get(key)}
        named = [use for use in open_ if changed and changed & self._paths_of(use)]
        chosen = named or open_
        return chosen[0], len(chosen) > 1

    def _paths_of(self, use: McpUse) -> set[str]:
        named = read(to_text(use.asked.data.get("arguments")))
        return {_clean(path, self._cwd) for path in named.paths}

    def _underline(self, row: Row, link: Link) -> None:
        """A weak link of a process gets a better reason where it changes a file that the arguments name."""
        one = self._known.get(link.tool)
        if link.evidence == ALONE and one is not None and row.kind in FILES:
            found = self._naming([one], row)
            if found is not None:
                self._add(Link(link.tool, found.evidence, seq=row.seq))

    def _explained(self, row: Row, asker: str, below: list[str]) -> bool:
        """Whether a call of this process explains what was done by it, or by one below it."""
        at_ns = self._moment(row)
        open_ = self._askers[asker].open_at(at_ns)
        found = self._naming(open_, row) if row.kind in FILES else None
        if found is not None:
            self._add(Link(found.one.use.id, found.evidence, seq=row.seq, ambiguous=found.ambiguous))
            self._link_helper(found.one, below)
            return True
        if not below:
            # A command is never run by the asking process itself, and a call about files needs no connection of it.
            socket = row.kind in SOCKETS
            open_ = [one for one in open_ if not one.commands and not (socket and one.named.paths)]
        alone = self._alone(open_, row, at_ns)
        if alone is not None:
            self._add(Link(alone.use.id, ALONE, seq=row.seq))
        return alone is not None

    def _moment(self, row: Row) -> int:
        """When something was done: an edit is told once the file is closed and looked at."""
        after = row.data.get("after") if row.kind == "file.edit" else None
        if not isinstance(after, dict) or not self._started_ns or not number(after.get("mtime_ns")):
            return row.at_ns
        at_ns = number(after["mtime_ns"]) - self._started_ns + _TICK_NS
        return at_ns if row.at_ns - _TOLD_LATE_NS < at_ns < row.at_ns else row.at_ns

    def _link_helper(self, one: _Open, path: list[str]) -> None:
        """A process made for the call, which then changed the file, is the tool's, too."""
        top = self._topmost(path, one.use.since_ns) if path else ""
        if top and top in self._processes and self._processes[top].start_ns >= one.use.since_ns:
            one.processes += 1
            self._add(Link(one.use.id, NAMED, span=top))

    def _naming(self, open_: list[_Open], row: Row) -> "_Found | None":
        changed = {_clean(to_text(row.data.get(key)), self._cwd) for key in ("path", "target") if row.data.get(key)}
        fitting: list[_Open] = []
        above: list[_Open] = []
        for one in open_:
            known = self._processes.get(one.use.span)
            cwd = (known.cwd if known is not None else "") or self._cwd
            wanted = {_clean(path, cwd) for path in one.named.paths}
            if changed & wanted or (one.named.free and any(_stands_in(path, cwd, one.named.text) for path in changed)):
                fitting.append(one)
            elif row.kind == "file.directory" and _leads_to(changed, wanted):
                above.append(one)
        writing = [one for one in fitting if one.named.writes]
        for evidence, found in ((NAMED, writing or fitting), (ABOVE, above)):
            if found:
                chosen = min(found, key=lambda one: one.files)
                chosen.files += evidence == NAMED
                return _Found(chosen, evidence, len(found) > 1)
        return None

    def _alone(self, open_: list[_Open], row: Row, at_ns: int) -> _Open | None:
        """The only call that was open, if nothing tells that this is the agent's own doing."""
        if at_ns > self._told_until_ns:
            return None  # what the wire has to say about this moment is still to come
        # A call that started an agent is explained by that agent's calls.
        left = [one for one in open_ if one.use.at_ns <= at_ns and one.use.id not in self._above]
        if len(left) != 1 or left[0].processes or left[0].files or left[0].use.asked.data.get("provider_side"):
            return None
        data = row.data
        if data.get("klass") in _OWN_CLASSES:
            return None
        if row.kind in SOCKETS and (data.get("family") in ("unix", "netlink") or self._is_model_host(row)):
            return None
        return left[0]

    def _is_model_host(self, row: Row) -> bool:
        hosts = self.turns.hosts
        port = number(row.data.get("port"))
        names = (word(row.data.get(key)) for key in ("host", "sni", "asked", "address"))
        return any((name, port) in hosts or (name, 0) in hosts for name in names if name)

    def _lineage(self, span: str | None) -> list[str]:
        """A span and those above it, nearest first, `run` at the end."""
        found: list[str] = []
        while span and span != "run" and len(found) < _DEEPEST:  # a file made by hand may hold a loop
            found.append(span)
            known = self._processes.get(span)
            span = known.parent if known is not None else None
        return [*found, "run"]

    def _add(self, link: Link) -> None:
        if len(self.links) >= _MOST_LINKS:
            return
        self.links.append(link)
        if link.span:
            self._by_span.setdefault(link.span, link)
        else:
            self._by_seq.setdefault(link.seq, link)


class _Found(msgspec.Struct):
    one: _Open
    evidence: str
    ambiguous: bool


def of_recording(source: Rows, meta: Mapping[str, str]) -> Linker:
    """All links of a recording. Reads it twice: what the wire told, then what the kernel told. `meta`: the file's."""
    linker = Linker(*_place(meta), turns_.turns_of(source), mcp_calls.calls_of(source))
    if linker.turns.tools or linker.mcp:
        for row in source.rows(kinds=(*PROCESSES, *FILES, *SOCKETS)):
            linker.feed(row)
    return linker


def following(meta: Mapping[str, str]) -> Linker:
    """For a file that grows."""
    return Linker(*_place(meta))


def _place(meta: Mapping[str, str]) -> tuple[str, int]:
    """Where the command ran, and when it began."""
    told = meta.get("started_unix_ns", "")
    return meta.get("cwd", ""), int(told) if told.isascii() and told.isdigit() and len(told) < 20 else 0


def bared(text: str) -> str:
    """A command without quoting and with single blanks: the same however many shells it was quoted for."""
    return " ".join(text.translate(_QUOTING).split())


def holds(line: str, command: str) -> bool:
    """Whether a command stands in a line as words of its own. Both bare."""
    at = line.find(command)
    for _ in range(50):
        if at < 0:
            return False
        end = at + len(command)
        if not (_in_word(line[at - 1 : at]) and _in_word(command[0])) and not (
            _in_word(line[end : end + 1]) and _in_word(command[-1])
        ):
            return True
        at = line.find(command, at + 1)
    return False


def _in_word(character: str) -> bool:
    return character.isalnum() or character in ("_", "-", "/", ".")


def _equal(one: _Open, run: str, line: str) -> int:
    return max((len(command) for command in one.commands if command in (run, line)), default=0)


def _part(one: _Open, _run: str, line: str) -> int:
    return max((len(command) for command in one.commands if holds(line, command)), default=0)


def _clipped(one: _Open, _run: str, line: str) -> int:
    """As `_part`, for a command whose end was not kept."""
    if not one.use.asked.data.get("omitted_bytes"):
        return 0
    starts = (command[: max(len(command) - 8, 0)] for command in one.commands)
    return max((len(start) for start in starts if len(start) > 200 and start in line), default=0)


def _of_text(one: _Open, run: str, _line: str) -> int:
    return len(run) if not one.commands and len(run) > 3 and holds(bared(one.named.text), run) else 0


_FITS = ((RUNS, _equal), (CONTAINS, _part), (CONTAINS, _clipped), (TEXT, _of_text))


def _words(row: Row) -> list[str]:
    argv = row.data.get("argv")
    return [to_text(item) for item in argv] if isinstance(argv, list) else []


def to_text(value: object) -> str:
    """A foreign field as text."""
    try:
        return to_bytes(value).decode("utf-8", "surrogateescape")
    except ValueError:
        return ""


def _clean(path: str, cwd: str) -> str:
    """A path as the kernel would tell it, symbolic links aside. A path in the home is left with its `~`."""
    return posixpath.normpath(posixpath.join(cwd, path)) if path else ""


def _stands_in(path: str, cwd: str, text: str) -> bool:
    """Whether a path stands in free text, whole or from where the command ran."""
    inner = path.removeprefix(cwd.rstrip("/") + "/")
    return len(inner) > 3 and (holds(text, path) or holds(text, inner))


def _leads_to(folders: set[str], paths: set[str]) -> bool:
    return any(path.startswith(folder + "/") for folder in folders for path in paths)


def _exit(row: Row) -> str:
    if number(row.data.get("signal")):
        return f"signal {number(row.data.get('signal'))}"
    return f"exit {number(row.data.get('status'))}" if row.data.get("status") is not None else ""
