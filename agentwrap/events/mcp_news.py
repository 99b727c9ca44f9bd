"""What the relay of MCP servers tells while messages pass: bytes of each side, judgements, our own words, ends.

These go from the relay (stdio) and from the gateway (judgements about HTTP) to the supervisor and are no events: the
recorder never sees them. Whoever reads them makes events of them (`agentwrap.mcp.decoder`). The order of all news of
one session is the order in which the relay met them.
"""

from typing import Literal

import msgspec

from agentwrap.events.mcp import McpHow, McpSessionEnding

McpVerdict = Literal["allow", "deny", "would-deny", "hold", "approved", "refused", "expired", "cancelled"]


class McpOpened(msgspec.Struct, frozen=True, kw_only=True, tag="mcp.opened", tag_field="kind"):
    """The relay stands between a client and a server. `session`: its number in the run, from 1.

    `span`, `pid`: of the server's process; `server`, `how`, `config`, `command` as in `mcp.session`.
    """

    session: int
    at_ns: int
    span: str
    pid: int
    server: bytes
    how: McpHow
    config: bytes = b""
    command: tuple[bytes, ...] = ()


class McpBytes(msgspec.Struct, frozen=True, tag="mcp.bytes", tag_field="kind"):
    """Bytes that one side sent, in pieces as they were read; whether they went on is told by `McpJudged`.

    `up`: from the client.
    """

    session: int
    at_ns: int
    up: bool
    data: bytes


class McpJudged(msgspec.Struct, frozen=True, kw_only=True, tag="mcp.judged", tag_field="kind"):
    """A message was judged. stdio: `session` and `line`, the message's place among the lines of its side, from 1.

    It is told before the `McpBytes` that hold the end of that line (a hold's end: later), so that whoever reads both
    knows of a whole line whether it went on. HTTP: `exchange` (as in `exchange.began`), `line` 0; told before the
    request goes on. Everything of which nothing is told has passed. `verdict`: `hold` is followed by another one about
    the same message: `approved` (it went on now), `refused`, `expired`, `cancelled`. `part`: place in a batch, from 0.
    `rule`, `why`, `change` as in events. `digest`: SHA-256 of the arguments, hex.
    """

    session: int = 0
    exchange: int = 0
    at_ns: int
    up: bool
    line: int = 0
    part: int = 0
    verdict: McpVerdict
    rule: bytes = b""
    why: bytes = b""
    change: bytes = b""
    method: bytes = b""
    tool: bytes = b""
    digest: str = ""
    ask: str = ""
    agent: bytes = b""
    on_behalf_of: bytes = b""


class McpSaid(msgspec.Struct, frozen=True, kw_only=True, tag="mcp.said", tag_field="kind"):
    """agentwrap itself said something to one side. `up`: to the server. `data`: the message, without its frame."""

    session: int = 0
    exchange: int = 0
    at_ns: int
    up: bool
    data: bytes


class McpClosed(msgspec.Struct, frozen=True, kw_only=True, tag="mcp.closed", tag_field="kind"):
    """The last of a session."""

    session: int
    at_ns: int
    ending: McpSessionEnding
    detail: bytes = b""


McpNews = McpOpened | McpBytes | McpJudged | McpSaid | McpClosed
MCP_NEWS = (McpOpened, McpBytes, McpJudged, McpSaid, McpClosed)
