"""A client on the `mcp` package: what it is told by the server in its arguments, as JSON."""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

TEXTS = ["plain", "a line\nand another", "\u2028 \u0085 \U0001f600 \u00e9", ""]


async def main() -> None:
    told = {}
    parameters = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    async with Client(stdio_client(parameters)) as client:
        told["tools"] = sorted(tool.name for tool in (await client.list_tools()).tools)
        told["echo"] = [text_of(await client.call_tool("echo", {"text": text})) for text in TEXTS]
        told["at once"] = await asyncio.gather(*(one(client, f"number {number}") for number in range(20)))
        told["large"] = len(text_of(await client.call_tool("large", {"size": 1 << 20})))
        failed = await client.call_tool("fail", {"why": "because"})
        told["fail"] = failed.is_error
        told["slow"] = text_of(await client.call_tool("slow", {"seconds": 0.05}))
    print(json.dumps(told))


async def one(client: Client, text: str) -> str:
    return text_of(await client.call_tool("echo", {"text": text}))


def text_of(result) -> str:
    return "".join(part.text for part in result.content)


asyncio.run(main())
