"""What is remembered of a session and of its calls while they go on. Pure state, bounded; no meaning."""

from collections import OrderedDict, deque
from typing import TypedDict

from agentwrap.events.mcp import McpFindingWhat, McpResultEnding, McpTransport
from agentwrap.mcp.rpc import id_key, id_value

Key = tuple[bool, bytes]
"""Direction of the request (up) and its id."""

_OVER_MAX = 1024
_ASKED_FOR_MORE_MAX = 64
FINDINGS_MAX = 50


class Call:
    """A request under way. `refused`: it does not go on, and with what its answer is told."""

    __slots__ = (
        "cursor", "held", "id", "key", "method", "name", "refused", "session", "token", "tool", "up",
    )  # fmt: skip

    def __init__(self, name: str, session: "Session", up: bool, raw_id: bytes, method: bytes) -> None:
        self.name = name
        self.session = session
        self.up = up
        self.id = raw_id
        self.key: Key = (up, id_key(raw_id))
        self.method = method
        self.token: Key | None = None
        self.cursor = b""
        self.tool = b""
        self.held = False
        self.refused: McpResultEnding | None = None


class Told:
    """A message that was told, for verdicts that come later. `calls`: of each of its parts."""

    __slots__ = ("calls", "methods", "tools", "up")

    def __init__(self, up: bool) -> None:
        self.up = up
        self.calls: list[Call | None] = []
        self.methods: list[bytes] = []
        self.tools: list[bytes] = []


class Head(TypedDict):
    """Fields that every event of a session has."""

    at_ns: int
    span: str
    pid: int
    session: str
    server: bytes


class Session:
    """One session. `name`: its id, `s1`."""

    def __init__(self, name: str, server: bytes, span: str, pid: int, transport: McpTransport) -> None:
        self.name = name
        self.server = server
        self.span = span
        self.pid = pid
        self.transport = transport
        self.messages = 0
        self.up_bytes = 0
        self.down_bytes = 0
        self.open: dict[Key, list[Call]] = {}
        self.tokens: dict[Key, Call] = {}
        self.over: OrderedDict[Key, tuple[str, McpResultEnding]] = OrderedDict()
        self.asked_for_more: deque[tuple[bytes, bytes, bytes, str]] = deque(maxlen=_ASKED_FOR_MORE_MAX)
        self.found: dict[McpFindingWhat, int] = {}
        self.closed = False

    def head(self, at_ns: int) -> Head:
        """What an event of it begins with."""
        return Head(at_ns=at_ns, span=self.span, pid=self.pid, session=self.name, server=self.server)

    def begin(self, call: Call, tool: bytes) -> None:
        """A call is under way."""
        self.open.setdefault(call.key, []).append(call)
        call.tool = tool

    def open_call(self, up: bool, raw_id: bytes) -> Call | None:
        """The open call of a direction with that id: the same text, else the same number."""
        waiting = self.open.get((up, id_key(raw_id)))
        if waiting:
            return waiting[0]
        number = id_value(raw_id)
        if number is None:
            return None
        same = (calls[0] for (way, key), calls in self.open.items() if way is up and id_value(key) == number)
        return next(same, None)

    def end(self, call: Call, ending: McpResultEnding) -> None:
        """A call is over; a second answer to it is known as such for a while."""
        waiting = self.open.get(call.key)
        if waiting and call in waiting:
            waiting.remove(call)
            if not waiting:
                del self.open[call.key]
        if call.token is not None and self.tokens.get(call.token) is call:
            del self.tokens[call.token]
        self.over[call.key] = (call.name, ending)
        self.over.move_to_end(call.key)
        if len(self.over) > _OVER_MAX:
            self.over.popitem(last=False)

    def forget(self) -> None:
        """It is over: a call of it may still be joined, nothing else will be asked."""
        self.open.clear()
        self.tokens.clear()
        self.over.clear()
        self.asked_for_more.clear()

    def may_find(self, what: McpFindingWhat, most: int = FINDINGS_MAX) -> bool:
        """Whether a finding of that sort may be told once more."""
        self.found[what] = self.found.get(what, 0) + 1
        return self.found[what] <= most
