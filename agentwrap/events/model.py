"""Events about model traffic: what was asked of a model, what it answered, which tools it called, and their results.

What crossed the wire is in the bodies, byte for byte after the transfer coding (and the content coding, if there was
one). Everything else is read out of them: it says what the provider and the agent said, not what is true.

Ids are of this run: `m1` a call, `x1` a tool call, `a1` an agent (one conversation), `t1` a turn (one call and what its
tools did, until the agent's next call), `h1` an exchange that was no model call.
"""

from typing import Literal

from agentwrap.events.base import Event
from agentwrap.events.content import Body
from agentwrap.events.network import endpoint

Api = Literal["anthropic.messages", "openai.chat", "openai.responses", "gemini.generate"]
ModelEnding = Literal["complete", "incomplete", "error", "cancelled", "unread"]
Origin = Literal["wire", "id", "prefix", "process", "first"]


class ModelRequest(Event, frozen=True, kw_only=True, tag="model.request"):
    """A model was asked. `span`: the process that asked, as far as known; `at_ns`: the first byte of the request.

    `agent_parent`: span or tool call which that agent was started by; `joined`: how the call was found to belong to the
    agent (`id`: the client said so; `prefix`: the same messages again; `process`: the same process; `first`: a new
    one). `attempt`: 1 for the first try; `retry_of`: the call it tries again. `messages`: in the request, `repeated` of
    them are as in the agent's call before, `dropped` of that call's are not in this one. `problem`: what of the body
    could not be read.
    """

    call: str
    agent: str
    agent_parent: str = "run"
    turn: str
    joined: Origin = "first"
    api: Api
    scheme: Literal["http", "https"] = "https"
    host: bytes
    port: int = 0
    method: bytes = b"POST"
    path: bytes = b""
    transport: Literal["http", "websocket"] = "http"
    connection: str = ""
    model: bytes = b""
    stream: bool = False
    attempt: int = 1
    retry_of: str = ""
    session: bytes = b""
    messages: int = 0
    repeated: int = 0
    dropped: int = 0
    tools: int = 0
    encoding: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    request: Body = Body()
    problem: bytes = b""

    @property
    def subject(self) -> bytes:
        return self.model or endpoint(self.host, self.port)


class ModelResponse(Event, frozen=True, kw_only=True, tag="model.response"):
    """The call is over, `at_ns`: its last byte. Times are 0 where there was no such moment.

    Tokens are the provider's numbers, None where it gave none: `input_tokens` includes what was read from and written
    to a cache. `cost_usd`: an estimate in US dollars by the price table `prices` (its name and date), empty where the
    model is not in it. `response`: the body; `timing`: when which part of it came (docs/format.md); `message`: the
    answer put together, in our own words. `error`: the provider's type and message, or what broke.
    """

    call: str
    agent: str
    turn: str
    ending: ModelEnding
    status: int = 0
    requested_ns: int = 0
    headers_ns: int = 0
    first_token_ns: int = 0
    model: bytes = b""
    response_id: bytes = b""
    request_id: bytes = b""
    stop: bytes = b""
    error: bytes = b""
    retry_after: bytes = b""
    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: str = ""
    prices: str = ""
    tool_calls: int = 0
    text_bytes: int = 0
    unknown: tuple[bytes, ...] = ()
    encoding: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    response: Body = Body()
    timing: Body = Body()
    message: Body = Body()

    @property
    def subject(self) -> bytes:
        return self.model


class ToolCall(Event, frozen=True, kw_only=True, tag="tool.call"):
    """A model asked for a tool. `id`: the provider's; `arguments`: as it wrote them, clipped after 4 KB.

    `provider_side`: the provider runs the tool itself.
    """

    tool: str
    call: str
    agent: str
    turn: str
    id: bytes
    name: bytes
    arguments: bytes = b""
    omitted_bytes: int = 0
    provider_side: bool = False

    @property
    def subject(self) -> bytes:
        return self.name


class ToolResult(Event, frozen=True, kw_only=True, tag="tool.result"):
    """The agent told the model what became of a tool call: `call` is the request that carries it.

    `tool` is empty where nobody saw the call itself. `error`: the agent marked it as one (None: it did not say).
    `text`: clipped after 4 KB.
    """

    tool: str
    call: str
    agent: str
    turn: str
    id: bytes
    name: bytes = b""
    error: bool | None = None
    size: int = 0
    text: bytes = b""

    @property
    def subject(self) -> bytes:
        return self.name


class HttpExchange(Event, frozen=True, kw_only=True, tag="http.exchange"):
    """A request to a model host that is no model call, or to one that was asked for, and its answer.

    `at_ns`: the end; times are 0 where there was no such moment. `ending`: as in `net.closed`, `complete` if both
    messages are whole; `detail`: what could not be read.
    """

    exchange: str
    connection: str = ""
    scheme: Literal["http", "https"] = "https"
    host: bytes
    port: int = 0
    method: bytes
    path: bytes
    status: int = 0
    requested_ns: int = 0
    headers_ns: int = 0
    ending: Literal["complete", "cut-by-client", "cut-by-server", "unreadable"] = "complete"
    detail: bytes = b""
    request_headers: tuple[tuple[bytes, bytes], ...] = ()
    response_headers: tuple[tuple[bytes, bytes], ...] = ()
    request: Body = Body()
    response: Body = Body()

    @property
    def subject(self) -> bytes:
        return self.method + b" " + endpoint(self.host, self.port) + self.path


class Claim(Event, frozen=True, kw_only=True, tag="claim"):
    """What a program said about itself over the run's socket; nobody checked it. `span`, `pid`: who, by the kernel.

    `said`: the sort of statement; `name`, `id`, `parent`, `status`: its own words; `told_ns`: its own time (UNIX epoch)
    or 0; `data`: JSON text, clipped after 16 KB.
    """

    said: Literal["span.start", "span.end", "decision", "message", "tool.call", "tool.result", "retry", "error", "log"]
    name: bytes = b""
    id: bytes = b""
    parent: bytes = b""
    status: bytes = b""
    told_ns: int = 0
    data: bytes = b""
    omitted_bytes: int = 0

    @property
    def subject(self) -> bytes:
        return self.name or self.id


class SessionFile(Event, frozen=True, kw_only=True, tag="session.file"):
    """A log that the agent itself keeps, found in its home after the run and written by it. `content`: the whole."""

    agent: Literal["claude-code", "codex"]
    path: bytes
    session: bytes = b""
    joined: tuple[tuple[bytes, bytes], ...] = ()
    content: Body = Body()

    @property
    def subject(self) -> bytes:
        return self.path
