"""What a client says first is held back until it agrees with what was allowed; then it goes on.

TLS by its server name, HTTP/1 by each request, a tunnel through a proxy by what is said inside. Everything else is
opaque: it goes where its destination was allowed to go. Bounded in memory and time, however slowly a client speaks.
"""

from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

import msgspec
import trio

from agentwrap.events.egress import Protocol
from agentwrap.gateway import first_flight as flights
from agentwrap.gateway.client_hello import Hello, NeedMore, alert_access_denied
from agentwrap.gateway.h2_requests import H2RequestStream
from agentwrap.gateway.http_head import (
    Forward,
    HttpError,
    Item,
    Request,
    RequestStream,
    denied_response,
    malformed_response,
)
from agentwrap.gateway.judging import Judge, Verdict, unread
from agentwrap.gateway.known_names import KnownNames
from agentwrap.gateway.refusals import http_text, malformed_text
from agentwrap.gateway.relay import Passage
from agentwrap.policy.hosts import Address
from agentwrap.policy.questions import Connect

if TYPE_CHECKING:
    from agentwrap.gateway.gating.gatekeeper import Gatekeeper, Source

FIRST_FLIGHT_S = 30.0
_WORD_S = 3.0
_TUNNELS_MAX = 3


class Refusal(msgspec.Struct, frozen=True):
    """Why it does not go on. `words`: what the client is told in its own protocol, nothing for a reset."""

    verdict: Verdict
    words: bytes = b""


class Meant(msgspec.Struct, frozen=True):
    """Whom a stretch of a connection is allowed to reach. `address`: None inside of a proxy's tunnel.

    `tunnels`: the requests by which it came to be one, the outermost first.
    """

    verdict: Verdict
    address: Address | None
    tunnels: tuple[bytes, ...] = ()


Stream = RequestStream | H2RequestStream
class Done(msgspec.Struct, frozen=True):
    """A stretch was carried to its end by somebody else. `refusal`: as in `Inspection.carry`."""

    refusal: Refusal | None


Settle = Callable[[Verdict, Protocol], Coroutine[Any, Any, Verdict]]
Inside = Callable[[Hello, bytes, Meant], Coroutine[Any, Any, Done | None]]
Listen = Callable[[Passage, Verdict, bool], None]


