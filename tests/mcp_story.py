"""Recordings of MCP calls for tests of the review, through the real recorder: a run where all is well, and its faults.

`Story` collects items in order; `write` makes a closed, signed file of them. Each method adds what the recorder would
add for one thing that happened; what a test wants to be wrong, it passes or leaves out.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recordings import make

from agentwrap.events import (
    AskAnswered,
    AskWaiting,
    Body,
    Content,
    Coverage,
    Item,
    McpCall,
    McpDecision,
    McpMessage,
    McpResult,
    McpSession,
    McpTool,
    NetClosed,
    NetDecision,
    ProcessExec,
    ProcessStart,
    RunEnd,
    RunStart,
)
from agentwrap.evidence.report.controls import Control
from agentwrap.evidence.report.review import review
from agentwrap.evidence.report.reviewed import Review
from agentwrap.mcp.normal_form import tool_digest
from agentwrap.policy.document import load
from agentwrap.policy.layers import Layer
from agentwrap.policy.loaded import loaded_event
from agentwrap.policy.paths import Places

KEY = make.public_key()
MS = 1_000_000
COVERED = ("process", "exec", "connect", "dns", "udp", "unix", "file-write", "mcp-stdio", "mcp-http")
HEAD = 'version = 1\nname = "ci"\nmode = "enforce"\nagent = "release-bot"\non_behalf_of = "alice"\n'
POLICY = HEAD + """
[network]
allow = ["api.example:443", "10.0.0.0/8:443"]

[[mcp]]
server = "github"
tools = ["push", "delete_*"]
decision = "deny"
reason = "nobody pushes from here"

