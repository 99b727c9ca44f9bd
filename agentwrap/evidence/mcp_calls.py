"""MCP sessions and calls of a recording, put together from their rows: what was asked, judged, answered, and of whom.

Fed rows in order it is always as right as what it has seen, so it serves a growing file, too. Knows nothing of
processes (that is `linking`) and takes no body apart.
"""

from bisect import bisect_right
from collections.abc import Iterator

import msgspec

from agentwrap.rows import Row, Rows, number, word

KINDS = (
    *("mcp.session", "mcp.hello", "mcp.call", "mcp.joined", "mcp.result", "mcp.decision", "mcp.tool"),
    *("mcp.finding", "mcp.ended"),
)
# What an agent does for itself to get at tools.
HOUSEKEEPING = frozenset(
    {
        *("initialize", "ping", "server/discover", "logging/setLevel", "roots/list", "completion/complete"),
        *("tools/list", "prompts/list", "resources/list", "resources/templates/list", "subscriptions/listen"),
        *("resources/subscribe", "resources/unsubscribe"),
    }
)
FAILED = ("tool-error", "error", "denied", "expired", "unanswered")
_MOST_CALLS, _MOST_OPEN = 200_000, 256


class McpUse(msgspec.Struct):
    """One request of either side. `decision`: the last one, where a rule spoke."""

    id: str
    session: str
    asked: Row
    tool_call: str = ""
    joined: str = ""
    decision: Row | None = None
    result: Row | None = None

    @property
    def at_ns(self) -> int:
        """When it was asked."""
        return self.asked.at_ns

    @property
    def end_ns(self) -> int | None:
        """When it was over; None while it is not."""
        return None if self.result is None else self.result.at_ns

    @property
    def method(self) -> str:
        """Of JSON-RPC."""
        return word(self.asked.data.get("method"))

    @property
    def up(self) -> bool:
        """Whether the client asked the server."""
        return self.asked.data.get("up") is not False

    @property
    def ending(self) -> str:
        """How it ended, nothing while it has not."""
        return word(self.result.data.get("ending")) if self.result is not None else ""

    @property
    def of_a_tool(self) -> bool:
        """Whether it asks a server for a tool."""
        return self.up and self.method == "tools/call"


class McpTalk(msgspec.Struct):
    """One session. `hello`: the last one; `starts`: when each call began; `tools`: as listed last, by name."""

    id: str
    began: Row
    hello: Row | None = None
    ended: Row | None = None
    calls: list[str] = msgspec.field(default_factory=list)
    starts: list[int] = msgspec.field(default_factory=list)
    tools: dict[str, Row] = msgspec.field(default_factory=dict)
    findings: list[Row] = msgspec.field(default_factory=list)


class McpCalls:
    """What is known so far, by id, each in the order in which it began. `by_tool`: MCP calls of a model's tool call."""

    def __init__(self) -> None:
        self.sessions: dict[str, McpTalk] = {}
        self.calls: dict[str, McpUse] = {}
        self.by_tool: dict[str, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self.sessions or self.calls)

    def follow(self, row: Row) -> None:
        """Take note of a row; of other kinds there is nothing to note."""
        step = _STEPS.get(row.kind)
        if step is not None:
            step(self, row)

    def of_tool(self, tool: str) -> Iterator[McpUse]:
        """The MCP calls that carry out a model's tool call."""
        return (self.calls[call] for call in self.by_tool.get(tool, ()))

    def tool_of(self, row: Row) -> str:
        """The model's tool call that a row of MCP belongs to, or nothing."""
        use = self.calls.get(word(row.data.get("call")))
        return use.tool_call if use is not None else word(row.data.get("tool_call"))

    def open_at(self, session: str, since_ns: int, at_ns: int) -> list[McpUse]:
        """The calls of tools of a session that were under way at some moment between the two."""
        talk = self.sessions.get(session)
        if talk is None:
            return []
        begun = bisect_right(talk.starts, at_ns)
        uses = (self.calls[call] for call in talk.calls[max(0, begun - _MOST_OPEN) : begun])
        return [use for use in uses if use.of_a_tool and (use.end_ns is None or since_ns <= use.end_ns)]

    def _talk(self, row: Row) -> McpTalk | None:
        return self.sessions.get(word(row.data.get("session")))

    def _session(self, row: Row) -> None:
        name = word(row.data.get("session"))
        self.sessions.setdefault(name, McpTalk(name, row))

    def _hello(self, row: Row) -> None:
        if (talk := self._talk(row)) is not None:
            talk.hello = row

    def _ended(self, row: Row) -> None:
        if (talk := self._talk(row)) is not None:
            talk.ended = row

    def _call(self, row: Row) -> None:
        data = row.data
        name = word(data.get("call"))
        if name in self.calls or len(self.calls) >= _MOST_CALLS:
            return
        use = self.calls[name] = McpUse(name, word(data.get("session")), row)
        if (talk := self._talk(row)) is not None:
            talk.calls.append(name)
            talk.starts.append(max(use.at_ns, talk.starts[-1] if talk.starts else 0))
        self._join(use, row)

    def _join(self, use: McpUse, row: Row) -> None:
        tool = word(row.data.get("tool_call"))
        if tool and not use.tool_call:
            use.tool_call, use.joined = tool, word(row.data.get("joined"))
            self.by_tool.setdefault(tool, []).append(use.id)

    def _joined(self, row: Row) -> None:
        use = self.calls.get(word(row.data.get("call")))
        if use is not None:
            self._join(use, row)

    def _decision(self, row: Row) -> None:
        use = self.calls.get(word(row.data.get("call")))
        if use is not None:
            use.decision = row

    def _result(self, row: Row) -> None:
        use = self.calls.get(word(row.data.get("call")))
        if use is not None and use.result is None:
            use.result = row

    def _tool(self, row: Row) -> None:
        talk, name = self._talk(row), str(row.data.get("name"))
        if talk is None:
            return
        if row.data.get("change") == "removed":
            talk.tools.pop(name, None)
        else:
            talk.tools[name] = row

    def _finding(self, row: Row) -> None:
        server = row.data.get("server")
        same = (one for one in reversed(self.sessions.values()) if one.began.data.get("server") == server)
        talk = self._talk(row) or next(same, None)
        if talk is not None:
            talk.findings.append(row)


_STEPS = {
    "mcp.session": McpCalls._session,
    "mcp.hello": McpCalls._hello,
    "mcp.call": McpCalls._call,
    "mcp.joined": McpCalls._joined,
    "mcp.decision": McpCalls._decision,
    "mcp.result": McpCalls._result,
    "mcp.tool": McpCalls._tool,
    "mcp.finding": McpCalls._finding,
    "mcp.ended": McpCalls._ended,
}


def calls_of(source: Rows) -> McpCalls:
    """All of a recording."""
    found = McpCalls()
    for row in source.rows(kinds=KINDS):
        found.follow(row)
    return found


def elapsed_ns(use: McpUse) -> int | None:
    """How long a call took, None while it has not ended."""
    return None if use.end_ns is None else max(use.end_ns - use.at_ns, 0)


def size_of(use: McpUse) -> int:
    """Bytes of the answer."""
    return number(use.result.data.get("size")) if use.result is not None else 0
