"""One connection from its judgement to its end: judged, told, dialled, carried, told again.

What is refused hears so in its own protocol, after the refusal is on disk. What breaks here goes nowhere.
"""

import socket
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING

import trio

from agentwrap.events.egress import Decision, Ending, NetClosed, NetDecision, Protocol
from agentwrap.gateway import first_flight as flights
from agentwrap.gateway.callers import Caller
from agentwrap.gateway.capture.about import About
from agentwrap.gateway.client_hello import Hello, NeedMore, alert_access_denied
from agentwrap.gateway.dialling import Dialled, Failed, dial
from agentwrap.gateway.inspection import Done, Inside, Inspection, Meant, Refusal, forbidden
from agentwrap.gateway.judging import Verdict, loopback_of, text_of
from agentwrap.gateway.lookup import is_own_address
from agentwrap.gateway.proxying.sides import BareSide, Side
from agentwrap.gateway.relay import Passage, abort, last_words, receive
from agentwrap.gateway.stage import Stage
from agentwrap.mcp.http import is_loopback
from agentwrap.policy.hosts import Address, HostError, parse_host
from agentwrap.policy.questions import Answer

if TYPE_CHECKING:
    from agentwrap.gateway.gating.gatekeeper import Gatekeeper
    from agentwrap.gateway.interception.attempt import Attempt

_HELLO_S, _AGAIN_HELLO_S = 2.0, 0.25
_PATIENT, _EXPLAINED = 3, 32
"""So often a process is waited for, and told why, before the same is only reset."""
_DIALLED_MAX = 8
_NOWHERE = Failed("unreachable", b"the name leads nowhere")
_LOOPBACKS: dict[Address, Address] = {
    IPv4Address("127.0.0.1"): IPv6Address("::1"),
    IPv6Address("::1"): IPv4Address("127.0.0.1"),
}


