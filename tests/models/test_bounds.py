"""Bodies made to cost much: each is read in steps that grow with its bytes. The suite's time-out is the judge."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from models.wires import covered, scattered_texts, sse

from agentwrap.events import Gap, Item, ModelRequest
from agentwrap.events.exchange import ExchangeBegan, ExchangeEnded, ExchangeSent
from agentwrap.models import decoder, stream
from agentwrap.models.gathering import PARTS_MAX
from agentwrap.models.requests import MESSAGES_MAX
from agentwrap.models.shapes import SHAPES, by_api

EVENTS = b"text/event-stream"
MB = 1 << 20

CHUNK = {
    "anthropic.messages": lambda index, text: {
        "type": "content_block_delta",
        "index": index,
        "delta": {"type": "text_delta", "text": text},
    },
    "openai.chat": lambda index, text: {"choices": [{"index": index, "delta": {"content": text}}]},
    "openai.responses": lambda index, text: {
        "type": "response.output_text.delta",
        "output_index": index,
        "delta": text,
    },
    "gemini.generate": lambda index, text: {"candidates": [{"index": index, "content": {"parts": [{"text": text}]}}]},
}


@pytest.mark.parametrize("api", CHUNK)
def test_many_small_events_of_one_text(api: Any) -> None:
    body = sse(*[CHUNK[api](0, "ab")] * 30_000)
    facts = by_api(api).response(body, EVENTS)
    assert [len(block.text) for block in facts.blocks] == [60_000]
    assert scattered_texts(body, facts.scattered) == ["ab" * 30_000]


@pytest.mark.parametrize("api", CHUNK)
def test_many_texts_of_one_event_each(api: Any) -> None:
    body = sse(*(CHUNK[api](index, "ab") for index in range(15_000)))
    facts = by_api(api).response(body, EVENTS)
    assert len(facts.blocks) == PARTS_MAX
    assert facts.unknown == (b"too many parts",)
    assert sum(map(len, facts.scattered)) == 2 * 15_000  # where they lie is known all the same


def calls(text: str) -> bytes:
    """One event with very many pieces of a call."""
    pieces = ",".join(text % number for number in range(15_000))
    return b'data: {"choices":[{"delta":{"tool_calls":[%s]}}]}\n\n' % pieces.encode()


@pytest.mark.parametrize(
    ("text", "placed"),
    [
        ('{"index":0,"function":{"arguments":"a"}}', 15_000),
        ('{"index":0,"function":{"arguments":"a%d"}}', 15_000),
        ('{"index":0,"function":{"argument\\u0073":"a"}}', 0),
    ],
)
def test_one_event_of_many_texts(text: str, placed: int) -> None:
    body = calls(text if "%d" in text else text.replace("%", "%%") + "%.0s")
    facts = by_api("openai.chat").response(body, EVENTS)
    assert len(facts.blocks) == 1
    assert sum(map(len, facts.scattered)) == 2 * placed


BODIES: dict[str, Callable[[], bytes]] = {
    "lines of data": lambda: b"data: 1\n" * (MB // 4) + b"\n",
    "a document in lines": lambda: b'data: {"choices":[{}\n' + b"data: ,{}\n" * (MB // 4) + b"data: ]}\n\n",
    "lines of nothing": lambda: b"\n" * (4 * MB),
    "a line without an end": lambda: b"data: " + b"x" * (16 * MB),
    "quotes": lambda: b'data: {"a":"' + b'\\"' * (2 * MB),
    "quotes of an array": lambda: b"[" + b'"\\' * (2 * MB),
    "brackets": lambda: b"[" * (4 * MB),
    "brackets of an event": lambda: b'data: {"delta":' + b"[" * (4 * MB) + b"\n\n",
    "objects": lambda: b"[" + b"{}," * (4 * MB) + b"{}]",
    "objects that are cut": lambda: b"[" + b"{}," * MB,
    "a number": lambda: b'data: {"usage":{"prompt_tokens":' + b"9" * (4 * MB) + b"}}\n\n",
    "keys": lambda: b'{"messages":[' + b",".join(b'{"a":1,"a":2}' for _ in range(100_000)) + b"]}",
    "events": lambda: b"data:1\n\n" * MB,
    "tools": lambda: b'{"tools":[' + b"{}," * 100_000 + b"{}]}",
    "zeros": lambda: bytes(8 * MB),
}


@pytest.fixture
def few_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the real bound costs is the same for each event below it."""
    monkeypatch.setattr(stream, "EVENTS_MAX", 20_000)


