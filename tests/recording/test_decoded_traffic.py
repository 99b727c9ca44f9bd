"""From exchanges to the file, through the decoder: bytes come back as they were, and a secret nowhere, in every API."""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from recording.redact.fakes import fakes
from recording.test_secrets import begin, pieces
from recordings import make

from agentwrap.events import Content, Item, Secrets
from agentwrap.events.exchange import (
    ExchangeBegan,
    ExchangeEnded,
    ExchangeMessage,
    ExchangeReceived,
    ExchangeResponded,
    ExchangeSent,
    Headers,
)
from agentwrap.evidence.verify import verify
from agentwrap.models.decoder import Decoder
from agentwrap.recording.reader import Reader
from agentwrap.recording.writer import Recorder

FOUND = fakes()["github-token ghp_"]
IN_HEADER = "plain7words-and-more-0815"
Deltas = Callable[[list[str]], list[dict[str, Any]]]


def into(recorder: Recorder) -> Decoder:
    def take(item: Item) -> None:
        if isinstance(item, Content):
            recorder.content(item)
        elif isinstance(item, Secrets):
            recorder.secrets(item)
        else:
            recorder.add(item)

    return Decoder(take)


def anthropic(texts: list[str]) -> list[dict[str, Any]]:
    block = {"type": "content_block_delta", "index": 0}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": {}}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({**block, "delta": {"type": "text_delta", "text": text}} for text in texts),
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "u", "name": "Bash",
                                                                      "input": {}}},
        *({**block, "index": 1, "delta": {"type": "input_json_delta", "partial_json": part}}
          for part in ('{"command": "', *(json.dumps(text)[1:-1] for text in texts), '"}')),
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]  # fmt: skip


def chat(texts: list[str]) -> list[dict[str, Any]]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return {"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": choices}

    def tool(arguments: str, **more: Any) -> dict[str, Any]:
        return chunk({"tool_calls": [{"index": 0, **more, "function": {"name": "Bash", "arguments": arguments}}]})

    return [
        *(chunk({"content": text}) for text in texts),
        tool('{"command": "', id="u", type="function"),
        *(tool(json.dumps(text)[1:-1]) for text in texts),
        tool('"}'),
        chunk({}, "tool_calls"),
    ]


def responses(texts: list[str]) -> list[dict[str, Any]]:
    whole = "".join(texts)
    arguments = json.dumps({"command": whole})
    parts = [arguments[at : at + 9] for at in range(0, len(arguments), 9)]
    item = {"type": "function_call", "id": "fc", "call_id": "u", "name": "shell", "arguments": arguments}
    text = {"output_index": 0, "item_id": "i", "content_index": 0}
    told = {"id": "r1", "object": "response", "status": "completed", "model": "m", "output": [item], "usage": None}
    return [
        {"type": "response.created", "response": {**told, "status": "in_progress", "output": []}},
        *({"type": "response.output_text.delta", **text, "delta": one} for one in texts),
        {"type": "response.output_text.done", **text, "text": whole},
        *({"type": "response.function_call_arguments.delta", "output_index": 1, "item_id": "fc", "delta": one}
          for one in parts),
        {"type": "response.function_call_arguments.done", "output_index": 1, "item_id": "fc", "arguments": arguments},
        {"type": "response.output_item.done", "output_index": 1, "item": item},
        {"type": "response.completed", "response": told},
    ]  # fmt: skip


def gemini(texts: list[str]) -> list[dict[str, Any]]:
    def chunk(part: dict[str, Any], **more: Any) -> dict[str, Any]:
        content = {"role": "model", "parts": [part]}
        return {"candidates": [{"index": 0, "content": content, **more}], "modelVersion": "m"}

    return [*(chunk({"text": text}) for text in texts), chunk({"text": ""}, finishReason="STOP")]


APIS: dict[str, tuple[str, Deltas]] = {
    "anthropic": ("/v1/messages", anthropic),
    "chat": ("/v1/chat/completions", chat),
    "responses": ("/v1/responses", responses),
    "gemini": ("/v1beta/models/m:streamGenerateContent?alt=sse", gemini),
    # No call of a model: nobody knows what its events mean.
    "unknown": ("/v9/novelties", anthropic),
}


def began(number: int, target: str, size: int, *more: tuple[bytes, bytes]) -> ExchangeBegan:
    headers: Headers = ((b"Host", b"h"), (b"Authorization", b"Bearer " + IN_HEADER.encode()), *more)
    return ExchangeBegan(
        exchange=number, at_ns=number * 100, connection="c1", span="p1", pid=7, scheme="https", host=b"h.example",
        port=443, method=b"GET" if more else b"POST", target=target.encode(), version=b"1.1",
        headers=(*headers, (b"Content-Length", b"%d" % size)),
    )  # fmt: skip


