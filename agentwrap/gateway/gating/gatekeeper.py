"""One connection on which rules speak of MCP: a request is held, judged by its body, and goes on unchanged or not.

What does not go on is answered here, in its place among the answers, and the connection stays of use. Knows the order
of things. Refuses to know sockets, and what rules say.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

import msgspec
import trio

from agentwrap.gateway.asking import Question
from agentwrap.gateway.capture.tap import Tap
from agentwrap.gateway.gating import our_answers
from agentwrap.gateway.gating.downward import Downward, Plan, Ruled
from agentwrap.gateway.gating.gates import Case, Fate, Gates, Waiting
from agentwrap.gateway.gating.held_request import HeldRequest
from agentwrap.gateway.http_head import Forward, Item, Request, RequestStream
from agentwrap.gateway.proxying.sides import Side
from agentwrap.gateway.relay import close
from agentwrap.mcp.gate import Verdict
from agentwrap.mcp.http import Place, as_utf8, place_of, request_says, stated_at

_PROGRESS_S, _REPLY_S = 5.0, 5.0
_AHEAD_MAX = 1 << 16
_UNREADABLE = (
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"agentwrap denied: it cannot be read"}}'
)
_NOBODY = b"nobody can be asked in this run"
_WAITS = b"waiting for a human to allow it"
_FATES: dict[str, Fate] = {"once": "approved", "run": "approved", "always": "approved", "deny": "refused"}
_WHY: dict[Fate, bytes] = {
    "approved": b"",
    "refused": b"a human denied it",
    "expired": b"nobody answered in time",
    "cancelled": b"who asked for it does not want it any more",
}

Outcome = Literal["on", "over", "unread"]


Another = Callable[[], Awaitable[Side | None]]
Others = Callable[[bytes, int], Awaitable[tuple[bytes, ...]]]


class Source(Protocol):
    """The client's direction of a connection."""

    @property
    def stream(self) -> RequestStream:
        """Which requests it has."""
        ...

    async def more(self) -> list[Item] | None:
        """The next items, None at the client's end. Raises HttpError, OSError, trio.ClosedResourceError."""
        ...

    async def quiet(self) -> bool:
        """Wait until the server has answered all that went on. False: it has ended before."""
        ...

    async def hear(self) -> bytes:
        """What the client says meanwhile; nothing at its end. Raises OSError, trio.ClosedResourceError."""
        ...

    def push(self, data: bytes) -> None:
        """What was heard, to be read in its turn."""
        ...


class Way(Protocol):
    """Both ends of a connection."""

    @property
    def tap(self) -> Tap | None:
        """What looks at it."""
        ...

    async def copied_up(self, data: bytes) -> None:
        """The tap hears what the client said."""
        ...

    async def forward(self, data: bytes) -> bool:
        """To the server; the tap has heard it. False: it takes no more."""
        ...

    async def say(self, data: bytes) -> None:
        """To the client. Raises OSError, trio.ClosedResourceError."""
        ...