class Inspection:
    """The direction from the client to the server of one connection.

    `settle` tells a verdict that is not simply the connection's own, and gives the final one. `inside` may carry an
    allowed TLS connection itself, from its hello (and the bytes so far) on; `listen` is told before HTTP goes
    through the passage, and whether it is HTTP/1. `keeper` has the last word about requests of MCP. `protocol`, `sni`,
    `alpn`: what was found.
    """

    def __init__(
        self,
        judge: Judge,
        known: KnownNames,
        passage: Passage,
        settle: Settle,
        *,
        inside: Inside | None = None,
        listen: Listen | None = None,
        keeper: "Gatekeeper | None" = None,
    ) -> None:
        self._judge = judge
        self._known = known
        self._passage = passage
        self._settle = settle
        self._inside = inside
        self._listen = listen
        self.keeper = keeper
        self.protocol: Protocol = ""
        self.sni = b""
        self.alpn: tuple[bytes, ...] = ()
        self.ech = False

    async def carry(self, meant: Meant, held: bytes = b"", depth: int = 0) -> Refusal | None:
        """Carry everything until the client ends. A Refusal leaves both sides open.

        Raises OSError and trio.ClosedResourceError when the client breaks off while it is read here.
        """
        if self.keeper is not None:
            self.keeper.turn(meant.verdict.host.encode(), meant.verdict.port)
        flight = flights.FirstFlight()
        kind, shown = await self._classify(flight, held)
        data = bytes(flight.data[shown:])
        if isinstance(kind, flights.Tls):
            refusal, verdict = await self._tls(kind, meant)
            if refusal is None and self._inside is not None:
                done = await self._inside(kind.hello, data, Meant(verdict, meant.address, meant.tunnels))
                if done is not None:
                    return done.refusal
            refusal = refusal or await self._unread(meant, kind.hello.sni or "", alert_access_denied())
        elif isinstance(kind, flights.Http | flights.H2PriorKnowledge):
            stream = RequestStream() if isinstance(kind, flights.Http) else H2RequestStream()
            self.protocol = self.protocol or _protocol(stream)
            if self._listen is not None:
                self._listen(self._passage, meant.verdict, isinstance(kind, flights.Http))
            if isinstance(stream, H2RequestStream) and (unread := await self._unread(meant, "", b"")) is not None:
                return unread
            if self._judge.observes and (self.keeper is None or isinstance(stream, H2RequestStream)):
                return await self._watched(stream, meant, data, depth)
            return await self._requests(stream, meant, data, depth)
        elif isinstance(kind, flights.Malformed):
            refusal = await self._malformed(kind.protocol, kind.why, meant)
            if refusal is not None and shown:  # the server may have answered already
                refusal = Refusal(refusal.verdict)
        else:
            self.protocol = self.protocol or "other"
            refusal = await self._unread(meant, "", b"")
        if refusal is None and (not data or await self._passage.send_up(data)):
            await self._passage.carry_up()
        return refusal

    async def _classify(self, flight: flights.FirstFlight, held: bytes) -> tuple[flights.Flight, int]:
        """What it is, and how many bytes of it the server has seen already.

        A client may say a word and wait for an answer (the Java debugger does): after a while the server hears it and
        what follows, as long as no first line is complete; then it has to be nothing that is judged.
        """
        kind: flights.Flight = flight.feed(held) if held else NeedMore()
        # A client may wait for the server to speak first, for as long as it likes.
        started = trio.current_time() if held else None
        shown = 0
        while isinstance(kind, NeedMore):
            if started is None:
                data = await self._passage.receive_up()
                started = trio.current_time()
            else:
                wait_s = 0.0 if shown else _WORD_S if flight.harmless else FIRST_FLIGHT_S
                with trio.move_on_at(started + wait_s if shown < len(flight.data) else float("inf")) as scope:
                    data = await self._passage.receive_up()
                if scope.cancelled_caught and flight.harmless:
                    held, shown = bytes(flight.data[shown:]), len(flight.data)
                    if not await self._passage.send_up(held):
                        return flights.Other("text"), shown
                    continue
                if scope.cancelled_caught:
                    return flights.Malformed("tls", f"its first message took more than {FIRST_FLIGHT_S:.0f} s"), 0
                started = trio.current_time() if flight.harmless else started
            kind = flight.feed(data) if data else flight.eof()
        if shown and not isinstance(kind, flights.Other):
            kind = flights.Malformed("http", "a first word that took long became a request")
        return kind, shown

    async def _tls(self, flight: flights.Tls, meant: Meant) -> tuple[Refusal | None, Verdict]:
        hello = flight.hello
        self.protocol = "tls"
        self.sni = (hello.sni or "").encode()
        self.alpn = hello.alpn
        self.ech = self.ech or hello.ech
        verdict = self._judge.server_name(meant.verdict, hello.sni, meant.address, self._names(meant))
        if verdict is meant.verdict:
            return None, verdict
        verdict = await self._settle(verdict, self.protocol)
        return (None if verdict.passes else Refusal(verdict, alert_access_denied())), verdict

    async def _malformed(self, protocol: Protocol, why: str, meant: Meant, status: int = 400) -> Refusal | None:
        self.protocol = protocol
        verdict = self._judge.malformed(meant.verdict, why)
        words = alert_access_denied() if protocol == "tls" else malformed_response(malformed_text(why), status=status)
        return await self._settled(verdict, meant, words)

    async def _settled(self, verdict: Verdict, meant: Meant, words: bytes) -> Refusal | None:
        if verdict is meant.verdict:
            return None
        verdict = await self._settle(verdict, self.protocol)
        return None if verdict.passes else Refusal(verdict, words)

    async def _watched(self, stream: Stream, meant: Meant, data: bytes, depth: int) -> Refusal | None:
        """Nothing is refused: requests are told as they pass, and what cannot be read passes, too."""
        unanswered = False
        while data:
            try:
                tunnel, others = await self._told_of(stream, meant, data)
            except HttpError:
                break
            # Nobody has looked at the answers to others: which one is the tunnel's could not be told.
            unanswered = unanswered or others
            tunnel = None if unanswered else tunnel
            answers = _Requests(self._passage, stream) if tunnel is not None else None
            if not await self._passage.send_up(data):
                return None
            if tunnel is not None and answers is not None and await answers.switched():
                if depth < _TUNNELS_MAX and not answers.rest([]):
                    self._passage.begin_anew()
                    return await self.carry(tunnel, b"", depth + 1)
                await self._passage.carry_up()
                return None
            if not stream.wants_data:
                data = b""
                break
            data = await self._passage.receive_up()
            if not data:
                await self._passage.end_up()
                return None
        if not data or await self._passage.send_up(data):
            await self._passage.carry_up()
        return None

    async def _told_of(self, stream: Stream, meant: Meant, data: bytes) -> tuple[Meant | None, bool]:
        """Tell the requests in `data`, which pass. Where a tunnel that one wants leads; whether there were others."""
        tunnel: Meant | None = None
        others = False
        items = deque(stream.feed(data))
        while items:
            item = items.popleft()
            if isinstance(item, Request):
                verdict, own = self._judged(item, meant)
                if verdict is not own:
                    await self._settle(verdict, self.protocol)
                tunnel = self._tunnel(item, verdict, meant)
                others = others or tunnel is None
                items.extendleft(reversed(stream.accept()))
        return tunnel, others

    @staticmethod
    def _tunnel(request: Request, verdict: Verdict, meant: Meant) -> Meant | None:
        return Meant(verdict, None, (*meant.tunnels, request.raw)) if request.is_connect else None

    def _judged(self, request: Request, meant: Meant) -> tuple[Verdict, Verdict]:
        """The verdict on a request, and the one that needs no telling."""
        own = meant.verdict
        names = self._names(meant)
        proxied = request.is_connect or b"://" in request.target[:8]
        if proxied and not (request.host in names and request.port == own.port and not request.is_connect):
            return self._judge.authority(request.host, request.port or own.port), own
        return self._judge.http_host(own, request.host, meant.address, names), own

    def _names(self, meant: Meant) -> tuple[str, ...]:
        """The names that led there by now."""
        return self._known.names_of(meant.address) if meant.address is not None else (meant.verdict.host,)

    async def _requests(self, stream: Stream, meant: Meant, data: bytes, depth: int) -> Refusal | None:
        requests = _Requests(self._passage, stream)
        try:
            outcome = await self._each(requests, meant, data)
        except HttpError as error:
            refusal = await self._malformed(_protocol(stream), str(error), meant, error.status)
            if refusal is None and isinstance(stream, RequestStream):
                return await self._unreadable(stream, meant)
            return _told(refusal, requests)
        finally:
            self._passage.observe = None
        if isinstance(outcome, Refusal):
            return _told(outcome, requests)
        if outcome is None:
            return None
        tunnel, held = outcome
        if tunnel is None or depth >= _TUNNELS_MAX:
            # An upgrade: what follows belongs to the server that agreed to it.
            if not held or await self._passage.send_up(held):
                await self._passage.carry_up()
            return None
        self._passage.begin_anew()
        return await self.carry(tunnel, held, depth + 1)

    async def _unread(self, meant: Meant, name: str, words: bytes) -> Refusal | None:
        """What nobody reads does not go to a server whose messages are judged."""
        if self.keeper is None or not await self.keeper.refuses_unread(name, known=name in self._names(meant)):
            return None
        verdict = unread(meant.verdict, name)
        await self._settle(verdict, self.protocol)
        return Refusal(verdict, words)

    async def _unreadable(self, stream: RequestStream, meant: Meant) -> Refusal | None:
        """Nobody is refused for it, unless there are rules for messages that may be in it."""
        if (refusal := await self._unread(meant, "", b"")) is not None:
            return refusal
        rest = stream.rest()
        if not rest or await self._passage.send_up(rest):
            await self._passage.carry_up()
        return None

    async def _each(
        self, requests: "_Requests", meant: Meant, data: bytes
    ) -> "Refusal | tuple[Meant | None, bytes] | None":
        """Every request in turn; where a tunnel leads, once there is one, and what the client said in it already."""
        items: deque[Item] = deque(requests.stream.feed(data))
        tunnel: Meant | None = None
        while True:
            while items:
                item = items.popleft()
                if requests.stream.state == "tunnel" and isinstance(item, Forward):
                    return tunnel, requests.rest([item, *items])
                if isinstance(item, Forward):
                    if not await self._passage.send_up(item.data):
                        return None
                    continue
                verdict, own = self._judged(item, meant)
                if verdict is not own:
                    verdict = await self._settle(verdict, self.protocol)
                    if not verdict.passes:
                        return Refusal(verdict, _forbidden(verdict, item))
                tunnel = self._tunnel(item, verdict, meant)
                if self.keeper is not None and isinstance(requests.stream, RequestStream):
                    outcome, more = await self.keeper.carry(item, cast("Source", requests))
                    if outcome == "unread":
                        verdict = unread(own, "")
                        await self._settle(verdict, self.protocol)
                        return Refusal(verdict, _forbidden(verdict, item))
                    if outcome == "over":
                        await self._passage.end_up()
                        return None
                    items.extendleft(reversed(more))
                    continue
                if not await self._passage.send_up(item.raw):
                    return None
                items.extendleft(reversed(requests.stream.accept()))
            if requests.stream.state == "tunnel":
                return tunnel, requests.rest([])
            news = await requests.more()
            if news is None:
                await self._passage.end_up()
                return None
            items.extend(news)


