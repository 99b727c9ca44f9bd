"""What the gateway tells of an HTTP exchange while it passes: heads, pieces of bodies with their times, the end.

These go from the gateway to the supervisor and are no events: the recorder never sees them. Whoever reads them makes
events of them. Bodies come without their transfer coding (chunks) and with their content coding (gzip and the like).
All fields hold foreign bytes; the order of all messages of one exchange is the order on the wire as we saw it.
"""

from typing import Literal

import msgspec

from agentwrap.events.mcp import McpHow

Headers = tuple[tuple[bytes, bytes], ...]
ExchangeEnding = Literal["complete", "cut-by-client", "cut-by-server", "unreadable"]


class OfMcp(msgspec.Struct, frozen=True):
    """That an exchange belongs to MCP. `server`, `how`, `config`: as in `mcp.session`.

    `endpoint`: a POST to where an old server (HTTP with SSE, 2024-11-05) said that its client should send messages:
    the answers come elsewhere.
    """

    server: bytes
    how: McpHow = "traffic"
    config: bytes = b""
    endpoint: bool = False


class ExchangeBegan(msgspec.Struct, frozen=True, kw_only=True, tag="exchange.began", tag_field="kind"):
    """A request head is whole. `exchange`: number of this exchange in the run. `host`: by whose name it was allowed.

    `target`: as on the request line; `intercepted`: TLS was ended here. `span`, `pid`: who connected. `at_ns`: the
    first byte of the head. `mcp`: it is one of MCP's.
    """

    exchange: int
    at_ns: int
    connection: str
    span: str
    pid: int
    scheme: Literal["http", "https"]
    host: bytes
    port: int
    method: bytes
    target: bytes
    version: bytes
    headers: Headers
    intercepted: bool = False
    mcp: OfMcp | None = None


class ExchangeSent(msgspec.Struct, frozen=True, tag="exchange.sent", tag_field="kind"):
    """Bytes of the request's body."""

    exchange: int
    at_ns: int
    data: bytes


class ExchangeRequested(msgspec.Struct, frozen=True, tag="exchange.requested", tag_field="kind"):
    """The request is whole."""

    exchange: int
    at_ns: int


class ExchangeResponded(msgspec.Struct, frozen=True, tag="exchange.responded", tag_field="kind"):
    """A response head is whole. Those before it with a status of 1xx (but 101) are left out."""

    exchange: int
    at_ns: int
    status: int
    reason: bytes
    headers: Headers


class ExchangeReceived(msgspec.Struct, frozen=True, tag="exchange.received", tag_field="kind"):
    """Bytes of the response's body, as they came."""

    exchange: int
    at_ns: int
    data: bytes


class ExchangeMessage(msgspec.Struct, frozen=True, tag="exchange.message", tag_field="kind"):
    """After a change to WebSocket: one message, whole and inflated. `up`: from the client; `text`: no binary one."""

    exchange: int
    at_ns: int
    up: bool
    text: bool
    data: bytes


class ExchangeEnded(msgspec.Struct, frozen=True, tag="exchange.ended", tag_field="kind"):
    """The last of an exchange. `detail`: what could not be read, or by whom it was cut.

    `sent_bytes`, `received_bytes`: of both bodies without their transfer coding (after a change to another protocol: of
    what followed), also of bodies that were not told.
    """

    exchange: int
    at_ns: int
    ending: ExchangeEnding
    detail: bytes = b""
    sent_bytes: int = 0
    received_bytes: int = 0


ExchangeNews = (
    ExchangeBegan
    | ExchangeSent
    | ExchangeRequested
    | ExchangeResponded
    | ExchangeReceived
    | ExchangeMessage
    | ExchangeEnded
)
EXCHANGE_NEWS = (
    ExchangeBegan,
    ExchangeSent,
    ExchangeRequested,
    ExchangeResponded,
    ExchangeReceived,
    ExchangeMessage,
    ExchangeEnded,
)
