"""Events about MCP: sessions with servers, the messages of both sides, calls and what was decided about them, tools.

What each side said is in `mcp.message`, byte for byte. The other events are read out of it: they say what client and
server said, not what is true. Ids are of this run: `s1` a session, `k1` a call (any JSON-RPC request of either side).
"""

from typing import Literal

from agentwrap.events.base import Event
from agentwrap.events.content import Body
from agentwrap.events.egress import Judged

McpTransport = Literal["stdio", "http", "sse"]
McpHow = Literal["config", "hand", "pattern", "traffic"]
McpSort = Literal["request", "response", "notification", "batch", "invalid"]
McpResultEnding = Literal[
    "complete", "tool-error", "error", "input-required", "denied", "cancelled", "expired", "unanswered"
]
McpSessionEnding = Literal["client-closed", "server-closed", "server-exited", "run-ended", "lost"]
McpToolChange = Literal["new", "same", "changed", "removed"]
McpJoin = Literal["", "id", "content", "time"]
McpFindingWhat = Literal[
    "tool-changed", "tool-shadowed", "unknown-reply", "repeated-reply", "repeated-id", "not-json", "not-mcp",
    "ambiguous-json", "self-approval", "late-reply", "too-long",
]  # fmt: skip


class McpSession(Event, frozen=True, kw_only=True, tag="mcp.session"):
    """A session with a server began. `span`, `pid`: the server's process (stdio), or whoever connected (HTTP).

    `server`: its name in the configuration, by hand, or `host:port`. `how`: where that name is from (`traffic`: nobody
    declared it). `config`: the file that declares it. `command`: what was run (stdio), `url`: where it is (HTTP).
    """

    session: str
    server: bytes
    transport: McpTransport = "stdio"
    how: McpHow = "config"
    config: bytes = b""
    command: tuple[bytes, ...] = ()
    url: bytes = b""

    @property
    def subject(self) -> bytes:
        return self.server


class McpMessage(Event, frozen=True, kw_only=True, tag="mcp.message"):
    """One message as it came. `number`: from 1 in its session, both sides counted together in our order.

    `up`: from client to server. `ours`: neither said it, agentwrap did (a denial, progress while held). `id`: as JSON
    text. `call`: the call that it belongs to. `passed`: it went on to the other side (false: denied, or held; the
    decision tells how that ended). `body`: its bytes, without the line's end (stdio) or the event's frame (SSE).
    `exchange`: of HTTP, the id of the exchange that it came in. `piece`: 0 for a whole message; else this is the
    n-th piece, from 1, of a line that is too long to be read as one.
    """

    session: str
    number: int
    up: bool
    sort: McpSort
    method: bytes = b""
    id: bytes = b""
    call: str = ""
    ours: bool = False
    passed: bool = True
    exchange: str = ""
    piece: int = 0
    body: Body = Body()

    @property
    def subject(self) -> bytes:
        return self.method or self.id


class McpHello(Event, frozen=True, kw_only=True, tag="mcp.hello"):
    """Who speaks with whom, as they say: from `initialize`, `server/discover` or the fields of a first request."""

    session: str
    server: bytes
    protocol: bytes = b""
    client_name: bytes = b""
    client_version: bytes = b""
    server_name: bytes = b""
    server_version: bytes = b""

    @property
    def subject(self) -> bytes:
        return self.server_name or self.server


class McpCall(Event, frozen=True, kw_only=True, tag="mcp.call"):
    """A request. `up`: the client asks the server; else the server asks the client (sampling, elicitation, roots).

    `tool`: the tool, prompt or resource that it names. `arguments`: as written, clipped after 4 KB; `digest`: SHA-256
    of their bytes as they came, in hex. `modern`: it says so itself (2026-07-28). `tool_call`: the model's call (`x1`)
    that it carries out, `joined`: how that was found (`id`: the client said so; `content`: the same tool and arguments;
    `time`: the only one open). `retry_of`: the call that asked for more input before. `agent`, `on_behalf_of`: who
    acts for whom, by the policy. `unredacted`: somebody asked for the arguments with all secrets in them.
    """

    call: str
    session: str
    server: bytes
    up: bool = True
    method: bytes
    tool: bytes = b""
    id: bytes = b""
    modern: bool = False
    arguments: bytes = b""
    omitted_bytes: int = 0
    unredacted: bool = False
    digest: str = ""
    tool_call: str = ""
    joined: McpJoin = ""
    retry_of: str = ""
    agent: bytes = b""
    on_behalf_of: bytes = b""

    @property
    def subject(self) -> bytes:
        return self.tool or self.method


