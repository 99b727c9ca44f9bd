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
from agentwrap.tracing.syscalls.addresses import DNS_PORT

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
    from process, transport, host and port; `served`: the same from process, host and port, of what the run serves
    itself. `landlock`: no TCP connection of the run's own passes the kernel.
    """

    tcp_port: int
    dns_port: int
    callers: socket.socket
    in_tree: Callable[[int], bool]
    six: bool = False
    judge: Callable[[Process, str, str, int], int] | None = None
    landlock: bool = False
    served: Callable[[Process, str, int], int] | None = None


class Router:
    """Answers `where to`, tells the gateway who calls, and prepares the socket for it."""

    def __init__(self, settings: GuardSettings, sockets: Sockets, owners: Owners) -> None:
        self.settings = settings
        self.listeners = Listeners()
        self.unseen = ""
        """Why it is not known who listens on loopback, or empty."""
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

    def inner(self, to: Endpoint, *, stream: bool) -> Endpoint | None:
        """Where the run itself serves what `to` means, None if it does not.

        An address of the machine's own network card is meant for a server without an address, which loopback reaches.
        """
        if not to.is_loopback and not (stream and is_own(to.plain)):
            return None
        try:
            serving, exact = self.listeners.serving(to, stream=stream)
        except OSError as error:
            self.unseen = f"socket diagnosis: {error.strerror}"
            return None  # the gateway will judge it as any other
        if not serving or not all(self._sockets.get(one) is not None or self._owners.ours(one) for one in serving):
            return None
        if to.is_loopback:
            return to
        return None if exact else Endpoint(_LOOPBACK if to.plain.version == 4 else _LOOPBACK6, to.port)

    def is_vacant(self, to: Endpoint) -> bool:
        """Whether nobody at all listens on a loopback port: then a connect is refused, whatever a policy says.

        So `localhost` falls back from [::1], and who waits for a server of its own is not told that it is there.
        """
        if not to.is_loopback or to.port == DNS_PORT:
            return False
        try:
            return not self.listeners.serving(to, stream=True)[0]
        except OSError as error:
            self.unseen = f"socket diagnosis: {error.strerror}"
            return False

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
            host=str(to.plain),
            port=to.port,
        )
        try:
            self.settings.callers.send(encode(caller), 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            raise
        except OSError:
            pass

    def announce_datagrams(self, process: Process, known: Known, sock: socket.socket, to: Endpoint) -> bool:
        """As `announce`, never waiting: an answer that is lost is asked for again."""
        try:
            self.announce(process, known, sock, to)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Close what was opened to ask."""
        self.listeners.close()


def is_own(ip: Ip) -> bool:
    """Whether an address is the machine's: then it is the source, too, of what is sent to it. Nothing is sent."""
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect((str(ip), 9))
            return str(sock.getsockname()[0]).partition("%")[0] == str(ip)
    except OSError:
        return False
