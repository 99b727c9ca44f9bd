"""A conversation as items for a recorder: every request holds all messages so far, every answer asks for one tool."""

import hashlib
import json
import random
from collections.abc import Iterator

from agentwrap.events import Body, Content, Item, ModelRequest, ModelResponse, ToolCall, ToolResult

MS = 1_000_000
HEADERS = ((b"host", b"api.example.com"), (b"content-type", b"application/json"), (b"x-api-key", b"k-0123456789ab"))
HEAD = b'{"model":"large-1","max_tokens":1000,"system":"You are careful.","messages":['
TAIL = b'],"stream":true}'
_WORDS = "the file test fails because of a missing retry so look at it again and write what was found there".split()


def held(data: bytes, scattered: tuple[tuple[int, ...], ...] = ()) -> Content:
    return Content(hashlib.sha256(data).digest(), data, "body", scattered)


def text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choice(_WORDS) for _ in range(words))


def message(role: str, content: str) -> bytes:
    return json.dumps({"role": role, "content": content}).encode()


def stream(words: str, number: int) -> tuple[bytes, tuple[int, ...]]:
    """An answer in server-sent events, one for each word or so, and where the pieces of its text lie."""
    data, places = b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_%d"}}\n\n' % number, []
    for word in words.split(" "):
        data += b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"text":"'
        places += [len(data), len(data) + len(word) + 1]
        data += word.encode() + b' "}}\n\n'
    return data + b'event: message_stop\ndata: {"type":"message_stop"}\n\n', tuple(places)


def items(turns: int, *, words: int = 60, seed: int = 1, span: str = "run") -> Iterator[Item]:
    """The whole conversation: `turns` calls, about `words` words in every message."""
    chance = random.Random(seed)
    messages = [message("user", text(chance, words))]
    for turn in range(1, turns + 1):
        at_ns = turn * 1000 * MS
        same = {"call": f"m{turn}", "agent": "a1", "turn": f"t{turn}", "span": span}
        pieces = [HEAD, *(b"," * bool(n) + one for n, one in enumerate(messages)), TAIL]
        yield from map(held, pieces)
        yield ModelRequest(
            at_ns=at_ns, api="anthropic.messages", host=b"api.example.com", port=443, path=b"/v1/messages",
            model=b"large-1", stream=True, joined="first" if turn == 1 else "prefix", messages=len(messages),
            repeated=len(messages) - 2 if turn > 1 else 0, headers=HEADERS,
            request=Body(sum(map(len, pieces)), tuple(hashlib.sha256(piece).digest() for piece in pieces)), **same,
        )  # fmt: skip
        if turn > 1:
            yield ToolResult(at_ns=at_ns, tool=f"x{turn - 1}", id=b"toolu_%d" % (turn - 1), name=b"Bash", error=False,
                             size=3, text=b"ok\n", **same)  # fmt: skip
        answer = text(chance, words)
        body, places = stream(answer, turn)
        timing = json.dumps([[len(body), 90 * MS]]).encode()
        ended_ns = at_ns + 500 * MS
        yield ToolCall(at_ns=ended_ns, tool=f"x{turn}", id=b"toolu_%d" % turn, name=b"Bash",
                       arguments=b'{"command":"ls"}', **same)  # fmt: skip
        yield held(body, (places,))
        yield held(timing)
        yield ModelResponse(
            at_ns=ended_ns, ending="complete", status=200, requested_ns=at_ns, headers_ns=at_ns + MS,
            first_token_ns=at_ns + 2 * MS, model=b"large-1-2026", stop=b"tool_use", input_tokens=100 * turn,
            cache_read_tokens=90 * turn, output_tokens=20, cost_usd="0.001", prices="table 2026-01-01", tool_calls=1,
            headers=((b"content-type", b"text/event-stream"), (b"request-id", b"req_%d" % turn)),
            response=Body(len(body), (hashlib.sha256(body).digest(),)),
            timing=Body(len(timing), (hashlib.sha256(timing).digest(),)), **same,
        )  # fmt: skip
        messages += [message("assistant", answer), message("user", text(chance, words))]
