"""Requests of MCP sessions and what became of them, as events. Pure, bounded; nothing foreign makes it raise."""

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Literal

from agentwrap.events import Item, McpCall, McpFinding, McpJoined, McpJudged, McpResult, ToolCall
from agentwrap.events.mcp import McpFindingWhat, McpJoin, McpResultEnding
from agentwrap.mcp.asked import Answered, Asked, answered, asked
from agentwrap.mcp.hellos import Hellos
from agentwrap.mcp.joining import Joining
from agentwrap.mcp.listings import Listings, Pinned
from agentwrap.mcp.rpc import ID_BYTES, TEXT_BYTES, Rpc, id_key, read_members
from agentwrap.mcp.state import Call, Key, Session

Arguments = Literal["digest", "redacted", "full"]
"""Only their hash; as they came, with secrets hidden; as they came (so are whole messages)."""

Acting = tuple[bytes, bytes]
"""By the policy: the agent, and for whom it acts."""

OPEN_MAX = 20_000
_LATE: frozenset[McpResultEnding] = frozenset({"cancelled", "denied", "expired", "unanswered"})
_REFUSED: dict[str, McpResultEnding] = {
    "deny": "denied",
    "refused": "denied",
    "expired": "expired",
    "cancelled": "cancelled",
}


class Calls:
    """All calls of a run. `emit` takes what is made, in order."""

    def __init__(self, emit: Callable[[Item], None], pinned: Pinned, arguments: Arguments, acting: Acting) -> None:
        self._emit = emit
        self._kept_bytes = 0 if arguments == "digest" else TEXT_BYTES
        self._unredacted = arguments == "full"
        self._acting = acting
        self._listings = Listings(emit, pinned)
        self._hellos = Hellos(emit)
        self._joining = Joining()
        self._sessions: dict[str, Session] = {}
        """Session of every MCP call that may still be joined."""
        self._count = 0
        self._open: dict[Call, None] = {}

    def place(self, session: Session, rpc: Rpc, up: bool, near: Mapping[Key, Call]) -> Call | None:
        """The call that a message belongs to: a new one, or one that is under way. Nothing is told yet.

        `near`: the calls whose answers come where it came.
        """
        if rpc.sort == "request":
            self._count += 1
            return Call(f"k{self._count}", session, up, rpc.id, rpc.method)
        if rpc.sort == "response":
            found = near.get((not up, id_key(rpc.id)))
            return found if found is not None and found in self._open else session.open_call(not up, rpc.id)
        if rpc.sort == "notification" and rpc.method in (b"notifications/progress", b"notifications/cancelled"):
            params = read_members(rpc.params)
            if rpc.method.endswith(b"progress"):
                return session.tokens.get((not up, id_key(params.get("progressToken", b""))))
            return session.open_call(up, params.get("requestId", b""))
        return None

    def begin(self, call: Call, rpc: Rpc, at_ns: int, judged: McpJudged | None) -> bytes:
        """Tell a new call; returns the tool that it names."""
        session = call.session
        facts = asked(rpc)
        again = call.key in session.open or (session.transport == "stdio" and call.key in session.over)
        call.cursor = facts.cursor
        if facts.token:
            token: Key = (call.up, id_key(facts.token))
            call.token = token
            session.tokens[token] = call
        session.begin(call, facts.tool)
        self._open[call] = None
        tool_call, how = self._join(call, facts)
        self._emit(self._event(call, facts, at_ns, judged, tool_call, how))
        if again:
            self.find("repeated-id", session, at_ns, call, b"its id was used before: " + call.id[:ID_BYTES])
        if call.up:
            self._hellos.asked(call, facts)
        if len(self._open) > OPEN_MAX:
            oldest = next(iter(self._open))
            self._end(oldest, "unanswered", at_ns, error=b"too many calls at once")
        return facts.tool

    def _join(self, call: Call, facts: Asked) -> tuple[str, McpJoin]:
        if call.method != b"tools/call" or not call.up:
            return "", ""
        tool_call, how = self._joining.begun(call.name, call.session.server, facts)
        if not tool_call:
            self._sessions[call.name] = call.session
            if len(self._sessions) > OPEN_MAX:
                del self._sessions[next(iter(self._sessions))]
        return tool_call, how

    def _event(
        self, call: Call, facts: Asked, at_ns: int, judged: McpJudged | None, tool_call: str, how: McpJoin
    ) -> McpCall:
        session = call.session
        arguments = facts.arguments
        return McpCall(
            **session.head(at_ns),
            call=call.name,
            up=call.up,
            method=call.method,
            tool=facts.tool,
            id=call.id[:ID_BYTES],
            modern=facts.modern,
            arguments=arguments[: self._kept_bytes],
            omitted_bytes=max(0, len(arguments) - self._kept_bytes),
            unredacted=self._unredacted,
            digest=sha256(arguments).hexdigest(),
            tool_call=tool_call,
            joined=how,
            retry_of=_retry_of(session, call, facts),
            agent=(judged.agent if judged is not None else b"") or self._acting[0],
            on_behalf_of=(judged.on_behalf_of if judged is not None else b"") or self._acting[1],
        )

    def answer(self, call: Call | None, session: Session, rpc: Rpc, up: bool, at_ns: int, *, ours: bool) -> None:
        """A response came (`up`: from the client), to that call if it is one's."""
        if call is None or call not in self._open:  # within a batch, the member before may have answered it
            if not ours and rpc.id != b"null":
                self._unknown(session, rpc, up, at_ns)
            return
        facts = answered(rpc)
        ending = call.refused or ("denied" if ours else facts.ending)
        if not ours and call.up:
            self._hellos.answered(call, facts, at_ns)
            if call.method == b"tools/list" and facts.ending == "complete":
                self._listings.listed(call, facts, at_ns)
        if ending == "input-required":
            session.asked_for_more.append((call.method, call.tool, facts.state, call.name))
        self._end(call, ending, at_ns, rpc.error or rpc.result, facts)

    def _unknown(self, session: Session, rpc: Rpc, up: bool, at_ns: int) -> None:
        before = session.over.get((not up, id_key(rpc.id)))
        what: McpFindingWhat = "unknown-reply"
        if before is not None:
            what = "late-reply" if before[1] in _LATE else "repeated-reply"
        detail = b"reply to id " + rpc.id[:ID_BYTES]
        self.find(what, session, at_ns, before[0] if before is not None else None, detail)

    def _end(
        self, call: Call, ending: McpResultEnding, at_ns: int, said: bytes = b"", facts: Answered | None = None,
        error: bytes = b"", size: int = 0,
    ) -> None:  # fmt: skip
        session = call.session
        session.end(call, ending)
        self._open.pop(call, None)
        self._emit(
            McpResult(
                **session.head(at_ns),
                call=call.name,
                ending=ending,
                tool=call.tool,
                method=call.method,
                error=facts.error if facts is not None else error,
                size=size or len(said),
                digest=sha256(said).hexdigest() if said else "",
                text=facts.text if facts is not None else b"",
                claimed_ns=facts.claimed_ns if facts is not None else 0,
            )
        )
        self._tell(self._joining.over(call.name), at_ns)

    def answered_at_length(self, call: Call, at_ns: int, size: int, *, failed: bool) -> None:
        """An answer came that was too long to be read: `size` is that of its line."""
        if call in self._open:
            facts = Answered("error" if failed else "complete", {})
            self._end(call, call.refused or facts.ending, at_ns, b"", facts, size=size)

    def cancelled(self, call: Call, at_ns: int) -> None:
        """Whoever asked does not want the answer any more."""
        if call in self._open:
            self._end(call, call.refused or "cancelled", at_ns)

    def unanswered(self, call: Call, at_ns: int, ending: McpResultEnding, error: bytes) -> None:
        """No answer can come any more."""
        if call in self._open:
            self._end(call, call.refused or ending, at_ns, error=error)

    def refuse(self, call: Call, verdict: str) -> None:
        """A call does not go on (or is held, or does now)."""
        call.held = verdict == "hold"
        call.refused = _REFUSED.get(verdict)

    def close(self, session: Session, at_ns: int) -> None:
        """A session is over: what is open stays unanswered."""
        for call in [one for waiting in session.open.values() for one in waiting]:
            self._end(call, call.refused or "unanswered", at_ns)
        session.forget()
        self._hellos.forget(session)
        self._listings.forget(session)

    def find(
        self, what: McpFindingWhat, session: Session, at_ns: int, call: Call | str | None = None, detail: bytes = b""
    ) -> None:
        """Tell a finding."""
        if session.may_find(what):
            name, tool = (call.name, call.tool) if isinstance(call, Call) else (call or "", b"")
            self._emit(McpFinding(**session.head(at_ns), what=what, call=name, tool=tool, detail=detail))

    def called(self, event: ToolCall) -> None:
        """A model asked for a tool."""
        self._tell(self._joining.called(event), event.at_ns)

    def told(self, tool: str, at_ns: int) -> None:
        """A model was told what a tool gave."""
        self._tell(self._joining.told(tool), at_ns)

    def _tell(self, joined: Iterable[tuple[str, str, McpJoin]], at_ns: int) -> None:
        for name, tool_call, how in joined:
            session = self._sessions.pop(name, None)
            if session is not None:
                self._emit(
                    McpJoined(
                        at_ns=at_ns, span=session.span, pid=session.pid, session=session.name,
                        call=name, tool_call=tool_call, joined=how,
                    )
                )  # fmt: skip


def _retry_of(session: Session, call: Call, facts: Asked) -> str:
    """The call that asked for more: the one whose state comes back, else the last one of that tool."""
    if not facts.again:
        return ""
    same = [one for one in session.asked_for_more if one[:2] == (call.method, facts.tool)]
    exact = [one for one in same if one[2] == facts.state]
    return (exact or same or [(b"", b"", b"", "")])[-1][3]