[[mcp]]
server = "github"
tools = ["merge"]
when = { arg = "branch", matches = "main" }
decision = "approve"
reason = "merges need a human"
"""
SERVER = b"github"
MERGE = b'{"branch":"main"}'


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class Story:
    """A run with a policy, covered in full. `policy`: its text; None for a run without one."""

    def __init__(self, policy: str | None = POLICY, covered: Sequence[str] = COVERED, **principal: bytes) -> None:
        self.items: list[Item] = []
        self.at_ms = 0
        self.calls = self.numbers = 0
        self.principal = {"agent": b"release-bot", "on_behalf_of": b"alice", **principal}
        self.who: dict[str, Any] = {"span": "p2", "pid": 42}
        user = {"uid": 1000, "gid": 1000}
        self.add(RunStart(at_ns=0, command=(b"agent",), cwd=b"/srv", mode="ptrace+notify",
                          environment=((b"HOME", b"/home/a"), (b"USER", b"alice")), **user))
        if policy is not None:
            layer = Layer("flags", load(policy.encode(), "ci.toml", Places("/srv", "/home/a", "/tmp"), {}))
            self.add(loaded_event([layer]))
        for what in covered:
            self.add(Coverage(at_ns=0, what=what, tier="wall", mechanism="test"))  # type: ignore[arg-type]
        for span, pid, parent, name in (("p1", 41, "run", b"agent"), ("p2", 42, "p1", b"server")):
            path = b"/usr/bin/" + name
            self.add(ProcessStart(at_ns=self.now(), span=span, pid=pid, parent=parent, how="fork", comm=name))
            self.add(ProcessExec(at_ns=self.now(), span=span, pid=pid, path=path, exe=path, argv=(name,), cwd=b"/srv",
                                 euid=1000, **user))
        self.add(McpSession(at_ns=self.now(), session="s1", server=SERVER, command=(b"server",), **self.who))

    def now(self) -> int:
        self.at_ms += 1
        return self.at_ms * MS

    def add(self, *items: Item) -> None:
        self.items += items

    def body(self, data: bytes) -> Body:
        sha = hashlib.sha256(data).digest()
        self.add(Content(sha, data, "body"))
        return Body(len(data), (sha,))

    def message(self, data: bytes, *, up: bool, sort: str, kept: bool = True, **fields: Any) -> None:
        self.numbers += 1
        body = self.body(data) if kept else Body(len(data), omitted="not-kept")
        self.add(McpMessage(at_ns=self.now(), session="s1", number=self.numbers, up=up, sort=sort, body=body,  # type: ignore[arg-type]
                            **{**self.who, **fields}))

    def begin(self, tool: str = "search", arguments: bytes = b'{"q":"x"}', *, passed: bool = True, kept: bool = True,
              row: dict[str, Any] | None = None, call_row: bool = True, request: bytes = b"") -> str:
        """A request and its call row. `row`: fields of the row that are others."""
        self.calls += 1
        call, ident = f"k{self.calls}", b"%d" % self.calls
        sent = request or (b'{"jsonrpc":"2.0","id":%b,"method":"tools/call","params":{"name":%b,"arguments":%b}}'
                           % (ident, dumps(tool), arguments))
        told: dict[str, Any] = {"server": SERVER, "method": b"tools/call", "tool": tool.encode(), "id": ident,
                                "arguments": arguments, "digest": digest(arguments), **self.principal, **self.who,
                                **(row or {})}
        if call_row:
            self.add(McpCall(at_ns=self.now(), call=call, session="s1", **told))
        self.message(sent, up=True, sort="request", method=b"tools/call", id=ident, call=call, passed=passed, kept=kept)
        return call

    def decide(self, call: str, decision: str = "allow", tool: str = "search", arguments: bytes = b'{"q":"x"}',
               **fields: Any) -> None:
        told: dict[str, Any] = {"server": SERVER, "method": b"tools/call", "tool": tool.encode(), "by": "wall",
                                "digest": digest(arguments), **self.principal, **self.who, **fields}
        self.add(McpDecision(at_ns=self.now(), call=call, session="s1", decision=decision, **told))  # type: ignore[arg-type]

    def answer(self, call: str, ending: str = "complete", *, ident: bytes = b"", ours: bool = False, sent: bool = True,
               kept: bool = True, result: bool = True, error: bool | None = None) -> None:
        """The answer's message, and the result row."""
        ident = ident or call[1:].encode()
        wrong = ending == "error" if error is None else error
        inner = b'"error":{"code":-1,"message":"no"}' if wrong else b'"result":{"content":[]}'
        if sent:
            told = b'{"jsonrpc":"2.0","id":%b,%b}' % (ident, inner)
            self.message(told, up=False, sort="response", id=ident, call=call, ours=ours, kept=kept)
        if result:
            self.add(McpResult(at_ns=self.now(), call=call, session="s1", server=SERVER, ending=ending,  # type: ignore[arg-type]
                               method=b"tools/call", **self.who))

    def fine(self, tool: str = "search") -> str:
        """A call that nobody ruled about."""
        call = self.begin(tool)
        self.answer(call)
        return call

    def denied(self, tool: str = "push") -> str:
        call = self.begin(tool, passed=False)
        self.decide(call, "deny", tool)
        self.answer(call, "denied", ours=True)
        return call

    def ask(self, ask: str = "r1", answer: str = "once", *, arguments: bytes = MERGE, waits_ms: int = 1000,
            question: dict[str, Any] | None = None, answered: bool = True, **fields: Any) -> None:
        """A question to a human about a merge, and the answer."""
        at_ns = self.now()
        told = {"server": SERVER, "tool": b"merge", "digest": digest(arguments), **self.principal, **self.who,
                **(question or {})}
        self.add(AskWaiting(at_ns=at_ns, ask=ask, question=b"merge?", until_ns=at_ns + waits_ms * MS, **told))
        if answered:
            self.reply(ask, answer, **fields)

    def reply(self, ask: str = "r1", answer: str = "once", **fields: Any) -> None:
        told: dict[str, Any] = {"approver": b"bob", "uid": 1001, "approver_pid": 900, **fields}
        self.add(AskAnswered(at_ns=self.now(), ask=ask, answer=answer, **told))  # type: ignore[arg-type]

    def approved(self, ask: str = "r1", arguments: bytes = MERGE) -> str:
        """A merge that a human allowed, once."""
        call = self.begin("merge", arguments)
        self.ask(ask, arguments=arguments)
        self.decide(call, "allow", "merge", arguments, ask=ask)
        self.answer(call)
        return call

    def tool(self, name: bytes = b"search", description: str = "finds things", *, server: bytes = SERVER,
             kept: bool = True, **fields: Any) -> None:
        definition = dumps({"name": name.decode(), "description": description, "inputSchema": {"type": "object"}})
        body = self.body(definition) if kept else Body(len(definition), omitted="not-kept")
        told: dict[str, Any] = {"digest": tool_digest(definition), "definition": body, **self.who, **fields}
        self.add(McpTool(at_ns=self.now(), session="s1", server=server, name=name, **told))

    def connect(self, ident: str, decision: str, host: bytes = b"evil.example", **fields: Any) -> None:
        told: dict[str, Any] = {"port": 443, "by": "wall", "rule": b"network.default", **self.who, **fields}
        self.add(NetDecision(at_ns=self.now(), connection=ident, host=host, decision=decision, **told))  # type: ignore[arg-type]

    def closed(self, ident: str, ending: str = "closed", host: bytes = b"evil.example", up: int = 10) -> None:
        at_ns = self.now()
        self.add(NetClosed(at_ns=at_ns, connection=ident, host=host, port=443, ending=ending, opened_ns=at_ns - 1,  # type: ignore[arg-type]
                           up_bytes=up, **self.who))

    def write(self, path: Path, *, signed: bool = True, end: bool = True) -> Path:
        path.unlink(missing_ok=True)
        recorder = make.begin(path, signed=signed)
        for item in [*self.items, *([RunEnd(at_ns=self.now(), status=0)] if end else [])]:
            if isinstance(item, Content):
                recorder.content(item)
            else:
                recorder.add(item)  # type: ignore[arg-type]
        recorder.close()
        return path

    def review(self, folder: Path, **options: Any) -> Review:
        return review(self.write(folder / "r.agentlog", **options), public_key=KEY)

    def control(self, folder: Path, name: str, **options: Any) -> Control:
        return next(one for one in self.review(folder, **options).controls if one.id == name)
