"""A server on the `mcp` package for `test_mcp_stdio`: its tools answer, fail, take long, and are large."""

import asyncio

from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("fixture")


@server.tool()
def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool()
def fail(why: str) -> str:
    """Raise."""
    raise ValueError(why)


@server.tool()
def large(size: int) -> str:
    """As many letters."""
    return "x" * size


@server.tool()
async def slow(seconds: float, ctx: Context) -> str:
    """Take a while, and say how far it is."""
    await ctx.report_progress(1, 2)
    await asyncio.sleep(seconds)
    return "done"


if __name__ == "__main__":
    server.run()
