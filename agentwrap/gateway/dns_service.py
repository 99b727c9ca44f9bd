"""The resolver of a run: every name is judged before anybody is asked, and nothing but addresses is ever answered.

Answers for whatever name server a program meant, by datagrams and streams. What a name led to is remembered, so that
connections are judged by name. Refused names do not exist (NXDOMAIN: REFUSED makes the C library ask again).
"""

import socket
import struct
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address

import msgspec
import trio

from agentwrap.events.egress import Decision, DnsQuery
from agentwrap.gateway import dns
from agentwrap.gateway.callers import Caller
from agentwrap.gateway.judging import Verdict
from agentwrap.gateway.refusals import dns_text
from agentwrap.gateway.relay import abort, close, receive, send
from agentwrap.gateway.stage import Stage
from agentwrap.policy.hosts import HOST_LOOPBACK, Address, Host, HostError, parse_host, special
from agentwrap.policy.questions import Answer, Lookup
from agentwrap.policy.rules import Rule

_AT_ONCE = 1000
_DATAGRAM_BYTES, _ANCILLARY_BYTES = 4096, 128
_STREAM_IDLE_S = 30.0
_TTL = 20
# linux/in.h, linux/in6.h: struct in_pktinfo, struct in6_pktinfo
_IP_PKTINFO, _IPV6_PKTINFO = 8, 50
_pktinfo4, _pktinfo6 = struct.Struct("=I4s4s"), struct.Struct("=16sI")
_REVERSE = (".in-addr.arpa", ".ip6.arpa")

_MALFORMED = Answer("deny", Rule("built-in.malformed"), "no question that could be judged", "nothing in a policy")
_BACKWARDS = Answer("allow", Rule("built-in.reverse"), "answered here: nobody is asked for the name of an address")
_HELD = Answer(
    "allow", Rule("built-in.ask"), "answered with a stand-in; a human is asked when something connects to it"
)


class _Answered(msgspec.Struct, frozen=True):
    rcode: int
    answer: Answer
    decision: Decision
    addresses: tuple[Address, ...] = ()
    told: str = ""