class McpJoined(Event, frozen=True, kw_only=True, tag="mcp.joined"):
    """A call was found to carry out a model's tool call, later than it began: the model's answer was read after it.

    `tool_call`, `joined`: as in `mcp.call`.
    """

    call: str
    session: str
    tool_call: str
    joined: McpJoin

    @property
    def subject(self) -> bytes:
        return self.tool_call.encode()


class McpResult(Event, frozen=True, kw_only=True, tag="mcp.result"):
    """A call is over, `at_ns`: its answer, or when it was known that none comes.

    `ending`: `tool-error`: a result that says `isError`; `error`: a JSON-RPC error; `denied`: the request did not go
    on, or its answer did not; `expired`: it was held in vain. `size`, `digest` (SHA-256, hex): of the result. `text`:
    what of it is text, clipped after 4 KB. `claimed_ns`: how long the server says that it took; nobody checked it.
    """

    call: str
    session: str
    server: bytes
    ending: McpResultEnding
    tool: bytes = b""
    method: bytes = b""
    error: bytes = b""
    size: int = 0
    digest: str = ""
    text: bytes = b""
    claimed_ns: int = 0

    @property
    def subject(self) -> bytes:
        return self.tool or self.method


class McpDecision(Judged, frozen=True, kw_only=True, tag="mcp.decision"):
    """A message was judged, by its body alone. For a held call: the row that ends the hold.

    `digest`: of the arguments that were judged (SHA-256, hex). `ask`: the question to a human, if there was one.
    `on_behalf_of`: for whom the agent acts. `method`, `tool`: as in `mcp.call`.
    """

    call: str
    session: str
    server: bytes
    up: bool = True
    method: bytes = b""
    tool: bytes = b""
    digest: str = ""
    ask: str = ""
    agent: bytes = b""
    on_behalf_of: bytes = b""

    @property
    def subject(self) -> bytes:
        return self.server + b" " + (self.tool or self.method)


class McpTool(Event, frozen=True, kw_only=True, tag="mcp.tool"):
    """A tool as a server listed it. `digest`: SHA-256 (hex) of name, description and input schema in normal form.

    `change`: against the listing before, of this run; `before`: the digest then. `pinned`: the digest that the policy
    holds it to. `shadows`: another server of this run has a tool of that name. `definition`: the bytes that it was
    listed with.
    """

    session: str
    server: bytes
    name: bytes
    digest: str
    change: McpToolChange = "new"
    before: str = ""
    pinned: str = ""
    shadows: bytes = b""
    description: bytes = b""
    definition: Body = Body()

    @property
    def subject(self) -> bytes:
        return self.name


class McpFinding(Event, frozen=True, kw_only=True, tag="mcp.finding"):
    """Something about a session that a reader should look at. `call`, `tool`: what it is about, if anything."""

    what: McpFindingWhat
    session: str
    server: bytes
    call: str = ""
    tool: bytes = b""
    detail: bytes = b""

    @property
    def subject(self) -> bytes:
        return self.tool or self.server


class McpEnded(Event, frozen=True, kw_only=True, tag="mcp.ended"):
    """A session is over. Bytes: of each side, as they came."""

    session: str
    server: bytes
    ending: McpSessionEnding
    messages: int = 0
    up_bytes: int = 0
    down_bytes: int = 0
    detail: bytes = b""

    @property
    def subject(self) -> bytes:
        return self.server
