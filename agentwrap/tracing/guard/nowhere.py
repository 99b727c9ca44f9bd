"""Where a datagram socket is connected that may reach nobody, and what happens to the first datagram it sends.

Connecting such a socket says nothing to anybody: getaddrinfo does it only to learn the source address (RFC 6724), and
to call that a refusal would be a false alarm at each look-up of a name. So the connect succeeds, towards a socket of
ours. A datagram that arrives there tells that something was to be sent. It is told, and the program's socket is moved
on to a port where every datagram is refused: from then on it hears ECONNREFUSED, as from a host without the service.
"""

import select
import socket
import threading
from collections import OrderedDict
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from agentwrap.tracing.guard import raw_calls, sockaddr
from agentwrap.tracing.guard.sockaddr import AF_INET, AF_INET6, Endpoint, Ip
from agentwrap.tracing.guard.sockets import Known
from agentwrap.tracing.guard.told import Told
from agentwrap.tracing.processes import Process

MAX_VISITORS = 256
_LOOPBACK: dict[int, Ip] = {AF_INET: IPv4Address("127.0.0.1"), AF_INET6: IPv6Address("::1")}


class Visitor(NamedTuple):
    """One connected socket: whose, whom it believes to be connected with, and a duplicate of it."""

    process: Process
    known: Known
    to: Endpoint
    sock: socket.socket
    version: int


class Nowhere:
    """Listens on a thread of its own, from the first visitor on."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._listening = {family: _bound(family) for family in _LOOPBACK}
        self._refusing = {family: _connected_to_itself(family) for family in _LOOPBACK}
        self._visitors: OrderedDict[int, Visitor] = OrderedDict()
        self._lock = threading.Lock()
        self._started = False

    @property
    def has_six(self) -> bool:
        """Whether there is an IPv6 loopback."""
        return self._listening[AF_INET6] is not None and self._refusing[AF_INET6] is not None

    def connect(self, process: Process, known: Known, sock: socket.socket, to: Endpoint, ip: Ip) -> int:
        """Connect `sock` to us, at `ip`, one of our loopback addresses. Returns an errno."""
        with self._lock:
            number = raw_calls.connect(sock.fileno(), self._address(self._listening, known, ip))
            if not number:
                port = raw_calls.port_of(sock)
                self._leave(port)
                self._visitors[port] = Visitor(process, known, to, raw_calls.duplicate(sock), ip.version)
                if len(self._visitors) > MAX_VISITORS:
                    self._move_on(next(iter(self._visitors)))
                if not self._started:
                    self._started = True
                    threading.Thread(target=self._listen, daemon=True).start()
        return number

    def _address(self, holders: "dict[int, socket.socket | None]", known: Known, ip: Ip) -> bytes:
        holder = holders[AF_INET if ip.version == 4 else AF_INET6]
        assert holder is not None
        return sockaddr.encode(Endpoint(ip, raw_calls.port_of(holder)), known.family)

    def leave(self, known: Known) -> None:
        """The program connects the socket to somebody else."""
        with self._lock:
            for port, visitor in self._visitors.items():
                if visitor.known is known:
                    self._leave(port)
                    return

    def free(self, port: int) -> None:
        """The program wants this port: a closed socket must not hold it through a duplicate of ours."""
        with self._lock:
            self._leave(port)

    def _leave(self, port: int) -> Visitor | None:
        visitor = self._visitors.pop(port, None)
        if visitor is not None:
            visitor.sock.close()
        return visitor

    def _move_on(self, port: int) -> None:
        """From here on the visitor is refused; a datagram of our own makes it hear so (the kernel sets its error)."""
        visitor = self._visitors[port]
        ip = _LOOPBACK[AF_INET if visitor.version == 4 else AF_INET6]
        if not raw_calls.connect(visitor.sock.fileno(), self._address(self._refusing, visitor.known, ip)):
            raw_calls.send(visitor.sock.fileno(), b"", socket.MSG_DONTWAIT, None)
        self._leave(port)

    def _listen(self) -> None:
        poll = select.poll()
        holders = {holder.fileno(): holder for holder in self._listening.values() if holder is not None}
        for descriptor in holders:
            poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _events in poll.poll():
                self._hear(holders[descriptor])

    def _hear(self, holder: socket.socket) -> bool:
        with self._lock:
            try:
                port = holder.recvfrom(1, socket.MSG_DONTWAIT)[1][1]
            except OSError:
                return False
            visitor = self._visitors.get(port)
            if visitor is not None:  # else a second datagram, sent before the first was noticed
                # First of all: once it hears of it, the program may end, and the run with it.
                self._told.refused(visitor.process, visitor.to)
                self._move_on(port)
        return True

    def settle(self) -> None:
        """Everything that has arrived is told when this returns."""
        for holder in self._listening.values():
            while holder is not None and self._hear(holder):
                pass


def _bound(family: int) -> socket.socket | None:
    try:
        holder = socket.socket(family, socket.SOCK_DGRAM)
    except OSError:
        return None
    try:
        holder.bind((str(_LOOPBACK[family]), 0))
    except OSError:
        holder.close()
        return None
    return holder


def _connected_to_itself(family: int) -> socket.socket | None:
    """A port that is taken, and where every datagram but its own is refused (udp(7), ICMP port unreachable)."""
    holder = _bound(family)
    if holder is not None:
        holder.connect(holder.getsockname())
    return holder