class Connection:
    """One accepted connection of a program of the run. `caller`: None if nobody announced it."""

    def __init__(self, stage: Stage, client: socket.socket, address: Address, port: int, caller: Caller | None) -> None:
        self._stage = stage
        self._client = client
        self._address = address
        self._port = port
        self._span, self._pid = (caller.span, caller.pid) if caller else ("run", 0)
        self._caller = caller
        self._id = stage.next_connection()
        self._opened_ns = stage.now()
        self._passage: Passage | None = None
        self._inspection: Inspection | None = None
        self._led_to: Address = address
        self._attempt: Attempt | None = None
        self._keepers: list[Gatekeeper] = []

    async def run(self, nursery: trio.Nursery) -> None:
        """To its end. `nursery` carries the other direction."""
        stage = self._stage
        name = stage.placeholders.name_of(self._address)
        names = (name,) if name is not None else stage.known.names_of(self._address)
        if name is not None:
            verdict = stage.judge.authority(name, self._port)
        else:
            verdict = stage.judge.destination(self._address, self._port, names)
        if verdict.decision == "ask":
            verdict = await stage.settled(verdict, "" if name else str(self._address), self._caller)
        if not verdict.passes:
            decision = self._decision(verdict)
            await stage.tell(decision)
            times = stage.teller.times(decision)
            if times > _EXPLAINED:
                abort(self._client)  # it has been told, and does not listen
            else:
                await self._say_no(verdict, _HELLO_S if times <= _PATIENT else _AGAIN_HELLO_S)
            return
        if verdict.decision == "allow":
            stage.put(self._decision(verdict))
        else:
            await stage.tell(self._decision(verdict))
        self._verdict = verdict
        ending: Ending = "ended"
        detail = b""
        try:
            if name is None:
                candidates = self._candidates(verdict, names)
            else:
                candidates = await self._behind(name)
            outcome = await dial(candidates, self._port) if candidates else _NOWHERE
            if isinstance(outcome, Failed):
                ending, detail = outcome.ending, outcome.detail
                abort(self._client)
                return
            ending, detail = await self._carry(outcome, verdict, nursery)
        finally:
            self._closed(ending, detail)

    async def tunnel(self, dialled: Dialled, host: str, held: bytes, nursery: trio.Nursery) -> None:
        """To its end, for a client that asked us as its proxy for `host` and said `held` already; nothing is judged."""
        self._verdict = verdict = self._stage.judge.authority(host, self._port)
        ending: Ending = "ended"
        detail = b""
        try:
            ending, detail = await self._carry(dialled, verdict, nursery, held)
        finally:
            self._closed(ending, detail)

    def _candidates(self, verdict: Verdict, names: Sequence[str]) -> list[Address]:
        """Where to dial: the address that was asked for, then others of the same name; each was judged."""
        inner = loopback_of(self._address)
        if inner is not None:
            return [inner, *([_LOOPBACKS[inner]] if inner in _LOOPBACKS else [])]
        found = [self._address]
        if verdict.decision == "allow" and len(names) == 1 and verdict.host == names[0]:
            for one in self._stage.known.addresses_of(names[0]):
                if one not in found and self._stage.judge.address_of(names[0], one, self._port).decision == "allow":
                    found.append(one)
        return found[:_DIALLED_MAX]

    async def _behind(self, name: str) -> list[Address]:
        """Where the name that a stand-in stands for leads, as far as that is allowed, too."""
        found = await self._stage.resolver.find(name)
        self._stage.known.learn(name, found.addresses)
        passing: list[Address] = []
        for one in found.addresses[:_DIALLED_MAX]:
            verdict = self._stage.judge.approved_address(name, one, self._port)
            verdict = await self._stage.settled(verdict, str(one), self._caller)
            if verdict.passes:
                passing.append(one)
            elif not passing:
                await self._stage.tell(self._decision(verdict))
        return passing

    async def _carry(
        self, dialled: Dialled, verdict: Verdict, nursery: trio.Nursery, held: bytes = b""
    ) -> tuple[Ending, bytes]:
        server = dialled.sock
        self._led_to = dialled.address
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        passage = self._passage = Passage(self._client, server)
        inspection = self._inspection = Inspection(
            self._stage.judge, self._stage.known, passage, self._settle, inside=self._inside(passage, nursery),
            listen=self._listen, keeper=self._keeper(passage, (verdict.host, self._port), tls=False),
        )  # fmt: skip
        passage.start_down(nursery, takeable=self._attempt is not None)
        refusal: Refusal | None = None
        try:
            refusal = await inspection.carry(Meant(verdict, dialled.address), held)
            if refusal is not None:
                await self._passage.refuse(refusal.words)
        except OSError:
            self._passage.cut(b"by the client")
        except trio.ClosedResourceError:
            pass  # the other direction has ended it
        finally:
            self._passage.up_ended()
        for keeper in self._keepers:
            keeper.over()
        await self._passage.over.wait()
        if refusal is not None:
            return "denied", b""
        return ("reset" if self._passage.ending == "reset" else "closed"), self._detail(inspection)

    async def _declared_as(self, host: str, port: int, led_to: tuple[Address, ...]) -> tuple[bytes, ...]:
        """Hosts of declared MCP servers at a port that are `host` by another name. `led_to`: where that is known."""
        declared = self._stage.gates.recognition.hosts_at(port) if self._stage.gates is not None else ()
        if not declared:
            return ()
        there = frozenset(led_to or await self._where(host))
        own = is_loopback(host.encode()) or any(map(is_own_address, there))
        return tuple(
            [one.encode() for one in declared
             if (own and is_loopback(one.encode())) or not there.isdisjoint(await self._where(one))]
        )  # fmt: skip

    async def _where(self, host: str) -> tuple[Address, ...]:
        """Where a host is, as far as this run may ask."""
        if not _is_name(host):
            return (ip_address(host),)
        if self._stage.judge.lookup(host).decision != "allow":
            return ()
        return (await self._stage.resolver.find(host)).addresses

    def _detail(self, inspection: Inspection) -> bytes:
        if self._attempt is not None and self._attempt.passed is not None:
            return b"not intercepted: " + self._attempt.passed.reason.encode()
        # Browsers always send such a part, most often a dummy; which name is in it is seen by nobody but the server.
        detail = self._passage.detail if self._passage is not None else b""
        return detail or (b"the hello has an encrypted part (ECH)" if inspection.ech else b"")

    def _inside(self, passage: Passage, nursery: trio.Nursery) -> Inside | None:
        """What becomes of TLS, if some of it may be for a host that is to be read."""
        interceptor = self._stage.interceptor
        if interceptor is None:
            return None
        from agentwrap.gateway.interception.attempt import Attempt, Way

        attempt = self._attempt = Attempt(interceptor, passage, nursery, self._span, self._pid)

        async def inside(hello: Hello, held: bytes, meant: Meant) -> Done | None:
            host = _named(hello, meant), meant.verdict.port
            if not interceptor.wants(*host):
                if not _is_name(host[0]):
                    interceptor.unnamed(hello, meant.address, host[1])
                return None
            plain = await attempt.make(hello, held, host, Way(self._led_to, self._port, meant.tunnels))
            if plain is None:
                return None
            self._passage = plain
            plain.first = lambda: attempt.heard(host)
            self._tap(plain, host, intercepted=True)
            try:
                keeper = self._keeper(plain, host, tls=True)
                within = Inspection(self._stage.judge, self._stage.known, plain, self._settle, keeper=keeper)
                return Done(await within.carry(meant))
            finally:
                attempt.over(plain, host)

        return inside

    def _listen(self, passage: Passage, verdict: Verdict, readable: bool) -> None:
        """HTTP that everybody can read: a copy of it is looked at for model calls. HTTP/2 is told of instead."""
        host, interceptor = (verdict.host, verdict.port), self._stage.interceptor
        if readable:
            self._tap(passage, host, intercepted=False)
        elif interceptor is not None and (self._stage.by == "witness" or self._keepers or interceptor.wants(*host)):
            from agentwrap.gateway.interception.interceptor import Passed

            interceptor.tell(host, Passed("client-protocol", "h2c"))

    def _keeper(self, passage: Passage, host: tuple[str, int], *, tls: bool) -> "Gatekeeper | None":
        """Who judges messages of MCP on this connection, where rules are about any."""
        if self._stage.gates is None:
            return None
        from agentwrap.gateway.gating.gatekeeper import Gatekeeper

        async def another() -> Side | None:
            return await self._another(host if tls else None)

        async def others(name: bytes, port: int) -> tuple[bytes, ...]:
            led_to = (self._led_to,) if (name, port) == own else ()
            return await self._declared_as(name.decode("ascii", "replace"), port, led_to)

        own = (host[0].encode(), host[1])
        keeper = Gatekeeper(self._stage.gates, passage, *own, self._span, self._pid, another, None if tls else others)
        passage.gate = keeper.down
        self._keepers.append(keeper)
        return keeper

    async def _another(self, tls: tuple[str, int] | None) -> "Side | None":
        """One more way to the server; none through a proxy's tunnel, or where it cannot be reached again."""
        dialled = await dial([self._led_to], self._port)
        if isinstance(dialled, Failed):
            return None
        if tls is None:
            return BareSide(dialled.sock)
        from agentwrap.gateway.interception.tls import TlsSide

        interceptor = self._stage.interceptor
        try:
            side = await interceptor.upstream.session(dialled.sock, *tls) if interceptor is not None else None
        except OSError:
            side = None
        if not isinstance(side, TlsSide):
            abort(dialled.sock)
            return None
        return side

    def _tap(self, passage: Passage, host: tuple[str, int], *, intercepted: bool) -> None:
        if passage.tap is None or not passage.tap.active:  # a tunnel's is over
            about = About(
                connection=self._id,
                span=self._span,
                pid=self._pid,
                scheme="https" if intercepted else "http",
                host=host[0].encode(),
                port=host[1],
                intercepted=intercepted,
            )
            passage.tap = self._stage.taps(about)
            passage.room = self._stage.link.room

    async def _settle(self, verdict: Verdict, protocol: Protocol) -> Verdict:
        """Told, and asked if there is somebody to ask."""
        verdict = await self._stage.settled(verdict, "", self._caller)
        decision = self._decision(verdict, protocol)
        if self._stage.by == "witness" and verdict.decision == "deny":
            self._stage.link.put(decision)  # it judges no connections, but messages
        await self._stage.tell(decision)
        if verdict.decision == "allow":
            self._verdict = verdict
        return verdict

    async def _say_no(self, verdict: Verdict, patience_s: float) -> None:
        """In the client's own protocol, if it speaks in time; else a reset."""
        words = b""
        flight = flights.FirstFlight()
        kind: flights.Flight = NeedMore()
        try:
            with trio.move_on_after(patience_s):
                while isinstance(kind, NeedMore):
                    data = await receive(self._client)
                    kind = flight.feed(data) if data else flight.eof()
        except OSError:
            pass  # it did not wait
        if isinstance(kind, flights.Tls):
            words = alert_access_denied()
        elif isinstance(kind, flights.Http):
            words = forbidden(verdict, str(self._address), head=flight.data.lstrip().startswith(b"HEAD "))
        if words:
            await last_words(self._client, words)
        else:
            abort(self._client)

    def _decision(self, verdict: Verdict, protocol: Protocol = "") -> NetDecision:
        decision: Decision = verdict.decision if verdict.decision != "ask" else "deny"
        rule, why, change = _told(verdict.answer)
        return NetDecision(
            at_ns=self._stage.now(),
            span=self._span,
            pid=self._pid,
            decision=decision,
            by=self._stage.by,
            rule=rule,
            why=why,
            change=change,
            connection=self._id,
            host=verdict.host.encode(),
            port=verdict.port,
            address=text_of(self._led_to).encode(),
            asked=text_of(self._address).encode(),
            protocol=protocol,
            sni=self._inspection.sni if self._inspection else b"",
        )

    def _closed(self, ending: Ending, detail: bytes) -> None:
        passage, inspection = self._passage, self._inspection
        self._stage.put(
            NetClosed(
                at_ns=self._stage.now(),
                span=self._span,
                pid=self._pid,
                connection=self._id,
                host=self._verdict.host.encode(),
                port=self._port,
                ending=ending,
                opened_ns=self._opened_ns,
                up_bytes=passage.up_bytes if passage else 0,
                down_bytes=passage.down_bytes if passage else 0,
                protocol=inspection.protocol if inspection else "",
                sni=inspection.sni if inspection else b"",
                alpn=inspection.alpn if inspection else (),
                detail=detail,
            )
        )

    def cut(self) -> None:
        """After a fault of ours: it goes nowhere."""
        for sock in (self._client, *([self._passage.server] if self._passage else [])):
            abort(sock)


def _named(hello: Hello, meant: Meant) -> str:
    """Whom a TLS client means, in normal form."""
    try:
        return str(parse_host(hello.sni or meant.verdict.host))
    except HostError:
        return meant.verdict.host


def _is_name(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return True
    return False


@lru_cache(maxsize=1024)
def _told(answer: Answer) -> tuple[bytes, bytes, bytes]:
    """Rule, reason and remedy as an event has them."""
    return str(answer.rule).encode(), answer.why.encode(), answer.change.encode()


async def refuse_unknown(stage: Stage, client: socket.socket, peer: str) -> None:
    """Guard: a connection that the tracer did not announce leads nowhere."""
    event = NetDecision(
        at_ns=stage.now(),
        decision="deny",
        by=stage.by,
        rule=b"built-in.unannounced",
        why=b"nobody announced this connection, so nobody knows where it was meant to go",
        host=peer.encode(),
        port=0,
        connection=stage.next_connection(),
    )
    await stage.tell(event)
    abort(client)
