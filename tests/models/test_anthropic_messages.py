"""Anthropic's Messages: requests, answers in events and in one, what broke and what is strange."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.wires import covered, new_bytes, scattered_texts, sse

from agentwrap.models.anthropic_messages import AnthropicMessages
from agentwrap.models.shape import Block, ResponseFacts, Usage

READER = AnthropicMessages()
EVENTS = b"text/event-stream; charset=utf-8"

START: dict[str, Any] = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [],
        "stop_reason": None,
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 20,
            "cache_read_input_tokens": 17900,
            "output_tokens": 1,
        },
    },
}
TEXT = [
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 'He said "gr'}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 'üß\n" 😀'}},
    {"type": "content_block_stop", "index": 0},
]
TOOL = [
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}},
    },
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"comm'}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": 'and": "ls"}'}},
    {"type": "content_block_stop", "index": 1},
]
END = [
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 40}},
    {"type": "message_stop"},
]


def read(*events: dict[str, Any] | str, named: bool = True) -> ResponseFacts:
    return READER.response(sse(*events, named=named), EVENTS)


def test_a_stream_is_put_together() -> None:
    body = sse(START, *TEXT, *TOOL, *END, named=True)
    facts = READER.response(body, EVENTS)
    assert facts.blocks == (
        Block("text", 'He said "grüß\n" 😀'.encode()),
        Block("tool", b"", b"toolu_1", b"Bash", b'{"command": "ls"}'),
    )
    assert (facts.id, facts.model, facts.stop) == (b"msg_1", b"claude-sonnet-4-5", b"tool_use")
    assert facts.usage == Usage(17930, 17900, 20, 40, None)
    assert facts.complete
    assert facts.unknown == ()
    assert not facts.problem
    assert scattered_texts(body, facts.scattered) == ['He said "grüß\n" 😀', '{"command": "ls"}']
    assert body[: facts.first_token].endswith(b'"text": "H')


def test_the_event_field_is_not_needed() -> None:
    named, unnamed = read(START, *TEXT, *END), read(START, *TEXT, *END, named=False)
    assert (unnamed.blocks, unnamed.usage, unnamed.complete) == (named.blocks, named.usage, True)


def test_totals_of_the_end_overwrite_and_what_they_leave_out_stays() -> None:
    usage = {"output_tokens": 9, "input_tokens": 11, "cache_read_input_tokens": None, "server_tool_use": {}}
    details = {"output_tokens_details": {"thinking_tokens": 5}}
    facts = read(START, {"type": "message_delta", "delta": {}, "usage": usage | details}, {"type": "message_stop"})
    assert facts.usage == Usage(17931, 17900, 20, 9, 5)


def test_thinking_and_what_the_provider_runs() -> None:
    facts = read(
        START,
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "eA=="}},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 2,
            "delta": {"type": "input_json_delta", "partial_json": '{"query":"x"}'},
        },
        {
            "type": "content_block_start",
            "index": 3,
            "content_block": {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
        },
        {"type": "content_block_start", "index": 4, "content_block": {"type": "text", "text": "", "citations": []}},
        {"type": "content_block_delta", "index": 4, "delta": {"type": "citations_delta", "citation": {}}},
        *END,
    )
    assert facts.blocks == (
        Block("thinking", b"hm"),
        Block("thinking"),
        Block("provider-tool", b"", b"srv_1", b"web_search", b'{"query":"x"}'),
        Block("other", b"", b"srv_1", b"web_search_tool_result"),
        Block("text"),
    )
    assert facts.unknown == ()


def test_a_tool_without_arguments_and_one_that_was_cut() -> None:
    facts = read(START, TOOL[0], TOOL[4], *END)
    assert facts.blocks == (Block("tool", b"", b"toolu_1", b"Bash", b"{}"),)
    assert facts.first_token > 0
    facts = read(START, *TOOL[:3])
    assert facts.blocks == (Block("tool", b"", b"toolu_1", b"Bash", b'{"comm'),)
    assert not facts.complete


def test_one_document() -> None:
    message = START["message"] | {
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "x"},
            {"type": "text", "text": "hi"},
            {"type": "tool_use", "id": "t", "name": "Read", "input": {"path": "/x"}},
            {"type": "tool_use", "id": "u", "name": "Stop", "input": {}},
        ],
        "stop_reason": "end_turn",
    }
    facts = READER.response(json.dumps(message).encode(), b"application/json")
    assert facts.blocks == (
        Block("thinking", b"hm"),
        Block("text", b"hi"),
        Block("tool", b"", b"t", b"Read", b'{"path":"/x"}'),
        Block("tool", b"", b"u", b"Stop", b"{}"),
    )
    assert facts.complete
    assert (facts.first_token, facts.stop, facts.scattered) == (0, b"end_turn", ())
    assert facts.usage == Usage(17930, 17900, 20, 1)


def test_errors_in_one_and_in_the_middle_of_a_stream() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "req_1"}
    facts = READER.response(json.dumps(error).encode(), b"application/json")
    assert (facts.error, facts.complete) == ((b"overloaded_error", b"Overloaded"), False)
    facts = read(START, *TEXT[:3], error)
    assert (facts.error, facts.complete) == ((b"overloaded_error", b"Overloaded"), False)
    assert facts.blocks == (Block("text", b'He said "gr'),)


@pytest.mark.parametrize("media", [b"text/html", b"text/event-stream", b"application/json", b""])
def test_pages_and_nothing(media: bytes) -> None:
    facts = READER.response(b"<html><body>502 Bad Gateway</body></html>", media)
    assert facts == ResponseFacts(problem="no answer of this API")
    assert READER.response(b"", media) == ResponseFacts(problem="empty")


def test_what_is_not_known_is_named() -> None:
    facts = read(
        START,
        {"type": "content_block_start", "index": 0, "content_block": {"type": "hologram", "id": "h"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "light_delta", "light": "x"}},
        {"type": "nova", "x": 1},
        *TEXT,
        *END,
    )
    assert facts.unknown == (b"hologram", b"light_delta", b"nova")
    assert facts.complete


def test_deltas_whose_beginning_did_not_come() -> None:
    facts = read(*TEXT[2:], *TOOL[2:], *END)
    assert [block.kind for block in facts.blocks] == ["text", "tool"]


@given(st.data())
def test_any_cut_gives_what_came(data: st.DataObject) -> None:
    body = sse(START, *TEXT, *TOOL, *END, named=True)
    cut = data.draw(st.integers(0, len(body)))
    facts = READER.response(body[:cut], EVENTS)
    whole = READER.response(body, EVENTS)
    for part, block in zip(facts.blocks, whole.blocks, strict=False):
        assert block.text.startswith(part.text)
        assert block.arguments.startswith(part.arguments) or part.arguments == b"{}"
    assert facts.complete == (cut >= len(body) - 2)
    assert facts.first_token in (-1, whole.first_token) or facts.first_token < whole.first_token


def test_halves_of_characters_in_two_deltas_meet() -> None:
    half = '{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "%s"}}'
    body = sse(START, TEXT[0], half % "\\ud83d", half % "\\ude00")
    facts = READER.response(body, EVENTS)
    assert facts.blocks == (Block("text", "😀".encode()),)
    assert scattered_texts(body, facts.scattered) == ["😀"]


def request(messages: list[Any], **more: Any) -> bytes:
    tools = [{"name": name, "input_schema": {"type": "object"}, "description": name * 1000} for name in "abcdefg"]
    held = {
        "model": "claude-sonnet-4-5",
        "messages": messages,
        "system": [{"type": "text", "text": "be good " * 200, "cache_control": {"type": "ephemeral"}}],
        "tools": tools,
        "metadata": {"user_id": "user_0123_account__session_b7fb18a4-a9a0-4293-99c9-1f6944aab070"},
        "stream": True,
    }
    return json.dumps(held | more).encode()


def conversation(turns: int) -> list[Any]:
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "reminder " * 300}]}]
    messages[0]["content"].append({"type": "text", "text": "fix it"})
    for turn in range(turns):
        use = {"type": "tool_use", "id": f"toolu_{turn}", "name": "a", "input": {"x": turn}}
        messages.append({"role": "assistant", "content": [{"type": "text", "text": "now"}, use]})
        result = {"type": "tool_result", "tool_use_id": f"toolu_{turn}", "content": f"{turn} " * 2000}
        messages.append({"role": "user", "content": [result]})
    messages[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    return messages


def test_a_further_turn_costs_what_is_new() -> None:
    bodies = [request(conversation(turns)) for turns in range(5)]
    facts = [READER.request(body, b"/v1/messages") for body in bodies]
    assert all(covered(body, fact.pieces) for body, fact in zip(bodies, facts, strict=True))
    new = new_bytes(bodies, [fact.pieces for fact in facts])
    assert max(new[1:]) < 2000 * 2 + 600
    assert max(len(fact.pieces) for fact in facts) < 35


def test_messages_are_the_same_without_marks_for_caches() -> None:
    facts = [READER.request(request(conversation(turns)), b"") for turns in (2, 3)]
    identities = [[message.identity for message in fact.messages] for fact in facts]
    assert identities[1][:5] == identities[0]
    assert len(set(identities[1])) == 7
    said = [
        b'{"messages":[{"role":"user","content":"hi"}]}',
        b'{"messages": [ {"content": [{"text": "h\\u0069", "type": "text", "cache_control": {}}], "role": "user"} ] }',
    ]
    one, two = (READER.request(body, b"").messages[0] for body in said)
    assert one.identity == two.identity
    assert said[1][two.start : two.end].startswith(b'{"content"')
    other = READER.request(b'{"messages":[{"role":"assistant","content":"hi"}]}', b"").messages[0]
    assert (other.role, one.role) == ("assistant", "user")
    assert other.identity != one.identity


def test_a_result_is_the_same_as_a_text_and_as_a_part() -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": "done"}
    marked = {"content": [{"type": "text", "text": "done"}], "cache_control": {"type": "ephemeral"}}
    one, two, three = (
        READER.request(request([{"role": "user", "content": [block]}]), b"").messages[0].identity
        for block in (result, result | marked, result | {"content": "not done"})
    )
    assert one == two != three


def test_results_of_tools() -> None:
    blocks = [
        {"type": "tool_result", "tool_use_id": "a", "content": "x" * 5000, "is_error": True},
        {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "1"}, {"type": "image"}]},
        {"type": "tool_result", "tool_use_id": "c", "is_error": False},
        {"type": "text", "text": "go on"},
    ]
    facts = READER.request(request([{"role": "user", "content": blocks}]), b"")
    assert [(one.id, one.error, one.size, len(one.text)) for one in facts.outcomes] == [
        (b"a", True, 5000, 4096),
        (b"b", None, 1, 1),
        (b"c", False, 0, 0),
    ]


def test_what_a_request_says_of_itself() -> None:
    facts = READER.request(request([]), b"/v1/messages")
    assert (facts.model, facts.stream, facts.tools) == (b"claude-sonnet-4-5", True, 7)
    assert facts.session == b"b7fb18a4-a9a0-4293-99c9-1f6944aab070"
    user = json.dumps({"device_id": "d", "account_uuid": "", "session_id": "s-1"})
    assert READER.request(request([], metadata={"user_id": user}), b"").session == b"s-1"
    assert READER.request(request([], metadata={"user_id": "somebody"}), b"").session == b""
    vertex = READER.request(b'{"messages":[]}', b"/v1/projects/p/publishers/anthropic/models/claude-x:rawPredict")
    assert vertex.model == b"claude-x"


def test_an_image_is_a_slice_of_its_own() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "iVBOR" * 1000}
    content = [{"type": "text", "text": "see"}, {"type": "image", "source": source}]
    body = request([{"role": "user", "content": content}])
    pieces = READER.request(body, b"").pieces
    assert any(body[start:end].endswith(b'iVBOR"') and end - start < 5100 for start, end in pieces)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"[]",
        b'{"messages": 1, "tools": {}, "model": [], "metadata": []}',
        b'{"messages": [1, null, [], {"role": 7, "content": {"a": 1}}, {"content": [1, null]}]}',
        b'{"messages": [{"role": "user", "content": "\\ud83d"}, {"role": "\xff", "content": "\xff"}], "model": "\xfe"}',
        b'{"messages": [{"role": "user", "content": 1' + b"0" * 9000 + b'}], "model": 1e999}',
        b'{"model": "a", "model": "b"}',
        b'{"messages": [{"role": "user", "content": ' + b"[" * 900 + b"]" * 900 + b"}]}",
        b"{" * 5000,
    ],
)
def test_foreign_requests_never_raise(body: bytes) -> None:
    facts = READER.request(body, b"/v1/messages")
    assert covered(body, facts.pieces)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(st.sampled_from("type text index content id name input usage".split()), inner, max_size=4),
    max_leaves=10,
)


@given(ODD, st.sampled_from([event["type"] for event in [START, *TEXT, *END]] + ["error", "message"]))
def test_events_of_odd_parts_never_raise(odd: Any, kind: str) -> None:
    read({"type": kind, "message": odd, "index": odd, "content_block": odd, "delta": odd, "usage": odd, "error": odd})
    read({"type": kind, "message": {"content": odd, "usage": odd}, "delta": {"type": odd}}, {"type": odd}, named=False)
    read({"type": kind, "content_block": {"type": odd, "input": odd}, "delta": {"stop_reason": odd}})
    told = json.dumps({"messages": [odd, {"content": [odd, {"type": "tool_result", "content": odd}]}], "tools": odd})
    assert covered(told.encode(), READER.request(told.encode(), b"").pieces)


@given(st.binary() | st.recursive(st.none() | st.text(), st.lists).map(lambda held: json.dumps(held).encode()))
def test_foreign_bytes_never_raise(body: bytes) -> None:
    assert covered(body, READER.request(body, body).pieces)
    READER.response(body, EVENTS)
    READER.response(b"data: " + body + b"\n\n", EVENTS)
    READER.response(b'data: {"type":"message_start","message":' + body + b"}\n\n", EVENTS)
