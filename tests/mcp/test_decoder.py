"""What the relay tells of stdio sessions, made into events."""

import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_told import MODERN, Told, spelled

from agentwrap.events import (
    Content,
    McpCall,
    McpDecision,
    McpEnded,
    McpFinding,
    McpHello,
    McpMessage,
    McpResult,
    McpSaid,
    McpSession,
    McpTool,
)
from agentwrap.mcp import calls, decoder, lines, state

INITIALIZE = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "agent", "version": "2.1"}}
READY = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "files", "version": "0.2"}}


def started() -> Told:
    told = Told().open()
    told.ask(0, "initialize", INITIALIZE)
    told.answer(0, READY)
    return told


def ends(told: Told) -> list[tuple[str, str]]:
    return [(one.call, one.ending) for one in told.of(McpResult)]


def findings(told: Told) -> list[str]:
    return [one.what for one in told.of(McpFinding)]


def test_a_session_from_its_beginning_to_its_end() -> None:
    told = started()
    told.up({"jsonrpc": "2.0", "method": "notifications/initialized"})
    told.call(1, "search", {"q": "billing flaky"})
    told.text(1, "three tickets")
    told.close()
    (session,), (hello,), (ended,) = told.of(McpSession), told.of(McpHello), told.of(McpEnded)
    assert (session.session, session.server, session.span, session.pid) == ("s1", b"tickets", "p3", 77)
    assert (hello.protocol, hello.client_name, hello.server_name) == (b"2025-06-18", b"agent", b"files")
    assert [(one.number, one.up, one.sort, one.call) for one in told.of(McpMessage)] == [
        (1, True, "request", "k1"),
        (2, False, "response", "k1"),
        (3, True, "notification", ""),
        (4, True, "request", "k2"),
        (5, False, "response", "k2"),
    ]
    call, result = told.of(McpCall)[1], told.of(McpResult)[1]
    assert (call.method, call.tool, call.id) == (b"tools/call", b"search", b"1")
    assert call.arguments == b'{"q": "billing flaky"}'
    assert call.digest == sha256(call.arguments).hexdigest()
    assert (result.call, result.ending, result.tool, result.text) == ("k2", "complete", b"search", b"three tickets")
    assert (ended.ending, ended.messages) == ("client-closed", 5)
    assert ended.up_bytes + ended.down_bytes == sum(len(data) + 1 for _, data in told.bodies())


@given(st.lists(st.binary(max_size=40), max_size=12), st.lists(st.integers(1, 30), max_size=20), st.booleans())
def test_every_byte_is_in_a_message(said: list[bytes], sizes: list[int], up: bool) -> None:
    data = b"\n".join(said)
    told, at = Told().open(), 0
    for size in [*sizes, len(data)]:
        if at < len(data):
            told.raw(data[at : at + size], up=up)
        at += size
    told.close()
    bodies = told.bodies()
    assert b"\n".join(body for _, body in bodies) == (data[:-1] if data.endswith(b"\n") else data)
    assert all(way is up for way, _ in bodies)


MESSAGES = st.recursive(
    st.sampled_from(
        [
            *({"id": ident, "method": method} for ident in (1, "1", 1.0, None) for method in ("tools/call", "ping")),
            *({"id": ident, "result": {"isError": True}} for ident in (1, "1", 1.0, 2, None)),
            {"id": 1, "error": {"code": -1, "message": "no"}},
            {"id": 3, "method": "tools/list", "params": {"cursor": "c"}},
            {"id": 3, "result": {"tools": [{"name": "a"}, 7, {"name": 1}], "nextCursor": "c"}},
            {"method": "notifications/cancelled", "params": {"requestId": 1}},
            {"method": "notifications/progress", "params": {"progressToken": 1}},
            {"id": 1, "method": "tools/call", "params": {"_meta": {"progressToken": 1, **MODERN}, "requestState": "s"}},
            {"id": 1, "result": {"resultType": "input_required", "requestState": "s", "_meta": []}},
            {"id": 9, "method": "initialize", "params": []},
            {"id": 9, "result": {"serverInfo": 7, "content": [{"text": 1}, {"text": "x"}]}},
            "garbage",
            7,
        ]
    ),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.booleans(), MESSAGES), max_size=25))
