"""What a server answers where rules speak: passed as it comes, cut at its events, or put into a stream of ours.

Its events go on when they were judged, their bytes unchanged; one that does not is left out, or something of ours is in
its place. What cannot be read is not passed where it would have to be judged.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from agentwrap.gateway.capture.framing import UnreadableError
from agentwrap.gateway.gating import our_answers
from agentwrap.gateway.gating.gates import Case
from agentwrap.gateway.gating.held_request import HeldRequest
from agentwrap.gateway.gating.server_answers import End, Form, Head, Part, Piece, ServerAnswers
from agentwrap.mcp.event_stream import Events, Framed
from agentwrap.mcp.http import is_stream, value_of
from agentwrap.models.codings import Decoding

BODY_MAX_BYTES = 64 << 20
_LENGTHS = (b"content-length", b"transfer-encoding", b"content-encoding")


class Ruled(msgspec.Struct, frozen=True):
    """What becomes of a server's message: it goes on, or `instead` does (nothing if that is empty)."""

    passes: bool = True
    instead: bytes = b""


Judge = Callable[["Plan", bytes], Awaitable[Ruled]]
Endpoint = Callable[["Plan", bytes], None]


class Plan(msgspec.Struct, eq=False):
    """What is done with the answer to a request. `case`: its messages are judged. `exchange`: its number.

    `begun`: the client has the head of a stream of ours already, and waits for the answer to `id` (JSON text).
    `request`: what it was asked with. `endpoint`: where its server wants messages, if that is elsewhere.
    """

    mode: Literal["pass", "work"] = "pass"
    case: Case | None = None
    exchange: int = 0
    begun: bool = False
    id: bytes = b""
    request: HeldRequest | None = None
    endpoint: bytes = b""


class Downward:
    """The answers of one connection. `active`: they are looked at; until then bytes go through `take` as they are.

    `judge`: what becomes of one message of the server's; `endpoint` hears where an old server wants messages.
    """

    def __init__(self, judge: Judge, endpoint: Endpoint) -> None:
        self._judge, self._endpoint = judge, endpoint
        self.begin_anew()

    def begin_anew(self) -> None:
        """What the server has said is over and done with."""
        self.active = False
        self._answers = ServerAnswers()
        self._plans: deque[Plan] = deque()
        self._work: _Work | None = None

    def expect(self, method: bytes, plan: Plan) -> None:
        """A request goes on."""
        if self.active:
            self._answers.expect(method)
            self._plans.append(plan)

    async def take(self, data: bytes) -> bytes:
        """The server's next bytes; what the client is to have now. Raises OSError where it must not have any more."""
        if not self.active:
            return data
        held = self._answers.held
        out = b""
        try:
            for part in self._answers.feed(data):
                out += await self._part(part)
        except UnreadableError as error:
            if self._work is not None or any(plan.mode == "work" for plan in self._plans):
                raise ConnectionResetError(error.detail.decode("utf-8", "replace")) from error
            self.active = False
            return held + data
        return out

    async def end(self) -> bytes:
        """The server says nothing more."""
        if not self.active:
            return b""
        if self._answers.end():
            return await self._part(End())
        waits = any(plan.mode == "work" for plan in self._plans)
        return b"" if waits else self._answers.held

    def as_event(self, message: bytes) -> bytes:
        """Words of ours, as they go into the stream that is under way; nothing where there is none to put them into."""
        return self._work.framed(our_answers.event(message)) if self._work is not None else b""

    async def _part(self, part: Part) -> bytes:
        if isinstance(part, Head):
            if not part.final:
                return b"" if self._plans and self._plans[0].begun else part.raw
            plan = self._plans.popleft()
            if plan.mode == "pass":
                self._work = None
                return part.raw
            self._work = _Work(plan, part, self._judge, self._endpoint)
            return self._work.head()
        if self._work is None:
            return part.raw if isinstance(part, Piece) else b""
        if isinstance(part, Piece):
            return await self._work.piece(part)
        work, self._work = self._work, None
        return await work.end()


