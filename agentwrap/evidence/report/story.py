"""All that a recording tells of one MCP call, brought together: who asked, what was decided, what passed, how it ended.

Pure. The rows of one call come one after the other; what is kept of them is bounded.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from agentwrap.evidence.report.controls import Test
from agentwrap.evidence.report.fields import flag, number, raw, shown, text, word
from agentwrap.evidence.report.said import Said, said
from agentwrap.rows import Row

KINDS = ("mcp.call", "mcp.decision", "mcp.result", "mcp.message")
_MOST_ROWS = 64
_MOST_BATCHED, _MOST_BATCHED_BYTES = 100_000, 64 << 20
LISTING = "tools/list"
ANSWERED = frozenset({"complete", "tool-error", "error", "input-required"})

Body = Callable[[Row], bytes | None]
"""The bytes of a message row as they came; None where they were not kept as they came."""


class Message(msgspec.Struct, frozen=True):
    """A message row. `said`: what its bytes say, None where they were not kept as they came, or say nothing."""

    seq: int
    at_ns: int
    passed: bool
    ours: bool
    up: bool
    id: bytes
    kept: bool
    said: Said | None = None
    body: bytes = b""


class Decision(msgspec.Struct, frozen=True):
    """A decision row."""

    seq: int
    at_ns: int
    decision: str
    server: bytes
    tool: str
    method: str
    digest: str
    ask: str
    rule: str
    agent: str
    on_behalf_of: str


class Called(msgspec.Struct, frozen=True):
    """A call row: what the recorder made of the request."""

    seq: int
    span: str
    server: bytes
    up: bool
    method: str
    tool: str
    id: bytes
    digest: str
    agent: str
    on_behalf_of: str


class Story(msgspec.Struct):
    """One call; without a name, a request that no call row tells of.

    `listing`: the answer to `tools/list`. `of_session`: the server that its session is with. `more`: it has more rows
    of a kind than were kept.
    """

    call: str
    session: str = ""
    called: list[Called] = []
    requests: list[Message] = []
    responses: list[Message] = []
    decisions: list[Decision] = []
    results: list[tuple[int, str]] = []
    listing: bytes = b""
    of_session: bytes = b""
    more: bool = False

    def limit(self, test: Test) -> None:
        """Say what keeps a test of it from being one of everything."""
        if self.more:
            test.unclear("it has more rows than were looked at", *self.rows, about=self.name)

    @property
    def rows(self) -> tuple[int, ...]:
        """The row that stands for the call."""
        first = [one.seq for one in self.called[:1]] or [one.seq for one in self.requests[:1]]
        return tuple(first or [one.seq for one in self.decisions[:1]] or [seq for seq, _ in self.results[:1]])

    @property
    def _row(self) -> Called | Decision | None:
        if self.called:
            return self.called[0]
        return self.decisions[0] if self.decisions else None

    @property
    def name(self) -> str:
        """What it calls: `server tool`."""
        row = self._row
        if row is not None:
            return f"{shown(row.server)} {row.tool or row.method}"
        told = next((one.said for one in self.requests if one.said), None)
        return f"{shown(self.of_session)} {told.tool or told.method}" if told else self.call

    @property
    def server(self) -> bytes:
        """Its server's name."""
        row = self._row
        return row.server if row is not None else self.of_session

    @property
    def up(self) -> bool:
        """Whether the client asks."""
        return self.called[0].up if self.called else self.requests[0].up if self.requests else True

    @property
    def method(self) -> str:
        """What is asked, by the request's bytes, or its row."""
        request = self.request
        if request is not None and request.said is not None:
            return request.said.method
        return self.called[0].method if self.called else ""

    @property
    def request(self) -> Message | None:
        """The request."""
        return self.requests[0] if self.requests else None

    @property
    def forwarded(self) -> bool | None:
        """Whether it went on to the other side; None where no message tells."""
        return any(one.passed for one in self.requests) if self.requests else None

    @property
    def denied(self) -> Decision | None:
        """The decision that refused it."""
        return next((one for one in self.decisions if one.decision == "deny"), None)

    @property
    def held_until(self) -> Decision | None:
        """The decision that ended a hold with yes."""
        return next((one for one in self.decisions if one.ask and one.decision == "allow"), None)


