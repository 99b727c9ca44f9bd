"""Where a call that names an internet address is really sent: to the gateway, to a service of the run, or nowhere."""

import errno
import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from agentwrap.gateway.callers import Caller, encode
from agentwrap.tracing.guard import raw_calls, sockaddr
from agentwrap.tracing.guard.calls import fail
from agentwrap.tracing.guard.listeners import Listeners, Owners
from agentwrap.tracing.guard.sockaddr import AF_INET, AF_INET6, AF_UNSPEC, Endpoint, Ip
from agentwrap.tracing.guard.sockets import STREAM, Known, Sockets
from agentwrap.tracing.processes import Process

_LOOPBACK, _LOOPBACK6 = IPv4Address("127.0.0.1"), IPv6Address("::1")
# Ports of one address are used up by connections that are over but linger (TIME_WAIT, a minute): then the next one.
_SOURCES = tuple(IPv4Address(f"127.0.0.{last}") for last in range(1, 9))
_IP_BIND_ADDRESS_NO_PORT = 24


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """The gateway as the guard reaches it, and what the guard may assume.

    `tcp_port`, `dns_port`: of its listener and its UDP socket, on 127.0.0.1 and, where `six`, on [::1], too.
    `callers`: the SEQPACKET socket that tells it who calls (`gateway.callers`), before the connection is there.
    `in_tree`: whether a process id is the run's. `judge`: an errno to refuse a connection with at once, 0 to go on,
    from process, transport, host and port. `landlock`: no TCP connection of the run's own passes the kernel.
    """

    tcp_port: int
    dns_port: int
    callers: socket.socket
    in_tree: Callable[[int], bool]
    six: bool = False
    judge: Callable[[Process, str, str, int], int] | None = None
    landlock: bool = False


class Router:
    """Answers `where to`, tells the gateway who calls, and prepares the socket for it."""

    def __init__(self, settings: GuardSettings, sockets: Sockets, owners: Owners) -> None:
        self.settings = settings
        self.listeners = Listeners()
        self._sockets = sockets
        self._owners = owners

    def destination(self, known: Known, sock: socket.socket, raw: bytes, *, sending: bool = False) -> Endpoint:
        """Whom an address in a call means to a socket of this kind. Raises OSError as the kernel would."""
        family = sockaddr.family_of(raw)
        if family is None:
            raise fail(errno.EINVAL)
        as_inet = known.family == AF_INET
        if as_inet and (family == AF_INET or (sending and family == AF_UNSPEC)):
            found = sockaddr.inet(raw)
        elif not as_inet and family == AF_INET and known.kind != STREAM:
            if sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY):
                raise fail(errno.ENETUNREACH if sending else errno.EAFNOSUPPORT)
            found = sockaddr.inet(raw)
        elif not as_inet and family == AF_INET6:
            found = sockaddr.inet6(raw)
        elif len(raw) < (sockaddr.SIZE_INET if as_inet else sockaddr.LEAST_INET6):
            raise fail(errno.EINVAL)
        else:
            raise fail(errno.EINVAL if sending and not as_inet else errno.EAFNOSUPPORT)
        if found is None:
            raise fail(errno.EINVAL)
        return found

    def is_inner(self, to: Endpoint, *, stream: bool) -> bool:
        """Whether the run itself serves this address of the machine's own."""
        if not to.is_loopback:
            return False
        try:
            serving = self.listeners.serving(to, stream=stream)
        except OSError:
            return False  # the gateway will judge it as any other
        return bool(serving) and (self._sockets.get(serving[0]) is not None or self._owners.ours(serving[0]))

    def is_gateway(self, to: Endpoint) -> bool:
        """Whether a program talks to the gateway by itself: it would ask the gateway to connect to the gateway."""
        return to.is_loopback and to.port == self.settings.tcp_port

    def gateway(self, known: Known, sock: socket.socket, to: Endpoint, port: int) -> Endpoint:
        """The gateway's own address for this socket. Raises OSError (ENETUNREACH) when it has none."""
        return Endpoint(self.own_address(known, sock, to, six=self.settings.six), port)

    def own_address(self, known: Known, sock: socket.socket, to: Endpoint, *, six: bool) -> Ip:
        """The loopback address that this socket can be connected to in place of `to`; `six`: it may be [::1].

        Raises OSError (ENETUNREACH) when there is none.
        """
        if known.family == AF_INET:
            return _LOOPBACK
        only = sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        if six and to.plain.version == 6:
            return _LOOPBACK6
        if only:
            raise fail(errno.ENETUNREACH)
        return _LOOPBACK

    def bind_source(self, known: Known, sock: socket.socket, target: Endpoint) -> None:
        """Give the socket a port before it calls, so that the gateway can be told who will. Raises OSError."""
        number, source = 0, target.ip
        for source in _SOURCES if target.plain.version == 4 else (_LOOPBACK6,):
            number = raw_calls.bind(sock.fileno(), sockaddr.encode(Endpoint(source, 0), known.family))
            if number != errno.EADDRINUSE:
                break
        if number not in (0, errno.EINVAL):  # EINVAL: the program has bound it
            raise fail(number)
        if not number and not raw_calls.port_of(sock):
            # IP_BIND_ADDRESS_NO_PORT: the port would be chosen by connect.
            sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 0)
            raw_calls.bind(sock.fileno(), sockaddr.encode(Endpoint(source, 0), known.family))
            sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)

    def announce(
        self, process: Process, known: Known, sock: socket.socket, to: Endpoint, *, wait: bool = False
    ) -> None:
        """Tell the gateway who calls. Raises BlockingIOError when it is too busy to listen and `wait` is not set.

        A gateway that is gone is no error here: connecting to it fails by itself.
        """
        caller = Caller(
            inode=known.inode,
            local_port=raw_calls.port_of(sock),
            pid=process.pid,
            span=process.span,
            transport="tcp" if known.kind == STREAM else "udp",
            host=to.host,
            port=to.port,
        )
        try:
            self.settings.callers.send(encode(caller), 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            raise
        except OSError:
            pass

    def close(self) -> None:
        """Close what was opened to ask."""
        self.listeners.close()
