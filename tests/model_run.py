"""One run with model traffic in events: an agent that is rate limited, runs a shell command, edits a file, starts
another agent, and is cut off. For readers. Bodies are JSON as the API has it."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from sample_run import MS, edit, meta, program, start

from agentwrap.events import (
    Body,
    Content,
    HttpExchange,
    Item,
    ModelRequest,
    ModelResponse,
    NetConnect,
    ProcessExit,
    RunEnd,
    RunStart,
    ToolCall,
    ToolResult,
)

HOST = b"api.example.com"
MODEL = b"claude-sonnet-4-5"
SYSTEM = {"type": "text", "text": "You fix things."}
ASK = {"role": "user", "content": "Fix the billing tests. Never touch prod.ini."}
SAYS = {"role": "assistant", "content": [
    {"type": "text", "text": "I run them."},
    {"type": "tool_use", "id": "tu1", "name": "Bash", "input": {"command": "pytest -x tests/billing"}},
]}  # fmt: skip
RAN = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "tu1", "content": "1 failed\nE 3"}]}
EDITS = {"role": "assistant", "content": [
    {"type": "tool_use", "id": "tu2", "name": "Edit", "input": {"file_path": "/srv/project/billing/retry.py"}},
    {"type": "tool_use", "id": "tu3", "name": "Task", "input": {"description": "look it over", "prompt": "Look."}},
]}  # fmt: skip
DONE = {"role": "user", "content": [
    {"type": "tool_result", "tool_use_id": "tu2", "content": "ok"},
    {"type": "tool_result", "tool_use_id": "tu3", "content": "fine", "is_error": True},
]}  # fmt: skip
SUMMARY = {"role": "user", "content": "Summary: tests were fixed."}


def body(*pieces: bytes) -> tuple[Body, list[Item]]:
    """A body and the contents it is made of."""
    contents: list[Item] = [Content(hashlib.sha256(piece).digest(), piece, "body") for piece in pieces]
    return Body(sum(map(len, pieces)), tuple(hashlib.sha256(piece).digest() for piece in pieces)), contents


def request_body(messages: list[dict[str, Any]], system: Any = SYSTEM) -> bytes:
    """A request of the Messages API."""
    told = {"model": MODEL.decode(), "stream": True, "system": [system], "messages": messages}
    return json.dumps(told).encode()


def asked(at_ms: int, call: str, turn: str, messages: list[dict[str, Any]], **fields: Any) -> list[Item]:
    """A request with its body."""
    told, contents = body(request_body(messages))
    fields = {"agent": "a1", "span": "p1", "pid": 4100, "model": MODEL, **fields}
    event = ModelRequest(
        at_ns=at_ms * MS, call=call, turn=turn, api="anthropic.messages", host=HOST, port=443, path=b"/v1/messages",
        messages=len(messages), headers=((b"user-agent", b"agent/1.0"),), request=told, **fields,
    )  # fmt: skip
    return [*contents, event]


def answered(
    at_ms: int, call: str, turn: str, asked_ms: int, blocks: list[dict[str, str]], **fields: Any
) -> list[Item]:
    """An answer with what it says."""
    message = json.dumps({"role": "assistant", "blocks": blocks}).encode()
    told, contents = body(message) if blocks else (Body(), [])
    fields = {"agent": "a1", "span": "p1", "pid": 4100, "ending": "complete", "status": 200, "model": MODEL, **fields}
    event = ModelResponse(
        at_ns=at_ms * MS, call=call, turn=turn, requested_ns=asked_ms * MS, headers_ns=(asked_ms + 100) * MS,
        first_token_ns=(asked_ms + 300) * MS if blocks else 0, message=told, **fields,
    )  # fmt: skip
    return [*contents, event]


def tool(at_ms: int, tool: str, call: str, turn: str, name: bytes, arguments: Any, agent: str = "a1") -> ToolCall:
    """A tool call; arguments are JSON."""
    text = arguments if isinstance(arguments, bytes) else json.dumps(arguments).encode()
    return ToolCall(
        at_ns=at_ms * MS, span="p1", pid=4100, tool=tool, call=call, agent=agent, turn=turn, id=b"t" + tool.encode(),
        name=name, arguments=text,
    )  # fmt: skip


def result(at_ms: int, tool: str, call: str, turn: str, name: bytes, text: bytes, **fields: Any) -> ToolResult:
    """What the agent told of it."""
    fields = {"agent": "a1", **fields}
    return ToolResult(
        at_ns=at_ms * MS, span="p1", pid=4100, tool=tool, call=call, turn=turn, id=b"t" + tool.encode(), name=name,
        size=len(text), text=text, **fields,
    )  # fmt: skip


WRAPPED = b"source /tmp/snapshot.sh && eval 'pytest -x tests/billing' < /dev/null && pwd -P >| /tmp/cwd"


def items() -> list[Item]:
    """The whole run."""
    return [*_begun(), *_first_turn(), *_second_turn(), *_third_turn()]


def _begun() -> list[Item]:
    return [
        RunStart(at_ns=0, command=(b"agent", b"-p", b"fix"), cwd=b"/srv/project", uid=1000, gid=1000, mode="x"),
        start(1, "p1", 4100, "run", b"agent"),
        program(2, "p1", 4100, b"agent", b"-p", b"fix"),
        NetConnect(at_ns=10 * MS, span="p1", pid=4100, family="inet", transport="tcp", host=HOST, port=443),
        HttpExchange(at_ns=50 * MS, span="p1", pid=4100, exchange="h1", host=HOST, port=443, method=b"GET",
                     path=b"/v1/models", status=200, requested_ns=20 * MS),
    ]  # fmt: skip


def _first_turn() -> list[Item]:
    usage = {"input_tokens": 18204, "cache_read_tokens": 17900, "output_tokens": 212, "cost_usd": "0.0214",
             "prices": "genai-prices 2026-11-01"}  # fmt: skip
    blocks = [
        {"kind": "thinking", "text": "Tests first."},
        {"kind": "text", "text": "I run them."},
        {"kind": "tool", "id": "tu1", "name": "Bash", "arguments": '{"command":"pytest -x tests/billing"}'},
    ]
    return [
        *asked(100, "m1", "t1", [ASK]),
        *answered(300, "m1", "t1", 100, [], ending="error", status=529, error=b"overloaded_error: busy",
                  retry_after=b"1", model=b""),
        *asked(1300, "m2", "t1", [ASK], attempt=2, retry_of="m1", joined="prefix"),
        tool(3200, "x1", "m2", "t1", b"Bash", {"command": "pytest -x tests/billing"}),
        *answered(3200, "m2", "t1", 1300, blocks, tool_calls=1, stop=b"tool_use", request_id=b"req_1",
                  response_id=b"msg_1", **usage),
        start(3250, "p2", 4121, "p1", b"agent"),
        program(3251, "p2", 4121, b"bash", b"-c", WRAPPED),
        start(3260, "p3", 4122, "p2", b"bash"),
        program(3261, "p3", 4122, b"pytest", b"-x", b"tests/billing"),
        *edit(3300, "p3", 4122, b"/srv/project/report.xml", None, b"<r/>\n"),
        NetConnect(at_ns=3350 * MS, span="p3", pid=4122, family="inet", transport="tcp", host=b"192.0.2.7", port=5432),
        ProcessExit(at_ns=6400 * MS, span="p3", pid=4122, status=1),
        ProcessExit(at_ns=6401 * MS, span="p2", pid=4121, status=1),
    ]  # fmt: skip


def _second_turn() -> list[Item]:
    blocks = [{"kind": "tool", "id": "tu2", "name": "Edit", "arguments": "{}"}]
    return [
        *asked(6450, "m3", "t2", [ASK, SAYS, RAN], joined="prefix", repeated=1),
        result(6450, "x1", "m3", "t2", b"Bash", b"1 failed\nE 3"),
        tool(7000, "x2", "m3", "t2", b"Edit", {"file_path": "/srv/project/billing/retry.py"}),
        tool(7000, "x3", "m3", "t2", b"Task", {"description": "look it over", "prompt": "Look."}),
        *answered(7000, "m3", "t2", 6450, blocks, tool_calls=2, input_tokens=18400, cache_read_tokens=18204,
                  output_tokens=90, reasoning_tokens=30),
        *edit(7100, "p1", 4100, b"/srv/project/billing/retry.py", b"a\n", b"b\n"),
        *asked(7150, "m4", "t3", [{"role": "user", "content": "Look."}], agent="a2", agent_parent="x3",
               model=b"unknown-model"),
        *answered(7900, "m4", "t3", 7150, [{"kind": "text", "text": "Looks fine."}], agent="a2",
                  model=b"unknown-model", input_tokens=500, output_tokens=20),
    ]  # fmt: skip


def _third_turn() -> list[Item]:
    return [
        *asked(8000, "m5", "t4", [SUMMARY, EDITS, DONE], joined="id", dropped=3),
        result(8000, "x2", "m5", "t4", b"Edit", b"ok", error=False),
        result(8000, "x3", "m5", "t4", b"Task", b"fine", error=True),
        *answered(9000, "m5", "t4", 8000, [{"kind": "text", "text": "Done, al"}], ending="incomplete",
                  error=b"the connection was cut"),
        *asked(9100, "m6", "t5", [SUMMARY, EDITS, DONE, {"role": "user", "content": "Go on."}], repeated=3),
        ProcessExit(at_ns=9900 * MS, span="p1", pid=4100, status=0),
        RunEnd(at_ns=9901 * MS, status=0),
    ]  # fmt: skip


def events() -> Iterator[Any]:
    """The run without contents."""
    from agentwrap.events import Event

    return (item for item in items() if isinstance(item, Event))


__all__ = ["events", "items", "meta"]