class _Requests:
    """The requests of one connection, and the server's answers to them, which the other direction sees."""

    def __init__(self, passage: Passage, stream: Stream) -> None:
        self.stream = stream
        self._passage = passage
        self._news = trio.Event()
        self._items: list[Item] = []
        self._error: HttpError | None = None
        self._ended = False
        self._pushed = b""
        self._waits = False
        passage.observe = self._observe

    def _observe(self, data: bytes) -> None:
        if not data:
            self._ended = True
        elif self._error is None:
            try:
                self._items += self.stream.observe(data)
            except HttpError as error:
                self._error = error
        if self._ended or self.stream.wants_data or self._items or self._error or self._waits:
            self._news.set()

    async def more(self) -> list[Item] | None:
        """What comes next, None at the client's end. Raises HttpError, OSError, trio.ClosedResourceError."""
        while not self.stream.wants_data and not self._items and self._error is None:
            if self._ended:
                return None
            self._news = trio.Event()
            await self._news.wait()
        if self._error is not None:
            raise self._error
        if self._items or self.stream.state == "tunnel":
            items, self._items = self._items, []
            return items
        return await self._read()

    async def quiet(self) -> bool:
        """Wait until the server has answered all that went on. False: it has ended, or nobody can tell any more."""
        while not self.stream.answered and not self._ended and self._error is None:
            self._waits = True
            self._news = trio.Event()
            await self._news.wait()
        self._waits = False
        return self.stream.answered and not self._ended

    async def hear(self) -> bytes:
        """What the client says while a request of its is held; nothing at its end. Raises as `more`."""
        return await self._passage.receive_up()

    def push(self, data: bytes) -> None:
        """What was heard, to be read in its turn."""
        self._pushed += data

    async def _receive(self) -> bytes:
        if self._pushed:
            data, self._pushed = self._pushed, b""
            return data
        return await self._passage.receive_up()

    async def switched(self) -> bool:
        """Whether the server does what the last request asks for: from here on the client speaks to somebody else."""
        while self.stream.state == "switching" and not self._ended and self._error is None:
            self._news = trio.Event()
            await self._news.wait()
        self._passage.observe = None
        return self.stream.state == "tunnel"

    def rest(self, items: list[Item]) -> bytes:
        """What the client has said inside of a tunnel already: `items` and what came with the server's answer."""
        every, self._items = [*items, *self._items], []
        return b"".join(one.data for one in every if isinstance(one, Forward))

    async def _read(self) -> list[Item] | None:
        deadline = trio.current_time() + FIRST_FLIGHT_S
        while True:
            if not self.stream.begun:
                data = await self._receive()
                deadline = trio.current_time() + FIRST_FLIGHT_S
            else:
                with trio.move_on_at(deadline) as scope:
                    data = await self._receive()
                if scope.cancelled_caught:
                    raise HttpError(f"its head took more than {FIRST_FLIGHT_S:.0f} s", 408)
            if not data:
                return None
            items = self.stream.feed(data)
            if items or not self.stream.begun:
                return items


def _protocol(stream: Stream) -> Protocol:
    return "http" if isinstance(stream, RequestStream) else "h2c"


def _told(refusal: Refusal | None, requests: _Requests) -> Refusal | None:
    """An answer of ours must not land inside of one of the server's."""
    if refusal is None or requests.stream.answered:
        return refusal
    return Refusal(refusal.verdict)


def _forbidden(verdict: Verdict, request: Request) -> bytes:
    return forbidden(verdict, "", head=request.method == b"HEAD")


def forbidden(verdict: Verdict, address: str, *, head: bool = False) -> bytes:
    """The 403 for a connection to the verdict's host."""
    text = http_text(verdict.answer, Connect(verdict.host, verdict.port, address=address))
    return denied_response(text, rule=str(verdict.answer.rule), head=head)
