"""An MCP server with everything that the conformance suite asks of one: python mcp_everything_server.py PORT

It runs on the PyPI package `mcp` and prints `ready` once it listens. Every call of a tool is noted in the file that
CALLS names, one line each. HOST: its address; FD: what listens there already; CERT and KEY: with TLS; OLD: the
transport of 2024-11-05.
"""

import asyncio
import base64
import os
import socket
import struct
import sys
import warnings
import zlib
from typing import Annotated, Any

import mcp_types as types
import uvicorn
from mcp.server.mcpserver import Context, MCPServer, UserMessage
from mcp.server.streamable_http import EventStore
from mcp.shared.exceptions import MCPError
from pydantic import Field

warnings.simplefilter("ignore")

Asks = types.InputRequiredResult


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png() -> str:
    """One pixel."""
    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    parts = _chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")), _chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()


def wav() -> str:
    """No sound."""
    form = b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8) + b"data" + struct.pack("<I", 0)
    return base64.b64encode(b"RIFF" + struct.pack("<I", len(form)) + form).decode()


def text(words: str) -> types.TextContent:
    return types.TextContent(type="text", text=words)


def embedded(uri: str, words: str) -> types.EmbeddedResource:
    inner = types.TextResourceContents(uri=uri, mime_type="text/plain", text=words)
    return types.EmbeddedResource(type="resource", resource=inner)


class Stored(EventStore):
    """Events of all streams, for those who come back."""

    def __init__(self) -> None:
        self._events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        from mcp.server.streamable_http import EventMessage

        at = int(last_event_id)
        if not 0 < at <= len(self._events):
            return None
        stream = self._events[at - 1][0]
        for number, (of, message) in enumerate(self._events[at:], at + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def note(words: str) -> None:
    if os.environ.get("CALLS"):
        with open(os.environ["CALLS"], "a") as file:
            file.write(words + "\n")


async def noted(ctx: Any, call_next: Any) -> Any:
    params = ctx.params if isinstance(ctx.params, dict) else {}
    if ctx.method == "tools/call":
        note(f"{params.get('name')} {params.get('arguments')}")
    return await call_next(ctx)


server = MCPServer("everything", version="1.0.0", middleware=[noted], log_level="ERROR")


@server.tool()
def test_simple_text() -> str:
    """Says something."""
    return "This is a simple text response for testing."


@server.tool()
def write_note(path: str, words: str) -> str:
    """Writes a file."""
    with open(path, "a") as file:
        file.write(words)
    return "written"


@server.tool()
def test_image_content() -> list[types.ImageContent]:
    """Shows something."""
    return [types.ImageContent(type="image", data=png(), mime_type="image/png")]


@server.tool()
def test_audio_content() -> list[types.AudioContent]:
    """Plays something."""
    return [types.AudioContent(type="audio", data=wav(), mime_type="audio/wav")]


@server.tool()
def test_embedded_resource() -> list[types.EmbeddedResource]:
    """Gives a resource."""
    return [embedded("test://embedded-resource", "This is an embedded resource content.")]


@server.tool()
def test_multiple_content_types() -> list[Any]:
    """Gives several things."""
    image = types.ImageContent(type="image", data=png(), mime_type="image/png")
    inner = types.TextResourceContents(uri="test://mixed-content-resource", mime_type="application/json", text="{}")
    return [text("Multiple content types test:"), image, types.EmbeddedResource(type="resource", resource=inner)]


@server.tool()
def test_error_handling() -> str:
    """Fails."""
    raise ValueError("This tool intentionally returns an error for testing")


@server.tool()
async def test_tool_with_logging(ctx: Context) -> str:
    """Logs while it works."""
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(words)
        await asyncio.sleep(0.05)
    return "done"


@server.tool()
async def test_logging_tool(ctx: Context) -> str:
    """Logs once."""
    await ctx.info("something happened")
    return "done"


@server.tool()
async def test_tool_with_progress(ctx: Context) -> str:
    """Tells how far it is."""
    for done in (0, 50, 100):
        await ctx.report_progress(done, 100)
        await asyncio.sleep(0.05)
    return "done"


@server.tool()
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Asks the client's model."""
    message = types.SamplingMessage(role="user", content=text(prompt))
    found = await ctx.session.create_message([message], max_tokens=100, related_request_id=ctx.request_id)
    return f"LLM response: {getattr(found.content, 'text', found.content)}"


async def ask(ctx: Context, message: str, properties: dict[str, Any], required: list[str]) -> str:
    schema = {"type": "object", "properties": properties, "required": required}
    found = await ctx.session.elicit_form(message, schema, ctx.request_id)
    return f"User response: action={found.action}, content={found.content}"


@server.tool()
async def test_elicitation(message: str, ctx: Context) -> str:
    """Asks the user."""
    fields = {name: {"type": "string", "description": name} for name in ("username", "email")}
    return await ask(ctx, message, fields, ["username", "email"])


@server.tool()
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Asks with defaults."""
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await ask(ctx, "Please say who you are", fields, [])


@server.tool()
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Asks for choices."""
    plain = [f"option{number}" for number in (1, 2, 3)]
    titled = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
    fields = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": plain, "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return await ask(ctx, "Please choose", fields, [])


@server.tool()
async def test_reconnection(ctx: Context) -> str:
    """Ends its stream before it has said anything."""
    await ctx.close_sse_stream()
    await asyncio.sleep(0.2)
    return "Reconnection test completed"


@server.tool()
async def slow_work(seconds: float, ctx: Context) -> str:
    """Takes its time, and tells when it was cancelled."""
    try:
        for step in range(int(seconds * 10)):
            await ctx.report_progress(step, int(seconds * 10))
            await asyncio.sleep(0.1)
    finally:
        note("slow_work over")
    return "done"


@server.tool()
async def test_trigger_tool_change(ctx: Context) -> str:
    """Says that tools have changed."""
    await ctx.notify_tools_changed()
    return "done"


@server.tool()
async def test_trigger_prompt_change(ctx: Context) -> str:
    """Says that prompts have changed."""
    await ctx.notify_prompts_changed()
    return "done"


@server.tool()
async def test_missing_capability(ctx: Context) -> str:
    """Cannot be called without sampling."""
    have = ctx.client_capabilities
    if have is None or have.sampling is None:
        data = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "sampling is required", data)
    return "done"


