"""Tools as servers list them: what is new, changed, gone, or has the name of another server's tool. Pure, bounded."""

from collections.abc import Callable

from agentwrap.events import Item, McpFinding, McpTool
from agentwrap.events.mcp import McpFindingWhat
from agentwrap.mcp.asked import Answered
from agentwrap.mcp.normal_form import tool_digest
from agentwrap.mcp.rpc import TEXT_BYTES, read_members, string
from agentwrap.mcp.state import Call, Session
from agentwrap.models.bodies import whole
from agentwrap.models.json_slices import elements

KNOWN_MAX = 50_000
_NAME_BYTES = 256

Pinned = Callable[[bytes, bytes], str]
"""The digest that the policy holds a server's tool to, empty if it does not."""


def unpinned(_server: bytes, _tool: bytes) -> str:
    """No policy."""
    return ""


class _Listing:
    """A listing that comes page by page."""

    __slots__ = ("cursor", "names", "whole")

    def __init__(self) -> None:
        self.names: set[bytes] = set()
        self.cursor = b""
        self.whole = True


class Listings:
    """What every server of the run has listed."""

    def __init__(self, emit: Callable[[Item], None], pinned: Pinned = unpinned) -> None:
        self._emit = emit
        self._pinned = pinned
        self._known: dict[bytes, dict[bytes, str]] = {}
        self._gone: dict[bytes, set[bytes]] = {}
        self._count = 0
        self._servers: dict[bytes, dict[bytes, None]] = {}
        self._shadowed: set[tuple[bytes, bytes, bytes]] = set()
        self._under_way: dict[Session, _Listing] = {}

    def listed(self, call: Call, answer: Answered, at_ns: int) -> None:
        """A page of a listing."""
        session = call.session
        listing = self._under_way.get(session)
        if not call.cursor:
            listing = self._under_way[session] = _Listing()
        elif listing is None or listing.cursor != call.cursor:
            listing = self._under_way[session] = _Listing()
            listing.whole = False
        tools = answer.members.get("tools", b"")
        places = elements(tools) if tools[:1] == b"[" else None
        if places is None:
            listing.whole = False
        for start, end in places or ():
            self._tool(session, listing, tools[start:end], at_ns)
        listing.cursor = answer.members.get("nextCursor", b"")
        if not string(listing.cursor):
            del self._under_way[session]
            if listing.whole:
                self._removed(session, listing.names, at_ns)

    def forget(self, session: Session) -> None:
        """The session is over; what its server listed stays known."""
        self._under_way.pop(session, None)

    def _tool(self, session: Session, listing: _Listing, definition: bytes, at_ns: int) -> None:
        held = read_members(definition)
        name = string(held.get("name", b""))[:_NAME_BYTES]
        if not name:
            return
        known = self._known.setdefault(session.server, {})
        digest = tool_digest(definition)
        before = known.get(name, "")
        listing.names.add(name)
        self._gone.get(session.server, set()).discard(name)
        if before or self._count < KNOWN_MAX:
            self._count += not before
            known[name] = digest
        shadows = self._shadows(session.server, name)
        self._emit(
            McpTool(
                **session.head(at_ns),
                name=name,
                digest=digest,
                change="new" if not before else "same" if before == digest else "changed",
                before=before if before != digest else "",
                pinned=self._pinned(session.server, name),
                shadows=shadows,
                description=string(held.get("description", b""))[:TEXT_BYTES],
                definition=whole(definition, self._emit),
            )
        )
        if before and before != digest:
            self._find("tool-changed", session, name, b"listed before with another description or schema", at_ns)
        elif (pinned := self._pinned(session.server, name)) and digest not in (pinned, before):
            self._find("tool-changed", session, name, b"listed as another one than the policy holds it to", at_ns)
        if shadows and (session.server, name, shadows) not in self._shadowed and len(self._shadowed) < KNOWN_MAX:
            self._shadowed.update({(session.server, name, shadows), (shadows, name, session.server)})
            self._find("tool-shadowed", session, name, shadows + b" has a tool of that name, too", at_ns)

    def _shadows(self, server: bytes, name: bytes) -> bytes:
        servers = self._servers.setdefault(name, {}) if len(self._servers) < KNOWN_MAX else self._servers.get(name, {})
        other = next((one for one in servers if one != server), b"")
        if len(servers) < KNOWN_MAX // 1000:
            servers[server] = None
        return other

    def _removed(self, session: Session, names: set[bytes], at_ns: int) -> None:
        gone = self._gone.setdefault(session.server, set())
        for name, before in self._known.get(session.server, {}).items():
            if name in names or name in gone:
                continue
            gone.add(name)  # and what it was is known: it may come back as something else
            pinned = self._pinned(session.server, name)
            head = session.head(at_ns)
            self._emit(McpTool(**head, name=name, digest=before, change="removed", before=before, pinned=pinned))

    def _find(self, what: McpFindingWhat, session: Session, tool: bytes, detail: bytes, at_ns: int) -> None:
        if session.may_find(what):
            self._emit(McpFinding(**session.head(at_ns), what=what, tool=tool, detail=detail))
