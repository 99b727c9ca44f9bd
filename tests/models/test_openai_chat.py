"""OpenAI's Chat Completions, as its own servers and others speak it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.wires import covered, new_bytes, scattered_texts, sse

from agentwrap.models.openai_chat import OpenAiChat
from agentwrap.models.shape import Block, ResponseFacts, Usage

READER = OpenAiChat()
EVENTS = b"text/event-stream"
BASE = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5.1", "obfuscation": "xx"}
USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 40,
    "total_tokens": 140,
    "prompt_tokens_details": {"cached_tokens": 90, "cache_write_tokens": 5},
    "completion_tokens_details": {"reasoning_tokens": 30},
}


def chunk(delta: dict[str, Any], finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    return BASE | {"choices": [{"index": index, "delta": delta, "finish_reason": finish, "logprobs": None} | more]}


def call(index: int | None, arguments: str, **more: Any) -> dict[str, Any]:
    told: dict[str, Any] = {"function": {"arguments": arguments}} | more
    if "name" in told:
        told["function"]["name"] = told.pop("name")
    return {"tool_calls": [told if index is None else {"index": index} | told]}


WHOLE = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": 'So "'}),
    chunk({"content": 'it" ä'}),
    chunk(call(0, "", id="call_a", type="function", name="bash")),
    chunk(call(0, '{"c":')),
    chunk(call(1, "", id="call_b", type="function", name="read")),
    chunk(call(1, '{"p":')),
    chunk(call(0, '"ls"}')),
    chunk(call(1, "1}")),
    chunk({}, "tool_calls"),
    BASE | {"choices": [], "usage": USAGE},
    "[DONE]",
]


def test_a_stream_is_put_together() -> None:
    body = sse(*WHOLE)
    facts = READER.response(body, EVENTS)
    assert facts.blocks == (
        Block("text", 'So "it" ä'.encode()),
        Block("tool", b"", b"call_a", b"bash", b'{"c":"ls"}'),
        Block("tool", b"", b"call_b", b"read", b'{"p":1}'),
    )
    assert facts.usage == Usage(100, 90, 5, 40, 30)
    assert (facts.id, facts.model, facts.stop, facts.complete) == (b"chatcmpl-1", b"gpt-5.1", b"tool_calls", True)
    assert scattered_texts(body, facts.scattered) == ['So "it" ä', '{"c":"ls"}', '{"p":1}']
    assert body[: facts.first_token].endswith(b'"content": "S')
    assert (facts.unknown, facts.problem) == ((), "")


def test_the_end_may_be_told_in_two_ways() -> None:
    assert READER.response(sse(*WHOLE[:-1]), EVENTS).complete
    assert READER.response(sse(WHOLE[1], "[DONE]"), EVENTS).complete
    assert not READER.response(sse(*WHOLE[:-3]), EVENTS).complete
    two = [chunk({"content": "a"}), chunk({"content": "b"}, index=1), chunk({}, "stop")]
    assert not READER.response(sse(*two), EVENTS).complete
    assert READER.response(sse(*two, chunk({}, "length", index=1)), EVENTS).complete


def test_choices_that_come_in_turn() -> None:
    both = BASE | {"choices": [{"index": 0, "delta": {"content": "x"}}, {"index": 1, "delta": {"content": "x"}}]}
    body = sse(both, chunk({"content": "a"}), chunk({"content": "b"}, index=1))
    facts = READER.response(body, EVENTS)
    assert [block.text for block in facts.blocks] == [b"xa", b"xb"]
    assert scattered_texts(body, facts.scattered) == ["xa", "xb"]
    assert facts.scattered[0][0] < facts.scattered[1][0]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thinking_of_other_servers(name: str) -> None:
    details = {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}
    body = sse(chunk({name: "hm"} | details), chunk({name: "m"}), chunk({"content": "ok"}, "stop"))
    facts = READER.response(body, EVENTS)
    assert facts.blocks == (Block("thinking", b"hmm"), Block("text", b"ok"))
    assert scattered_texts(body, facts.scattered) == ["hmm", "ok", "hm"]
    assert facts.unknown == ()


def test_calls_without_numbers() -> None:
    facts = READER.response(
        sse(
            chunk(call(None, '{"a":', id="1", name="x")),
            chunk(call(None, "1}", id="1")),
            chunk(call(None, "{}", id="2", name="y")),
            chunk(call(None, "")),
        ),
        EVENTS,
    )
    assert facts.blocks == (
        Block("tool", b"", b"1", b"x", b'{"a":1}'),
        Block("tool", b"", b"2", b"y", b"{}"),
    )


def test_functions_custom_tools_refusals_and_speech() -> None:
    custom = {"tool_calls": [{"index": 0, "id": "c", "type": "custom", "custom": {"name": "patch", "input": "*** B"}}]}
    more = {"tool_calls": [{"index": 0, "custom": {"input": "egin"}}]}
    facts = READER.response(
        sse(
            chunk({"function_call": {"name": "old", "arguments": "{"}}),
            chunk({"function_call": {"arguments": "}"}}),
            chunk(custom),
            chunk(more),
            chunk({"refusal": "no"}),
            chunk({"audio": {"id": "a", "transcript": "hello"}}),
        ),
        EVENTS,
    )
    assert facts.blocks == (
        Block("tool", b"", b"", b"old", b"{}"),
        Block("tool", b"", b"c", b"patch", b"*** Begin"),
        Block("refusal", b"no"),
        Block("other", b"hello"),
    )


def test_tokens_with_their_chances_are_places_too() -> None:
    told = {"logprobs": {"content": [{"token": "se", "logprob": -1, "top_logprobs": []}, {"token": "cret"}]}}
    body = sse(chunk({"content": "secret"}, **told))
    assert scattered_texts(body, READER.response(body, EVENTS).scattered) == ["secret", "secret"]


def test_one_document() -> None:
    said = {
        "role": "assistant",
        "content": "ok",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "x", "arguments": "{}"}},
            {"id": "b", "type": "function", "function": {"name": "y", "arguments": {"already": 1}}},
        ],
    }
    whole = {"id": "c", "object": "chat.completion", "model": "m", "usage": USAGE}
    whole["choices"] = [{"index": 0, "message": said, "finish_reason": "tool_calls"}]
    facts = READER.response(json.dumps(whole).encode(), b"application/json")
    assert facts.blocks == (
        Block("text", b"ok"),
        Block("tool", b"", b"a", b"x", b"{}"),
        Block("tool", b"", b"b", b"y", b'{"already":1}'),
    )
    assert (facts.complete, facts.first_token, facts.scattered) == (True, 0, ())
    assert facts.usage.input_tokens == 100


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ({"error": {"message": "slow down", "type": "requests", "code": "rate_limit"}}, (b"requests", b"slow down")),
        ({"error": {"message": "no", "type": None, "code": 429}}, (b"429", b"no")),
        ({"error": "model not found"}, (b"error", b"model not found")),
        ({"detail": "Unauthorized"}, (b"error", b"Unauthorized")),
        ({"detail": [{"msg": "field required"}, {"msg": "too long"}]}, (b"error", b"field required; too long")),
        ({"message": "Forbidden", "code": 3}, (b"error", b"Forbidden")),
        ([{"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}}], (b"INVALID_ARGUMENT", b"bad")),
    ],
)
def test_errors(document: Any, error: tuple[bytes, bytes]) -> None:
    facts = READER.response(json.dumps(document).encode(), b"application/json")
    assert (facts.error, facts.complete) == (error, False)
    if isinstance(document, dict):
        facts = READER.response(sse(*WHOLE[:3], document), EVENTS)
        assert (facts.error, facts.complete, len(facts.blocks)) == (error, False, 1)


def test_what_is_not_known_is_named() -> None:
    facts = READER.response(sse({"object": "chat.surprise"}, chunk({"smell": "x", "content": "y"}), "nonsense"), EVENTS)
    assert facts.unknown == (b"chat.surprise", b"delta.smell", b"no object")
    assert READER.response(b"<html>", b"text/html") == ResponseFacts(problem="no answer of this API")


def request(messages: list[Any], **more: Any) -> bytes:
    tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
    return json.dumps({"model": "gpt-5.1", "messages": messages, "tools": tools, "stream": True} | more).encode()


def conversation(turns: int) -> list[Any]:
    said: list[Any] = [{"role": "system", "content": "be good " * 300}, {"role": "user", "content": "fix it"}]
    for turn in range(turns):
        made = {"id": f"call_{turn}", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
        said.append({"role": "assistant", "content": None, "tool_calls": [made]})
        said.append({"role": "tool", "tool_call_id": f"call_{turn}", "content": f"{turn} " * 1000})
    return said


def test_a_further_turn_costs_what_is_new() -> None:
    bodies = [request(conversation(turns)) for turns in range(5)]
    facts = [READER.request(body, b"/v1/chat/completions") for body in bodies]
    assert all(covered(body, fact.pieces) for body, fact in zip(bodies, facts, strict=True))
    assert max(new_bytes(bodies, [fact.pieces for fact in facts])[1:]) < 2000 + 400
    assert [one.id for one in facts[2].outcomes] == [b"call_0", b"call_1"]
    assert (facts[2].outcomes[1].size, facts[2].outcomes[1].error) == (2000, None)
    identities = [[message.identity for message in fact.messages] for fact in facts]
    assert identities[4][: len(identities[3])] == identities[3]
    assert len(set(identities[4])) == len(identities[4])
    assert [message.role for message in facts[1].messages] == ["system", "user", "assistant", "tool"]


def test_messages_are_the_same_however_they_are_written() -> None:
    one = READER.request(request([{"role": "assistant", "content": "a", "tool_calls": None}]), b"").messages[0]
    part = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    two = READER.request(request([{"content": [part], "role": "assistant"}]), b"").messages[0]
    assert one.identity == two.identity


def test_what_a_request_says_of_itself() -> None:
    facts = READER.request(request([], prompt_cache_key="k"), b"/v1/chat/completions")
    assert (facts.model, facts.stream, facts.tools, facts.session) == (b"gpt-5.1", True, 1, b"k")
    assert READER.request(b"{}", b"/openai/deployments/mine/chat/completions").model == b"mine"


@given(st.data())
def test_any_cut_gives_what_came(data: st.DataObject) -> None:
    body = sse(*WHOLE)
    cut = data.draw(st.integers(0, len(body)))
    facts, whole = READER.response(body[:cut], EVENTS), READER.response(body, EVENTS)
    for part, block in zip(facts.blocks, whole.blocks, strict=False):
        assert block.text.startswith(part.text)
        assert block.arguments.startswith(part.arguments)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(
        st.sampled_from(["index", "delta", "tool_calls", "function", "content", "id", "audio", "message", "custom"]),
        inner,
        max_size=4,
    ),
    max_leaves=10,
)


@given(st.binary(max_size=50), ODD)
def test_foreign_bytes_never_raise(body: bytes, odd: object) -> None:
    READER.response(body, EVENTS)
    READER.response(sse({"choices": odd, "usage": odd, "error": odd, "id": odd}), EVENTS)  # type: ignore[dict-item]
    READER.response(sse({"choices": [odd, {"delta": odd, "index": odd, "logprobs": odd}]}), EVENTS)  # type: ignore[list-item]
    told = json.dumps({"messages": odd, "tools": odd, "model": odd}).encode()
    assert covered(told, READER.request(told, body).pieces)
    told = json.dumps({"messages": [odd, {"role": "tool", "content": odd}]}).encode()
    assert covered(told, READER.request(told, body).pieces)