def test_whatever_both_say_every_call_has_one_end(said: list[tuple[bool, Any]]) -> None:
    told = Told().open()
    for up, message in said:
        told.raw(spelled(message), up=up)
    told.close()
    begun = [one.call for one in told.of(McpCall)]
    assert sorted(one.call for one in told.of(McpResult)) == sorted(begun)
    assert len(set(begun)) == len(begun)
    assert [one.number for one in told.of(McpMessage)] == list(range(1, len(said) + 1))


def test_ids_of_both_sides_and_of_all_types_are_apart() -> None:
    told = Told().open()
    told.ask(1, "tools/call", {"name": "a"})
    told.ask("1", "tools/call", {"name": "b"})
    told.ask(1, "roots/list", up=False)
    told.answer("1", {"content": []})
    told.answer(1, {"roots": []}, up=True)
    told.answer(1, {"content": []})
    assert [(one.call, one.up, one.id) for one in told.of(McpCall)] == [
        ("k1", True, b"1"),
        ("k2", True, b'"1"'),
        ("k3", False, b"1"),
    ]
    assert ends(told) == [("k2", "complete"), ("k3", "complete"), ("k1", "complete")]
    assert findings(told) == []


def test_a_number_is_answered_however_it_is_written() -> None:
    told = Told().open()
    told.raw(b'{"id":1.0,"method":"ping"}\n', up=True)
    told.raw(b'{"id":1,"result":{}}\n', up=False)
    assert (ends(told), findings(told)) == ([("k1", "complete")], [])


def test_replies_that_nobody_waits_for() -> None:
    told = Told().open()
    told.answer(7, {})
    told.call(1, "a")
    told.text(1, "x")
    told.text(1, "x")
    told.call(2, "a")
    told.up({"method": "notifications/cancelled", "params": {"requestId": 2}})
    told.text(2, "late")
    told.down({"id": None, "error": {"code": -32700, "message": "what?"}})
    assert findings(told) == ["unknown-reply", "repeated-reply", "late-reply"]
    assert [one.call for one in told.of(McpFinding)] == ["", "k1", "k2"]
    assert ends(told) == [("k1", "complete"), ("k2", "cancelled")]


def test_an_id_that_is_used_again() -> None:
    told = Told().open()
    told.call(1, "a")
    told.call(1, "b")
    told.text(1, "first")
    told.text(1, "second")
    assert findings(told) == ["repeated-id"]
    assert ends(told) == [("k1", "complete"), ("k2", "complete")]


def test_errors_and_errors_of_tools_and_what_was_never_answered() -> None:
    told = Told().open()
    told.call(1, "a")
    told.text(1, "no such file", error=True)
    told.call(2, "b")
    told.down({"id": 2, "error": {"code": -32602, "message": "Unknown tool"}})
    told.call(3, "c")
    told.close(ending="server-exited")
    assert ends(told) == [("k1", "tool-error"), ("k2", "error"), ("k3", "unanswered")]
    assert [one.error for one in told.of(McpResult)] == [b"", b"-32602 Unknown tool", b""]
    assert told.of(McpResult)[0].text == b"no such file"


def test_progress_belongs_to_its_call() -> None:
    told = Told().open()
    told.call(5, "slow", meta={"progressToken": "p"})
    told.down({"method": "notifications/progress", "params": {"progressToken": "p", "progress": 1}})
    told.text(5, "done")
    told.down({"method": "notifications/progress", "params": {"progressToken": "p", "progress": 2}})
    assert [one.call for one in told.of(McpMessage)] == ["k1", "k1", "k1", ""]


def test_garbage_is_kept_and_found_once() -> None:
    told = Told().open()
    for line in (b"Server running on stdio\n", b"\n", b"more\n", b"\xff\xfe\r\n"):
        told.raw(line, up=False)
    assert [one.sort for one in told.of(McpMessage)] == ["invalid"] * 4
    assert findings(told) == ["not-json"]
    assert [body for _, body in told.bodies()] == [b"Server running on stdio", b"", b"more", b"\xff\xfe\r"]
    told.down({"jsonrpc": "2.0", "hello": 1})
    told.down([])
    assert findings(told) == ["not-json", "not-mcp"]


