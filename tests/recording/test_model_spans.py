"""Agents, turns, calls and tools folded from events; what is over is kept no longer than until it is written."""

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import sample_run
from recordings import conversation, make

from agentwrap.events import Body, Claim, Content, HttpExchange
from agentwrap.evidence.verify import verify
from agentwrap.recording.spans import SpanTable

Told = tuple[int, str, dict[str, Any]]


def names(number: int, agent: str = "a1") -> dict[str, Any]:
    return {"call": f"m{number}", "agent": agent, "turn": f"t{number}"}


def asked(at_ns: int, number: int, agent: str = "a1", **more: Any) -> Told:
    return at_ns, "model.request", {**names(number, agent), "api": "openai.chat", "model": "large", **more}


def answered(at_ns: int, number: int, agent: str = "a1", **more: Any) -> Told:
    return at_ns, "model.response", {**names(number, agent), "ending": "complete", "status": 200, **more}


def called(at_ns: int, number: int, tool: str, **more: Any) -> Told:
    return at_ns, "tool.call", {**names(number), "tool": tool, "id": f"id-{tool}", **more}


def told(at_ns: int, number: int, tool: str, **more: Any) -> Told:
    return at_ns, "tool.result", {**names(number), "tool": tool, "size": 5, **more}


def folded(*facts: Told) -> SpanTable:
    table = SpanTable()
    for seq, (at_ns, kind, data) in enumerate(facts, 1):
        table.apply(at_ns, kind, "p4", 77, "subject", data, seq)
    return table


def test_a_call_with_its_turn_agent_and_tools() -> None:
    table = folded(
        asked(10, 1, session="s", agent_parent="p4", request={"size": 9}, host="h"),
        called(20, 1, "x1"),
        called(20, 1, "x2"),
        answered(20, 1, input_tokens=5, model="large-2"),
        asked(50, 2),
        told(50, 2, "x1", error=False),
        told(50, 2, "x2"),
    )
    spans = table.spans
    assert {one.id: one.columns()[1:7] for one in spans.values()} == {
        "a1": ("p4", "agent", "s", 10, None, None),
        "t1": ("a1", "turn", "large", 10, 50, None),
        "m1": ("t1", "model", "subject", 10, 20, "complete 200"),
        "x1": ("t1", "tool", "subject", 20, 50, "ok"),
        "x2": ("t1", "tool", "subject", 20, 50, "unknown"),
        "t2": ("a1", "turn", "large", 50, None, None),
        "m2": ("t2", "model", "subject", 50, None, None),
    }  # fmt: skip
    assert (spans["a1"].data["calls"], spans["t1"].data) == (2, {"calls": 1, "tools": 2})
    assert spans["m1"].data == {
        "process": "p4", "pid": 77, "request_seq": 1, "request_bytes": 9, "agent": "a1", "api": "openai.chat",
        "host": "h", "session": "s", "asked_model": "large", "response_seq": 4, "response_bytes": 0,
        "ending": "complete", "http_status": 200, "model": "large-2", "input_tokens": 5,
    }  # fmt: skip
    assert spans["x1"].data == {
        "process": "p4", "pid": 77, "call_seq": 2, "agent": "a1", "call": "m1", "id": "id-x1", "result_seq": 6,
        "result_call": "m2", "size": 5,
    }  # fmt: skip


def test_a_second_try_belongs_to_the_same_turn() -> None:
    again = {"call": "m2", "agent": "a1", "turn": "t1"}
    table = folded(
        asked(1, 1),
        answered(2, 1, ending="error", status=529),
        (3, "model.request", {**again, "attempt": 2, "retry_of": "m1"}),
        (4, "model.response", {**again, "ending": "incomplete"}),
    )
    assert [(one.id, one.parent, one.status) for one in table.spans.values() if one.kind == "model"] == [
        ("m1", "t1", "error 529"), ("m2", "t1", "incomplete"),
    ]  # fmt: skip
    turn = table.spans["t1"]
    assert (turn.start_ns, turn.end_ns, turn.data["calls"]) == (1, 4, 2)


def test_what_is_over_changes_no_more() -> None:
    facts = (
        asked(1, 1), called(2, 1, "x1"), answered(2, 1), asked(3, 2), told(3, 2, "x1", error=True),
        answered(4, 1, ending="error"), told(5, 2, "x1", error=False), called(5, 1, "x1"), asked(6, 1),
    )  # fmt: skip
    for kept in (True, False):
        table, rows = SpanTable(), {}
        for seq, (at_ns, kind, data) in enumerate(facts, 1):
            table.apply(at_ns, kind, "p4", 77, "", data, seq)
            if not kept:
                rows.update({row.id: row.columns() for row in table.changed()})
        rows.update({row.id: row.columns() for row in table.changed()})
        assert rows["m1"][5:7] == (2, "complete 200")
        assert rows["x1"][5:7] == (3, "error")


