"""Google's Gemini: streams of events, arrays and one document."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.wires import covered, new_bytes, scattered_texts, sse

from agentwrap.models.gemini_generate import GeminiGenerate
from agentwrap.models.shape import Block, Usage

READER = GeminiGenerate()
EVENTS = b"text/event-stream"
JSON = b"application/json; charset=UTF-8"
PATH = b"/v1beta/models/gemini-3-pro:streamGenerateContent"


def chunk(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0} | more
    usage = {"promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 7, "thoughtsTokenCount": 3}
    return {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": "gemini-3-pro",
        "responseId": "r1",
    }


CHUNKS = [
    chunk({"text": "Let me", "thought": True}),
    chunk({"text": " see", "thought": True}),
    chunk({"text": 'It is "'}),
    chunk({"text": 'ü"'}, {"functionCall": {"name": "bash", "args": {"c": "ls"}}}),
    chunk({"functionCall": {"id": "f2", "name": "read", "args": {}}}, {"text": "after"}),
    chunk({"text": ""}, finishReason="STOP"),
]
BLOCKS = (
    Block("thinking", b"Let me see"),
    Block("text", 'It is "ü"'.encode()),
    Block("tool", b"", b"bash#1", b"bash", b'{"c":"ls"}'),
    Block("tool", b"", b"f2", b"read", b"{}"),
    Block("text", b"after"),
)
BODIES = {
    "events": (sse(*CHUNKS), EVENTS),
    "array": (json.dumps(CHUNKS, indent=1).encode(), JSON),
    "within": (sse(*({"response": chunk} for chunk in CHUNKS)), EVENTS),
}


@pytest.mark.parametrize("made", BODIES)
def test_a_stream_is_put_together(made: str) -> None:
    body, media = BODIES[made]
    facts = READER.response(body, media)
    assert facts.blocks == BLOCKS
    assert facts.usage == Usage(100, 60, None, 10, 3)
    assert (facts.model, facts.id, facts.stop, facts.complete) == (b"gemini-3-pro", b"r1", b"STOP", True)
    assert scattered_texts(body, facts.scattered) == ["Let me see", 'It is "ü"', "after"]
    assert body[: facts.first_token].endswith(b'"text": "L')
    assert (facts.unknown, facts.problem) == ((), "")


@pytest.mark.parametrize("made", BODIES)
def test_a_stream_that_breaks_gives_what_came(made: str) -> None:
    body, media = BODIES[made]
    facts = READER.response(body[: body.index(b'"f2"')], media)
    assert facts.blocks == BLOCKS[:3]
    assert not facts.complete


def test_one_document() -> None:
    facts = READER.response(json.dumps(chunk({"text": "hi"}, finishReason="STOP")).encode(), JSON)
    assert (facts.blocks, facts.complete, facts.first_token) == ((Block("text", b"hi"),), True, 0)


def test_what_the_provider_runs_and_what_is_not_known() -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "1+1"}}
    facts = READER.response(sse(chunk(code, {"codeExecutionResult": {}}, {"smell": 1}, {}), {"odd": 1}), EVENTS)
    assert facts.blocks == (
        Block("provider-tool", b"", b"", b"code_execution", b"1+1"),
        Block("other", b"", b"", b"codeExecutionResult"),
        Block("other", b"", b"", b"smell"),
    )
    assert facts.unknown == (b"smell", b"odd")


def test_errors_and_prompts_that_are_blocked() -> None:
    error = {"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED"}}
    for body in (json.dumps(error), json.dumps([error]), f"data: {json.dumps(error)}\n\n"):
        facts = READER.response(body.encode(), JSON)
        assert (facts.error, facts.complete) == ((b"RESOURCE_EXHAUSTED", b"Quota"), False)
    facts = READER.response(json.dumps({"promptFeedback": {"blockReason": "SAFETY"}}).encode(), JSON)
    assert (facts.stop, facts.complete) == (b"SAFETY", True)


def conversation(turns: int) -> list[Any]:
    said: list[Any] = [{"role": "user", "parts": [{"text": "go " * 200}]}]
    for turn in range(turns):
        call = {"functionCall": {"name": "bash", "args": {}}, "thoughtSignature": f"s{turns}"}
        said.append({"role": "model", "parts": [call]})
        result = {"name": "bash", "response": {"output": f"{turn} " * 500}}
        said.append({"role": "user", "parts": [{"functionResponse": result}]})
    return said


def request(contents: list[Any], **more: Any) -> bytes:
    tools = [{"functionDeclarations": [{"name": "bash"}, {"name": "read"}]}, {"googleSearch": {}}]
    held = {"systemInstruction": {"parts": [{"text": "be good " * 200}]}, "contents": contents, "tools": tools}
    return json.dumps(held | more).encode()


def test_a_further_turn_costs_what_is_new() -> None:
    bodies = [request(conversation(turns)) for turns in range(5)]
    facts = [READER.request(body, PATH) for body in bodies]
    assert all(covered(body, fact.pieces) for body, fact in zip(bodies, facts, strict=True))
    assert max(new_bytes(bodies, [fact.pieces for fact in facts])[1:]) < 1000 + 4 * 150 + 150
    identities = [[message.identity for message in fact.messages] for fact in facts]
    assert identities[4][: len(identities[3])] == identities[3]
    assert (facts[1].model, facts[1].stream, facts[1].tools) == (b"gemini-3-pro", True, 3)
    assert [(one.id, one.name, one.text[:2]) for one in facts[2].outcomes] == [(b"bash#1", b"bash", b"1 ")]


def test_a_request_within_another_object() -> None:
    inner = json.loads(request(conversation(2))) | {"session_id": "s"}
    body = json.dumps({"model": "gemini-3-pro", "project": "p", "request": inner, "user_prompt_id": "u"}).encode()
    facts = READER.request(body, b"/v1internal:streamGenerateContent")
    assert covered(body, facts.pieces)
    assert (facts.model, facts.session, len(facts.messages), len(facts.outcomes)) == (b"gemini-3-pro", b"s", 5, 1)
    assert len(facts.pieces) > 5
    assert READER.request(b"{}", b"/v1/models/g:generateContent").stream is False


def test_results_of_tools() -> None:
    results = [
        {"id": "1", "name": "a", "response": {"output": "x"}},
        {"name": "b", "response": {"error": "no"}},
        {"name": "c", "response": {"k": 1, "output": 2}},
        {"name": "d"},
    ]
    body = request([{"role": "user", "parts": [{"functionResponse": result} for result in results]}])
    found = READER.request(body, PATH).outcomes
    assert [(one.id, one.name, one.error, one.text) for one in found] == [
        (b"1", b"a", None, b"x"),
        (b"b#1", b"b", True, b"no"),
        (b"c#1", b"c", None, b'{"k":1,"output":2}'),
        (b"d#1", b"d", None, b"null"),
    ]


def test_calls_without_ids_meet_their_results() -> None:
    calls: list[dict[str, Any]] = [{"name": "a", "args": {}}, {"name": "b"}, {"name": "a"}, {"id": "own", "name": "a"}]
    answer = READER.response(sse(*(chunk({"functionCall": call}) for call in calls)), EVENTS)
    assert [block.id for block in answer.blocks] == [b"a#1", b"b#1", b"a#2", b"own"]
    results = [{"functionResponse": call | {"response": {"output": "x"}}} for call in calls]
    turn = [{"role": "model", "parts": [{"functionCall": call} for call in calls]}, {"role": "user", "parts": results}]
    assert [one.id for one in READER.request(request(turn), PATH).outcomes] == [b"a#1", b"b#1", b"a#2", b"own"]
    # Results of an earlier answer would have the same names: only ids of their own are told again.
    again = READER.request(request([*turn, *turn[:1], {"role": "user", "parts": results[:1]}]), PATH)
    assert [one.id for one in again.outcomes] == [b"own", b"a#1"]


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(
        st.sampled_from("parts text functionCall functionResponse content index executableCode name".split()),
        inner,
        max_size=4,
    ),
    max_leaves=10,
)


@given(st.binary(max_size=50), ODD)
def test_foreign_bytes_never_raise(body: bytes, odd: Any) -> None:
    READER.response(body, EVENTS)
    READER.response(b"[" + body, JSON)
    READER.response(sse({"candidates": [odd, {"content": odd}], "usageMetadata": odd}), EVENTS)
    READER.response(sse({"candidates": odd, "response": odd, "promptFeedback": odd}), EVENTS)
    READER.response(sse(chunk(odd)), EVENTS)  # type: ignore[arg-type]
    for told in ({"contents": [odd, {"parts": odd}], "tools": odd}, {"request": odd}, {"request": {"contents": odd}}):
        text = json.dumps(told).encode()
        assert covered(text, READER.request(text, PATH).pieces)
