"""The vocabulary: one file per family, frozen structs in one tagged union. Pure: no I/O, no clock.

Producers build these structs and hand them to a `Sink`; the recorder stores them; nobody else interprets them twice.
Adding an event: a struct in its family's file, its name in `AnyEvent`, a line in `docs/format.md` (a test asks).
"""

from collections.abc import Callable

from agentwrap.events.base import Event
from agentwrap.events.content import Body, Content, Secrets
from agentwrap.events.egress import (
    Act,
    ActDenied,
    AskAnswered,
    AskWaiting,
    By,
    Decision,
    DnsQuery,
    Ending,
    Judged,
    NetClosed,
    NetDecision,
    NetRefused,
    PolicyLoaded,
    Protocol,
)
from agentwrap.events.exchange import (
    EXCHANGE_NEWS,
    ExchangeBegan,
    ExchangeEnded,
    ExchangeMessage,
    ExchangeNews,
    ExchangeReceived,
    ExchangeRequested,
    ExchangeResponded,
    ExchangeSent,
)
from agentwrap.events.file import (
    FileClass,
    FileDirectory,
    FileEdit,
    FileLink,
    FileMode,
    FileRead,
    FileRename,
    FileSpecial,
    FileState,
    FileType,
)
from agentwrap.events.mcp import (
    McpCall,
    McpDecision,
    McpEnded,
    McpFinding,
    McpHello,
    McpJoined,
    McpMessage,
    McpResult,
    McpSession,
    McpTool,
)
from agentwrap.events.mcp_news import (
    MCP_NEWS,
    McpBytes,
    McpClosed,
    McpJudged,
    McpNews,
    McpOpened,
    McpSaid,
)
from agentwrap.events.model import (
    Api,
    Claim,
    HttpExchange,
    ModelEnding,
    ModelRequest,
    ModelResponse,
    SessionFile,
    ToolCall,
    ToolResult,
)
from agentwrap.events.network import DnsServer, Family, NetBind, NetConnect, NetListen, NetSend, Transport, endpoint
from agentwrap.events.process import (
    DeniedWhat,
    ProcessDenied,
    ProcessExec,
    ProcessExit,
    ProcessIsolation,
    ProcessReach,
    ProcessStart,
)
from agentwrap.events.run import Coverage, CoverageKind, Gap, RunEnd, RunStart, Tier

AnyEvent = (
    RunStart
    | Coverage
    | Gap
    | RunEnd
    | ProcessStart
    | ProcessExec
    | ProcessExit
    | ProcessDenied
    | ProcessIsolation
    | ProcessReach
    | FileEdit
    | FileRename
    | FileDirectory
    | FileMode
    | FileLink
    | FileSpecial
    | FileRead
    | NetConnect
    | NetBind
    | NetListen
    | NetSend
    | DnsServer
    | PolicyLoaded
    | NetDecision
    | NetClosed
    | DnsQuery
    | NetRefused
    | ActDenied
    | AskWaiting
    | AskAnswered
    | ModelRequest
    | ModelResponse
    | ToolCall
    | ToolResult
    | HttpExchange
    | Claim
    | SessionFile
    | McpSession
    | McpMessage
    | McpHello
    | McpCall
    | McpJoined
    | McpResult
    | McpDecision
    | McpTool
    | McpFinding
    | McpEnded
)

Item = AnyEvent | Content | Secrets

Sink = Callable[[Item], None]

__all__ = [
    "EXCHANGE_NEWS",
    "MCP_NEWS",
    "Act",
    "ActDenied",
    "AnyEvent",
    "Api",
    "AskAnswered",
    "AskWaiting",
    "Body",
    "By",
    "Claim",
    "Content",
    "Coverage",
    "CoverageKind",
    "Decision",
    "DeniedWhat",
    "DnsQuery",
    "DnsServer",
    "Ending",
    "Event",
    "ExchangeBegan",
    "ExchangeEnded",
    "ExchangeMessage",
    "ExchangeNews",
    "ExchangeReceived",
    "ExchangeRequested",
    "ExchangeResponded",
    "ExchangeSent",
    "Family",
    "FileClass",
    "FileDirectory",
    "FileEdit",
    "FileLink",
    "FileMode",
    "FileRead",
    "FileRename",
    "FileSpecial",
    "FileState",
    "FileType",
    "Gap",
    "HttpExchange",
    "Item",
    "Judged",
    "McpBytes",
    "McpCall",
    "McpClosed",
    "McpDecision",
    "McpEnded",
    "McpFinding",
    "McpHello",
    "McpJoined",
    "McpJudged",
    "McpMessage",
    "McpNews",
    "McpOpened",
    "McpResult",
    "McpSaid",
    "McpSession",
    "McpTool",
    "ModelEnding",
    "ModelRequest",
    "ModelResponse",
    "NetBind",
    "NetClosed",
    "NetConnect",
    "NetDecision",
    "NetListen",
    "NetRefused",
    "NetSend",
    "PolicyLoaded",
    "ProcessDenied",
    "ProcessExec",
    "ProcessExit",
    "ProcessIsolation",
    "ProcessReach",
    "ProcessStart",
    "Protocol",
    "RunEnd",
    "RunStart",
    "Secrets",
    "SessionFile",
    "Sink",
    "Tier",
    "ToolCall",
    "ToolResult",
    "Transport",
    "endpoint",
]
