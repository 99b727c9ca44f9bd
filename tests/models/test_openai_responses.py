"""OpenAI's Responses: in events, in one, and over a WebSocket."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.wires import covered, new_bytes, scattered_texts, sse

from agentwrap.models.openai_responses import OpenAiResponses
from agentwrap.models.shape import Block, ResponseFacts, Usage
from agentwrap.models.stream import LINES

READER = OpenAiResponses()
EVENTS = b"text/event-stream"
USAGE = {
    "input_tokens": 300,
    "input_tokens_details": {"cached_tokens": 200, "cache_write_tokens": 50},
    "output_tokens": 40,
    "output_tokens_details": {"reasoning_tokens": 10},
}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "I think"}, {"type": "summary_text", "text": "so"}],
    "encrypted_content": "eA==",
}
MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": 'He "ü"', "annotations": []}],
}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "bash", "arguments": '{"c":"ls"}'}
PATCH = {"type": "custom_tool_call", "id": "ct_1", "call_id": "call_2", "name": "apply_patch", "input": "*** Begin"}
OUTPUT = [REASONING, MESSAGE, CALL, PATCH]
BLOCKS = (
    Block("thinking", b"I think\n\nso", b"rs_1"),
    Block("text", 'He "ü"'.encode()),
    Block("tool", b"", b"call_1", b"bash", b'{"c":"ls"}'),
    Block("tool", b"", b"call_2", b"apply_patch", b"*** Begin"),
)


def response(status: str, **more: Any) -> dict[str, Any]:
    told = {"id": "resp_1", "object": "response", "status": status, "model": "gpt-5.5", "output": [], "usage": None}
    return told | more


def deltas(kind: str, index: int, *texts: str, **more: Any) -> list[dict[str, Any]]:
    return [{"type": f"response.{kind}.delta", "output_index": index, "delta": text} | more for text in texts]


def added(index: int, item: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item | more}


def done(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


BEGIN = [
    {"type": "response.created", "response": response("in_progress"), "sequence_number": 0},
    {"type": "response.in_progress", "response": response("in_progress")},
]
BODY: list[dict[str, Any]] = [
    added(0, REASONING, summary=[]),
    *deltas("reasoning_summary_text", 0, "I th", "ink", summary_index=0),
    *deltas("reasoning_summary_text", 0, "so", summary_index=1),
    done(0, REASONING),
    added(1, MESSAGE, content=[]),
    {"type": "response.content_part.added", "output_index": 1, "content_index": 0, "part": {}},
    *deltas("output_text", 1, 'He "', 'ü"', content_index=0),
    {"type": "response.output_text.done", "output_index": 1, "content_index": 0, "text": 'He "ü"'},
    done(1, MESSAGE),
    added(2, CALL, arguments=""),
    *deltas("function_call_arguments", 2, '{"c":', '"ls"}'),
    done(2, CALL),
    added(3, PATCH, input=""),
    *deltas("custom_tool_call_input", 3, "*** B", "egin"),
    done(3, PATCH),
]
END = {"type": "response.completed", "response": response("completed", output=OUTPUT, usage=USAGE)}
TEXTS = ["I think", "so", 'He "ü"', '{"c":"ls"}', "*** Begin"]


def test_the_last_event_holds_the_whole() -> None:
    body = sse(*BEGIN, *BODY, END, named=True)
    facts = READER.response(body, EVENTS)
    assert facts.blocks == BLOCKS
    assert facts.usage == Usage(300, 200, 50, 40, 10)
    assert (facts.id, facts.model, facts.stop, facts.complete) == (b"resp_1", b"gpt-5.5", b"completed", True)
    assert sorted(scattered_texts(body, facts.scattered)) == sorted(TEXTS)
    assert body[: facts.first_token].endswith(b'"delta": "I')
    assert (facts.unknown, facts.problem) == ((), "")


def test_a_last_event_that_holds_nothing() -> None:
    end = {"type": "response.completed", "response": response("completed", usage=USAGE)}
    facts = READER.response(sse(*BEGIN, *BODY, end), EVENTS)
    assert (facts.blocks, facts.complete) == (BLOCKS, True)


def test_a_stream_that_breaks_gives_its_deltas() -> None:
    facts = READER.response(sse(*BEGIN, *BODY[:-2]), EVENTS)
    assert facts.blocks == (*BLOCKS[:3], Block("tool", b"", b"call_2", b"apply_patch", b"*** B"))
    assert not facts.complete
    facts = READER.response(sse(*BEGIN, *BODY[:2]), EVENTS)
    assert facts.blocks == (Block("thinking", b"I th"),)


def test_messages_of_a_websocket_are_lines() -> None:
    messages = [*BEGIN, {"type": "codex.rate_limits", "limits": {}}, *BODY, END]
    body = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
    facts = READER.response(body, LINES)
    assert (facts.blocks, facts.complete, facts.unknown) == (BLOCKS, True, ())
    assert sorted(scattered_texts(body, facts.scattered)) == sorted(TEXTS)
    one = READER.response(json.dumps(END).encode(), LINES)
    assert (one.blocks, one.complete) == (BLOCKS, True)


def test_one_document() -> None:
    facts = READER.response(json.dumps(response("completed", output=OUTPUT, usage=USAGE)).encode(), b"application/json")
    assert (facts.blocks, facts.complete, facts.first_token, facts.scattered) == (BLOCKS, True, 0, ())
    assert not READER.response(json.dumps(response("queued")).encode(), b"application/json").complete


def test_answers_that_stop_early_and_that_fail() -> None:
    cut = response("incomplete", output=OUTPUT[:2], incomplete_details={"reason": "max_output_tokens"})
    facts = READER.response(sse(*BEGIN, {"type": "response.incomplete", "response": cut}), EVENTS)
    assert (facts.stop, facts.complete, facts.blocks) == (b"max_output_tokens", True, BLOCKS[:2])
    failed = response("failed", error={"code": "server_error", "message": "sorry"})
    facts = READER.response(sse(*BEGIN, *BODY[:5], {"type": "response.failed", "response": failed}), EVENTS)
    assert (facts.error, facts.complete, facts.blocks) == ((b"server_error", b"sorry"), False, BLOCKS[:1])


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "rate_limit", "message": "slow", "param": None},
        {"type": "error", "status": 429, "error": {"type": "rate_limit", "message": "slow"}},
        {"error": {"code": "rate_limit", "message": "slow", "type": None}},
    ],
)
def test_errors(event: dict[str, Any]) -> None:
    for body, media in ((sse(*BEGIN, event), EVENTS), (json.dumps(event).encode(), b"application/json")):
        facts = READER.response(body, media)
        assert (facts.error, facts.complete) == ((b"rate_limit", b"slow"), False)
    facts = READER.response(json.dumps(event).encode() + b"\n", LINES)
    assert facts.error == (b"rate_limit", b"slow")


def test_all_sorts_of_items() -> None:
    output = [
        {"type": "function_call", "call_id": "a", "name": "list", "namespace": "mcp__fs", "arguments": "{}"},
        {"type": "local_shell_call", "call_id": "b", "action": {"command": ["ls"]}},
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
        {"type": "tool_search_call", "call_id": "d", "execution": "client", "arguments": {"query": "x"}},
        {"type": "tool_search_call", "id": "e", "execution": "server", "arguments": {}},
        {"type": "mcp_call", "id": "f", "server_label": "docs", "name": "find", "arguments": "{}", "output": "x"},
        {"type": "web_search_call", "id": "g", "action": {"type": "search", "query": "q"}},
        {"type": "code_interpreter_call", "id": "h", "code": "1+1"},
        {"type": "message", "content": [{"type": "refusal", "refusal": "no"}, {"type": "output_smell"}]},
        {"type": "mcp_list_tools", "id": "i"},
        {"type": "teleport_call", "id": "j"},
    ]
    facts = READER.response(json.dumps(response("completed", output=output)).encode(), b"application/json")
    assert [(block.kind, block.id, block.name, block.arguments or block.text) for block in facts.blocks] == [
        ("tool", b"a", b"mcp__fs.list", b"{}"),
        ("tool", b"b", b"local_shell", b'{"command":["ls"]}'),
        ("tool", b"c", b"shell", b'{"commands":["ls"]}'),
        ("tool", b"d", b"tool_search", b'{"query":"x"}'),
        ("provider-tool", b"e", b"tool_search", b"{}"),
        ("provider-tool", b"f", b"docs.find", b"{}"),
        ("provider-tool", b"g", b"web_search", b'{"type":"search","query":"q"}'),
        ("provider-tool", b"h", b"code_interpreter", b"1+1"),
        ("refusal", b"", b"", b"no"),
        ("other", b"", b"output_smell", b""),
        ("other", b"i", b"mcp_list_tools", b""),
        ("other", b"j", b"", b""),
    ]
    assert facts.unknown == (b"teleport_call",)


def test_what_is_not_known_is_named() -> None:
    facts = READER.response(sse(*BEGIN, {"type": "response.teleport.delta", "delta": "x"}, *BODY, END), EVENTS)
    assert (facts.unknown, facts.blocks) == ((b"response.teleport.delta",), BLOCKS)


def request(items: Any, **more: Any) -> bytes:
    held = {
        "model": "gpt-5.5",
        "instructions": "be good " * 300,
        "input": items,
        "tools": [{"type": "function", "name": "bash", "parameters": {}}],
        "stream": True,
        "prompt_cache_key": "key",
    }
    return json.dumps(held | more).encode()


def conversation(turns: int, note: str = "") -> list[Any]:
    def own(kind: str, turn: int) -> dict[str, Any]:
        passed = {"internal_chat_message_metadata_passthrough": {"turn_id": note}} if note else {}
        return {"id": f"{kind}_{note}{turn}"} | passed

    said = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]} | own("m", 0)]
    for turn in range(turns):
        call = {"type": "function_call", "call_id": f"c{turn}", "name": "bash", "arguments": "{}"}
        said += [REASONING | own("r", turn), call | own("f", turn)]
        result = {"type": "function_call_output", "call_id": f"c{turn}", "output": f"{turn} " * 500}
        said.append(result | own("o", turn))
    return said


def test_a_further_turn_costs_what_is_new() -> None:
    bodies = [request(conversation(turns)) for turns in range(5)]
    facts = [READER.request(body, b"/v1/responses") for body in bodies]
    assert all(covered(body, fact.pieces) for body, fact in zip(bodies, facts, strict=True))
    assert max(new_bytes(bodies, [fact.pieces for fact in facts])[1:]) < 1000 + 600
    identities = [[message.identity for message in fact.messages] for fact in facts]
    assert identities[4][: len(identities[3])] == identities[3]
    roles = [message.role for message in facts[1].messages]
    assert roles == ["user", "reasoning", "function_call", "function_call_output"]


def test_ids_made_anew_do_not_count() -> None:
    one, two = (READER.request(request(conversation(2, note)), b"").messages for note in ("a", "b"))
    assert [message.identity for message in one] == [message.identity for message in two]
    told = READER.request(request([{"role": "user", "content": "go"}]), b"").messages[0]
    assert told.identity == one[0].identity == READER.request(request("go"), b"").messages[0].identity
    references = [{"type": "item_reference", "id": "a"}, {"type": "item_reference", "id": "b"}]
    assert len({message.identity for message in READER.request(request(references), b"").messages}) == 2
    other = READER.request(request([REASONING, REASONING | {"encrypted_content": "eQ=="}]), b"").messages
    assert other[0].identity != other[1].identity


def test_results_of_tools() -> None:
    items = [
        {"type": "function_call_output", "call_id": "a", "output": "x" * 5000},
        {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "1"}, {}]},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "done"},
        {"type": "local_shell_call_output", "id": "d", "output": '{"exit":0}'},
        {"type": "shell_call_output", "call_id": "e", "output": [{"stdout": "o", "stderr": "e", "outcome": {}}]},
        {"type": "apply_patch_call_output", "call_id": "f", "status": "failed", "output": "no"},
        {"type": "mcp_call", "id": "g", "name": "find", "output": "found", "error": None},
        {"type": "mcp_call", "id": "h", "name": "find", "output": None, "error": {"m": 1}},
        {"type": "mcp_call", "id": "i", "name": "find"},
        {"type": "function_call_output", "call_id": "j", "output": {"content": "old", "success": True}},
    ]
    found = READER.request(request(items), b"").outcomes
    assert [(one.id, one.name, one.error, one.size, one.text[:10]) for one in found] == [
        (b"a", b"", None, 5000, b"x" * 10),
        (b"b", b"", None, 1, b"1"),
        (b"c", b"", None, 4, b"done"),
        (b"d", b"", None, 10, b'{"exit":0}'),
        (b"e", b"", None, 3, b"o\ne"),
        (b"f", b"", True, 2, b"no"),
        (b"g", b"find", False, 5, b"found"),
        (b"h", b"find", True, 7, b'{"m":1}'),
        (b"j", b"", None, 3, b"old"),
    ]


def test_what_a_request_says_of_itself() -> None:
    facts = READER.request(request("go", previous_response_id="resp_0"), b"/v1/responses")
    assert (facts.model, facts.stream, facts.tools) == (b"gpt-5.5", True, 1)
    assert (facts.session, facts.previous) == (b"key", b"resp_0")
    assert READER.request(request("", conversation={"id": "conv"}), b"").session == b"conv"
    assert READER.request(request("", conversation="conv"), b"").session == b"conv"
    assert READER.request(request("", client_metadata={"thread_id": "t"}), b"").session == b"t"


@given(st.data())
def test_any_cut_gives_what_came(data: st.DataObject) -> None:
    body = sse(*BEGIN, *BODY, END, named=True)
    facts = READER.response(body[: data.draw(st.integers(0, len(body)))], EVENTS)
    said = b"".join(block.text + block.arguments for block in facts.blocks)
    assert len(said) <= sum(len(block.text + block.arguments) for block in BLOCKS)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["message", "function_call", "mcp_call", "x_output"]),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(
        st.sampled_from(["type", "content", "output", "item", "delta", "text", "summary", "action", "role", "id"]),
        inner,
        max_size=4,
    ),
    max_leaves=10,
)


@given(st.binary(max_size=50), ODD, st.sampled_from([event["type"] for event in [*BEGIN, *BODY, END]]))
def test_foreign_bytes_never_raise(body: bytes, odd: Any, kind: str) -> None:
    assert READER.response(body, LINES) is not None
    READER.response(sse(odd if isinstance(odd, dict) else {"output": odd}), EVENTS)
    READER.response(sse({"type": kind, "item": odd, "delta": odd, "response": odd, "output_index": odd}), EVENTS)
    READER.response(sse({"type": kind, "response": {"status": odd, "output": [odd], "error": odd}}), EVENTS)
    READER.response(json.dumps({"object": "response", "output": odd, "status": odd}).encode(), b"")
    told = json.dumps({"input": [odd], "tools": odd, "conversation": odd, "client_metadata": odd}).encode()
    assert covered(told, READER.request(told, body).pieces)
    assert READER.response(b"", EVENTS) == ResponseFacts(problem="empty")
