"""An MCP session as the relay would tell it, for tests: lines of both sides in, items out."""

import json
from typing import Any

from agentwrap.events import Content, Item, McpBytes, McpClosed, McpJudged, McpOpened, ToolCall, ToolResult
from agentwrap.mcp.decoder import McpDecoder

MODERN = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


def spelled(message: object) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode() + b"\n"


class Told:
    """One decoder, and what it made. Every step is a microsecond after the one before."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.decoder = McpDecoder(self.items.append)
        self.at_ns = 0

    def now(self) -> int:
        self.at_ns += 1000
        return self.at_ns

    def open(self, session: int = 1, server: bytes = b"tickets", span: str = "p3", pid: int = 77) -> "Told":
        news = McpOpened(session=session, at_ns=self.now(), span=span, pid=pid, server=server, how="config")
        self.decoder.feed(news)
        return self

    def raw(self, data: bytes, *, up: bool, session: int = 1) -> None:
        self.decoder.feed(McpBytes(session, self.now(), up, data))

    def up(self, message: object, session: int = 1) -> None:
        self.raw(spelled(message), up=True, session=session)

    def down(self, message: object, session: int = 1) -> None:
        self.raw(spelled(message), up=False, session=session)

    def ask(self, ident: object, method: str, params: Any = None, *, up: bool = True, session: int = 1) -> None:
        message = {"jsonrpc": "2.0", "id": ident, "method": method}
        self.raw(spelled(message if params is None else {**message, "params": params}), up=up, session=session)

    def answer(self, ident: object, result: Any, *, up: bool = False, session: int = 1) -> None:
        self.raw(spelled({"jsonrpc": "2.0", "id": ident, "result": result}), up=up, session=session)

    def call(self, ident: object, tool: str, arguments: Any = None, meta: Any = None, session: int = 1) -> None:
        params = {"name": tool, "arguments": arguments or {}} | ({"_meta": meta} if meta else {})
        self.ask(ident, "tools/call", params, session=session)

    def text(self, ident: object, text: str, *, error: bool = False, session: int = 1) -> None:
        result = {"content": [{"type": "text", "text": text}]} | ({"isError": True} if error else {})
        self.answer(ident, result, session=session)

    def judged(self, verdict: Any, line: int, *, up: bool = True, **fields: Any) -> None:
        self.decoder.feed(McpJudged(session=1, at_ns=self.now(), up=up, line=line, verdict=verdict, **fields))

    def model_calls(self, tool: str, name: bytes, arguments: bytes = b"{}", ident: bytes = b"") -> None:
        at = {"at_ns": self.now(), "call": "m1", "agent": "a1", "turn": "t1"}
        self.decoder.see([ToolCall(tool=tool, id=ident or tool.encode(), name=name, arguments=arguments, **at)])

    def model_told(self, tool: str) -> None:
        at = {"at_ns": self.now(), "call": "m2", "agent": "a1", "turn": "t2"}
        self.decoder.see([ToolResult(tool=tool, id=tool.encode(), **at)])

    def close(self, session: int = 1, ending: Any = "client-closed") -> None:
        self.decoder.feed(McpClosed(session=session, at_ns=self.now(), ending=ending))

    def of(self, *kinds: type) -> list[Any]:
        return [item for item in self.items if isinstance(item, kinds)]

    def bodies(self, session: str = "s1") -> list[tuple[bool, bytes]]:
        """Side and bytes of every message."""
        held: dict[bytes, bytes] = {item.sha: item.data for item in self.of(Content)}
        return [
            (item.up, b"".join(held[piece] for piece in item.body.pieces))
            for item in self.items
            if type(item).__name__ == "McpMessage" and item.session == session
        ]
