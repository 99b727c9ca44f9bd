"""The providers' own Python clients read the same answers to the same end.

They are given our bytes through a transport of theirs that asks nobody: `pip install .[sdks]`.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models.wires import sse

from agentwrap.models.shape import Block, ResponseFacts
from agentwrap.models.shapes import by_api

EVENTS = b"text/event-stream"
JSON = b"application/json"
REASON = "the providers' Python clients are not installed (the extra `sdks`)"
anthropic = pytest.importorskip("anthropic", reason=REASON)
openai = pytest.importorskip("openai", reason=REASON)
genai = pytest.importorskip("google.genai", reason=REASON)
httpx = pytest.importorskip("httpx2", reason=REASON)

# What the clients warn of is not ours.
pytestmark = pytest.mark.filterwarnings("ignore")
FEW = settings(max_examples=40)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ARGUMENTS = st.dictionaries(st.text("abc", min_size=1, max_size=3), TEXT | st.integers(-9, 9) | st.none(), max_size=3)
COUNTS = st.integers(0, 10**6)


def answering(body: bytes, media: bytes) -> Any:
    """A transport that gives every request this answer."""

    def handler(request: Any) -> Any:
        return httpx.Response(200, headers={"content-type": media.decode()}, content=body)

    return httpx.Client(transport=httpx.MockTransport(handler))


@st.composite
def cut(draw: st.DrawFn, text: str) -> list[str]:
    """A text in pieces, at least one and none of them empty unless all are."""
    ends = sorted(draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=4)))
    pieces = [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]
    return [piece for piece in pieces if piece] or [""]


# --- Anthropic ------------------------------------------------------------------------------------------------------


@st.composite
def anthropic_messages(draw: st.DrawFn) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(events, the same as one document)."""
    usage = {"input_tokens": draw(COUNTS), "output_tokens": 1}
    if draw(st.booleans()):
        usage |= {"cache_read_input_tokens": draw(COUNTS), "cache_creation_input_tokens": draw(COUNTS)}
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    content: list[dict[str, Any]] = []
    for index in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["text", "thinking", "tool_use", "server_tool_use"]))
        block, begun, deltas = draw(anthropic_blocks(kind))
        content.append(block)
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events += [{"type": "ping"}] * draw(st.integers(0, 1))
        events.append({"type": "content_block_stop", "index": index})
    last = {"output_tokens": draw(COUNTS)} | ({"input_tokens": draw(COUNTS)} if draw(st.booleans()) else {})
    events.append({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": last})
    events.append({"type": "message_stop"})
    return events, message | {"content": content, "stop_reason": "end_turn", "usage": usage | last}


@st.composite
def anthropic_blocks(draw: st.DrawFn, kind: str) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    if kind == "text":
        text = draw(TEXT)
        deltas = [{"type": "text_delta", "text": piece} for piece in draw(cut(text))]
        return {"type": "text", "text": text}, {"type": "text", "text": ""}, deltas
    if kind == "thinking":
        text = draw(TEXT)
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in draw(cut(text))]
        deltas.append({"type": "signature_delta", "signature": "c2ln"})
        whole = {"type": kind, "thinking": text, "signature": "c2ln"}
        return whole, {"type": kind, "thinking": "", "signature": ""}, deltas
    made = draw(ARGUMENTS)
    name = "web_search" if kind == "server_tool_use" else draw(st.text("abc", min_size=1))
    block = {"type": kind, "id": draw(st.text("xyz", min_size=1)), "name": name, "input": made}
    pieces = draw(cut(json.dumps(made))) if made or draw(st.booleans()) else [""]
    return block, block | {"input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


def of_anthropic(message: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for block in message.content:
        if block.type == "text":
            found.append(("text", block.text))
        elif block.type == "thinking":
            found.append(("thinking", block.thinking))
        else:
            kind = "tool" if block.type == "tool_use" else "provider-tool"
            found.append((kind, block.id, block.name, block.input))
    return found


def of_ours(facts: ResponseFacts, *, ids: bool = True) -> list[tuple[Any, ...]]:
    def told(block: Block) -> tuple[Any, ...]:
        if block.kind in ("tool", "provider-tool"):
            ident = (block.id.decode(),) if ids else ()
            return (block.kind, *ident, block.name.decode(), json.loads(block.arguments))
        return (block.kind, block.text.decode())

    return [told(block) for block in facts.blocks]


@FEW
@given(anthropic_messages())
def test_messages(made: tuple[list[dict[str, Any]], dict[str, Any]]) -> None:
    events, document = made
    asked: dict[str, Any] = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
    for body, media in ((sse(*events, named=True), EVENTS), (json.dumps(document).encode(), JSON)):
        client = anthropic.Anthropic(api_key="k", max_retries=0, http_client=answering(body, media))
        if media == EVENTS:
            with client.messages.stream(**asked) as stream:
                message = stream.get_final_message()
        else:
            message = client.messages.create(**asked)
        facts = by_api("anthropic.messages").response(body, media)
        assert of_ours(facts) == of_anthropic(message)
        usage = message.usage
        read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
        assert facts.usage.input_tokens == usage.input_tokens + (read or 0) + (written or 0)
        assert (facts.usage.cache_read_tokens, facts.usage.cache_write_tokens) == (read, written)
        assert facts.usage.output_tokens == usage.output_tokens
        assert (facts.id, facts.stop, facts.complete) == (message.id.encode(), message.stop_reason.encode(), True)


# --- OpenAI ---------------------------------------------------------------------------------------------------------


@st.composite
def chats(draw: st.DrawFn) -> list[dict[str, Any] | str]:
    """Chunks of one choice, its tool calls in any order of their pieces."""
    base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "obfuscation": draw(TEXT)}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in draw(cut(draw(TEXT)))]
    calls: list[list[dict[str, Any]]] = []
    for index in range(draw(st.integers(0, 3))):
        name = draw(st.text("abc", min_size=1))
        begun = {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": ""}}
        pieces = draw(cut(json.dumps(draw(ARGUMENTS))))
        deltas.append({"tool_calls": [begun]})
        calls.append([{"index": index, "function": {"arguments": piece}} for piece in pieces])
    while any(calls):
        deltas.append({"tool_calls": [draw(st.sampled_from([one for one in calls if one])).pop(0)]})
    choices = [{"index": 0, "delta": delta, "finish_reason": None, "logprobs": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop", "logprobs": None})
    usage: dict[str, Any] = {"prompt_tokens": draw(COUNTS), "completion_tokens": draw(COUNTS), "total_tokens": 1}
    usage["prompt_tokens_details"] = {"cached_tokens": draw(COUNTS)}
    usage["completion_tokens_details"] = {"reasoning_tokens": draw(COUNTS)}
    chunks: list[dict[str, Any] | str] = [base | {"choices": [choice], "usage": None} for choice in choices]
    return [*chunks, base | {"choices": [], "usage": usage}, "[DONE]"]


@FEW
@given(chats())
def test_chat(chunks: list[dict[str, Any] | str]) -> None:
    body = sse(*chunks)
    client = openai.OpenAI(api_key="k", max_retries=0, http_client=answering(body, EVENTS))
    asked: list[Any] = [{"role": "user", "content": "x"}]
    with client.chat.completions.stream(model="m", messages=asked, stream_options={"include_usage": True}) as stream:
        completion = stream.get_final_completion()
    facts = by_api("openai.chat").response(body, EVENTS)
    said = completion.choices[0].message
    theirs: list[tuple[Any, ...]] = [("text", said.content)] if said.content else []
    calls = [(call.id, call.function) for call in said.tool_calls or ()]
    theirs += [("tool", ident, made.name, json.loads(made.arguments)) for ident, made in calls]
    assert of_ours(facts) == theirs
    usage = completion.usage
    assert (facts.usage.input_tokens, facts.usage.output_tokens) == (usage.prompt_tokens, usage.completion_tokens)
    assert facts.usage.cache_read_tokens == usage.prompt_tokens_details.cached_tokens
    assert facts.usage.reasoning_tokens == usage.completion_tokens_details.reasoning_tokens
    assert (facts.id, facts.stop, facts.complete) == (b"c", b"stop", True)
    whole = completion.to_json().encode()
    again = by_api("openai.chat").response(whole, JSON)
    assert (again.blocks, again.usage, again.stop) == (facts.blocks, facts.usage, facts.stop)


@st.composite
def responses(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The events of one response."""
    output: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    for index in range(draw(st.integers(0, 3))):
        place = {"output_index": index, "item_id": f"i{index}"}
        if draw(st.booleans()):
            text = draw(TEXT)
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            item = {"id": f"i{index}", "type": "message", "role": "assistant", "status": "completed"}
            item |= {"content": [part | {"text": text}]}
            at = place | {"content_index": 0}
            events.append({"type": "response.output_item.added", "output_index": index, "item": item | {"content": []}})
            events.append({"type": "response.content_part.added", "part": part} | at)
            said = {"type": "response.output_text.delta", "logprobs": []} | at
            events += [said | {"delta": piece} for piece in draw(cut(text))]
            events.append({"type": "response.output_text.done", "text": text, "logprobs": []} | at)
        else:
            made = json.dumps(draw(ARGUMENTS))
            item = {"id": f"i{index}", "type": "function_call", "status": "completed", "call_id": f"c{index}"}
            item |= {"name": draw(st.text("abc", min_size=1)), "arguments": made}
            begun = item | {"arguments": ""}
            events.append({"type": "response.output_item.added", "output_index": index, "item": begun})
            said = {"type": "response.function_call_arguments.delta"} | place
            events += [said | {"delta": piece} for piece in draw(cut(made))]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
        output.append(item)
    base = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "parallel_tool_calls": True}
    base |= {"tool_choice": "auto", "tools": [], "error": None, "incomplete_details": None, "metadata": {}}
    usage = {"input_tokens": draw(COUNTS), "output_tokens": draw(COUNTS), "total_tokens": 1}
    usage |= {"input_tokens_details": {"cached_tokens": draw(COUNTS), "cache_write_tokens": 0}}
    usage |= {"output_tokens_details": {"reasoning_tokens": draw(COUNTS)}}
    begun = base | {"status": "in_progress", "output": [], "usage": None}
    ended = base | {"status": "completed", "output": output, "usage": usage}
    events = [{"type": "response.created", "response": begun}, *events]
    events.append({"type": "response.completed", "response": ended})
    return [event | {"sequence_number": number} for number, event in enumerate(events)]


@FEW
@given(responses())
def test_responses(events: list[dict[str, Any]]) -> None:
    body = sse(*events, named=True)
    client = openai.OpenAI(api_key="k", max_retries=0, http_client=answering(body, EVENTS))
    with client.responses.stream(model="m", input="x") as stream:
        response = stream.get_final_response()
    theirs: list[tuple[Any, ...]] = []
    for item in response.output:
        if item.type == "message":
            theirs += [("text", part.text) for part in item.content]
        else:
            theirs.append(("tool", item.call_id, item.name, json.loads(item.arguments)))
    reader = by_api("openai.responses")
    facts = reader.response(body, EVENTS)
    assert of_ours(facts) == theirs
    usage = response.usage
    assert (facts.usage.input_tokens, facts.usage.output_tokens) == (usage.input_tokens, usage.output_tokens)
    assert facts.usage.cache_read_tokens == usage.input_tokens_details.cached_tokens
    assert facts.usage.reasoning_tokens == usage.output_tokens_details.reasoning_tokens
    assert (facts.id, facts.complete) == (b"resp_1", True)
    # Without its last event the deltas say the same; so does the whole in one.
    assert of_ours(reader.response(sse(*events[:-1]), EVENTS)) == theirs
    deltas = [event for event in events[:-1] if not event["type"].endswith(".done")]
    said = of_ours(reader.response(sse(*deltas), EVENTS))
    assert [block for block in said if block[1]] == [block for block in theirs if block[1]]
    again = reader.response(json.dumps(events[-1]["response"]).encode(), JSON)
    assert (again.blocks, again.usage) == (facts.blocks, facts.usage)


# --- Google ---------------------------------------------------------------------------------------------------------


@st.composite
def generated(draw: st.DrawFn) -> list[dict[str, Any]]:
    part = st.builds(lambda text: {"text": text}, TEXT) | st.builds(
        lambda name, made: {"functionCall": {"name": name, "args": made}}, st.text("abc", min_size=1), ARGUMENTS
    )
    chunks = []
    for parts in draw(st.lists(st.lists(part, min_size=1, max_size=2), min_size=1, max_size=4)):
        usage = {"promptTokenCount": draw(COUNTS), "candidatesTokenCount": draw(COUNTS), "totalTokenCount": 1}
        usage |= {"cachedContentTokenCount": draw(COUNTS), "thoughtsTokenCount": draw(COUNTS)}
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
        chunks.append({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "g", "responseId": "r"})
    chunks[-1]["candidates"][0]["finishReason"] = "STOP"
    return chunks


@FEW
@given(generated())
def test_gemini(chunks: list[dict[str, Any]]) -> None:
    body = sse(*chunks)
    options = genai.types.HttpOptions(httpx_client=answering(body, EVENTS), base_url="http://localhost")
    client = genai.Client(api_key="k", http_options=options)
    text, calls, usage = "", [], None
    for chunk in client.models.generate_content_stream(model="g", contents="x"):
        for part in chunk.candidates[0].content.parts:
            text += part.text or ""
            calls += [(part.function_call.name, part.function_call.args)] if part.function_call else []
        usage = chunk.usage_metadata
    for again, media in ((body, EVENTS), (json.dumps(chunks).encode(), JSON)):
        facts = by_api("gemini.generate").response(again, media)
        assert b"".join(block.text for block in facts.blocks).decode() == text
        tools = [block for block in facts.blocks if block.kind == "tool"]
        assert [(block.name.decode(), json.loads(block.arguments)) for block in tools] == calls
        assert usage is not None
        assert facts.usage.input_tokens == usage.prompt_token_count
        assert facts.usage.cache_read_tokens == usage.cached_content_token_count
        assert facts.usage.output_tokens == usage.candidates_token_count + usage.thoughts_token_count
        assert facts.complete


# --- events ---------------------------------------------------------------------------------------------------------


LINES = st.lists(st.sampled_from(["data: x", "data:y", "data", "event: a", "event:b", ": c", "id: 1", "", "", "z: 1"]))


def decoders() -> Iterator[Callable[[bytes], list[tuple[str, str]]]]:
    from anthropic._streaming import SSEDecoder as OfAnthropic
    from openai._streaming import SSEDecoder as OfOpenai

    for decoder in (OfAnthropic, OfOpenai):
        yield lambda body, decoder=decoder: [  # type: ignore[misc]
            (event.event or "", event.data) for event in decoder().iter_bytes(iter([body])) if event.data
        ]


@given(LINES, st.sampled_from(["\n", "\r\n", "\r"]))
def test_events(lines: list[str], end: str) -> None:
    from agentwrap.models.sse import events

    body = "".join(line + end for line in [*lines, "", ""]).encode()
    ours = [(event.type.decode(), event.data.decode()) for event in events(body) if event.data]
    for decode in decoders():
        assert decode(body) == ours