@pytest.mark.usefixtures("few_events")
@pytest.mark.parametrize("name", BODIES)
def test_bodies_made_to_cost_much(name: str) -> None:
    body = BODIES[name]()
    for shape in SHAPES:
        facts = shape.response(body, EVENTS)
        assert not facts.complete
        assert covered(body, shape.request(body, b"/").pieces)


@pytest.mark.usefixtures("few_events")
def test_what_is_more_than_can_be_read_is_said() -> None:
    for shape in SHAPES:
        assert "too many events" in str(shape.response(b'data:{"a":1}\n\n' * 20_001, EVENTS).unknown)
        assert "too many events" not in str(shape.response(b'data:{"a":1}\n\n' * 20_000, EVENTS).unknown)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.api)
def test_very_many_and_very_large_messages(shape: Any) -> None:
    name = {"openai.responses": "input", "gemini.generate": "contents"}.get(shape.api, "messages")
    body = json.dumps({name: [{"role": "user", "content": "hi"}] * (MESSAGES_MAX + 10), "model": "m"}).encode()
    facts = shape.request(body, b"/")
    assert len(facts.messages) == MESSAGES_MAX
    assert covered(body, facts.pieces)
    assert facts.problem == "only the first 20000 of 20010 messages were read"
    body = json.dumps({name: [{"role": "user", "content": "a, b, [c] " * MB}], "model": "m"}).encode()
    facts = shape.request(body, b"/")
    assert (len(facts.messages), facts.problem) == (1, "")
    assert covered(body, facts.pieces)


def test_how_deep_a_message_may_be() -> None:
    for depth in (10, 400, 900, 5000, 100_000):
        text = b'{"content":[' * depth + b"]}" * depth
        body = b'{"messages":[{"role":"user","content":[' + text + b"]}]}"
        assert covered(body, by_api("anthropic.messages").request(body, b"/").pieces)


def test_bodies_under_way_cost_no_more_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many large bodies at once, and many tiny pieces: the largest is not kept, and that is told."""
    monkeypatch.setattr(decoder, "HELD_MAX_BYTES", 1 << 20)
    told: list[Item] = []
    one = decoder.Decoder(told.append)
    for number in range(40):
        one.feed(_began(number))
        one.feed(ExchangeSent(number, 5, b"x" * 100_000))
    one.feed(_began(40))
    for _ in range(10_000):
        one.feed(ExchangeSent(40, 5, b"x"))
    held = sum(open_.passing.held_bytes for open_ in one._open.values())
    assert one._held == held <= 1 << 20
    one.feed(_began(41))
    one.feed(ExchangeSent(41, 5, b'{"model":"m","messages":[]}'))
    for number in range(42):
        one.feed(ExchangeEnded(number, 9, "cut-by-client", b""))
    assert one._held == 0
    asked = [item for item in told if isinstance(item, ModelRequest)]
    assert len(asked) == 42
    assert {item.request.omitted for item in asked} == {"", "over-cap"}
    assert asked[41].request.omitted == ""
    assert asked[41].model == b"m"


def _began(number: int) -> ExchangeBegan:
    return ExchangeBegan(
        exchange=number, at_ns=1, connection="c1", span="p1", pid=1, scheme="http", host=b"h", port=80, method=b"POST",
        target=b"/v1/messages", version=b"1.1", headers=(),
    )  # fmt: skip


def test_what_could_not_be_read_is_a_gap_once() -> None:
    told: list[Item] = []
    one = decoder.Decoder(told.append)
    for number in range(3):
        one.feed(_began(number))
        one.feed(ExchangeEnded(number, 9, "unreadable", b"why"))
    gaps = [item for item in told if isinstance(item, Gap)]
    assert [(gap.what, gap.cause, gap.detail) for gap in gaps] == [("model", "unreadable", b"h:80: why")]
