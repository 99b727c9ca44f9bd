"""A model call as events: asked, answered, the tools it wants and the results it was told. Pure."""

from collections.abc import Callable
from typing import Any

import msgspec

from agentwrap.events import Body, Item, ModelEnding, ModelRequest, ModelResponse, ToolCall, ToolResult
from agentwrap.events.exchange import ExchangeEnded
from agentwrap.models.bodies import in_pieces, whole
from agentwrap.models.codings import decode, decode_timed
from agentwrap.models.conversations import Asked, Conversations, Place
from agentwrap.models.passing import BODY_MAX_BYTES, Passing, Side
from agentwrap.models.prices import Pricing
from agentwrap.models.shape import Block, RequestFacts, ResponseFacts, Shape

ARGUMENTS_BYTES = 4096
_RETRIES = b"x-stainless-retry-count"
_KEYS = (b"session_id", b"session-id", b"conversation_id", b"x-session-id", b"thread-id")
_REQUEST_IDS = (b"request-id", b"x-request-id", b"x-oai-request-id", b"x-goog-request-id")
_ENDINGS: dict[str, ModelEnding] = {
    "complete": "incomplete",
    "cut-by-client": "cancelled",
    "cut-by-server": "incomplete",
    "unreadable": "unread",
}


class Call(msgspec.Struct):
    """A call under way."""

    place: Place
    shape: Shape
    facts: RequestFacts
    asked_ns: int


class Calls:
    """Tells calls. `conversations`: where they belong."""

    def __init__(self, emit: Callable[[Item], None], conversations: Conversations, pricing: Pricing) -> None:
        self._emit = emit
        self._conversations = conversations
        self._pricing = pricing

    def asked(self, passing: Passing, shape: Shape, at_ns: int | None = None) -> Call:
        """The request is whole (or all that came of it). `at_ns`: when it began, where that is not the head's time."""
        began, up = passing.began, passing.up
        asked_ns = began.at_ns if at_ns is None else at_ns
        encoding = b"" if passing.is_socket else passing.header(b"content-encoding")
        raw = up.joined()
        body, problem = decode(raw, encoding, BODY_MAX_BYTES)
        if problem and not body:
            body = raw  # what lies about its coding is kept as it came
        facts = shape.request(body, passing.path) if not up.over else RequestFacts(problem="over the cap")
        asked = Asked(facts, shape.api, began.span, began.host, _key_of(passing), _retries_of(passing))
        place = self._conversations.place(asked)
        request = Body(up.size, (), "over-cap") if up.over else in_pieces(body, facts.pieces, self._emit)
        self._emit(
            ModelRequest(
                at_ns=asked_ns,
                span=began.span,
                pid=began.pid,
                call=place.call,
                agent=place.agent,
                agent_parent=place.parent,
                turn=place.turn,
                joined=place.joined,
                api=shape.api,
                scheme=began.scheme,
                host=began.host,
                port=began.port,
                method=began.method,
                path=began.target,
                transport="websocket" if passing.is_socket else "http",
                connection=began.connection,
                model=facts.model,
                stream=facts.stream or passing.is_socket,
                attempt=place.attempt,
                retry_of=place.retry_of,
                session=asked.key or facts.session,
                messages=len(facts.messages),
                repeated=place.repeated,
                dropped=place.dropped,
                tools=facts.tools,
                encoding=encoding,
                headers=began.headers,
                request=request,
                problem=(problem or facts.problem).encode(),
            )
        )
        self._results(place, passing, facts, asked_ns)
        return Call(place, shape, facts, asked_ns)

    def _results(self, place: Place, passing: Passing, facts: RequestFacts, at_ns: int) -> None:
        for outcome in facts.outcomes:
            found = self._conversations.resolved(place, outcome.id)
            if found is None:
                continue
            self._emit(
                ToolResult(
                    at_ns=at_ns,
                    span=passing.began.span,
                    pid=passing.began.pid,
                    tool=found.tool,
                    call=place.call,
                    agent=place.agent,
                    turn=place.turn,
                    id=outcome.id,
                    name=outcome.name or found.name,
                    error=outcome.error,
                    size=outcome.size,
                    text=outcome.text[:ARGUMENTS_BYTES],
                )
            )

    def answered(self, call: Call, passing: Passing, ended: ExchangeEnded, media: bytes = b"") -> None:
        """The exchange is over."""
        down, responded = passing.down, passing.responded
        status = responded.status if responded is not None else 0
        encoding = b"" if media else passing.header(b"content-encoding", of_response=True)
        body, timing, problem = _decoded(down, encoding)
        facts = _read(call.shape, body, media or passing.header(b"content-type", of_response=True), down)
        ending = _ending(facts, status, ended)
        place, began = call.place, passing.began
        tools = self._tools(call, passing, facts, ended.at_ns)
        priced = self._pricing(call.shape.provider, facts.model or call.facts.model, facts.usage)
        usage = facts.usage
        self._emit(
            ModelResponse(
                at_ns=ended.at_ns,
                span=began.span,
                pid=began.pid,
                call=place.call,
                agent=place.agent,
                turn=place.turn,
                ending=ending,
                status=status,
                requested_ns=call.asked_ns,
                headers_ns=max(responded.at_ns, call.asked_ns) if responded is not None else 0,
                first_token_ns=_time_at(timing, facts.first_token),
                model=facts.model,
                response_id=facts.id,
                request_id=_request_id(passing),
                stop=facts.stop,
                error=_error(facts, ended, status, problem),
                retry_after=passing.header(b"retry-after", of_response=True),
                input_tokens=usage.input_tokens,
                cache_read_tokens=usage.cache_read_tokens,
                cache_write_tokens=usage.cache_write_tokens,
                output_tokens=usage.output_tokens,
                reasoning_tokens=usage.reasoning_tokens,
                cost_usd=priced.usd if priced is not None else "",
                prices=priced.table if priced is not None else "",
                tool_calls=tools,
                text_bytes=sum(len(block.text) for block in facts.blocks if block.kind == "text"),
                unknown=facts.unknown[:20],
                encoding=encoding,
                headers=responded.headers if responded is not None else (),
                response=Body(down.size, (), "over-cap") if down.over else whole(body, self._emit, facts.scattered),
                timing=whole(_timing_text(timing, call.asked_ns), self._emit),
                message=whole(_message_text(facts), self._emit) if facts.blocks else Body(),
            )
        )
        self._conversations.answered(place, facts.id, failed=ending != "complete")

    def _tools(self, call: Call, passing: Passing, facts: ResponseFacts, at_ns: int) -> int:
        count = 0
        for block in facts.blocks:
            if block.kind not in ("tool", "provider-tool"):
                continue
            count += 1
            own = block.kind == "provider-tool"
            tool = self._conversations.called(call.place, b"" if own else block.id, block.name)
            self._emit(
                ToolCall(
                    at_ns=at_ns,
                    span=passing.began.span,
                    pid=passing.began.pid,
                    tool=tool,
                    call=call.place.call,
                    agent=call.place.agent,
                    turn=call.place.turn,
                    id=block.id,
                    name=block.name,
                    arguments=block.arguments[:ARGUMENTS_BYTES],
                    omitted_bytes=max(0, len(block.arguments) - ARGUMENTS_BYTES),
                    provider_side=own,
                )
            )
        return count