def exchange(decoder: Decoder, number: int, target: str, asked: bytes, events: Iterable[dict[str, Any]]) -> bytes:
    data = b"".join(b"event: %b\ndata: %b\n\n" % (str(one.get("type", "x")).encode(), json.dumps(one).encode())
                    for one in events)  # fmt: skip
    decoder.feed(began(number, target, len(asked)))
    decoder.feed(ExchangeSent(number, number * 100 + 1, asked))
    head = ((b"Content-Type", b"text/event-stream"), (b"Set-Cookie", b"sid=" + IN_HEADER.encode()))
    decoder.feed(ExchangeResponded(number, number * 100 + 2, 200, b"OK", head))
    decoder.feed(ExchangeReceived(number, number * 100 + 3, data))
    decoder.feed(ExchangeEnded(number, number * 100 + 4, "complete"))
    return data


def request(text: str) -> bytes:
    message = {"role": "user", "content": text}
    contents = [{"role": "user", "parts": [{"text": text}]}]
    told = {"model": "m", "stream": True, "messages": [message], "input": [message], "contents": contents}
    return json.dumps(told).encode()


def strings(value: Any) -> str:
    """All strings of a JSON value, one behind the other."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        value = list(value.values())
    return "".join(map(strings, value)) if isinstance(value, list) else ""


def texts(data: bytes) -> str:
    """What the deltas of a stored stream say, put together."""
    lines = [line.removeprefix(b"data: ") for line in data.split(b"\n") if line.startswith((b"data: ", b"{"))]
    found = []
    for line in lines:
        one = json.loads(line)
        for key in ("delta", "choices", "candidates", "arguments", "text"):
            told = one.get(key)
            if key == "choices":
                told = [choice["delta"] for choice in told or ()]
            found.append(re.sub("text_delta|input_json_delta|Bash|^model", "", strings(told)))
    return "".join(found)


def check(path: Path, secrets: tuple[str, ...], *, calls: int) -> None:
    shown = {"file": path.read_bytes()}
    with Reader.open(path) as reader:
        for row in reader.rows(kinds=["model.response", "http.exchange"]):
            told = texts(b"".join(one or b"" for one in reader.body(row.seq, "response")))
            if told:
                assert told.startswith("it is «redacted:github-token:")
            shown[f"answer {row.seq}"] = told.encode()
    assert len(shown) == calls + 1
    for secret in secrets:
        for piece in pieces(secret):
            for name, data in shown.items():
                assert piece not in data, (name, piece)
    assert verify(path, public_key=None).word == "unsigned"


@pytest.mark.parametrize("api", APIS)
def test_a_secret_in_pieces_is_nowhere(tmp_path: Path, api: str) -> None:
    recorder = begin(tmp_path, shape_only=False)
    decoder = into(recorder)
    target, make_events = APIS[api]
    for number, at in enumerate(range(1, len(FOUND), 3), 1):
        split = ["it is ", FOUND[:at], FOUND[at : at + 2], FOUND[at + 2 :], " so"]
        exchange(decoder, number, target, request(f"a key {FOUND} of mine"), make_events(split))
    decoder.finish(10**9)
    recorder.close()
    check(recorder.path, (FOUND, IN_HEADER), calls=number)


def test_a_secret_in_pieces_over_a_websocket(tmp_path: Path) -> None:
    recorder = begin(tmp_path, shape_only=False)
    decoder = into(recorder)
    decoder.feed(began(1, "/v1/responses", 0, (b"Upgrade", b"websocket"), (b"Connection", b"Upgrade")))
    decoder.feed(ExchangeResponded(1, 102, 101, b"Switching", ((b"Upgrade", b"websocket"),)))
    for number, at in enumerate(range(1, len(FOUND), 3), 1):
        asked = json.dumps({"type": "response.create", "model": "m", "input": [{"role": "user", "content": FOUND}]})
        decoder.feed(ExchangeMessage(1, number * 1000, True, True, asked.encode()))
        for event in responses(["it is ", FOUND[:at], FOUND[at:], " so"]):
            decoder.feed(ExchangeMessage(1, number * 1000 + 1, False, True, json.dumps(event).encode()))
    decoder.feed(ExchangeEnded(1, 10**6, "complete"))
    decoder.finish(10**9)
    recorder.close()
    with Reader.open(recorder.path) as reader:
        count = len(list(reader.rows(kinds=["model.response", "http.exchange"])))
    assert count >= number
    check(recorder.path, (FOUND, IN_HEADER), calls=count)


@pytest.mark.parametrize("api", APIS)
def test_bytes_come_back_as_they_were(tmp_path: Path, api: str) -> None:
    path = tmp_path / "r.agentlog"
    recorder = make.begin(path)
    decoder = into(recorder)
    target, make_events = APIS[api]
    sent, came = [], []
    for number in range(1, 6):
        said = [f"wörd {number} ", '\\ "quoted"', "\n"]
        sent.append(request("hällo " * number))
        came.append(exchange(decoder, number, target, sent[-1], make_events(said)))
    decoder.finish(10**9)
    recorder.close()
    with Reader.open(path) as reader:
        for field, kinds, expected in (("request", ["model.request", "http.exchange"], sent),
                                       ("response", ["model.response", "http.exchange"], came)):  # fmt: skip
            rows = list(reader.rows(kinds=kinds))
            assert [b"".join(one or b"" for one in reader.body(row.seq, field)) for row in rows] == expected
    assert verify(path, public_key=make.public_key()).word == "intact"