def form(message: str, name: str, kind: str = "string") -> types.ElicitRequest:
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(question: str) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=text(question))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=100))


def given(ctx: Context, *names: str) -> list[Any] | None:
    """The answers of those names; None if one is missing."""
    answers = ctx.input_responses or {}
    return [answers[name] for name in names] if all(name in answers for name in names) else None


def content_of(answer: Any) -> dict[str, Any]:
    return dict(getattr(answer, "content", None) or {})


@server.tool()
async def test_input_required_result_elicitation(ctx: Context) -> str | Asks:
    """Needs a name."""
    found = given(ctx, "user_name")
    if found is None:
        return Asks(input_requests={"user_name": form("What is your name?", "name")})
    return f"Hello, {content_of(found[0]).get('name')}!"


@server.tool()
async def test_streaming_elicitation(ctx: Context) -> str | Asks:
    """Needs a name, too."""
    found = given(ctx, "user_name")
    return "done" if found else Asks(input_requests={"user_name": form("What is your name?", "name")})


@server.tool()
async def test_input_required_result_sampling(ctx: Context) -> str | Asks:
    """Needs a model."""
    found = given(ctx, "capital_question")
    if found is None:
        return Asks(input_requests={"capital_question": sample("What is the capital of France?")})
    return str(getattr(found[0].content, "text", ""))


@server.tool()
async def test_input_required_result_list_roots(ctx: Context) -> str | Asks:
    """Needs roots."""
    found = given(ctx, "client_roots")
    if found is None:
        return Asks(input_requests={"client_roots": types.ListRootsRequest()})
    return ", ".join(str(root.uri) for root in found[0].roots)


@server.tool()
async def test_input_required_result_request_state(ctx: Context) -> str | Asks:
    """Needs its own state back."""
    found = given(ctx, "confirm")
    if found is None:
        return Asks(input_requests={"confirm": form("Is it good?", "ok", "boolean")}, request_state="the state")
    return "state-ok" if ctx.request_state == "the state" else "no state"


@server.tool()
async def test_input_required_result_tampered_state(ctx: Context) -> str | Asks:
    """Needs its own state back, as it was."""
    found = given(ctx, "confirm")
    if found is None:
        return Asks(input_requests={"confirm": form("Is it good?", "ok", "boolean")}, request_state="the state")
    return "state-ok"