def test_members_of_a_batch_are_calls() -> None:
    told = Told().open()
    told.up([{"id": 1, "method": "tools/call", "params": {"name": "a"}}, {"id": 2, "method": "ping"}])
    told.down([{"id": 2, "result": {}}, {"id": 1, "result": {"content": []}}])
    assert [(one.sort, one.call) for one in told.of(McpMessage)] == [("batch", ""), ("batch", "")]
    assert ends(told) == [("k2", "complete"), ("k1", "complete")]


def test_double_keys_are_found() -> None:
    told = Told().open()
    told.raw(b'{"id":1,"method":"tools/call","params":{"name":"a","name":"b"}}\n', up=True)
    assert (findings(told), told.of(McpCall)[0].tool) == (["ambiguous-json"], b"b")


def test_the_stateless_protocol_says_hello_with_its_requests() -> None:
    told = Told().open()
    meta = {**MODERN, "io.modelcontextprotocol/clientInfo": {"name": "agent", "version": "3"}}
    told.call(1, "a", meta=meta)
    info = {"io.modelcontextprotocol/serverInfo": {"name": "files", "version": "1"}}
    told.answer(1, {"resultType": "complete", "content": [], "_meta": info})
    told.call(2, "a", meta=meta)
    told.answer(2, {"resultType": "complete", "content": []})
    (hello,) = told.of(McpHello)
    assert (hello.protocol, hello.client_name, hello.server_version) == (b"2026-07-28", b"agent", b"1")
    assert [one.modern for one in told.of(McpCall)] == [True, True]


def test_input_that_is_required_and_brought() -> None:
    told = Told().open()
    told.call(1, "book", meta=MODERN)
    told.answer(1, {"resultType": "input_required", "inputRequests": {"a": {}}, "requestState": "s1"})
    told.call(2, "book", meta=MODERN)
    told.answer(2, {"resultType": "input_required", "requestState": "s2"})
    for ident, requested in ((3, "s1"), (4, "s2"), (5, "s9")):
        brought = {"requestState": requested, "inputResponses": {}}
        told.ask(ident, "tools/call", {"name": "book", **brought, "_meta": MODERN})
    assert ends(told)[:2] == [("k1", "input-required"), ("k2", "input-required")]
    assert [one.retry_of for one in told.of(McpCall)] == ["", "", "k1", "k2", "k2"]


def test_what_a_server_claims_is_told_apart() -> None:
    told = Told().open()
    told.call(1, "a")
    told.answer(1, {"content": [], "_meta": {"example.com/duration_ms": 12.5}})
    told.call(2, "a")
    told.answer(2, {"content": [], "_meta": {"durationMs": "soon"}})
    assert [one.claimed_ns for one in told.of(McpResult)] == [12_500_000, 0]


def test_a_denied_call_never_passed() -> None:
    told = Told().open()
    told.judged("deny", 1, rule=b"mcp[0]", why=b"no writes", digest="ab", on_behalf_of=b"ann", agent=b"bot")
    told.call(1, "write")
    answer = spelled({"id": 1, "result": {"isError": True, "content": [{"type": "text", "text": "denied"}]}}).strip()
    told.decoder.feed(McpSaid(session=1, at_ns=told.now(), up=False, data=answer))
    asked, said = told.of(McpMessage)
    assert (asked.passed, asked.ours, said.passed, said.ours, said.call) == (False, False, True, True, "k1")
    (call,), (decision,) = told.of(McpCall), told.of(McpDecision)
    assert (call.agent, call.on_behalf_of) == (b"bot", b"ann")
    assert (decision.call, decision.verdict, decision.rule, decision.tool) == ("k1", "deny", b"mcp[0]", b"write")
    assert decision.subject == b"tickets write"
    assert (ends(told), told.of(McpResult)[0].text) == ([("k1", "denied")], b"denied")
    told.text(1, "it was done all the same")
    assert findings(told) == ["late-reply"]


