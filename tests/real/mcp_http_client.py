"""What a client of an MCP server over HTTP finds, as JSON: python mcp_http_client.py URL MODE [CALL...]

MODE: legacy, auto (both Streamable HTTP) or sse (the transport of 2024-11-05). With calls, each `TOOL=ARGUMENTS`, those
alone are made.
"""

import asyncio
import json
import ssl
import sys
import warnings
from typing import Any

import httpx2
import mcp_types as types
from mcp.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

warnings.simplefilter("ignore")
found: dict[str, Any] = {}


async def elicited(_context: Any, params: Any) -> types.ElicitResult:
    found.setdefault("elicited", []).append(params.message)
    return types.ElicitResult(action="accept", content={"name": "Alice", "username": "a", "email": "a@b.example"})


async def sampled(_context: Any, params: Any) -> types.CreateMessageResult:
    found.setdefault("sampled", []).append(params.messages[0].content.text)
    content = types.TextContent(type="text", text="Paris")
    return types.CreateMessageResult(role="assistant", content=content, model="none")


async def call(client: Client, name: str, arguments: dict[str, Any], **more: Any) -> Any:
    try:
        result = await client.call_tool(name, arguments, **more)
    except Exception as error:
        return ["failed", type(error).__name__, str(error)]
    return [result.is_error, *[getattr(one, "text", one.type) for one in result.content]]


async def left(client: Client) -> Any:
    """A call that is given up as soon as the server has said that it is at it."""
    at_it = asyncio.Event()

    async def progressed(*_: Any) -> None:
        at_it.set()

    work = asyncio.create_task(call(client, "slow_work", {"seconds": 60}, progress_callback=progressed))
    await asyncio.wait([work, asyncio.create_task(at_it.wait())], return_when=asyncio.FIRST_COMPLETED)
    work.cancel()
    try:
        return await work
    except asyncio.CancelledError:
        return "left"


async def everything(client: Client, mode: str) -> None:
    found["tools"] = sorted(tool.name for tool in (await client.list_tools()).tools)
    found["simple"] = await call(client, "test_simple_text", {})
    found["image"] = await call(client, "test_image_content", {})
    steps: list[float] = []

    async def progressed(progress: float, _total: float | None, _message: str | None) -> None:
        steps.append(progress)

    found["progress"] = [await call(client, "test_tool_with_progress", {}, progress_callback=progressed), steps]
    if mode == "auto":
        found["asked"] = await call(client, "test_input_required_result_elicitation", {})
    else:
        found["sampling"] = await call(client, "test_sampling", {"prompt": "What is the capital of France?"})
        found["elicitation"] = await call(client, "test_elicitation", {"message": "Who?"})
    if mode == "legacy":
        found["resumed"] = await call(client, "test_reconnection", {})
    found["text"] = [one.text for one in (await client.read_resource("test://static-text")).contents]
    found["many"] = sorted(await asyncio.gather(*[call(client, "test_simple_text", {}) for _ in range(20)]))
    found["cut"] = await left(client)
    found["after"] = await call(client, "test_simple_text", {})


async def main(url: str, mode: str, *calls: str) -> None:
    context = ssl.create_default_context()
    async with httpx2.AsyncClient(timeout=None, verify=context) as web:
        transport = sse_client(url) if mode == "sse" else streamable_http_client(url, http_client=web)
        era = "legacy" if mode == "sse" else mode
        client = Client(transport, mode=era, elicitation_callback=elicited, sampling_callback=sampled)
        async with client:
            for one in calls:
                name, _, arguments = one.partition("=")
                found.setdefault(name, []).append(await call(client, name, json.loads(arguments)))
                print(name, file=sys.stderr, flush=True)
            if not calls:
                await everything(client, mode)
    print(json.dumps(found))


asyncio.run(main(*sys.argv[1:]))