@server.tool()
async def test_input_required_result_multiple_inputs(ctx: Context) -> str | Asks:
    """Needs everything."""
    found = given(ctx, "user_name", "greeting", "client_roots")
    if found is None:
        asked = {"user_name": form("What is your name?", "name"), "greeting": sample("Say hello")}
        return Asks(input_requests={**asked, "client_roots": types.ListRootsRequest()}, request_state="several")
    return "done"


@server.tool()
async def test_input_required_result_multi_round(ctx: Context) -> str | Asks:
    """Asks twice."""
    if given(ctx, "step2") is not None and (ctx.request_state or "").startswith("2"):
        return f"{(ctx.request_state or '')[2:]} likes it"
    first = given(ctx, "step1")
    if first is not None:
        name = content_of(first[0]).get("name")
        return Asks(input_requests={"step2": form("Which colour?", "color")}, request_state=f"2 {name}")
    return Asks(input_requests={"step1": form("What is your name?", "name")}, request_state="1")


@server.tool()
async def test_input_required_result_capabilities(ctx: Context) -> str | Asks:
    """Asks for what the client can."""
    if ctx.input_responses:
        return "done"
    have = ctx.client_capabilities
    asked: dict[str, Any] = {}
    if have is not None and have.sampling is not None:
        asked["sampled"] = sample("Say hello")
    if have is not None and have.elicitation is not None:
        asked["user_name"] = form("What is your name?", "name")
    return Asks(input_requests=asked) if asked else "nothing can be asked"


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """Text."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """An image."""
    return base64.b64decode(png())


@server.resource("test://watched-resource", mime_type="text/plain")
def watched() -> str:
    """Text that changes."""
    return "watched"


@server.resource("test://template/{id}/data", mime_type="application/json")
def template(id: str) -> str:  # noqa: A002 - the suite's own name
    """One of many."""
    return f'{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}'


@server.prompt()
def test_simple_prompt() -> str:
    """A prompt."""
    return "This is a simple prompt for testing."


@server.prompt()
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt()
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:  # noqa: N803 - the suite's own name
    """A prompt with a resource."""
    return [UserMessage(embedded(resourceUri, "Embedded resource content for testing.")), UserMessage("Go on.")]


@server.prompt()
def test_prompt_with_image() -> list[Any]:
    """A prompt with an image."""
    image = types.ImageContent(type="image", data=png(), mime_type="image/png")
    return [UserMessage(image), UserMessage("Please look at the image above.")]


@server.prompt()
async def test_input_required_result_prompt(ctx: Context) -> Any:
    """A prompt that needs to know something."""
    found = given(ctx, "user_context")
    if found is None:
        return Asks(input_requests={"user_context": form("What is it about?", "context")})
    return [UserMessage(f"It is about {content_of(found[0]).get('context')}.")]


@server.completion()
async def complete(ref: Any, argument: Any, context: Any) -> types.Completion:
    return types.Completion(values=[f"{argument.value}-a", f"{argument.value}-b"], total=2, has_more=False)


@server.tool()
def test_custom_header(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})], query: str
) -> str:
    """Has an argument that goes into a header, too."""
    return f"{region} {query}"


async def nothing(ctx: Any, params: Any) -> types.EmptyResult:
    return types.EmptyResult()


# What the package leaves to those who write a server by themselves.
below = server._lowlevel_server
below.add_request_handler("logging/setLevel", types.SetLevelRequestParams, nothing)
below.add_request_handler("resources/subscribe", types.SubscribeRequestParams, nothing)
below.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, nothing)


def listen(port: int) -> socket.socket:
    if os.environ.get("FD"):
        return socket.socket(fileno=int(os.environ["FD"]))
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((os.environ.get("HOST", "127.0.0.1"), port))
    listener.listen(100)
    return listener


def main() -> None:
    listener = listen(int(sys.argv[1]))
    host = os.environ.get("HOST", "127.0.0.1")
    if os.environ.get("OLD"):
        app = server.sse_app(host=host)
    else:
        app = server.streamable_http_app(event_store=Stored(), retry_interval=300, host=host)
    print("ready", listener.getsockname()[1], flush=True)
    tls = {"ssl_certfile": os.environ.get("CERT"), "ssl_keyfile": os.environ.get("KEY")}
    # A client that goes on after uvicorn's own 5 seconds would meet a connection that is just being closed.
    settings = uvicorn.Config(app, log_level="error", timeout_keep_alive=300, **tls)
    asyncio.run(uvicorn.Server(settings).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
