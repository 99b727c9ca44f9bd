"""MCP in the formats that others read."""

import json

import mcp_run
import msgspec
from export_received import Trace
from fake_recording import FakeRecording

from agentwrap.events import McpCall
from agentwrap.export import exporter, otlp

STARTED = 10**18
RUN = FakeRecording(mcp_run.items(), meta={**mcp_run.meta(), "run_id": "r1"})
TRACE = Trace(b"".join(otlp.requests(RUN, RUN.rows(), STARTED)))


def test_a_call_is_a_span_below_the_tool_call_it_carries_out() -> None:
    span = TRACE.one("tools/call export", agentwrap__mcp__call="k4")
    told = TRACE.told(span)
    assert span.kind == 3
    left_out = ("agentwrap.mcp.arguments", "gen_ai.tool.call")
    assert {name: told[name] for name in told if not name.startswith(left_out)} == {
        "mcp.method.name": "tools/call", "mcp.protocol.version": "2025-11-25", "jsonrpc.request.id": "3",
        "network.transport": "pipe", "gen_ai.tool.name": "export", "gen_ai.tool.type": "extension",
        "agentwrap.mcp.call": "k4", "agentwrap.mcp.server": "tickets", "agentwrap.mcp.session": "s1",
        "agentwrap.mcp.asked_by": "client", "agentwrap.mcp.ending": "complete", "agentwrap.mcp.result.size": 50,
        "agentwrap.mcp.joined": "content", "agentwrap.tool": "x2",
    }  # fmt: skip
    assert TRACE.above(span)[:2] == ["execute_tool mcp__tickets__export", "turn t1"]
    assert json.loads(told["gen_ai.tool.call.arguments"]) == mcp_run.EXPORT


def test_what_the_server_did_is_below_the_call() -> None:
    edit = next(span for span in TRACE.spans if "tickets.md" in span.name)
    git = TRACE.one("process git")
    for span in (edit, git):
        assert TRACE.above(span)[0] == "tools/call export"


def test_a_denied_call_is_an_error_with_its_decision() -> None:
    span = TRACE.one("tools/call export", agentwrap__mcp__call="k6")
    assert TRACE.told(span)["error.type"] == "denied"
    assert [event.name for event in span.events] == ["agentwrap.policy.deny"]


def test_sessions_and_what_they_do_for_themselves() -> None:
    session = TRACE.one("mcp tickets")
    assert TRACE.told(session)["agentwrap.mcp.server.name"] == "ticket-server"
    listing = TRACE.one("tools/list", agentwrap__mcp__call="k2")
    assert TRACE.above(listing)[0] == "mcp tickets"
    assert "gen_ai.operation.name" not in TRACE.told(listing)
    noted = {event.name for event in session.events}
    assert {"agentwrap.mcp.finding", "agentwrap.mcp.tool", "agentwrap.mcp.hello"} <= noted


def test_a_call_that_nobody_was_seen_to_ask_for_is_the_execution_itself() -> None:
    items = [one for one in mcp_run.items() if not type(one).__name__.startswith(("Tool", "Model", "McpJoined"))]
    bare = [msgspec.structs.replace(one, tool_call="", joined="") if isinstance(one, McpCall) else one for one in items]
    source = FakeRecording(bare, meta={**mcp_run.meta(), "run_id": "r1"})
    trace = Trace(b"".join(otlp.requests(source, source.rows(), STARTED)))
    span = trace.one("tools/call search")
    assert trace.told(span)["gen_ai.operation.name"] == "execute_tool"
    assert trace.above(span)[0] == "mcp tickets"


def test_a_timeline_has_tracks_of_calls_and_arrows_from_tools() -> None:
    events = json.loads(b"".join(exporter("perfetto")(RUN, RUN.rows(), STARTED)))["traceEvents"]
    calls = [one for one in events if one["ph"] == "X" and one["cat"] == "mcp"]
    names = [one["name"] for one in calls]
    assert names == ["initialize", "tools/list", "search", "export", "merge", "export", "tools/list"]
    assert {one["pid"] for one in calls} == {1002}
    starts = sorted(one["id"] for one in events if one["ph"] == "s")
    assert starts == sorted(one["id"] for one in events if one["ph"] == "f")
    assert len([one for one in starts if one > 1_000_000]) == 4


def test_rows_as_lines_of_json_tell_of_mcp() -> None:
    lines = b"".join(exporter("jsonl")(RUN, RUN.rows(), STARTED)).splitlines()
    kinds = {json.loads(one).get("type") for one in lines}
    assert {"mcp.session", "mcp.call", "mcp.result", "mcp.decision", "mcp.tool", "mcp.finding"} <= kinds
