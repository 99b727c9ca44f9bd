"""What the guard tells: connections and datagrams it was asked for, refusals, sockets it could not get hold of.

A refusal is told at once; the same again (process, destination) is counted and told in one row, at most every 250 ms
and exactly at the end.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable

from agentwrap.events import (
    ActDenied,
    CoverageKind,
    DnsServer,
    Family,
    NetConnect,
    NetRefused,
    NetSend,
    Sink,
    Transport,
)
from agentwrap.tracing.gaps import gap_of
from agentwrap.tracing.guard.sockaddr import Endpoint
from agentwrap.tracing.processes import Process
from agentwrap.tracing.syscalls.addresses import DNS_PORT, Address, dns_question

_TELL_NS = 250_000_000
_MAX_COUNTED = 4096
_WHY_DATAGRAM = b"nothing but DNS leaves by datagrams"
_ERRNO_NAMES = {1: "EPERM", 97: "EAFNOSUPPORT", 93: "EPROTONOSUPPORT"}
_Key = tuple[str, int, str, int, Transport, int]


class Told:
    """Makes the events. Any thread may call it."""

    def __init__(self, sink: Sink, now: Callable[[], int]) -> None:
        self._sink = sink
        self._now = now
        self._counts: OrderedDict[_Key, list[int]] = OrderedDict()  # count not yet told, when last told
        self._lock = threading.Lock()

    def connect(self, process: Process, family: Family, transport: Transport, to: Endpoint) -> None:
        """A connect that the guard performs; to port 53 it is a name server."""
        host = to.host.encode()
        at_ns = self._now()
        if to.port == DNS_PORT:
            self._sink(
                DnsServer(
                    at_ns=at_ns, span=process.span, pid=process.pid, host=host,
                    transport="tcp" if transport == "tcp" else "udp",
                )
            )  # fmt: skip
            return
        if count := process.connects.due((family, transport, host, to.port, b""), at_ns):
            self._sink(
                NetConnect(
                    at_ns=at_ns, span=process.span, pid=process.pid, family=family, transport=transport, host=host,
                    port=to.port, count=count,
                )
            )  # fmt: skip

    def sent(self, process: Process, family: Family, to: Endpoint, payload: bytes) -> None:
        """A datagram with an address: the first to it is told, the rest counted (`NetworkCalls.ended` tells)."""
        host = to.host.encode()
        if to.port == DNS_PORT:
            name = dns_question(payload[:512])
            if name is not None and process.once("dns " + name.hex()):
                self._sink(
                    DnsServer(at_ns=self._now(), span=process.span, pid=process.pid, host=host, names=(name,))
                )  # fmt: skip
        address = Address(family, host, to.port)
        seen = process.sends.get(address, 0)
        process.sends[address] = seen + 1
        if seen == 0:
            self._sink(
                NetSend(
                    at_ns=self._now(), span=process.span, pid=process.pid, family=family, transport="udp", host=host,
                    port=to.port,
                )
            )  # fmt: skip

    def refused(
        self,
        process: Process,
        to: Endpoint,
        why: bytes = _WHY_DATAGRAM,
        *,
        protocol: int = 17,
        transport: Transport = "udp",
    ) -> None:
        """Datagrams that go nowhere."""
        key = (process.span, process.pid, to.host, to.port, transport, protocol)
        now = self._now()
        with self._lock:
            known = self._counts.get(key)
            if known is not None:
                known[0] += 1
                if now - known[1] < _TELL_NS:
                    return
                count, known[0], known[1] = known[0], 0, now
            else:
                count = 1
                self._counts[key] = [0, now]
                if len(self._counts) > _MAX_COUNTED:
                    self._tell_count(*self._counts.popitem(last=False))
        self._refusal(key, count, why)

    def _refusal(self, key: _Key, count: int, why: bytes = _WHY_DATAGRAM) -> None:
        span, pid, host, port, transport, protocol = key
        self._sink(
            NetRefused(
                at_ns=self._now(), span=span, pid=pid, decision="deny", by="guard", why=why, count=count,
                transport=transport, protocol_number=protocol, host=host.encode(), port=port,
            )
        )  # fmt: skip

    def _tell_count(self, key: _Key, known: list[int]) -> None:
        if known[0]:
            count, known[0] = known[0], 0
            self._refusal(key, count)

    def settle(self, *, everything: bool = False) -> None:
        """Tell the counts that are due; `everything`: at the end of the run."""
        now = self._now()
        with self._lock:
            for key, known in self._counts.items():
                if everything or now - known[1] >= _TELL_NS:
                    self._tell_count(key, known)

    def socket(self, process: Process, what: str, number: int) -> None:
        """A socket that is not made: of a family or a protocol that nothing could be said about."""
        if process.once("guard socket " + what):
            self._sink(
                ActDenied(
                    at_ns=self._now(), span=process.span, pid=process.pid, decision="deny", by="guard", act="family",
                    target=what.encode(), call="socket", mechanism="stop", errno=_ERRNO_NAMES.get(number, str(number)),
                    why=b"only sockets of TCP, UDP, unix and netlink are made in a run under guard",
                )
            )  # fmt: skip

    def unknown(self, process: Process, call: str, where: str) -> None:
        """A socket that came from elsewhere, and of which no duplicate is to be had: its call was refused."""
        if process.once("guard unknown " + call):
            self.gap(
                process,
                "connect",
                "unknown-socket",
                "nothing: what this socket was to do is refused",
                f"{call} {where}",
            )

    def gap(self, process: Process, what: CoverageKind, cause: str, could_hide: str, detail: str) -> None:
        """Something that the guard does not cover."""
        self._sink(gap_of(process, self._now(), what, cause, could_hide, detail))
