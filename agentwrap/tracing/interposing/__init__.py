"""MCP servers over standard input and output: the relay is put between client and server, in place.

The server's own process gets other descriptors 0 and 1 before its first instruction. There is no process in between.
"""

from agentwrap.tracing.interposing.matcher import Matcher

__all__ = ["Matcher"]