def test_a_tool_of_the_provider_is_over_with_the_answer() -> None:
    (tool,) = (one for one in folded(called(7, 1, "x1", provider_side=True)).spans.values() if one.kind == "tool")
    assert (tool.start_ns, tool.end_ns, tool.status) == (7, 7, "unknown")


def test_an_end_without_a_beginning_makes_no_span() -> None:
    assert folded(answered(1, 1), told(2, 1, "x1"), told(2, 1, ""), asked(3, 1, "")).spans.keys() == {"t1", "m1"}
    odd = [(1, kind, {"call": 5, "agent": None, "turn": [], "tool": {}}) for kind in ("model.request", "tool.call")]
    assert folded(*odd).spans == {}


def test_ids_of_other_spans_are_left_alone() -> None:
    table = SpanTable()
    table.apply(1, "process.start", "p4", 77, "x", {"parent": "run"}, 1)
    table.apply(2, "model.request", "p4", 77, "x", {"call": "p4", "agent": "p4", "turn": "p4"}, 2)
    table.apply(3, "model.response", "p4", 77, "x", {"call": "p4", "agent": "p4", "turn": "p4", "ending": "error"}, 3)
    assert (table.spans["p4"].kind, table.spans["p4"].end_ns) == ("process", None)


def test_a_long_run_is_not_kept_in_memory_and_a_fold_in_one_go_says_the_same(tmp_path: Path) -> None:
    recorder = make.begin(tmp_path / "r.agentlog")
    for number, item in enumerate(conversation.items(300, words=2)):
        sample_run.put(recorder, [item])
        if number % 100 == 0:
            recorder.commit()
    recorder.commit()
    assert len(recorder._spans.spans) < 10
    recorder.close()
    assert verify(recorder.path, public_key=make.public_key()).word == "intact"


def test_the_views_tell_it(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(make.model(tmp_path / "r.agentlog"))) as file:
        ask = file.execute
        assert ask("SELECT agent, parent, model, calls FROM agent").fetchall() == [("a1", "run", "large-1", 6)]
        assert ask("SELECT count(*), sum(calls), sum(tools) FROM turn").fetchone() == (6, 6, 6)
        calls = ask("SELECT call, turn, model, status, input_tokens, cost_usd FROM model_call WHERE call = 'm2'")
        assert calls.fetchall() == [("m2", "t2", "large-1-2026", "complete 200", 200, "0.001")]
        tools = ask("SELECT tool, turn, name, arguments, status, text FROM tool_call").fetchall()
        assert tools[0] == ("x1", "t1", "Bash", '{"command":"ls"}', "ok", "ok\n")
        assert tools[5] == ("x6", "t6", "Bash", '{"command":"ls"}', None, None)
        seq = ask("SELECT request_seq FROM model_call WHERE call = 'm6'").fetchone()[0]
        body = ask("SELECT data FROM body_piece WHERE seq = ? AND role = 'request' ORDER BY ordinal", (seq,)).fetchall()
    assert len(json.loads(b"".join(data for (data,) in body))["messages"]) == 11
    assert any(isinstance(item, Content) for item in conversation.items(1))


def test_exchanges_and_claims_have_views_too(tmp_path: Path) -> None:
    recorder = make.begin(tmp_path / "r.agentlog")
    who = {"span": "p1", "pid": 7}
    recorder.add(HttpExchange(at_ns=9, exchange="h1", host=b"h.example", port=443, method=b"GET", path=b"/v1/models",
                              status=200, requested_ns=3, request=Body(size=5, omitted="over-cap"), **who))  # fmt: skip
    recorder.add(Claim(at_ns=10, said="decision", name=b"chose b", id=b"1", data=b'{"why": "cheap"}', told_ns=8, **who))
    recorder.close()
    with contextlib.closing(sqlite3.connect(recorder.path)) as file:
        asked = "SELECT exchange, scheme, host, method, path, status, ending, request_bytes, response_bytes, pid FROM"
        assert file.execute(f"{asked} http_exchange").fetchall() == [
            ("h1", "https", "h.example", "GET", "/v1/models", 200, "complete", 5, 0, 7)
        ]
        claimed = file.execute("SELECT said, name, id, parent, data ->> 'why', told_ns, span FROM claim").fetchall()
        assert claimed == [("decision", "chose b", "1", None, "cheap", 8, "p1")]