def test_a_verdict_may_come_behind_its_line() -> None:
    told = Told().open()
    told.call(1, "write")
    told.judged("would-deny", 1, rule=b"r")
    told.text(1, "ok")
    assert [(one.call, one.verdict) for one in told.of(McpDecision)] == [("k1", "would-deny")]
    assert ends(told) == [("k1", "complete")]


@pytest.mark.parametrize(
    ("verdict", "decision", "ending"),
    [("approved", "allow", "complete"), ("refused", "deny", "denied"), ("expired", "deny", "expired")],
)
def test_a_held_call(verdict: str, decision: str, ending: str) -> None:
    told = Told().open()
    told.judged("hold", 1, ask="r1")
    told.call(1, "merge")
    assert told.of(McpDecision) == []
    told.judged(verdict, 1, ask="r1", rule=b"r")
    if verdict == "approved":
        told.text(1, "merged")
    else:
        answer = spelled({"id": 1, "result": {"isError": True, "content": []}})
        told.decoder.feed(McpSaid(session=1, at_ns=told.now(), up=False, data=answer))
    assert [(one.call, one.verdict, one.ask) for one in told.of(McpDecision)] == [("k1", decision, "r1")]
    assert (ends(told), told.of(McpMessage)[0].passed) == ([("k1", ending)], False)


def test_a_held_call_that_is_cancelled() -> None:
    told = Told().open()
    told.judged("hold", 1, ask="r1")
    told.call(1, "merge")
    told.up({"method": "notifications/cancelled", "params": {"requestId": 1}})
    told.judged("cancelled", 1, ask="r1")
    assert (ends(told), [one.verdict for one in told.of(McpDecision)]) == ([("k1", "cancelled")], ["deny"])


def test_a_cancelled_hold_as_the_relay_tells_it() -> None:
    told = Told().open()
    told.judged("hold", 1, ask="r1")
    told.call(1, "merge")
    told.judged("cancelled", 1, ask="r1", rule=b"r")
    told.judged("cancelled", 2)
    told.up({"method": "notifications/cancelled", "params": {"requestId": 1}})
    assert (ends(told), [one.call for one in told.of(McpDecision)]) == ([("k1", "cancelled")], ["k1"])
    assert [one.passed for one in told.of(McpMessage)] == [False, False]


def test_an_answer_that_does_not_go_on_and_what_is_said_instead() -> None:
    told = Told().open()
    told.ask(1, "tools/list")
    told.judged("deny", 1, up=False, rule=b"pin")
    told.answer(1, {"tools": [{"name": "search"}]})
    said = spelled({"id": 1, "error": {"code": 1, "message": "not the pinned tool"}})
    told.decoder.feed(McpSaid(session=1, at_ns=told.now(), up=False, data=said))
    assert (ends(told), [one.call for one in told.of(McpDecision)]) == ([("k1", "denied")], ["k1"])
    assert [(one.passed, one.ours) for one in told.of(McpMessage)] == [(True, False), (False, False), (True, True)]
    assert [one.name for one in told.of(McpTool)] == [b"search"]
    assert findings(told) == []


def test_verdicts_on_members_of_a_batch() -> None:
    told = Told().open()
    told.judged("allow", 1, part=0, rule=b"a")
    told.judged("deny", 1, part=1, rule=b"b")
    told.up([{"id": 1, "method": "tools/call", "params": {"name": "a"}}, {"id": 2, "method": "ping"}])
    assert [(one.call, one.verdict, one.tool) for one in told.of(McpDecision)] == [
        ("k1", "allow", b"a"),
        ("k2", "deny", b""),
    ]
    assert not told.of(McpMessage)[0].passed


def test_identical_bodies_are_one_content() -> None:
    told = Told().open()
    for ident in (1, 1):
        told.answer(ident, {"content": [{"type": "text", "text": "same"}]})
    assert len({one.sha for one in told.of(Content)}) == 1


