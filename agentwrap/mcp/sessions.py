"""Sessions as events, whatever carries them: whoever has whole messages of a session puts them in here. Pure.

The order of a session's rows is the order of these calls. Nothing foreign makes it raise; memory is bounded.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

from agentwrap.events import (
    Body,
    Content,
    Gap,
    Item,
    McpDecision,
    McpEnded,
    McpJudged,
    McpMessage,
    McpSession,
    ToolCall,
    ToolResult,
)
from agentwrap.events.egress import Decision
from agentwrap.events.mcp import McpHow, McpResultEnding, McpSessionEnding, McpTransport
from agentwrap.mcp.calls import Acting, Arguments, Calls
from agentwrap.mcp.joining import plain
from agentwrap.mcp.listings import Pinned, unpinned
from agentwrap.mcp.rpc import ID_BYTES, Rpc, read, read_ends
from agentwrap.mcp.state import Call, Session, Told
from agentwrap.models.bodies import whole

__all__ = ["Acting", "Arguments", "Session", "Sessions", "Told"]

_TAKE_ARGUMENTS = (b"tools/call", b"prompts/get")
_DECISIONS: dict[str, Decision] = {
    "allow": "allow",
    "approved": "allow",
    "would-deny": "would-deny",
    "deny": "deny",
    "refused": "deny",
    "expired": "deny",
    "cancelled": "deny",
}
_STOPPED = frozenset({"deny", "hold", "cancelled"})
_PIECE = Rpc("invalid")
_UNRELAYED_MAX = 100
_NAMES_A_SERVER = re.compile(rb"mcp__(.+?)(?:__|\.).", re.DOTALL)  # Claude Code's way, and Codex's


class Sessions:
    """All sessions of a run. `emit` takes what is made, in order. `arguments`: what is told of those of calls."""

    def __init__(
        self,
        emit: Callable[[Item], None],
        pinned: Pinned = unpinned,
        arguments: Arguments = "redacted",
        acting: Acting = (b"", b""),
    ) -> None:
        self._emit = emit
        self._arguments = arguments
        self._calls = Calls(emit, pinned, arguments, acting)
        self._count = 0
        self._open: dict[Session, None] = {}
        self._servers: set[bytes] = set()
        self._named: dict[bytes, ToolCall] = {}

    def open(
        self,
        *,
        at_ns: int,
        server: bytes,
        span: str = "run",
        pid: int = 0,
        transport: McpTransport = "stdio",
        how: McpHow = "config",
        config: bytes = b"",
        command: tuple[bytes, ...] = (),
        url: bytes = b"",
    ) -> Session:
        """A session begins; fields as in `mcp.session`."""
        self._count += 1
        session = Session(f"s{self._count}", server, span, pid, transport)
        self._open[session] = None
        self._servers.add(plain(server))
        self._emit(
            McpSession(
                **session.head(at_ns),
                transport=transport,
                how=how,
                config=config,
                command=command,
                url=url,
            )
        )
        return session

    def message(
        self,
        session: Session,
        at_ns: int,
        up: bool,
        data: bytes,
        *,
        exchange: str = "",
        judged: Sequence[McpJudged] = (),
        of: Told | None = None,
        piece: int = 0,
    ) -> Told:
        """A whole message of one side, without its frame. `at_ns`: its last byte.

        `judged`: what is known of it by now, later verdicts go to `judged`. `of`: the request's message on whose
        response it came (HTTP), whose calls it answers first. `piece`: of a line too long to be read.
        """
        return self._message(session, at_ns, up, data, exchange, judged, of, piece, ours=False)

    def said(
        self, session: Session, at_ns: int, up: bool, data: bytes, *, exchange: str = "", of: Told | None = None
    ) -> None:
        """Something that agentwrap itself said to one side."""
        self._message(session, at_ns, up, data, exchange, (), of, 0, ours=True)

    def _message(
        self, session: Session, at_ns: int, up: bool, data: bytes, exchange: str, judged: Sequence[McpJudged],
        of: Told | None, piece: int, *, ours: bool,
    ) -> Told:  # fmt: skip
        session.messages += 1
        rpc = _PIECE if piece else read(data)
        parts = rpc.parts if rpc.sort == "batch" else (rpc,)
        # Of two calls with one id the first is answered first.
        near = {call.key: call for call in reversed(of.calls) if call is not None} if of is not None else {}
        told = Told(up)
        told.calls = [self._calls.place(session, part, up, near) for part in parts]
        first = told.calls[0] if told.calls and rpc.sort != "batch" else None
        self._emit(
            McpMessage(
                at_ns=at_ns,
                span=session.span,
                pid=session.pid,
                session=session.name,
                number=session.messages,
                up=up,
                sort=rpc.sort,
                method=rpc.method,
                id=rpc.id[:ID_BYTES],
                call=first.name if first is not None else "",
                ours=ours,
                passed=ours or not any(one.verdict in _STOPPED for one in judged),
                exchange=exchange,
                piece=piece,
                body=self._body(rpc, data),
            )
        )
        self._notice(session, rpc, data, at_ns, piece)
        self._steps(session, rpc, told, at_ns, judged, ours=ours)
        return told

    def _steps(
        self, session: Session, rpc: Rpc, told: Told, at_ns: int, judged: Sequence[McpJudged], *, ours: bool
    ) -> None:
        """What a message means for the calls of its parts, and what was judged about them."""
        parts = rpc.parts if rpc.sort == "batch" else (rpc,)
        verdicts = {one.part: one for one in judged}
        for one in judged if rpc.sort != "request" else ():
            # An answer that does not go on is none to whoever asked.
            if one.part < len(parts) and parts[one.part].sort == "response":
                self._refuse(told, one)
        for at, (part, call) in enumerate(zip(parts, told.calls, strict=True)):
            tool = self._step(session, part, call, told.up, at_ns, verdicts.get(at), ours=ours)
            told.methods.append(part.method)
            told.tools.append(tool)
        for one in judged:
            self.judged(session, told, one)

    def _body(self, rpc: Rpc, data: bytes) -> Body:
        if self._arguments == "digest" and any(one.method in _TAKE_ARGUMENTS for one in (rpc, *rpc.parts)):
            return Body(len(data), (), "not-kept")
        if self._arguments == "full" and data:
            digest = sha256(data).digest()
            self._emit(Content(digest, data, "body", plain=True))
            return Body(len(data), (digest,))
        return whole(data, self._emit)

    def _step(
        self, session: Session, rpc: Rpc, call: Call | None, up: bool, at_ns: int, judged: McpJudged | None, *,
        ours: bool,
    ) -> bytes:  # fmt: skip
        """What one message means for its call; returns the tool that it names."""
        if rpc.sort == "response":
            self._calls.answer(call, session, rpc, up, at_ns, ours=ours)
        elif call is not None and rpc.sort == "request":
            return self._calls.begin(call, rpc, at_ns, judged)
        elif call is not None and rpc.method == b"notifications/cancelled":
            self._calls.cancelled(call, at_ns)
        return b""

    def _notice(self, session: Session, rpc: Rpc, data: bytes, at_ns: int, piece: int) -> None:
        side = data[:200]
        if piece:
            if piece == 1:
                self._calls.find("too-long", session, at_ns, detail=b"kept in pieces, and read no further")
        elif rpc.sort == "invalid" and data.strip():
            if session.may_find("not-mcp" if rpc.json else "not-json", 1):
                session.found["not-mcp" if rpc.json else "not-json"] -= 1
                self._calls.find("not-mcp" if rpc.json else "not-json", session, at_ns, detail=side)
        elif rpc.odd:
            self._calls.find("ambiguous-json", session, at_ns, detail=rpc.odd.encode())

    def judged(self, session: Session, told: Told, news: McpJudged) -> None:
        """A verdict about a message that was told: also the end of a hold."""
        call = self._refuse(told, news)
        decision = _DECISIONS.get(news.verdict)
        if decision is None or (news.verdict == "cancelled" and b"notifications/cancelled" in told.methods):
            return  # a cancellation that does not go on, for what it cancels did not either
        place = news.part < len(told.methods)
        self._emit(
            McpDecision(
                **session.head(news.at_ns),
                decision=decision,
                by="guard" if session.transport == "stdio" else "wall",
                rule=news.rule,
                why=news.why,
                change=news.change,
                call=call.name if call is not None else "",
                up=news.up,
                method=news.method or (told.methods[news.part] if place else b""),
                tool=news.tool or (told.tools[news.part] if place else b""),
                digest=news.digest,
                ask=news.ask,
                agent=news.agent,
                on_behalf_of=news.on_behalf_of,
            )
        )

    def _refuse(self, told: Told, news: McpJudged) -> Call | None:
        call = told.calls[news.part] if news.part < len(told.calls) else None
        if call is not None:
            self._calls.refuse(call, news.verdict)
        return call

    def long_answer(self, session: Session, at_ns: int, up: bool, head: bytes, tail: bytes, size: int) -> None:
        """A line that was told in pieces is over. Where its ends say which call it answers, that is answered.

        `head`, `tail`: its first and last KB; `size`: bytes of all of it.
        """
        rpc = read_ends(head, tail)
        call = self._calls.place(session, rpc, up, {}) if rpc is not None else None
        if call is not None:
            self._calls.answered_at_length(call, at_ns, size, failed=bool(rpc and rpc.error))

    def gone(self, told: Told, at_ns: int, ending: McpResultEnding = "unanswered", error: bytes = b"") -> None:
        """No answer to a message's calls can come any more (HTTP: its response is over)."""
        for call in told.calls:
            if call is not None and call.up is told.up:
                self._calls.unanswered(call, at_ns, ending, error)

    def count(self, session: Session, up: bool, size: int) -> None:
        """So many bytes of one side came, frames included."""
        if up:
            session.up_bytes += size
        else:
            session.down_bytes += size

    def close(self, session: Session, at_ns: int, ending: McpSessionEnding, detail: bytes = b"") -> None:
        """The session is over."""
        if self._open.pop(session, self) is self:
            return
        self._calls.close(session, at_ns)
        self._emit(
            McpEnded(
                **session.head(at_ns),
                ending=ending,
                messages=session.messages,
                up_bytes=session.up_bytes,
                down_bytes=session.down_bytes,
                detail=detail,
            )
        )

    def see(self, items: Iterable[Item]) -> None:
        """What else the run tells."""
        for item in items:
            match item:
                case ToolCall():
                    self._name(item)
                    self._calls.called(item)
                case ToolResult():
                    self._calls.told(item.tool, item.at_ns)
                case _:
                    pass

    def _name(self, event: ToolCall) -> None:
        found = _NAMES_A_SERVER.match(event.name)
        if found is not None and not event.provider_side and len(self._named) < _UNRELAYED_MAX:
            self._named.setdefault(found[1], event)

    def finish(self, at_ns: int, *, lost: bool = False) -> None:
        """Nothing more will come. `lost`: who told the news died."""
        for session in list(self._open):
            self.close(session, at_ns, "lost" if lost else "run-ended")
        for server, event in self._named.items():
            if any(plain(event.name).startswith(b"mcp_" + known + b"_") for known in self._servers):
                continue
            self._emit(
                Gap(
                    at_ns=at_ns,
                    span=event.span,
                    pid=event.pid,
                    what="mcp-stdio",
                    cause="unrelayed-mcp",
                    could_hide="what the agent and this MCP server said to each other",
                    from_ns=event.at_ns,
                    detail=server,
                )
            )
        self._named.clear()
