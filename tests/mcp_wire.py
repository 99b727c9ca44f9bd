"""MCP messages as HTTP, said to a tap piece by piece."""

from agentwrap.gateway.capture.tap import Tap

INITIALIZE = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}'
CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}'
RESULT = b'{"jsonrpc":"2.0","id":1,"result":{}}'
ASKS = b'{"jsonrpc":"2.0","id":9,"method":"sampling/createMessage","params":{}}'
ACCEPT = b"Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"


def post(tap: Tap, body: bytes, more: bytes = b"", path: bytes = b"/mcp", step: int = 1 << 20) -> None:
    head = b"POST %b HTTP/1.1\r\nHost: mcp.example\r\n%b%bContent-Length: %d\r\n\r\n"
    raw = head % (path, ACCEPT, more, len(body)) + body
    for at in range(0, len(raw), step):
        tap.up(raw[at : at + step])


def answer(tap: Tap, body: bytes, more: bytes = b"Content-Type: application/json\r\n", status: int = 200) -> None:
    tap.down(b"HTTP/1.1 %d OK\r\n%bContent-Length: %d\r\n\r\n" % (status, more, len(body)) + body)


def stream(tap: Tap, *events: bytes, more: bytes = b"", end: bool = True, step: int = 1 << 20) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n%b\r\n" % more
    raw = head + b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in events) + (b"0\r\n\r\n" if end else b"")
    for at in range(0, len(raw), step):
        tap.down(raw[at : at + step])
