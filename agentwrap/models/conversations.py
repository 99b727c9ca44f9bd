"""Which agent asked, in which turn, and whether it asks again: found from what the requests of a run have in common.

An agent is one conversation. A client may say which one a call belongs to; else what tells is that a request repeats
the messages of an earlier one. Pure; knows facts of requests, no bytes. Memory is bounded: agents long silent are
forgotten, and a call of theirs begins a new one.
"""

from collections import OrderedDict

import msgspec

from agentwrap.events.model import Api, Origin
from agentwrap.models.shape import RequestFacts

_AGENTS_MAX = 512
_TOOLS_MAX = 4096
_RESPONSES_MAX = 64


class Asked(msgspec.Struct, frozen=True):
    """A call to be placed. `span`: the process that asked; `host`: whom; `retries`: how often the client says it tried.

    `key`: the client's own id of the conversation, of a header or of the body.
    """

    facts: RequestFacts
    api: Api
    span: str
    host: bytes
    key: bytes = b""
    retries: int = 0


class Place(msgspec.Struct, frozen=True):
    """Where a call belongs; the fields are those of `model.request`."""

    call: str
    agent: str
    parent: str
    turn: str
    joined: Origin
    attempt: int
    retry_of: str
    repeated: int
    dropped: int


class OpenTool(msgspec.Struct):
    """A tool call without a result so far. `agents`: how many began while it was open, and are taken for its own."""

    tool: str
    id: bytes
    name: bytes
    agents: int = 0


class _Agent(msgspec.Struct):
    id: str
    api: Api
    span: str
    key: bytes
    model: bytes
    tools: int
    parent: str
    identities: tuple[bytes, ...] = ()
    turn: str = ""
    call: str = ""
    first_try: str = ""
    attempt: int = 1
    failed: bool = False
    answered: bool = False
    responses: OrderedDict[bytes, None] = msgspec.field(default_factory=OrderedDict)
    open_tools: OrderedDict[bytes, OpenTool] = msgspec.field(default_factory=OrderedDict)
    known_results: OrderedDict[bytes, None] = msgspec.field(default_factory=OrderedDict)