class Gatekeeper:
    """Of one connection to `host`:`port`, made by process `pid` of `span`. `down`: what its answers go through.

    `another` makes one more way to the same server, where that can be had: what it asks and must not ask is answered
    there, in its client's place. `others` knows hosts of declared servers that are the same as one at a port.
    """

    def __init__(
        self, gates: Gates, way: Way, host: bytes, port: int, span: str, pid: int, another: Another | None = None,
        others: Others | None = None,
    ) -> None:
        self._gates, self._way, self._another = gates, way, another
        self._host, self._port, self._span, self._pid = host, port, span, pid
        self._others = others
        self._known: dict[tuple[bytes, int], tuple[bytes, ...]] = {}
        self._also: tuple[bytes, ...] = ()
        self.down = Downward(self._judge_down, self._endpoint)
        self._strict = False

    def turn(self, host: bytes, port: int) -> None:
        """The connection leads elsewhere from here on: a proxy on the way made a tunnel."""
        if (host, port) != (self._host, self._port):
            self._host, self._port, self._also = host, port, ()
            self.down.begin_anew()

    async def refuses_unread(self, name: str, *, known: bool) -> bool:
        """As `must_read`. `known`: the name that the client gives is known to lead where the connection does.

        One that leads elsewhere says nothing about who is at this address.
        """
        if self.must_read(name) or known:
            return self.must_read(name)
        await self.know_names()
        if not any(self._gates.must_read(host, self._port) for host in self._also):
            return False
        shared = await self._others(name.encode("ascii", "replace"), self._port) if name and self._others else ()
        return set(shared).isdisjoint(self._also)

    async def know_names(self, *targets: Place) -> None:
        """Of which declared servers the connection's host, and those of `targets`, are by another name."""
        if self._others is None:
            return
        asked = dict.fromkeys([(self._host, self._port), *((one.host, one.port) for one in targets)])
        for one in asked:
            if one not in self._known:
                declared = self._gates.recognition.is_declared(*one)
                self._known[one] = () if declared else await self._others(*one)
        self._also = tuple(dict.fromkeys(name for one in asked for name in self._known[one]))

    def must_read(self, name: str = "") -> bool:
        """Whether nothing may go on unread: there are rules for this server. `name`: what its client calls it."""
        # Behind an address that several hosts share, the one is meant that the client names.
        names = {self._host, *([name.encode("ascii", "replace")] if name else self._also)}
        return self._strict or any(self._gates.must_read(host, self._port) for host in names)

    async def carry(self, request: Request, source: Source) -> tuple[Outcome, list[Item]]:
        """One request, of which nothing has gone on: to its server, or answered. What the client said behind it.

        `over`: nothing more goes on; `unread`: neither does this one, for nobody could read what would follow.
        """
        held = HeldRequest(request.raw)
        await self.know_names(place_of(held.head.target, self._host, self._port))
        case = self._gates.case(held, self._host, self._port, self._span, self._also)
        if case is None:
            return await self._let_pass(held, request, source, Plan())
        self._strict = True
        if request.upgrade:
            if not self._gates.enforces:
                return await self._let_pass(held, request, source, Plan())
            if request.method.upper() == b"GET":
                return "unread", []
            held.problem = held.problem or "it asks for another protocol"
        if not case.up:
            return await self._let_pass(held, request, source, Plan("work", case, request=held))
        items = deque(source.stream.accept(held=True))
        if case.sure:
            await self._way.copied_up(held.raw)
        while not _fill(held, items):
            if not case.sure and held.begins_otherwise():
                return await self._release(held, request, source, Plan(), items, told=False)
            if held.waits and not await self._ask_for_body(source):
                return "over", []
            more = await source.more()
            if more is None:
                return "over", []  # it ended inside of the body: nobody would answer that
            items.extend(more)
        return await self._judge_up(held, request, case, source, items)

    async def _let_pass(
        self, held: HeldRequest, request: Request, source: Source, plan: Plan
    ) -> tuple[Outcome, list[Item]]:
        if plan.mode == "work" and not await self._watch_answers(source):
            return "over", []
        await self._way.copied_up(held.raw)
        plan.exchange = self._way.tap.newest if self._way.tap is not None else 0
        self.down.expect(request.method, plan)
        if not await self._way.forward(held.raw):
            return "over", []
        return "on", source.stream.accept()

    async def _ask_for_body(self, source: Source) -> bool:
        """The client sends its body once it is told to; whoever else would say so hears of it later."""
        if not await source.quiet():
            return False
        await self._way.say(our_answers.CONTINUE)
        return True

    async def _watch_answers(self, source: Source) -> bool:
        """From here on answers are told apart: none may be under way."""
        if not self.down.active:
            if not await source.quiet():
                return False
            self.down.active = True
        return True

    async def _release(
        self, held: HeldRequest, request: Request, source: Source, plan: Plan, items: deque[Item], *, told: bool
    ) -> tuple[Outcome, list[Item]]:
        """It goes on, byte for byte. `told`: the tap has heard all of it."""
        if plan.mode == "work" and not await self._watch_answers(source):
            return "over", []
        data = held.raw + held.body
        if not told:
            await self._way.copied_up(data)
            plan.exchange = self._way.tap.newest if self._way.tap is not None else 0
        source.stream.expect(request)
        self.down.expect(request.method, plan)
        if not await self._way.forward(data):
            return "over", []
        return "on", list(items)

    async def _judge_up(
        self, held: HeldRequest, request: Request, case: Case, source: Source, items: deque[Item]
    ) -> tuple[Outcome, list[Item]]:
        content = held.content()
        if not case.sure:
            text = as_utf8(content)
            if not held.problem and not request_says(text, whole=True) and not _is_rpc(text):
                return await self._release(held, request, source, Plan(), items, told=False)
            self._gates.recognition.seen(case.place)
            await self._way.copied_up(held.raw)
        exchange = self._way.tap.newest if self._way.tap is not None and self._way.tap.active else 0
        if held.problem and self._gates.enforces:
            return await self._unreadable(held, case, exchange, source, items)
        if held.problem:
            self._gates.tell(exchange, _why_not_read(held, "would-deny"), "would-deny", up=True)
            await self._way.copied_up(held.body)
            return await self._release(held, request, source, Plan(), items, told=True)
        gate, verdicts = case.judged(content, up=True) if content.strip() else (case.gate, ())
        case = msgspec.structs.replace(case, gate=gate)
        first = verdicts[0] if verdicts else Verdict()
        plan = Plan("work" if case.down else "pass", case, exchange, id=first.id, request=held)
        if any(verdict.cancels and self._gates.cancel(case, verdict) for verdict in verdicts):
            self._gates.tell(exchange, first, "cancelled", up=True)
            return await self._answer(held, case, exchange, b"", source, items)
        if any(verdict.decision == "deny" for verdict in verdicts):
            self._gates.tell_denied(exchange, verdicts, up=True)
            return await self._answer(held, case, exchange, first.answer, source, items)
        if first.decision == "hold":
            return await self._hold(held, request, plan, first, source, items)
        self._gates.tell_passing(exchange, verdicts, up=True)
        if held.body:
            await self._way.copied_up(held.body)
        return await self._release(held, request, source, plan, items, told=True)

    async def _unreadable(
        self, held: HeldRequest, case: Case, exchange: int, source: Source, items: deque[Item]
    ) -> tuple[Outcome, list[Item]]:
        self._gates.tell(exchange, _why_not_read(held, "deny"), "deny", up=True)
        return await self._answer(held, case, exchange, _UNREADABLE, source, items, status=400)

    async def _answer(
        self, held: HeldRequest, case: Case, exchange: int, message: bytes, source: Source, items: deque[Item],
        status: int = 200,
    ) -> tuple[Outcome, list[Item]]:
        """In the server's place, once it has answered what was asked before."""
        if held.body:
            await self._way.copied_up(held.body)
        self._gates.said(exchange, message, up=False)
        await self._gates.link.on_disk()
        return await self._give_in_turn(held, case, message, source, items, status)

    async def _give_in_turn(
        self, held: HeldRequest, case: Case, message: bytes, source: Source, items: deque[Item], status: int = 200
    ) -> tuple[Outcome, list[Item]]:
        elsewhere = self._gates.stream_of(case)
        if message and elsewhere is not None:
            await elsewhere(message)
            message = b""
        # Behind a body that was not read to its end nobody can tell where the next request begins.
        close = bool(held.problem) or our_answers.closes(held.head.version, held.headers)
        if not await source.quiet():
            return "over", []
        await self._give(our_answers.answer(message, held.headers, close=close, status=status))
        return ("over", []) if close else ("on", list(items))

    async def _give(self, words: bytes) -> None:
        """To the client; to the tap it is an answer like any other."""
        await self._way.say(words)
        if self._way.tap is not None and self._way.tap.active:
            self._way.tap.down(words)

    # What waits for a human

    async def _hold(
        self, held: HeldRequest, request: Request, plan: Plan, verdict: Verdict, source: Source, items: deque[Item]
    ) -> tuple[Outcome, list[Item]]:
        case, exchange = plan.case, plan.exchange
        assert case is not None
        waiting = self._gates.wait(case, verdict)
        question = None if self._gates.unattended else self._question(case, verdict)
        if question is None:
            self._gates.waited(waiting)
            why = _NOBODY if self._gates.unattended else b"too much waits for a human already"
            self._gates.tell(exchange, verdict, "deny", up=True, why=why)
            return await self._answer(held, case, exchange, case.gate.refused(verdict, why), source, items)
        self._gates.tell(exchange, verdict, "hold", up=True, ask=question.ask)
        if held.body:
            await self._way.copied_up(held.body)
        stream = _Stream(self._gates, self._way, case, held, exchange, verdict)
        fate = await self._wait(waiting, question, stream, source)
        why = _why(fate, question)
        self._gates.tell(exchange, verdict, fate, up=True, why=why, ask=question.ask)
        await self._gates.link.on_disk()
        if stream.broken:
            return "over", []
        if fate == "approved":
            plan.begun = stream.begun
            plan = msgspec.structs.replace(plan, mode="work") if stream.begun else plan
            return await self._release(held, request, source, plan, items, told=True)
        message = b"" if fate == "cancelled" else case.gate.refused(verdict, why)
        self._gates.said(exchange, message, up=False)
        if not stream.begun:
            return await self._give_in_turn(held, case, message, source, items)
        await stream.finish(message)
        if self._way.tap is not None and self._way.tap.active:
            self._way.tap.down(bytes(stream.spoken))
        return ("over", []) if stream.closes else ("on", list(items))

    def _question(self, case: Case, verdict: Verdict) -> Question | None:
        span, pid = self._span, self._pid
        return self._gates.asks.begin(
            lambda ask, now, until: case.gate.asking(verdict, ask, now, until, span=span, pid=pid)
        )

    async def _wait(self, waiting: Waiting, question: Question, stream: "_Stream", source: Source) -> Fate:
        """Until a human has answered, time is up, or the client is gone."""
        reason = b""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_set_after, question.done, nursery.cancel_scope)
                nursery.start_soon(_set_after, waiting.over, nursery.cancel_scope)
                nursery.start_soon(self._listen, source, stream, nursery.cancel_scope)
                nursery.start_soon(stream.keep_alive, source, nursery.cancel_scope)
                nursery.cancel_scope.deadline = trio.current_time() + self._gates.asks.patience_s
        finally:
            self._gates.waited(waiting)
            if stream.broken or waiting.over.is_set():
                reason = b"its client is gone" if stream.broken else b"its client cancelled it"
            self._gates.asks.end(question, reason)
        if reason:
            return "cancelled"
        return _FATES.get(question.answer, "expired") if question.done.is_set() else "expired"

    @staticmethod
    async def _listen(source: Source, stream: "_Stream", scope: trio.CancelScope) -> None:
        """Whether the client is still there; what it says is for later."""
        heard = 0
        try:
            while heard < _AHEAD_MAX:
                data = await source.hear()
                if not data:
                    break
                heard += len(data)
                source.push(data)
            else:
                return
        except (OSError, trio.ClosedResourceError):
            pass
        stream.broken = True
        scope.cancel()

    # What servers say

    def _endpoint(self, plan: Plan, stated: bytes) -> None:
        if plan.case is None:
            return
        where = stated_at(plan.case.place, stated.strip())
        plan.endpoint = where[where.find(b"/") :]
        if plan.case.listens:
            self._gates.listen(plan.case, stated, self._put_into_stream)

    async def _put_into_stream(self, message: bytes) -> None:
        try:
            await self._way.say(self.down.as_event(message))
        except (OSError, trio.ClosedResourceError):
            pass  # whoever listened is gone

    def over(self) -> None:
        """Nothing more goes through this connection."""
        self._gates.unlisten(self._put_into_stream)

    async def _judge_down(self, plan: Plan, message: bytes) -> Ruled:
        case = plan.case
        assert case is not None
        _gate, verdicts = case.judged(message, up=False)
        if any(verdict.decision == "deny" for verdict in verdicts):
            first = verdicts[0]
            self._gates.tell_denied(plan.exchange, verdicts, up=False)
            self._gates.said(plan.exchange, first.instead, up=False)
            await self._gates.link.on_disk()
            await self._reply(plan, first.answer)
            return Ruled(False, first.instead)
        held = next((verdict for verdict in verdicts if verdict.decision == "hold"), None)
        if held is None:
            self._gates.tell_passing(plan.exchange, verdicts, up=False)
            return Ruled()
        return await self._hold_down(plan, case, held)

    async def _hold_down(self, plan: Plan, case: Case, verdict: Verdict) -> Ruled:
        question = None if self._gates.unattended else self._question(case, verdict)
        if question is None:
            self._gates.tell(plan.exchange, verdict, "deny", up=False, why=_NOBODY)
            await self._reply(plan, case.gate.refused(verdict, _NOBODY))
            return Ruled(False)
        self._gates.tell(plan.exchange, verdict, "hold", up=False, ask=question.ask)
        try:
            with trio.move_on_after(self._gates.asks.patience_s):
                await question.done.wait()
        finally:
            self._gates.asks.end(question, b"")
        fate = _FATES.get(question.answer, "expired") if question.done.is_set() else "expired"
        self._gates.tell(plan.exchange, verdict, fate, up=False, why=_why(fate, question), ask=question.ask)
        await self._gates.link.on_disk()
        if fate != "approved":
            await self._reply(plan, case.gate.refused(verdict, _WHY[fate]))
        return Ruled(fate == "approved")

    async def _reply(self, plan: Plan, message: bytes) -> None:
        """Answer a server in its client's place, or it would wait for that: by a request of its own, as clients do."""
        if not message or plan.request is None or self._another is None:
            return
        self._gates.said(plan.exchange, message, up=True)
        with trio.move_on_after(_REPLY_S):
            side = await self._another()
            if side is None:
                return
            try:
                await side.send([our_answers.posted(plan.request.head, plan.endpoint, message)])
                await side.read()
            except (OSError, trio.ClosedResourceError):
                pass  # it has gone meanwhile
            finally:
                close(side.sock)


