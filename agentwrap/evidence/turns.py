"""Model calls, tool calls and agents of a recording, put together from their rows: what was asked, what came of it.

Fed rows in order it is always as right as what it has seen, so it serves a growing file, too. Knows nothing of
processes (that is `linking`) and takes no body apart.
"""

import msgspec

from agentwrap.rows import Row, Rows, number, word

KINDS = ("model.request", "model.response", "tool.call", "tool.result", "http.exchange")
FAILED = ("error", "incomplete", "cancelled", "unread")


class Call(msgspec.Struct):
    """One model call: its request and its answer, either of which may not have been seen."""

    id: str
    agent: str
    turn: str
    request: Row | None = None
    response: Row | None = None

    @property
    def span(self) -> str:
        """The process that asked."""
        row = self.request or self.response
        return (row.span if row is not None else None) or "run"

    @property
    def asked_ns(self) -> int:
        """When the request began."""
        if self.request is not None:
            return self.request.at_ns
        row = self.response
        return 0 if row is None else number(row.data.get("requested_ns")) or row.at_ns

    @property
    def ended_ns(self) -> int | None:
        """When the answer was over; None while it is not."""
        return None if self.response is None else self.response.at_ns

    @property
    def failed(self) -> bool:
        """Whether the answer is none, or not the whole of one."""
        row = self.response
        return row is not None and (row.data.get("ending") in FAILED or number(row.data.get("status")) >= 400)

    @property
    def retry_of(self) -> str:
        """The call that this one tries again, or nothing."""
        return word(self.request.data.get("retry_of")) if self.request is not None else ""


class ToolUse(msgspec.Struct):
    """One tool call: what was asked for and what the agent reported.

    `since_ns`: when the model was asked; `until_ns`: when the agent went on, with or without a result (None: not yet).
    """

    id: str
    call: str
    agent: str
    turn: str
    span: str
    since_ns: int
    asked: Row
    result: Row | None = None
    until_ns: int | None = None

    @property
    def at_ns(self) -> int:
        """When the model asked for it."""
        return self.asked.at_ns

    @property
    def end_ns(self) -> int | None:
        """When the agent told the result; None while it has not."""
        return None if self.result is None else self.result.at_ns


class Agent(msgspec.Struct):
    """One conversation. `parent`: the tool call or the span it was started by."""

    id: str
    parent: str
    span: str
    calls: list[str] = msgspec.field(default_factory=list)
    waiting: list[ToolUse] = msgspec.field(default_factory=list)


class Turns:
    """What is known so far, by id, each in the order in which it began."""

    def __init__(self) -> None:
        self.calls: dict[str, Call] = {}
        self.tools: dict[str, ToolUse] = {}
        self.agents: dict[str, Agent] = {}
        self.hosts: set[tuple[str, int]] = set()

    def __bool__(self) -> bool:
        return bool(self.calls)

    def follow(self, row: Row) -> None:
        """Take note of a row; of other kinds there is nothing to note."""
        step = _STEPS.get(row.kind)
        if step is not None:
            step(self, row)

    def call_of(self, name: str) -> Call | None:
        """A call by its id, by its turn (the last attempt), or by its number alone."""
        if name in self.calls:
            return self.calls[name]
        if name.isascii() and name.isdigit():
            return self.calls.get(f"m{name}")
        return next((call for call in reversed(self.calls.values()) if call.turn == name), None)

    def before(self, call: Call) -> Call | None:
        """The same agent's call before, leaving out earlier attempts of this one."""
        agent = self.agents.get(call.agent)
        known = agent.calls if agent is not None else []
        earlier = known[: known.index(call.id)] if call.id in known else []
        return next((self.calls[one] for one in reversed(earlier) if self.calls[one].turn != call.turn), None)

    def attempts(self, call: Call) -> list[Call]:
        """Every attempt of what this call is one of, in order."""
        first = call.retry_of or call.id
        return [one for one in self.calls.values() if first in (one.id, one.retry_of)]

    def tools_of(self, call: Call) -> list[ToolUse]:
        """The tool calls of an answer."""
        return [tool for tool in self.tools.values() if tool.call == call.id]

    def depth(self, agent: str) -> int:
        """How many agents stand above this one: 0 for one that no tool call started."""
        above, seen = 0, {agent}
        while (started := self.tools.get(self.agents[agent].parent if agent in self.agents else "")) is not None:
            agent = started.agent
            if agent in seen:
                break  # a file made by hand may hold a loop
            seen.add(agent)
            above += 1
        return above

    def _call(self, row: Row) -> Call:
        data = row.data
        call = word(data.get("call"))
        known = self.calls.get(call)
        if known is None:
            agent = word(data.get("agent"))
            known = self.calls[call] = Call(call, agent, word(data.get("turn")))
            parent = word(data.get("agent_parent")) or "run"
            self.agents.setdefault(agent, Agent(agent, parent, row.span or "run")).calls.append(call)
        return known

    def _request(self, row: Row) -> None:
        call = self._call(row)
        call.request = row
        self._host(row)
        # Every API wants the results of all calls in the next request: what is open after it never comes.
        waiting = self.agents[call.agent].waiting
        for tool in waiting:
            tool.until_ns = row.at_ns if tool.turn != call.turn and tool.until_ns is None else tool.until_ns
        waiting[:] = [tool for tool in waiting if tool.until_ns is None]

    def _response(self, row: Row) -> None:
        self._call(row).response = row

    def _tool(self, row: Row) -> None:
        data = row.data
        tool, call = word(data.get("tool")), self.calls.get(word(data.get("call")))
        span, since_ns = (row.span or "run", row.at_ns) if call is None else (call.span, call.asked_ns)
        agent, turn = word(data.get("agent")), word(data.get("turn"))
        if tool not in self.tools:
            use = self.tools[tool] = ToolUse(tool, word(data.get("call")), agent, turn, span, since_ns, row)
            if agent in self.agents:
                self.agents[agent].waiting.append(use)

    def _result(self, row: Row) -> None:
        tool = self.tools.get(word(row.data.get("tool")))
        if tool is not None and tool.result is None:
            tool.result, tool.until_ns = row, row.at_ns

    def _host(self, row: Row) -> None:
        if len(self.hosts) < 1000:
            self.hosts.add((word(row.data.get("host")), number(row.data.get("port"))))


_STEPS = {
    "model.request": Turns._request,
    "model.response": Turns._response,
    "tool.call": Turns._tool,
    "tool.result": Turns._result,
    "http.exchange": Turns._host,
}


def turns_of(source: Rows) -> Turns:
    """All of a recording."""
    turns = Turns()
    for row in source.rows(kinds=KINDS):
        turns.follow(row)
    return turns
