"""Requests over MCP in a recording, asked of a policy afterwards."""

from hashlib import sha256
from typing import Any

import pytest
from fake_recording import FakeRecording
from policy_texts import policy

from agentwrap.events import Event, McpCall, McpDecision, McpTool
from agentwrap.evidence.asked import Asked, asked
from agentwrap.evidence.judge import judge
from agentwrap.evidence.unused import unused
from agentwrap.policy.layers import Layer
from agentwrap.policy.questions import Call

RULES = policy(
    """
[[mcp]]
server = "github"
tools = ["merge"]
when = { arg = "branch", equals = "main" }
decision = "approve"
[[mcp]]
server = "github"
tools = ["delete"]
decision = "deny"
[network]
default = "allow"
[files.write]
default = "allow"
"""
)


def call(name: str, tool: bytes, arguments: bytes = b"", **more: Any) -> McpCall:
    digest = more.pop("digest", sha256(arguments).hexdigest())
    return McpCall(
        at_ns=1, call=name, session="s1", server=b"github", method=b"tools/call", tool=tool, arguments=arguments,
        digest=digest, **more,
    )  # fmt: skip


def decision(name: str, word: Any, ask: str = "", rule: bytes = b"") -> McpDecision:
    return McpDecision(
        at_ns=1, decision=word, by="guard", call=name, session="s1", server=b"github", ask=ask, rule=rule
    )  # fmt: skip


def questions(*events: Event) -> list[Call | str]:
    found = [one.question if isinstance(one, Asked) else one.why for one in asked(FakeRecording(list(events)))]
    return [one for one in found if isinstance(one, Call | str)]


def test_what_was_refused_is_not_asked_and_what_a_human_allowed_is_marked() -> None:
    assert questions(
        call("k1", b"a", b'{"x":1}'), call("k2", b"b"), call("k3", b"c"), call("k4", b"d"),
        decision("k2", "deny"), decision("k3", "allow", "r1"), decision("k4", "would-deny"),
    ) == [
        Call("github", "tools/call", "a", b'{"x":1}'),
        Call("github", "tools/call", "c", b"", approved=True),
        Call("github", "tools/call", "d", b""),
    ]  # fmt: skip


def test_arguments_that_are_not_there_whole_are_not_known() -> None:
    whole = call("k1", b"a", b'{"x":1}')
    unknown = [
        call("k1", b"a", b'{"x', omitted_bytes=9),
        call("k1", b"a", b"", digest=whole.digest),
        call("k1", b"a", '{"x":"\u00abredacted:key\u00bb"}'.encode()),
    ]  # fmt: skip
    assert questions(*unknown) == [Call("github", "tools/call", "a")] * 3


def test_the_definition_counts_that_was_listed_last() -> None:
    tool = McpTool(at_ns=1, session="s1", server=b"github", name=b"merge", digest="ab")
    gone = McpTool(at_ns=1, session="s1", server=b"github", name=b"merge", digest="ab", change="removed")
    found = questions(call("k1", b"merge"), tool, call("k2", b"merge"), gone, call("k3", b"merge"))
    assert [one.listed for one in found if isinstance(one, Call)] == [None, "ab", ""]


@pytest.mark.parametrize(
    ("events", "violated", "unclear"),
    [
        ([call("k1", b"merge", b'{"branch":"main"}')], 1, 0),
        ([call("k1", b"merge", b'{"branch":"main"}'), decision("k1", "allow", "r1")], 0, 0),
        ([call("k1", b"merge", b'{"branch":"x"}')], 0, 0),
        ([call("k1", b"merge", b'{"branch', omitted_bytes=5)], 0, 1),
        ([call("k1", b"delete", b"{", omitted_bytes=5)], 1, 0),
        ([call("k1", b"delete"), decision("k1", "deny")], 0, 0),
        ([call("k1", b"merge", b'{"branch":"main","branch":"x"}')], 1, 0),
    ],
)
def test_a_recording_is_judged_by_a_policy_afterwards(events: list[Event], violated: int, unclear: int) -> None:
    judged = judge(FakeRecording(events), RULES)
    assert (judged.violated, sum(one.count for one in judged.cannot_tell)) == (violated, unclear)


def test_a_violation_says_what_rule_and_why() -> None:
    (one,) = judge(FakeRecording([call("k1", b"merge", b'{"branch":"main"}')]), RULES).violations
    assert (one.what, one.rule) == ("mcp github merge", "mcp.approve `github merge` (t.toml:5)")
    assert one.why == "a human has to allow it"


def test_rules_that_decided_nothing_are_told() -> None:
    layers = (Layer("user", RULES),)

    def idle(*events: Event) -> list[str]:
        return [one.rule.where for one in unused(FakeRecording(list(events)), layers).idle]

    assert idle() == ["mcp.approve", "mcp.deny"]
    assert idle(call("k1", b"merge", b'{"branch":"main"}')) == ["mcp.deny"]
    assert idle(decision("k1", "deny", rule=str(RULES.mcp.rules[1].rule).encode())) == ["mcp.approve"]