def _why_not_read(held: HeldRequest, decision: Literal["deny", "would-deny"]) -> Verdict:
    why = f"its body cannot be read: {held.problem}".encode()
    return Verdict(decision=decision, rule=b"built-in.unreadable", why=why)


def _why(fate: Fate, question: Question) -> bytes:
    """The fate in words, with a human's own."""
    own = question.reason if fate == "refused" else b""
    return _WHY[fate] + (b": " + own if own else b"")


class _Stream:
    """A stream of ours to a client whose call is held: it says that it waits. `spoken`: all of it."""

    def __init__(
        self, gates: Gates, way: Way, case: Case, held: HeldRequest, exchange: int, verdict: Verdict
    ) -> None:
        self.begun = self.broken = False
        self.spoken = bytearray()
        self.closes = our_answers.closes(held.head.version, held.headers)
        self._gates, self._way, self._case, self._exchange, self._verdict = gates, way, case, exchange, verdict
        elsewhere = case.of is not None and case.of.endpoint
        self._may = not elsewhere and our_answers.takes_stream(held.headers) and held.head.version == b"1.1"
        self._sending = trio.Lock()

    async def keep_alive(self, source: Source, scope: trio.CancelScope) -> None:
        """From its beginning on, until it is cancelled; never in the middle of a word."""
        if not self._may or not await source.quiet():
            return
        count = 0
        try:
            while True:
                count += 1
                message = self._case.gate.progress(self._verdict, count, _WAITS)
                with trio.CancelScope(shield=True):
                    await self._tell(message)
                await trio.sleep(_PROGRESS_S)
        except (OSError, trio.ClosedResourceError):
            self.broken = True
            scope.cancel()

    async def _tell(self, message: bytes) -> None:
        words = b"" if self.begun else our_answers.stream_head(close=self.closes)
        self.begun = True
        words += our_answers.chunk(our_answers.event(message) if message else our_answers.ALIVE)
        self._gates.said(self._exchange, message, up=False)
        await self._speak(words)

    async def finish(self, message: bytes) -> None:
        """The last of it."""
        await self._speak(our_answers.chunk(our_answers.event(message) if message else b"") + our_answers.END)

    async def _speak(self, words: bytes) -> None:
        self.spoken += words
        await self._way.say(words)


def _fill(held: HeldRequest, items: deque[Item]) -> bool:
    """Whether it is whole with what has come."""
    while items and not held.done:
        item = items.popleft()
        assert isinstance(item, Forward)
        held.add(item.data)
    return held.done


async def _set_after(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def _is_rpc(content: bytes) -> bool:
    """Whether JSON is anything of JSON-RPC's: what a strict reader cannot read counts as such."""
    if b"jsonrpc" not in content and b"\\u" not in content:
        return False
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return True
    parts = value if isinstance(value, list) else [value]
    return any(isinstance(part, dict) and "jsonrpc" in part for part in parts)
