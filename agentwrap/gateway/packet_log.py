"""Packets that the filter refused become rows: which process, where to, why; and a count that is exact at the end.

The kernel tells them after it refused them (NFLOG), and counts them whether or not it could tell. Refuses to judge:
the packets are gone already.
"""

import errno
import socket

import trio

from agentwrap.events import Transport
from agentwrap.events.egress import NetRefused
from agentwrap.events.repeats import OTHERS
from agentwrap.gateway.callers import Caller
from agentwrap.gateway.host_ports import LOOK_S, listening_now
from agentwrap.gateway.netlink import packets, rules
from agentwrap.gateway.netlink.packets import Refused
from agentwrap.gateway.stage import Stage
from agentwrap.policy.hosts import HostError, parse_host
from agentwrap.policy.questions import Answer
from agentwrap.policy.rules import Rule

_ROW_BYTES = 65536
_SPINS = 32
_TRANSPORTS: dict[int, Transport] = {6: "tcp", 17: "udp"}
_UDP = Answer("deny", Rule("built-in.udp"), "datagrams other than DNS go nowhere: no name could be judged in them",
              "nothing in the lists: clients of QUIC fall back to TCP")  # fmt: skip
_RAW = Answer("deny", Rule("built-in.protocol"), "only TCP and questions to name servers leave the run",
              "nothing in a policy")  # fmt: skip


class PacketLog:
    """Reads `nflog`; `nft` has the counters."""

    def __init__(self, stage: Stage, nflog: socket.socket, nft: socket.socket | None) -> None:
        nflog.setblocking(False)
        self._stage = stage
        self._nflog = nflog
        self._nft = nft
        self._seen: dict[str, int] = {}
        self._host_ports: set[int] = set()
        self._looked_ns = 0

    async def run(self) -> None:
        """For ever."""
        spins = 0
        while True:
            try:
                data = self._nflog.recv(_ROW_BYTES)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._nflog)
                continue
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                continue  # rows were lost; the counters have them
            for row in packets.decode(data):
                self._told(row)
            await self._stage.link.room()
            spins += 1
            if spins % _SPINS == 0:
                await trio.lowlevel.checkpoint()

    def finish(self) -> None:
        """Tell what is left, and what the kernel counted without telling."""
        while True:
            try:
                data = self._nflog.recv(_ROW_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    break
                continue
            for row in packets.decode(data):
                self._told(row)
        if self._nft is None:
            return
        try:
            counted = rules.counters(self._nft)
        except OSError:
            return  # the namespace is gone
        lost = sum(
            max(0, count - self._seen.get(prefix, 0))
            for prefix, count in counted.items()
            if prefix != rules.LOOPBACK_REFUSED
        )
        if lost:
            why = b"counted by the kernel; there were too many to tell one by one"
            self._stage.link.put(
                NetRefused(at_ns=self._stage.now(), decision="deny", by="wall", host=OTHERS, why=why, count=lost)
            )

    def _told(self, row: Refused) -> None:
        self._seen[row.prefix] = self._seen.get(row.prefix, 0) + 1
        answer = self._answer(row)
        # Nobody listens there outside either: the same refusal as without us. And ::1 is refused where a rule allows
        # the port, for programs to fall back to 127.0.0.1.
        if row.prefix == rules.LOOPBACK_REFUSED and (row.dport not in self._outside() or answer.verdict == "allow"):
            return
        caller = self._stage.attribution.by_destination(row.dst, row.dport)
        self._stage.teller.tell(self._event(row, answer, caller))

    def _outside(self) -> set[int]:
        now = self._stage.now()
        if not self._looked_ns or now - self._looked_ns > LOOK_S * 1e9:
            self._host_ports, self._looked_ns = listening_now(), now
        return self._host_ports

    def _event(self, row: Refused, answer: Answer, caller: Caller | None) -> NetRefused:
        return NetRefused(
            at_ns=self._stage.now(),
            span=caller.span if caller else "run",
            pid=caller.pid if caller else 0,
            decision="deny",
            by="wall",
            rule=str(answer.rule).encode(),
            why=answer.why.encode(),
            change=answer.change.encode(),
            transport=_TRANSPORTS.get(row.protocol, "raw"),
            protocol_number=row.protocol,
            host=row.dst.encode(),
            port=row.dport,
            uid=row.uid,
        )

    def _answer(self, row: Refused) -> Answer:
        if row.protocol != socket.IPPROTO_TCP:
            return _UDP if row.protocol == socket.IPPROTO_UDP else _RAW
        try:
            address = parse_host(row.dst).address
        except HostError:
            address = None
        if address is None:
            return _RAW
        return self._stage.judge.destination(address, row.dport, self._stage.known.names_of(address)).answer