class DnsService:
    """Answers queries. One for a run."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._running = 0

    async def serve_datagrams(self, sock: socket.socket, nursery: trio.Nursery) -> None:
        """One datagram socket, with packet information (wall) or without (guard), for ever."""
        sock.setblocking(False)
        while True:
            try:
                data, ancillary, _flags, peer = sock.recvmsg(_DATAGRAM_BYTES, _ANCILLARY_BYTES)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(sock)
                continue
            except OSError:
                await trio.lowlevel.checkpoint()
                continue  # an ICMP error of an earlier answer
            await self._stage.link.room()
            if self._running >= _AT_ONCE:
                # More than could be in anybody's interest: whoever meant it asks again.
                await trio.lowlevel.checkpoint()
                if busy := dns.format_error(data, dns.SERVFAIL):
                    await _reply(sock, busy, _source(ancillary), peer)
                continue
            self._running += 1
            nursery.start_soon(self._datagram, sock, data, _source(ancillary), peer)

    async def _datagram(
        self, sock: socket.socket, data: bytes, source: "tuple[str, list[_Ancillary]]", peer: "tuple[str, int]"
    ) -> None:
        try:
            server, ancillary = source
            caller: Caller | None
            if self._stage.by == "guard":
                caller = await self._stage.attribution.by_port(peer[1])
                server = caller.host if caller else ""
            else:
                caller = self._stage.attribution.by_ends("udp", _end(peer), (server, 53))
            answer = await self.answer(data, server, "udp", caller)
            if answer is not None:
                await _reply(sock, answer, (server, ancillary), peer)
        finally:
            self._running -= 1

    async def serve_stream(self, client: socket.socket, server: str, caller: Caller | None) -> None:
        """One stream (RFC 1035, 4.2.2), until its end or until nothing came for a while."""
        buffer = b""
        try:
            while True:
                with trio.move_on_after(_STREAM_IDLE_S) as scope:
                    data = await receive(client)
                if scope.cancelled_caught or not data:
                    break
                messages, buffer = dns.split_tcp(buffer + data)
                for message in messages:
                    answer = await self.answer(message, server, "tcp", caller)
                    if answer is None:
                        return
                    await send(client, dns.frame_tcp(answer))
        except dns.DnsError:
            await self._stage.tell(
                self._event(".", "", _Answered(dns.FORMERR, _MALFORMED, "deny"), server, "tcp", caller)
            )
            abort(client)
        except (OSError, trio.ClosedResourceError):
            pass  # it is gone
        finally:
            close(client)

    async def answer(self, data: bytes, server: str, transport: str, caller: Caller | None) -> bytes | None:
        """The answer to one message, after it is told; None where there must be none."""
        try:
            query = dns.parse_query(data)
        except dns.DnsError as error:
            found = _Answered(dns.FORMERR, msgspec.structs.replace(_MALFORMED, why=str(error)), "deny")
            await self._stage.tell(self._event("(malformed)", "", found, server, transport, caller))
            return dns.format_error(data, error.rcode)
        odd = dns.refused_as(query)
        if odd is not None:
            found = _Answered(odd, _MALFORMED, "deny")
        else:
            try:
                found = await self._found(query)
            except trio.Cancelled:
                # The run is over. Somebody was asked all the same, and only what is allowed gets that far.
                verdict = self._stage.judge.lookup(query.name)
                found = _Answered(dns.SERVFAIL, verdict.answer, _decision(verdict))
                self._stage.teller.tell(self._event(query.name, query.qtype_name, found, server, transport, caller))
                raise
        await self._stage.tell(self._event(query.name, query.qtype_name, found, server, transport, caller))
        room = dns.udp_room(query) if transport == "udp" else 0xFFFF
        return dns.reply(
            query, rcode=found.rcode, addresses=found.addresses, ttl=_TTL, truncate_to=room, told=found.told
        )

    async def _found(self, query: dns.Query) -> _Answered:
        name = query.name.lower()
        if name.endswith(_REVERSE):
            return _Answered(dns.NXDOMAIN, _BACKWARDS, "allow")
        verdict = self._stage.judge.lookup(query.name)
        if verdict.decision == "deny":
            return _Answered(dns.NXDOMAIN, verdict.answer, "deny", (), dns_text(verdict.answer, Lookup(query.name)))
        try:
            host = parse_host(query.name)
        except HostError:
            # Allowed, because nothing restricts names; no resolver of ours would take it.
            return _Answered(dns.NXDOMAIN, verdict.answer, _decision(verdict))
        wanted = _families(query.qtype)
        if verdict.decision == "ask":
            return self._held(host, wanted)
        # Names of services have no addresses, and nothing but addresses is ever asked for (RFC 8552).
        if not wanted or host.name.startswith("_"):
            return _Answered(dns.NOERROR, verdict.answer, _decision(verdict))
        rcode, addresses = await self._addresses(host)
        shown = tuple(one for one in addresses if one.version in wanted)
        return _Answered(rcode, verdict.answer, _decision(verdict), shown)

    def _held(self, host: Host, wanted: Iterable[int]) -> _Answered:
        """Nobody is asked for the name before a human is: a stand-in address leads the connection to the question."""
        stand_in = self._stage.placeholders.for_name(host.name)
        self._stage.admit((stand_in,))
        return _Answered(dns.NOERROR, _HELD, "allow", (stand_in,) if 4 in wanted else ())

    async def _addresses(self, host: Host) -> tuple[int, tuple[Address, ...]]:
        if host.address is not None:
            return dns.NOERROR, (host.address,)
        if host.name == HOST_LOOPBACK:
            return dns.NOERROR, (IPv4Address("127.0.0.1"),)
        if special(host) == "loopback":  # RFC 6761, 6.3
            return dns.NOERROR, (IPv4Address("127.0.0.1"), IPv6Address("::1"))
        found = await self._stage.resolver.find(host.name)
        self._learn(host.name, found.addresses)
        return found.rcode, found.addresses

    def _learn(self, name: str, addresses: tuple[Address, ...]) -> None:
        if addresses:
            self._stage.known.learn(name, addresses)
            self._stage.admit(addresses)

    def _event(
        self, name: str, qtype: str, found: _Answered, server: str, transport: str, caller: Caller | None
    ) -> DnsQuery:
        answer = found.answer
        return DnsQuery(
            at_ns=self._stage.now(),
            span=caller.span if caller else "run",
            pid=caller.pid if caller else 0,
            decision=found.decision,
            by=self._stage.by,
            rule=str(answer.rule).encode(),
            why=answer.why.encode(),
            change=answer.change.encode(),
            name=name.encode("ascii", "backslashreplace"),
            qtype=qtype,
            server=server.encode(),
            transport="tcp" if transport == "tcp" else "udp",
            rcode=dns.RCODES.get(found.rcode, str(found.rcode)),
            answers=tuple(str(one).encode() for one in found.addresses),
        )


_Ancillary = tuple[int, int, bytes]


def _decision(verdict: Verdict) -> Decision:
    return "would-deny" if verdict.decision == "would-deny" else "allow"


def _families(qtype: int) -> tuple[int, ...]:
    if qtype == dns.ANY:
        return (4, 6)
    return (4,) if qtype == dns.A else (6,) if qtype == dns.AAAA else ()


def _end(peer: tuple[str, int]) -> tuple[str, int]:
    return peer[0].partition("%")[0], peer[1]


def _source(ancillary: "Iterable[_Ancillary]") -> tuple[str, list[_Ancillary]]:
    """The address that was asked, and what makes the answer leave from it (ip(7), ipv6(7): packet information)."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO) and len(data) >= _pktinfo4.size:
            _index, _local, address = _pktinfo4.unpack_from(data)
            back = _pktinfo4.pack(0, address, bytes(4))
            return socket.inet_ntop(socket.AF_INET, address), [(level, kind, back)]
        if (level, kind) == (socket.IPPROTO_IPV6, _IPV6_PKTINFO) and len(data) >= _pktinfo6.size:
            address, _index = _pktinfo6.unpack_from(data)
            return str(ip_address(address)), [(level, kind, _pktinfo6.pack(address, 0))]
    return "", []


async def _reply(
    sock: socket.socket, answer: bytes, source: tuple[str, list[_Ancillary]], peer: tuple[str, int]
) -> None:
    while True:
        try:
            sock.sendmsg([answer], source[1], 0, peer)
            return
        except BlockingIOError:
            await trio.lowlevel.wait_writable(sock)
        except OSError:
            return  # whoever asked is gone, or asks again