class Batches:
    """Members of batches: they have no rows of their own, and are found by their id."""

    def __init__(self) -> None:
        self._members: dict[tuple[str, bool, bytes], list[Message]] = {}
        self._count = self._bytes = 0
        self.more = False

    def take(self, session: str, batch: Message, members: Iterable[Said]) -> None:
        """A batch and what its members say."""
        members = [one for one in members if one.id]
        self._count += len(members)
        self._bytes += len(batch.body) if members else 0
        if self._count > _MOST_BATCHED or self._bytes > _MOST_BATCHED_BYTES:
            self.more = True
            return
        for one in members:
            told = msgspec.structs.replace(batch, said=one, id=one.id)
            self._members.setdefault((session, batch.up, one.id), []).append(told)

    def of(self, story: Story) -> None:
        """Give a story the messages that were members of batches."""
        for called in story.called[:1]:
            if not story.requests:
                found = self._members.get((story.session, called.up, called.id), [])
                asking = next((one for one in found if one.said and one.said.is_call), None)
                if asking is not None:
                    found.remove(asking)
                    story.requests.append(asking)
            if not story.responses:
                found = self._members.get((story.session, not called.up, called.id), [])
                story.responses += [one for one in found if one.said and not one.said.method][:1]

    def left(self) -> Iterator[tuple[str, Message]]:
        """Requests among them that belong to no call, with their session."""
        for (session, _, _), members in self._members.items():
            yield from ((session, one) for one in members if one.said and one.said.is_call and one.passed)


def stories(rows: Iterable[Row], body: Body, servers: Mapping[str, bytes] | None = None) -> Iterator[Story]:
    """The calls, one by one; also requests of which no call row tells.

    `rows`: of KINDS, in the order of their `call`, those without one first. `servers`: by session.
    """
    servers = servers or {}
    batches = Batches()
    story: Story | None = None
    for row in rows:
        call = word(row.data, "call")
        if not call:
            yield from _loose(row, body, batches, servers)
            continue
        if story is None or story.call != call:
            if story is not None:
                batches.of(story)
                yield story
            story = Story(call)
        _take(story, row, body)
    if story is not None:
        batches.of(story)
        yield story
    if batches.more:
        yield Story("", more=True)
    for session, message in batches.left():
        yield Story("", session, requests=[message], of_session=servers.get(session, b""))


def _loose(row: Row, body: Body, batches: Batches, servers: Mapping[str, bytes]) -> Iterator[Story]:
    """A message that belongs to no call: whatever its row calls it, its bytes say whether it is a request."""
    if row.kind != "mcp.message" or number(row.data, "piece") > 1:
        return
    message = _message(row, kept=True, told=None, body=b"")
    bytes_ = body(row) if not message.ours else None
    members = said(bytes_) if bytes_ is not None else None
    if bytes_ is None or not members:
        return
    session = word(row.data, "session")
    message = msgspec.structs.replace(message, body=bytes_)
    if bytes_.lstrip(b" \t\r\n")[:1] == b"[":
        batches.take(session, message, members)
    elif members[0].is_call and message.passed:
        asked = msgspec.structs.replace(message, said=members[0], id=members[0].id)
        yield Story("", session, requests=[asked], of_session=servers.get(session, b""))


def _message(row: Row, *, kept: bool, told: Said | None, body: bytes) -> Message:
    data = row.data
    return Message(row.seq, row.at_ns, flag(data, "passed", otherwise=True), flag(data, "ours"), flag(data, "up"),
                   raw(data, "id"), kept, told, body)  # fmt: skip


def _take(story: Story, row: Row, body: Body) -> None:
    data = row.data
    story.session = story.session or word(data, "session")
    if row.kind == "mcp.message":
        _take_message(story, row, body)
    elif row.kind == "mcp.call":
        story.called.append(Called(
            row.seq, row.span, raw(data, "server"), flag(data, "up", otherwise=True), text(data, "method"),
            text(data, "tool"), raw(data, "id"), word(data, "digest"), text(data, "agent"), text(data, "on_behalf_of"),
        ))  # fmt: skip
    elif row.kind == "mcp.decision":
        story.decisions.append(Decision(
            row.seq, row.at_ns, word(data, "decision"), raw(data, "server"), text(data, "tool"), text(data, "method"),
            word(data, "digest"), word(data, "ask"), text(data, "rule"), text(data, "agent"),
            text(data, "on_behalf_of"),
        ))  # fmt: skip
    elif row.kind == "mcp.result":
        story.results.append((row.seq, word(data, "ending")))
    for kept in (story.called, story.requests, story.responses, story.decisions, story.results):
        if len(kept) > _MOST_ROWS:
            kept.pop()
            story.more = True


def _take_message(story: Story, row: Row, body: Body) -> None:
    sort = word(row.data, "sort")
    if sort not in ("request", "response") or number(row.data, "piece") > 1:
        return
    bytes_ = body(row)
    members = said(bytes_) if bytes_ is not None else None
    told = members[0] if members and len(members) == 1 else None
    kept = bytes_ is not None
    if sort == "request":
        story.requests.append(_message(row, kept=kept, told=told, body=bytes_ or b""))
    else:
        story.responses.append(_message(row, kept=kept, told=told, body=b""))
        if bytes_ and story.method == LISTING and not flag(row.data, "ours"):
            story.listing = bytes_