class _Work:
    """One answer that is judged, or goes into a stream of ours."""

    def __init__(self, plan: Plan, head: Head, judge: Judge, endpoint: Endpoint) -> None:
        self._plan, self._head, self._judge, self._endpoint = plan, head, judge, endpoint
        self._form: Form = "chunked" if plan.begun else head.form
        self._codings = value_of(head.head.headers, b"content-encoding")
        self._decoding = Decoding(self._codings, 1 << 40) if self._codings else None
        self._events = Events(BODY_MAX_BYTES) if is_stream(head.head.headers) else None
        self._kept: list[bytes] = []  # a body, or coded bytes of an event that is not whole
        self._size = 0

    def head(self) -> bytes:
        """What the client gets of the head now: a body that is judged as a whole may become another one."""
        return b"" if self._plan.begun or self._events is None else self._head.raw

    async def piece(self, piece: Piece) -> bytes:
        if self._events is None:
            self._keep(piece.content)
            return b""
        content = self._decoding.feed(piece.content) if self._decoding is not None else piece.content
        if self._decoding is not None and not self._plan.begun:
            return await self._coded(self._events, piece, content)
        out = [await self._event(event) for event in self._events.feed(content)]
        if self._events.over:
            raise ConnectionResetError("an event that is too long to be judged")
        return b"".join(map(self.framed, out))

    def framed(self, event: bytes) -> bytes:
        """Bytes as they are put on the wire; where a length was announced, nothing can be added."""
        return our_answers.chunk(event) if self._form == "chunked" else event

    def _keep(self, data: bytes) -> None:
        self._kept.append(data)
        self._size += len(data)
        if self._size > BODY_MAX_BYTES:
            raise ConnectionResetError("an answer that is too long to be judged")

    async def _coded(self, events: Events, piece: Piece, content: bytes) -> bytes:
        """Of compressed events nothing can be left out: bytes go on when all in them is judged."""
        for event in events.feed(content):
            if event.message and not (await self._judge(self._plan, event.message)).passes:
                raise ConnectionResetError("a compressed event that must not go on")
        self._keep(piece.raw)
        if events.held_bytes:
            return b""
        kept, self._kept, self._size = b"".join(self._kept), [], 0
        return kept

    async def _event(self, event: Framed) -> bytes:
        """Its bytes, or what is in their place. Where a length was announced, it is kept: comments say nothing."""
        if event.type == b"endpoint" and event.data is not None:
            self._endpoint(self._plan, event.data)
        if not event.message or self._plan.case is None or not self._plan.case.down:
            return event.raw
        ruled = await self._judge(self._plan, event.message)
        if ruled.passes:
            return event.raw
        instead = our_answers.event(ruled.instead, event.id) if ruled.instead else b""
        if self._form != "sized":
            return instead
        room = len(event.raw) - len(instead)
        if room < 0:
            instead, room = b"", len(event.raw)
        return instead + (b":" * (room - 1) + b"\n" if room else b"")

    async def end(self) -> bytes:
        """Nothing more comes of it."""
        if self._events is not None:
            if self._plan.begun:
                return our_answers.END  # half an event says nothing
            if self._decoding is not None:
                return b"".join(self._kept)
            rest = self._events.rest()
            return our_answers.chunk(rest) + our_answers.END if self._form == "chunked" else rest
        return await self._whole()

    async def _whole(self) -> bytes:
        raw = b"".join(self._kept)
        content = raw
        if self._decoding is not None:
            content = self._decoding.feed(raw)
            self._decoding.end()
            if self._decoding.problem:
                raise ConnectionResetError(self._decoding.problem)
        ruled = Ruled()
        if content.strip() and self._plan.case is not None and self._plan.case.down:
            ruled = await self._judge(self._plan, content)
        if self._plan.begun:
            return our_answers.chunk(self._as_event(content if ruled.passes else ruled.instead)) + our_answers.END
        if ruled.passes:
            framed = our_answers.chunk(raw) + our_answers.END if self._form == "chunked" else raw
            return self._head.raw + framed
        return _with_body(self._head.raw, ruled.instead)

    def _as_event(self, content: bytes) -> bytes:
        if content.lstrip()[:1] in (b"{", b"["):
            return our_answers.event(content)
        return b"" if self._head.head.status < 300 else our_answers.event(self._failure())

    def _failure(self) -> bytes:
        """The server's status, to a client that has had one of ours."""
        told = b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32603,"message":"the server answered with HTTP status %d"}}'
        return told % (self._plan.id or b"null", self._head.head.status)


def _with_body(head: bytes, body: bytes) -> bytes:
    """A head with another body behind it."""
    first, *lines = head.rstrip(b"\r\n").split(b"\r\n")
    kept = [line for line in lines if line.partition(b":")[0].strip().lower() not in _LENGTHS]
    return b"\r\n".join([first, *kept, b"Content-Length: %d" % len(body), b"", b""]) + body