def test_a_line_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_MAX_BYTES", 1000)
    monkeypatch.setattr(lines, "PIECE_BYTES", 500)
    told = Told().open()
    told.call(1, "dump")
    data = spelled({"id": 1, "result": {"content": [{"type": "text", "text": "word " * 1000}]}})
    for at in range(0, len(data), 300):
        told.raw(data[at : at + 300], up=False)
    pieces = told.of(McpMessage)[1:]
    assert [one.piece for one in pieces] == list(range(1, len(pieces) + 1))
    assert b"".join(body for _, body in told.bodies()[1:]) + b"\n" == data
    assert findings(told) == ["too-long"]
    (result,) = told.of(McpResult)
    assert (result.call, result.ending, result.size) == ("k1", "complete", len(data) - 1)
    told.call(2, "more")
    assert told.of(McpMessage)[-1].sort == "request"


@pytest.mark.parametrize(
    ("line", "ending"),
    [
        (b'{"result":{"content":[%b]},"jsonrpc":"2.0","id":1}', "complete"),
        (b'{"result":{"content":[%b]},"id": 1, "jsonrpc":"2.0" } \r', "complete"),
        (b'{"jsonrpc":"2.0","id":1,"error":{"message":"%b"}}', "error"),
        (b'{"method":"x","params":{"result":[%b]},"id":1}', "unanswered"),
        (b'{"id":7,"result":[%b]}', "unanswered"),
        (b"garbage%b", "unanswered"),
    ],
)
def test_which_call_a_long_line_answers(monkeypatch: pytest.MonkeyPatch, line: bytes, ending: str) -> None:
    monkeypatch.setattr(lines, "LINE_MAX_BYTES", 10_000)
    monkeypatch.setattr(lines, "PIECE_BYTES", 5000)
    told = Told().open()
    told.call(1, "dump")
    told.raw(line % (b"0," * 20_000) + b"\n", up=False)
    told.close()
    assert ends(told) == [("k1", ending)]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "OPEN_MAX", 10)
    monkeypatch.setattr(state, "_OVER_MAX", 5)
    monkeypatch.setattr(decoder, "HELD_MAX_BYTES", 5000)
    told = Told().open().open(2, b"other")
    for ident in range(50):
        told.call(ident, "a")
    assert ends(told) == [(f"k{number}", "unanswered") for number in range(1, 41)]
    for session in (1, 2):
        for _ in range(40):
            told.raw(b"x" * 100, up=False, session=session)
    assert told.decoder._held_bytes <= 5000
    for _ in range(500):
        told.down({"id": "never asked", "result": {}}, session=2)
    assert len(told.of(McpFinding)) <= 60
    told.close(1)
    told.close(2)
    assert told.decoder._held_bytes == 0


def test_news_of_sessions_that_are_not_known_say_nothing() -> None:
    told = Told()
    told.call(1, "a")
    told.close()
    told.decoder.finish(9)
    assert told.items == []


@pytest.mark.parametrize(("lost", "ending"), [(True, "lost"), (False, "run-ended")])
def test_the_end_of_the_run_ends_sessions(lost: bool, ending: str) -> None:
    told = Told().open()
    told.call(1, "a")
    told.raw(b"half", up=False)
    told.decoder.finish(told.now(), lost=lost)
    assert (ends(told), [one.ending for one in told.of(McpEnded)]) == ([("k1", "unanswered")], [ending])
    assert told.bodies()[-1] == (False, b"half")


def test_long_arguments_and_results_are_clipped_and_whole_in_their_messages() -> None:
    told = Told().open()
    told.call(1, "write", {"text": "é" * 9000})
    told.text(1, "line\n" * 9000)
    (call,), (result,) = told.of(McpCall), told.of(McpResult)
    assert len(call.arguments) == 4096
    assert call.omitted_bytes + 4096 == len(json.dumps({"text": "é" * 9000}, ensure_ascii=False).encode())
    frame = '{"jsonrpc": "2.0", "id": 1, "result": }'
    assert (len(result.text), result.size) == (4096, len(told.bodies()[1][1]) - len(frame))


def test_who_acts_is_told_also_where_no_rule_spoke() -> None:
    told = Told()
    told.decoder = decoder.McpDecoder(told.items.append, acting=(b"bot", b"ann"))
    told.open()
    told.call(1, "a")
    told.judged("allow", 2, agent=b"other", on_behalf_of=b"bob")
    told.call(2, "a")
    assert [(one.agent, one.on_behalf_of) for one in told.of(McpCall)] == [(b"bot", b"ann"), (b"other", b"bob")]
