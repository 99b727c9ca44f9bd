"""From news of exchanges to events: calls, tools and their results, attempts, broken ones, and what is no call."""

import json
import zlib
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.events import (
    Body,
    Content,
    ExchangeBegan,
    ExchangeEnded,
    ExchangeMessage,
    ExchangeNews,
    ExchangeReceived,
    ExchangeRequested,
    ExchangeResponded,
    ExchangeSent,
    HttpExchange,
    Item,
    ModelRequest,
    ModelResponse,
    Secrets,
    ToolCall,
    ToolResult,
)
from agentwrap.models.decoder import Decoder
from agentwrap.models.prices import Price
from agentwrap.models.shape import Usage

TOKEN = b"sk-test-" + b"0123456789abcdef" * 2


class Told:
    """A decoder, and everything it made."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.decoder = Decoder(self.items.append, lambda _provider, _model, _usage: Price("0.25", "table 1"))
        self.clock = 0
        self.number = 0

    def of(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.items if type(one) is kind]

    def bytes_of(self, body: Body) -> bytes:
        contents = {one.sha: one.data for one in self.of(Content)}
        assert all(sha256(contents[piece]).digest() == piece for piece in body.pieces)
        return b"".join(contents[piece] for piece in body.pieces)

    def feed(self, *news: ExchangeNews) -> None:
        for one in news:
            self.decoder.feed(one)

    def began(self, path: bytes = b"/v1/messages", method: bytes = b"POST", **fields: Any) -> int:
        self.number += 1
        self.clock += 10
        told: dict[str, Any] = {
            "exchange": self.number, "at_ns": self.clock, "connection": "c1", "span": "p2", "pid": 7, "scheme": "https",
            "host": b"api.anthropic.com", "port": 443, "method": method, "target": path, "version": b"1.1",
            "headers": ((b"x-api-key", TOKEN),), "intercepted": True,
        }  # fmt: skip
        self.feed(ExchangeBegan(**{**told, **fields}))
        return self.number

    def exchange(
        self, request: bytes, response: Iterable[bytes], *, status: int = 200, ending: str = "complete",
        media: bytes = b"text/event-stream", more: tuple[tuple[bytes, bytes], ...] = (), **fields: Any,
    ) -> int:  # fmt: skip
        number = self.began(**fields)
        self.feed(ExchangeSent(number, self.clock, request), ExchangeRequested(number, self.clock))
        self.clock += 5
        self.feed(ExchangeResponded(number, self.clock, status, b"", ((b"content-type", media), *more)))
        for piece in response:
            self.clock += 1
            self.feed(ExchangeReceived(number, self.clock, piece))
        self.clock += 1
        self.feed(ExchangeEnded(number, self.clock, ending))  # type: ignore[arg-type]
        return number


def request(*messages: Any, **more: Any) -> bytes:
    told = {"model": "claude-x", "max_tokens": 9, "stream": True, "tools": [{"name": "Bash"}], "messages": messages}
    return json.dumps({**told, **more}).encode()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def called(tool_id: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": tool_id, "name": "Bash", "input": {}}]}


def result(tool_id: str, text: str = "done", **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": tool_id, "content": text, **more}
    return {"role": "user", "content": [block]}


def event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps({"type": kind, **fields}).encode())


def stream(*blocks: dict[str, Any], stop: str = "end_turn", name: str = "msg_1") -> list[bytes]:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5, "output_tokens": 1}
    head = {"id": name, "type": "message", "role": "assistant", "model": "claude-x", "content": [], "usage": usage}
    pieces = [event("message_start", message=head)]
    for index, block in enumerate(blocks):
        pieces.append(event("content_block_start", index=index, content_block=block))
        pieces.append(event("content_block_stop", index=index))
    pieces.append(event("message_delta", delta={"stop_reason": stop}, usage={"output_tokens": 12}))
    return [*pieces, event("message_stop")]


TEXT = {"type": "text", "text": "hello"}


def test_a_call_is_two_events_with_every_number() -> None:
    told = Told()
    body = request(user("hi"))
    pieces = stream(TEXT)
    told.exchange(body, pieces)
    (asked,), (answer,) = told.of(ModelRequest), told.of(ModelResponse)
    assert (asked.call, asked.agent, asked.turn, asked.agent_parent) == ("m1", "a1", "t1", "p2")
    assert (asked.span, asked.pid, asked.host, asked.model, asked.stream) == (
        "p2", 7, b"api.anthropic.com", b"claude-x", True,
    )  # fmt: skip
    assert (asked.messages, asked.tools, asked.at_ns) == (1, 1, 10)
    assert told.bytes_of(asked.request) == body
    assert (answer.call, answer.ending, answer.status, answer.stop) == ("m1", "complete", 200, b"end_turn")
    assert (answer.input_tokens, answer.cache_read_tokens, answer.cache_write_tokens, answer.output_tokens) == (
        100, 90, 5, 12,
    )  # fmt: skip
    assert (answer.requested_ns, answer.headers_ns, answer.first_token_ns, answer.at_ns) == (10, 15, 17, 21)
    assert (answer.cost_usd, answer.prices) == ("0.25", "table 1")
    assert told.bytes_of(answer.response) == b"".join(pieces)
    assert json.loads(told.bytes_of(answer.timing)) == [[len(one), 6 + n] for n, one in enumerate(pieces)]
    assert json.loads(told.bytes_of(answer.message))["blocks"] == [{"kind": "text", "text": "hello"}]
    assert answer.text_bytes == 5


def test_the_key_is_told_to_the_redactor_before_anything_else() -> None:
    told = Told()
    told.exchange(request(user("hi")), stream(TEXT))
    assert isinstance(told.items[0], Secrets)
    assert told.items[0].values[0][1] == TOKEN


def test_tools_are_joined_with_their_results() -> None:
    told = Told()
    use = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
    told.exchange(request(user("hi")), stream(use, stop="tool_use"))
    told.exchange(request(user("hi"), called("toolu_1"), result("toolu_1", "no", is_error=True)), stream(TEXT))
    (call,), (outcome,) = told.of(ToolCall), told.of(ToolResult)
    assert (call.tool, call.call, call.turn, call.id, call.name) == ("x1", "m1", "t1", b"toolu_1", b"Bash")
    assert json.loads(call.arguments) == {"command": "ls"}
    assert (outcome.tool, outcome.call, outcome.name, outcome.error, outcome.text) == (
        "x1", "m2", b"Bash", True, b"no",
    )  # fmt: skip
    assert [one.turn for one in told.of(ModelRequest)] == ["t1", "t2"]
    told.exchange(request(user("hi"), called("toolu_1"), result("toolu_1"), user("more")), stream(TEXT))
    assert len(told.of(ToolResult)) == 1


def test_what_is_sent_again_is_the_same_content() -> None:
    told = Told()
    long = [user("word " * 200 + str(number)) for number in range(20)]
    told.exchange(request(*long), stream(TEXT))
    before = {one.sha for one in told.of(Content)}
    told.exchange(request(*long, user("what is new")), stream(TEXT))
    new = {one.sha: len(one.data) for one in told.of(Content) if one.sha not in before}
    assert sum(new.values()) < 600


def test_attempts_are_joined() -> None:
    told = Told()
    body = request(user("hi"))
    error = b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}'
    told.exchange(body, [error], status=529, media=b"application/json", more=((b"Retry-After", b"2"),))
    told.exchange(body, stream(TEXT))
    failed, good = told.of(ModelResponse)
    assert (failed.ending, failed.status, failed.error, failed.retry_after) == (
        "error", 529, b"overloaded_error: busy", b"2",
    )  # fmt: skip
    assert good.ending == "complete"
    assert [(one.turn, one.attempt, one.retry_of) for one in told.of(ModelRequest)] == [("t1", 1, ""), ("t1", 2, "m1")]


@pytest.mark.parametrize(
    ("ending", "wanted"), [("cut-by-client", "cancelled"), ("cut-by-server", "incomplete"), ("complete", "incomplete")]
)
def test_a_broken_stream_keeps_what_came(ending: str, wanted: str) -> None:
    told = Told()
    pieces = stream(TEXT)[:3]
    told.exchange(request(user("hi")), pieces, ending=ending)
    (answer,) = told.of(ModelResponse)
    assert answer.ending == wanted
    assert told.bytes_of(answer.response) == b"".join(pieces)
    assert answer.input_tokens == 100


def test_an_answer_that_says_its_end_is_complete_whoever_hangs_up() -> None:
    told = Told()
    told.exchange(request(user("hi")), stream(TEXT), ending="cut-by-client")
    assert told.of(ModelResponse)[0].ending == "complete"


def test_no_answer_at_all_is_told() -> None:
    told = Told()
    number = told.began()
    told.feed(ExchangeSent(number, 11, request(user("hi"))))
    told.decoder.finish(99)
    assert [type(one) for one in told.items if not isinstance(one, Content | Secrets)] == [ModelRequest, ModelResponse]
    assert (told.of(ModelResponse)[0].ending, told.of(ModelResponse)[0].at_ns) == ("cancelled", 99)


def test_what_is_no_call_is_a_plain_exchange() -> None:
    told = Told()
    told.exchange(b'{"a":1}', [b'{"input_tokens":', b"7}"], path=b"/v1/messages/count_tokens?beta=true")
    (plain,) = told.of(HttpExchange)
    assert (plain.exchange, plain.method, plain.path, plain.status, plain.ending) == (
        "h1", b"POST", b"/v1/messages/count_tokens?beta=true", 200, "complete",
    )  # fmt: skip
    assert told.bytes_of(plain.request) == b'{"a":1}'
    assert told.bytes_of(plain.response) == b'{"input_tokens":7}'
    assert told.of(ModelRequest) == []


def test_a_compressed_stream_keeps_the_times_of_its_pieces() -> None:
    told = Told()
    pieces = stream(TEXT)
    coder = zlib.compressobj(wbits=31)
    coded = [coder.compress(piece) + coder.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]
    told.exchange(request(user("hi")), [*coded, coder.flush()], more=((b"content-encoding", b"gzip"),))
    (answer,) = told.of(ModelResponse)
    assert (answer.ending, answer.first_token_ns, answer.encoding) == ("complete", 17, b"gzip")
    assert told.bytes_of(answer.response) == b"".join(pieces)
    assert [size for size, _ in json.loads(told.bytes_of(answer.timing))] == [len(piece) for piece in pieces]


def test_a_body_that_lies_about_its_coding_stays_as_it_came() -> None:
    told = Told()
    told.exchange(request(user("hi")), [b"no gzip at all"], more=((b"content-encoding", b"gzip"),))
    (answer,) = told.of(ModelResponse)
    assert told.bytes_of(answer.response) == b"no gzip at all"
    assert answer.ending == "incomplete"
    assert answer.error


def test_bodies_that_were_only_counted_have_their_sizes() -> None:
    told = Told()
    number = told.began(b"/other", b"GET")
    told.feed(ExchangeRequested(number, 11), ExchangeResponded(number, 12, 200, b"", ()))
    told.feed(ExchangeEnded(number, 14, "complete", b"", 0, 5000))
    (plain,) = told.of(HttpExchange)
    assert plain.response == Body(5000, (), "not-kept")


def test_a_body_that_is_no_request_is_kept_as_it_is() -> None:
    told = Told()
    told.exchange(b"\xff not json", [b"<html>"], status=502, media=b"text/html")
    (asked,), (answer,) = told.of(ModelRequest), told.of(ModelResponse)
    assert told.bytes_of(asked.request) == b"\xff not json"
    assert asked.problem
    assert (answer.ending, answer.status) == ("error", 502)
    assert told.bytes_of(answer.response) == b"<html>"


def test_calls_over_one_websocket() -> None:
    told = Told()
    upgrade = ((b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"))
    number = told.began(b"/v1/responses", b"GET", host=b"api.openai.com", headers=upgrade)
    told.feed(ExchangeRequested(number, 11), ExchangeResponded(number, 12, 101, b"", ()))
    item = {"type": "function_call", "id": "i", "call_id": "call_1", "name": "shell", "arguments": "{}"}
    first = {"id": "resp_1", "model": "gpt-x", "status": "completed", "output": [item], "usage": {"input_tokens": 3}}
    again = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}
    second = {**first, "id": "resp_2", "output": []}
    asked = {"type": "response.create", "model": "gpt-x", "input": [{"role": "user", "content": "hi"}]}
    say = [
        (True, asked),
        (False, {"type": "response.created", "response": {**first, "status": "in_progress", "output": []}}),
        (False, {"type": "response.completed", "response": first}),
        (True, {**asked, "previous_response_id": "resp_1", "input": [again]}),
        (False, {"type": "response.completed", "response": second}),
    ]
    for at_ns, (up, message) in enumerate(say, 20):
        told.feed(ExchangeMessage(number, at_ns, up, True, json.dumps(message).encode()))
    told.feed(ExchangeEnded(number, 30, "cut-by-client"))
    assert [(one.turn, one.transport, one.at_ns, one.joined) for one in told.of(ModelRequest)] == [
        ("t1", "websocket", 20, "first"),
        ("t2", "websocket", 23, "id"),
    ]
    assert [(one.ending, one.response_id, one.status) for one in told.of(ModelResponse)] == [
        ("complete", b"resp_1", 101),
        ("complete", b"resp_2", 101),
    ]
    assert told.bytes_of(told.of(ModelRequest)[1].request) == json.dumps(say[3][1]).encode()
    assert [(one.tool, one.id) for one in told.of(ToolCall)] == [("x1", b"call_1")]
    assert [(one.tool, one.call) for one in told.of(ToolResult)] == [("x1", "m2")]


def test_an_upgrade_that_is_refused_is_no_call() -> None:
    told = Told()
    number = told.began(b"/v1/responses", b"GET", host=b"api.openai.com", headers=((b"upgrade", b"websocket"),))
    told.feed(ExchangeRequested(number, 11), ExchangeResponded(number, 12, 426, b"", ()))
    told.feed(ExchangeReceived(number, 13, b"no"), ExchangeEnded(number, 14, "complete"))
    assert [one.status for one in told.of(HttpExchange)] == [426]
    assert told.of(ModelRequest) == []


def test_prices_are_asked_with_the_providers_numbers() -> None:
    asked: list[tuple[str, bytes, Usage]] = []
    items: list[Item] = []
    told = Told()
    told.decoder = Decoder(items.append, lambda *question: asked.append(question))
    told.exchange(request(user("hi")), stream(TEXT))
    assert asked == [("anthropic", b"claude-x", Usage(100, 90, 5, 12))]
    assert [one.cost_usd for one in items if isinstance(one, ModelResponse)] == [""]


NEWS = st.one_of(
    st.builds(ExchangeSent, st.integers(1, 3), st.integers(0, 99), st.binary(max_size=40)),
    st.builds(ExchangeRequested, st.integers(1, 3), st.integers(0, 99)),
    st.builds(
        ExchangeResponded, st.integers(1, 3), st.integers(0, 99), st.sampled_from([101, 200, 500]), st.just(b""),
        st.just(()),
    ),
    st.builds(ExchangeReceived, st.integers(1, 3), st.integers(0, 99), st.binary(max_size=40)),
    st.builds(
        ExchangeMessage, st.integers(1, 3), st.integers(0, 99), st.booleans(), st.booleans(), st.binary(max_size=40)
    ),
    st.builds(
        ExchangeEnded, st.integers(1, 3), st.integers(0, 99),
        st.sampled_from(["complete", "cut-by-client", "cut-by-server", "unreadable"]),
    ),
)  # fmt: skip


@given(st.lists(NEWS, max_size=30), st.sampled_from([b"/v1/messages", b"/v1/responses", b"/other"]), st.booleans())
def test_no_order_of_news_breaks_it(news: list[ExchangeNews], path: bytes, upgrade: bool) -> None:
    told = Told()
    for _ in range(3):
        headers = ((b"upgrade", b"websocket"),) if upgrade else ()
        told.began(path, b"GET" if upgrade else b"POST", headers=headers)
    told.feed(*news)
    told.decoder.finish(1000)
    calls = [one.call for one in told.of(ModelRequest)]
    assert calls == [one.call for one in sorted(told.of(ModelResponse), key=lambda one: int(one.call[1:]))]
