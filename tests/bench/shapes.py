"""What it costs to read requests and answers of model APIs. Prints medians; `python tests/bench/shapes.py`.

Each line: what was read, its bytes, the median and the best of the rounds in milliseconds, and MB/s of the median.
"""

import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from agentwrap.models.shapes import by_api, recognise

EVENTS = b"text/event-stream"
ANTHROPIC, CHAT = by_api("anthropic.messages"), by_api("openai.chat")
RESPONSES, GEMINI = by_api("openai.responses"), by_api("gemini.generate")


def _words(count: int, seed: int = 1) -> str:
    chance = random.Random(seed)
    return " ".join(f"w{chance.randrange(10**6)}" for _ in range(count))


def _tool(number: int) -> dict[str, Any]:
    properties = {f"p{index}": {"type": "string", "description": _words(8, index)} for index in range(6)}
    schema = {"type": "object", "properties": properties, "required": ["p0"]}
    return {"name": f"tool{number}", "description": _words(60, number), "input_schema": schema}


def anthropic_request(tools: int, turns: int, result_words: int) -> bytes:
    """A coding agent's request: tools, a system prompt, and so many turns with a tool call each."""
    said: list[Any] = [{"role": "user", "content": [{"type": "text", "text": _words(800)}]}]
    for turn in range(turns):
        call = {"type": "tool_use", "id": f"toolu_{turn}", "name": "tool1", "input": {"p0": _words(5, turn)}}
        said.append({"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, call]})
        result = {"type": "tool_result", "tool_use_id": f"toolu_{turn}", "content": _words(result_words, turn)}
        said.append({"role": "user", "content": [result]})
    system = [{"type": "text", "text": _words(1500), "cache_control": {"type": "ephemeral"}}]
    held = {"model": "m", "messages": said, "system": system, "tools": [_tool(number) for number in range(tools)]}
    return json.dumps(held).encode()


def openai_request(turns: int, result_words: int) -> bytes:
    said: list[Any] = [{"role": "system", "content": _words(1500)}, {"role": "user", "content": "go"}]
    for turn in range(turns):
        function = {"name": "tool1", "arguments": json.dumps({"p0": _words(5, turn)})}
        call = {"id": f"call_{turn}", "type": "function", "function": function}
        said.append({"role": "assistant", "content": None, "tool_calls": [call]})
        said.append({"role": "tool", "tool_call_id": f"call_{turn}", "content": _words(result_words, turn)})
    return json.dumps({"model": "m", "messages": said}).encode()


def _sse(messages: Iterator[dict[str, Any]]) -> bytes:
    def named(message: dict[str, Any]) -> bytes:
        return b"event: %s\n" % message["type"].encode() if "type" in message else b""

    return b"".join(named(message) + b"data: %s\n\n" % json.dumps(message).encode() for message in messages)


def anthropic_answer(deltas: int) -> bytes:
    def made() -> Iterator[dict[str, Any]]:
        yield {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 1}}}
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        for number in range(deltas):
            delta = {"type": "text_delta", "text": f'word{number} "'}
            yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "message_stop"}

    return _sse(made())


def chat_answer(deltas: int) -> bytes:
    base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices = ({"index": 0, "delta": {"content": f"word{number} "}, "finish_reason": None} for number in range(deltas))
    return _sse(base | {"choices": [choice]} for choice in choices)


def responses_answer(deltas: int) -> bytes:
    def made() -> Iterator[dict[str, Any]]:
        for number in range(deltas):
            place = {"item_id": "i", "output_index": 0, "content_index": 0, "sequence_number": number}
            yield {"type": "response.output_text.delta", "delta": f"word{number} ", "logprobs": []} | place
        yield {"type": "response.completed", "response": {"status": "completed", "output": []}}

    return _sse(made())


def gemini_answer(deltas: int) -> bytes:
    texts = ({"text": f"word{number} "} for number in range(deltas))
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 7, "totalTokenCount": 107}
    more = {"usageMetadata": usage, "modelVersion": "m", "responseId": "r"}
    return _sse({"candidates": [{"content": {"parts": [text], "role": "model"}, "index": 0}]} | more for text in texts)


def recognised() -> None:
    """A thousand request lines, few of them of a model."""
    for number in range(1000):
        path = b"/v1/messages" if number % 50 == 0 else b"/packages/%d/index.json?x=1" % number
        recognise(b"POST" if number % 3 else b"GET", b"api.example", path)


def cases() -> Iterator[tuple[str, int, Callable[[], object]]]:
    """(name, bytes, what is to be timed)."""
    requests = {
        "request of a coding agent": (ANTHROPIC, anthropic_request(20, 10, 150)),
        "request, 100 turns": (ANTHROPIC, anthropic_request(20, 100, 400)),
        "request, 10,000 messages": (ANTHROPIC, anthropic_request(1, 5000, 10)),
        "request, 5 MB in one message": (ANTHROPIC, anthropic_request(1, 1, 700_000)),
        "chat request, 100 turns": (CHAT, openai_request(100, 60)),
    }
    for name, (shape, body) in requests.items():
        yield name, len(body), lambda shape=shape, body=body: shape.request(body, b"/")  # type: ignore[misc]
    answers = {
        "answer, Messages": (ANTHROPIC, anthropic_answer(210)),
        "answer, Chat": (CHAT, chat_answer(190)),
        "answer, Responses": (RESPONSES, responses_answer(140)),
        "answer, Gemini": (GEMINI, gemini_answer(120)),
        "answer, 100,000 events": (ANTHROPIC, anthropic_answer(100_000)),
    }
    for name, (shape, body) in answers.items():
        yield name, len(body), lambda shape=shape, body=body: shape.response(body, EVENTS)  # type: ignore[misc]
    yield "1,000 request lines", 0, recognised


def main() -> None:
    """Time every case."""
    for name, size, work in cases():
        work()
        times = []
        while len(times) < 5 or (sum(times) < 0.5 and len(times) < 300):
            began = time.process_time()
            work()
            times.append(time.process_time() - began)
        middle = statistics.median(times)
        speed = f"{size / middle / 1e6:8.0f} MB/s" if size else ""
        print(f"{name:30} {size:10,} B {middle * 1e3:9.3f} ms  best {min(times) * 1e3:9.3f} ms {speed}")


if __name__ == "__main__":
    main()