Timing = list[tuple[int, int]]
"""(bytes, at_ns) of each piece of the body, decoded."""


def _decoded(side: Side, encoding: bytes) -> tuple[bytes, Timing, str]:
    """The body without its coding, with the times of its pieces. What lies about its coding stays as it came."""
    raw = side.joined()
    if not encoding:
        return raw, side.times, ""
    data, timing, problem = decode_timed(raw, side.times, encoding, BODY_MAX_BYTES)
    return (data, timing, problem) if data or not raw else (raw, side.times, problem)


def _read(shape: Shape, body: bytes, media: bytes, side: Side) -> ResponseFacts:
    if side.over:
        return ResponseFacts(problem="over the cap")
    return shape.response(body, media)


def _ending(facts: ResponseFacts, status: int, ended: ExchangeEnded) -> ModelEnding:
    if facts.error != (b"", b"") or status >= 400:
        return "error"
    if facts.complete and status:
        return "complete"
    if not status and ended.ending == "complete":
        return "incomplete"
    return _ENDINGS[ended.ending]


def _error(facts: ResponseFacts, ended: ExchangeEnded, status: int, problem: str) -> bytes:
    kind, message = facts.error
    if kind or message:
        return b": ".join(part for part in (kind, message) if part)
    if status >= 400:
        return b"HTTP %d" % status
    if facts.complete:
        return problem.encode()
    return ended.detail or (problem or facts.problem).encode()


def _time_at(timing: Timing, offset: int) -> int:
    """When the byte before `offset` came; 0 if there is none."""
    if offset < 0:
        return 0
    at = 0
    for size, at_ns in timing:
        at += size
        if at >= max(offset, 1):
            return at_ns
    return timing[-1][1] if timing else 0


def _timing_text(timing: Timing, asked_ns: int) -> bytes:
    return msgspec.json.encode([[size, at_ns - asked_ns] for size, at_ns in timing]) if timing else b""


def _message_text(facts: ResponseFacts) -> bytes:
    told: dict[str, Any] = {"role": "assistant", "blocks": [_block(block) for block in facts.blocks]}
    if facts.stop:
        told["stop"] = _text(facts.stop)
    return msgspec.json.encode(told)


def _block(block: Block) -> dict[str, str]:
    told: dict[str, str] = {"kind": block.kind}
    for name in ("text", "id", "name", "arguments"):
        value: bytes = getattr(block, name)
        if value:
            told[name] = _text(value)
    return told


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _key_of(passing: Passing) -> bytes:
    return next((value for name in _KEYS if (value := passing.header(name))), b"")


def _request_id(passing: Passing) -> bytes:
    return next((value for name in _REQUEST_IDS if (value := passing.header(name, of_response=True))), b"")


def _retries_of(passing: Passing) -> int:
    told = passing.header(_RETRIES)
    return min(int(told), 99) if told.isdigit() and len(told) < 4 else 0