class Conversations:
    """All agents of a run."""

    def __init__(self) -> None:
        self._agents: OrderedDict[str, _Agent] = OrderedDict()
        self._counts = {"m": 0, "a": 0, "t": 0, "x": 0}

    def _next(self, letter: str) -> str:
        self._counts[letter] += 1
        return f"{letter}{self._counts[letter]}"

    def place(self, asked: Asked) -> Place:
        """Place a call that begins now."""
        identities = tuple(message.identity for message in asked.facts.messages)
        agent, joined = self._find(asked, identities)
        repeated = dropped = 0
        if agent is None:
            agent = self._new(asked)
        else:
            repeated = _common(agent.identities, identities)
            dropped = len(agent.identities) - repeated
            if asked.facts.previous:
                dropped = 0  # the server keeps what is not sent again
        again = agent.failed and identities == agent.identities and bool(agent.call)
        call = self._next("m")
        if not again:
            agent.turn, agent.first_try, agent.attempt = self._next("t"), call, 1 + asked.retries
        else:
            agent.attempt += 1
        agent.identities, agent.call, agent.failed, agent.answered = identities, call, False, False
        agent.model, agent.tools = asked.facts.model, asked.facts.tools
        self._agents.move_to_end(agent.id)
        retry_of = agent.first_try if agent.first_try != call else ""
        return Place(call, agent.id, agent.parent, agent.turn, joined, agent.attempt, retry_of, repeated, dropped)

    def _new(self, asked: Asked) -> _Agent:
        facts = asked.facts
        parent, key = self._parent(asked), asked.key or facts.session
        agent = _Agent(self._next("a"), asked.api, asked.span, key, facts.model, facts.tools, parent)
        self._agents[agent.id] = agent
        if len(self._agents) > _AGENTS_MAX:
            self._agents.popitem(last=False)
        return agent

    def _find(self, asked: Asked, identities: tuple[bytes, ...]) -> tuple[_Agent | None, Origin]:
        facts = asked.facts
        latest_first = [agent for agent in reversed(self._agents.values()) if agent.api == asked.api]
        if facts.previous:
            for agent in latest_first:
                if facts.previous in agent.responses:
                    return agent, "id"
        best: _Agent | None = None
        most = 0
        for agent in latest_first:
            shared = _common(agent.identities, identities)
            if shared > most and _goes_on(agent, asked, identities, shared):
                best, most = agent, shared
        if best is not None:
            return best, "prefix"
        key = asked.key or facts.session
        for agent in latest_first:
            alone = not agent.open_tools and not agent.parent.startswith("x")
            if key and agent.key == key and _same_kind(agent, asked) and alone:
                return agent, "id"  # everything was put in other words: a compaction
        return None, "first"

    def _parent(self, asked: Asked) -> str:
        """What started a new agent: a tool call that is open in the process that asks, else the process."""
        waiting = [
            tool
            for agent in self._agents.values()
            if agent.span == asked.span and agent.api == asked.api
            for tool in agent.open_tools.values()
        ]
        starting = [tool for tool in waiting if _starts_agents(tool.name)]
        if starting and asked.facts.tools:
            chosen = min(starting, key=lambda tool: tool.agents)
            chosen.agents += 1
            return chosen.tool
        return asked.span

    def answered(self, place: Place, response_id: bytes, *, failed: bool) -> None:
        """A call is over."""
        agent = self._agents.get(place.agent)
        if agent is None:
            return
        if agent.call == place.call:
            agent.failed, agent.answered = failed, True
        if response_id:
            _remember(agent.responses, response_id, _RESPONSES_MAX)

    def called(self, place: Place, tool_id: bytes, name: bytes) -> str:
        """The answer asks for a tool: its id in this run."""
        tool = self._next("x")
        agent = self._agents.get(place.agent)
        if agent is not None:
            agent.open_tools[tool_id] = OpenTool(tool, tool_id, name)
            agent.known_results.pop(tool_id, None)
            if len(agent.open_tools) > _TOOLS_MAX:
                agent.open_tools.popitem(last=False)
        return tool

    def resolved(self, place: Place, tool_id: bytes) -> OpenTool | None:
        """A request carries a tool's result: its call (no `tool` if nobody saw it), None if it was told before."""
        agent = self._agents.get(place.agent)
        if agent is None:
            return None
        found = agent.open_tools.pop(tool_id, None)
        if found is None and tool_id in agent.known_results:
            return None
        _remember(agent.known_results, tool_id, _TOOLS_MAX)
        return found or OpenTool("", tool_id, b"")


def _remember(known: "OrderedDict[bytes, None]", one: bytes, most: int) -> None:
    known[one] = None
    if len(known) > most:
        known.popitem(last=False)


def _common(before: tuple[bytes, ...], now: tuple[bytes, ...]) -> int:
    if now[: len(before)] == before:
        return len(before)
    count = 0
    for left, right in zip(before, now, strict=False):
        if left != right:
            break
        count += 1
    return count


def _goes_on(agent: _Agent, asked: Asked, identities: tuple[bytes, ...], shared: int) -> bool:
    """Whether a request that begins like the agent's last one is its next one, not another agent's that began alike."""
    if shared * 2 < len(agent.identities):
        return False  # a client may shorten what it sends, but not to less than half
    if not agent.answered and len(identities) <= len(agent.identities):
        return False  # it waits for its answer: this is somebody beside it
    key = asked.key or asked.facts.session
    if key and agent.key:
        return key == agent.key
    return agent.span == asked.span or shared > 1


def _same_kind(agent: _Agent, asked: Asked) -> bool:
    return agent.model == asked.facts.model and agent.tools == asked.facts.tools and agent.tools > 0


_STARTERS = (b"task", b"agent", b"spawn", b"delegate", b"subagent")


def _starts_agents(name: bytes) -> bool:
    lower = name.lower()
    return any(word in lower for word in _STARTERS)
