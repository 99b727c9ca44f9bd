"""Sessions and calls of MCP folded from events, and the views of the file over them."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import mcp_run
from recordings import make

from agentwrap.evidence.verify import verify
from agentwrap.recording import spans
from agentwrap.recording.spans import SpanTable

Told = tuple[int, str, dict[str, Any]]


def folded(*facts: Told) -> SpanTable:
    table = SpanTable()
    for seq, (at_ns, kind, data) in enumerate(facts, 1):
        table.apply(at_ns, kind, "p4", 77, "subject", data, seq)
    return table


def session(at_ns: int) -> Told:
    return at_ns, "mcp.session", {"session": "s1", "server": "tickets", "command": ["node"]}


def call(at_ns: int, number: int, **more: Any) -> Told:
    told = {"call": f"k{number}", "session": "s1", "server": "tickets", "method": "tools/call", **more}
    return at_ns, "mcp.call", told


def result(at_ns: int, number: int, **more: Any) -> Told:
    return at_ns, "mcp.result", {"call": f"k{number}", "session": "s1", "ending": "complete", "size": 5, **more}


def joined(at_ns: int, number: int, tool: str = "x1") -> Told:
    return at_ns, "mcp.joined", {"call": f"k{number}", "session": "s1", "tool_call": tool, "joined": "content"}


def test_a_session_with_two_calls() -> None:
    table = folded(
        session(10),
        (15, "mcp.hello", {"session": "s1", "server": "tickets", "protocol": "2025-11-25", "server_name": "t"}),
        call(20, 1, tool="search", tool_call="x1", joined="id", digest="ab"),
        (21, "mcp.decision", {"call": "k1", "decision": "allow", "rule": "r", "ask": "r1"}),
        result(30, 1, digest="cd", claimed_ns=7),
        call(40, 2, up=False),
        (50, "mcp.ended", {"session": "s1", "ending": "client-closed", "messages": 4, "up_bytes": 9}),
    )
    assert {one.id: one.columns()[1:7] for one in table.spans.values()} == {
        "s1": ("p4", "session", "subject", 10, 50, "client-closed"),
        "k1": ("x1", "mcp", "subject", 20, 30, "complete"),
        "k2": ("s1", "mcp", "subject", 40, None, None),
    }
    assert table.spans["s1"].data == {
        "pid": 77, "server": "tickets", "command": ["node"], "protocol": "2025-11-25", "server_name": "t",
        "messages": 4, "up_bytes": 9,
    }  # fmt: skip
    assert table.spans["k1"].data == {
        "process": "p4", "pid": 77, "call_seq": 3, "session": "s1", "server": "tickets", "method": "tools/call",
        "tool": "search", "digest": "ab", "tool_call": "x1", "joined": "id", "decision_seq": 4, "decision": "allow",
        "rule": "r", "ask": "r1", "result_seq": 5, "size": 5, "claimed_ns": 7, "result_digest": "cd",
    }  # fmt: skip


def test_what_is_over_changes_no_more_but_may_be_joined() -> None:
    table = folded(session(10), call(20, 1), result(30, 1))
    assert [row.id for row in table.changed()] == ["s1", "k1"]
    assert "k1" not in table.spans
    table.apply(40, "mcp.decision", "p4", 77, "", {"call": "k1", "decision": "deny"}, 4)
    table.apply(41, "mcp.call", "p4", 77, "", call(41, 1)[2], 5)
    assert table.changed() == []
    table.apply(42, "mcp.joined", "p4", 77, "", joined(42, 1)[2], 6)
    (row,) = table.changed()
    assert (row.parent, row.data["tool_call"], row.data["joined"], row.end_ns) == ("x1", "x1", "content", 30)
    table.apply(43, "mcp.joined", "p4", 77, "", joined(43, 1, "x2")[2], 7)
    assert table.changed() == []


def test_an_open_call_is_joined_once() -> None:
    table = folded(session(10), call(20, 1), joined(25, 1), joined(26, 1, "x2"), result(30, 1), joined(31, 1, "x3"))
    assert table.spans["k1"].parent == "x1"


def test_only_the_last_ones_that_ended_may_be_joined() -> None:
    many = spans._JOINED_LATE_MAX + 1
    table = folded(session(10), *(fact for n in range(many) for fact in (call(20, n), result(30, n))))
    table.apply(40, "mcp.joined", "p4", 77, "", joined(40, 0)[2], 9)
    table.apply(40, "mcp.joined", "p4", 77, "", joined(40, 1)[2], 9)
    assert (table.spans["k0"].parent, table.spans["k1"].parent) == ("s1", "x1")


def test_rows_that_name_nothing_make_nothing() -> None:
    table = folded(
        (1, "mcp.session", {}),
        (1, "mcp.call", {}),
        (1, "mcp.hello", {"session": 7}),
        (1, "mcp.result", {"call": "k9"}),
        (1, "mcp.joined", {"call": "k9"}),
        (1, "mcp.ended", {"session": "s9"}),
        (1, "mcp.decision", {}),
    )
    assert table.spans == {}


def test_the_views_of_a_recorded_run(tmp_path: Path) -> None:
    path = mcp_run.write(tmp_path / "mcp.agentlog", make.begin)
    assert verify(path, public_key=make.public_key()).word == "intact"
    with contextlib.closing(sqlite3.connect(path)) as file:
        ask = file.execute
        talks = ask("SELECT session, span, server, transport, how, server_name, ending, messages FROM mcp_session")
        assert talks.fetchall() == [
            ("s1", "p2", "tickets", "stdio", "config", "ticket-server", "client-closed", 15)
        ]  # fmt: skip
        told = ask(
            "SELECT call, method, tool, tool_call, joined, ending, verdict, ask, up FROM mcp_call "
            "WHERE tool IS NOT NULL"
        ).fetchall()
        assert told == [
            ("k3", "tools/call", "search", "x1", "id", "complete", None, None, 1),
            ("k4", "tools/call", "export", "x2", "content", "complete", None, None, 1),
            ("k5", "tools/call", "merge", "x3", "content", "complete", "allow", "r1", 1),
            ("k6", "tools/call", "export", "x4", "id", "denied", "deny", None, 1),
        ]
        assert ask("SELECT arguments ->> 'q', text, why FROM mcp_call WHERE call = 'k3'").fetchone() == (
            "billing flaky", "T-1 billing is flaky\n" * 3, None,
        )  # fmt: skip
        assert ask("SELECT agent, on_behalf_of, why FROM mcp_call WHERE call = 'k5'").fetchone() == (
            "release-bot", "ann", "Merges need a human.",
        )  # fmt: skip
        changes = ask("SELECT name, change, before = (SELECT digest FROM mcp_tool b WHERE b.name = t.name LIMIT 1) "
                      "FROM mcp_tool t ORDER BY seq").fetchall()  # fmt: skip
        assert changes == [
            *((name, "new", None) for name in ("search", "export", "merge")),
            *((name, "changed", 1) for name in ("search", "export", "merge")),
        ]
        assert ask("SELECT number, ours, passed FROM mcp_message WHERE ours OR NOT passed ORDER BY seq").fetchall() == [
            (10, 0, 0), (12, 0, 0), (13, 1, 1),
        ]  # fmt: skip
        assert ask("SELECT count(*) FROM mcp_finding WHERE what = 'tool-changed'").fetchone() == (3,)
        whole = ask(
            "SELECT group_concat(CAST(b.data AS TEXT), '') FROM mcp_message m JOIN body_piece b ON b.seq = m.seq "
            "AND b.role = 'body' WHERE m.number = 6"
        ).fetchone()[0]
        assert '"q": "billing flaky"' in whole
