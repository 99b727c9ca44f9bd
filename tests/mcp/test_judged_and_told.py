"""What the gate judges and what the record tells is the same: digests of arguments, names of tools."""

import json
from typing import Any

import pytest
from mcp_told import Told
from policy_texts import policy

from agentwrap.events import McpCall
from agentwrap.mcp.gate import Gate
from agentwrap.policy.layers import Layer

RULES = """
[[mcp]]
server = "tickets"
methods = ["*"]
decision = "deny"
"""
GATE = Gate((Layer("user", policy(RULES, mode="enforce")),), b"tickets")


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "a", "arguments": {"q": 1.0, "é": "\u2028"}}),
        ("tools/call", {"name": "a"}),
        ("tools/call", {"name": "a", "arguments": {}, "_meta": {"progressToken": 1}}),
        ("prompts/get", {"name": "p", "arguments": {"x": "y"}}),
        ("resources/read", {"uri": "file:///x"}),
        ("sampling/createMessage", {"messages": []}),
        ("roots/list", None),
    ],
)
def test_a_call_has_one_digest_and_one_name(up: bool, method: str, params: Any) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": method} | ({} if params is None else {"params": params})
    text = json.dumps(message, ensure_ascii=False).encode()
    told = Told().open()
    told.raw(text + b"\n", up=up)
    (call,) = told.of(McpCall)
    (verdict,) = GATE.judge(text, up=up)
    assert verdict.decision == "deny"
    assert (verdict.digest, verdict.method, verdict.id) == (call.digest, call.method, call.id)
    assert verdict.tool in (call.tool, b"")
