"""Connections to model servers led through the gateway in a run that keeps the machine's network.

A connect(2) to port 443, or to a server that the environment names, is performed by the tracer on a duplicate of the
program's socket, towards the gateway, which is told first who calls and whom. Everything else is let go as it is. This
is no enforcement: what cannot be led there (a socket bound to a device, a network of its own) goes its own way and is a
gap.
"""

import errno
import os
import select
import socket
from collections import OrderedDict
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from ipaddress import IPv4Address

from agentwrap.events import Sink
from agentwrap.gateway.callers import Caller, encode
from agentwrap.launching.environment import HTTPS_PORT, Target
from agentwrap.launching.seccomp import ARCH_X86_64
from agentwrap.tracing.gaps import gap_of
from agentwrap.tracing.guard import raw_calls, sockaddr
from agentwrap.tracing.guard.answers import Answers
from agentwrap.tracing.guard.calls import ANSWERED, PASS, Arguments, Call, read, write
from agentwrap.tracing.guard.connecting import begin, finish
from agentwrap.tracing.guard.listeners import Listeners, Owners
from agentwrap.tracing.guard.sockaddr import AF_INET, AF_INET6, STORAGE, Endpoint
from agentwrap.tracing.guard.sockets import inode_of
from agentwrap.tracing.guard.waiting import Until, Workers
from agentwrap.tracing.processes import Process
from agentwrap.tracing.syscalls import watched
from agentwrap.tracing.tracee import Memory, signed

_LOOPBACK = IPv4Address("127.0.0.1")
_MAX_LED = 65_536
_CLOSED = 7  # include/net/tcp_states.h
_SO_MARK, _SO_NETNS_COOKIE = 36, 71
_TCP_FASTOPEN_CONNECT = 30
_IP_BIND_ADDRESS_NO_PORT = 24
# linux/net.h: call number of socketcall(2) to name and number of its 32-bit arguments
_SOCKETCALLS = {3: ("connect", 3), 7: ("getpeername", 3), 11: ("sendto", 6), 16: ("sendmsg", 3), 20: ("sendmmsg", 4)}
_FLAGS_AT = {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}
_MSG_FASTOPEN = 0x20000000
Handler = Callable[[Call, Arguments], int]


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """The gateway, and whose connections go to it. `tcp_port`: of its listener on 127.0.0.1.

    `callers`: the SEQPACKET socket that tells it who calls. `targets`: servers besides port 443 of every address; more
    may become known while the run goes on.
    """

    tcp_port: int
    callers: socket.socket
    targets: AbstractSet[Target]


class Capture:
    """Answers connect and getpeername for the notify thread, which alone calls `handle`. `listener`: its descriptor."""

    def __init__(
        self,
        memory: Memory,
        listener: int,
        sink: Sink,
        now: Callable[[], int],
        settings: CaptureSettings,
        in_tree: Callable[[int], bool],
    ) -> None:
        self._memory = memory
        self._answers = Answers(listener)
        self._sink = sink
        self._now = now
        self._settings = settings
        self._listeners = Listeners()
        self._owners = Owners(in_tree)
        self._workers = Workers()
        self._network = _own_network()
        self._led: OrderedDict[int, Endpoint] = OrderedDict()
        self._enclosed: set[str] = set()  # spans of processes that restrict their own connections
        self._alive = True
        self._hearing = select.poll()
        self._hearing.register(settings.callers, select.POLLOUT)
        handlers: dict[str, Handler] = {
            "connect": self._connect,
            "getpeername": self._getpeername,
            **dict.fromkeys(_FLAGS_AT, self._send),
            "landlock_create_ruleset": self._landlock,
        }
        self._table = {
            key: (name, handlers.get(name, self._socketcall), key[0] == ARCH_X86_64)
            for key, name in watched.names().items()
            if name in handlers or name == "socketcall"
        }

    def handle(
        self, process: Process | None, tid: int, request: int, arch: int, number: int, arguments: Arguments
    ) -> int:
        """PASS (0): it may go on as it is. ANSWERED (-1): it is or will be. Else an errno that it fails with.

        Never raises, and what it cannot do it lets pass.
        """
        entry = self._table.get((arch, number))
        if entry is None or process is None:
            return PASS
        name, handler, wide = entry
        try:
            return handler(Call(process, tid, request, wide, name), arguments)
        except OSError:
            return PASS  # a bad pointer, a closed descriptor, a thread that is gone: the call fails by itself
        except Exception as error:
            self._past(process, "internal-fault", f"{name}: {error!r}")
            return PASS

    def _past(self, process: Process, cause: str, detail: str) -> None:
        """A connection that should have been read goes past the gateway."""
        if process.once("capture " + cause):
            could_hide = "model calls of this process: such connections of its go past the gateway"
            self._sink(gap_of(process, self._now(), "model", cause, could_hide, detail))

    def _socketcall(self, call: Call, arguments: Arguments) -> int:
        found = _SOCKETCALLS.get(arguments[0] & 0xFFFFFFFF)
        if found is None:
            return PASS
        name, count = found
        raw = read(self._memory, call.tid, arguments[1], 4 * count)
        words = tuple(int.from_bytes(raw[i : i + 4], "little") for i in range(0, len(raw), 4))
        handler = self._send if name in _FLAGS_AT else self._connect if name == "connect" else self._getpeername
        return handler(call._replace(name=name), words)

    def _connect(self, call: Call, arguments: Arguments) -> int:
        size = signed(arguments[2])
        if not self._alive or not 0 <= size <= STORAGE:
            return PASS
        raw = read(self._memory, call.tid, arguments[1], size)
        to = sockaddr.decode(raw)
        if to is None or not self._wants(to):
            return PASS
        try:
            sock = socket.socket(fileno=raw_calls.take(call.process.pid, call.tid, signed(arguments[0])))
        except PermissionError as error:
            self._past(call.process, "no-duplicate", f"pidfd_getfd: {error.strerror}")
            return PASS
        with sock:
            if sock.type != socket.SOCK_STREAM or sock.family != sockaddr.family_of(raw) or _state(sock) != _CLOSED:
                return PASS
            unfit = self._unfit(call, sock, to)
            if unfit:
                self._past(call.process, "not-led", f"to {to.host} port {to.port}: {unfit}")
                return PASS
            if not self._leads_somewhere(to) or not self._answers.stands(call.request):
                return PASS
            return self._lead(call, sock, to)

    def _send(self, call: Call, arguments: Arguments) -> int:
        """Data that connects its socket (MSG_FASTOPEN, send(2)): no connect will come that could be led anywhere."""
        if not arguments[_FLAGS_AT[call.name]] & _MSG_FASTOPEN:
            return PASS
        pointer, size = arguments[4], signed(arguments[5]) if call.name == "sendto" else 0
        if call.name != "sendto":
            # struct msghdr begins with the address and its length (sendmsg(2)), struct mmsghdr with a msghdr.
            word = 8 if call.wide else 4
            raw = read(self._memory, call.tid, arguments[1], word + 4)
            pointer, size = int.from_bytes(raw[:word], "little"), int.from_bytes(raw[word:], "little", signed=True)
        to = sockaddr.decode(read(self._memory, call.tid, pointer, min(size, STORAGE))) if size > 0 else None
        if to is not None and self._wants(to):
            self._past(call.process, "not-led", f"to {to.host} port {to.port}: TCP Fast Open")
        return PASS

    def _wants(self, to: Endpoint) -> bool:
        if to.port == HTTPS_PORT:
            return True
        plain = to.plain
        host = ("127.0.0.1" if plain.version == 4 else "::1") if plain.is_unspecified else str(plain)
        return Target(host, to.port) in self._settings.targets or Target("", to.port) in self._settings.targets

    def _landlock(self, call: Call, arguments: Arguments) -> int:
        """A process that closes TCP for itself and its children (landlock(7)): we are not bound by what it asks for."""
        size = min(arguments[1], 16)
        if arguments[0] and size == 16 and any(read(self._memory, call.tid, arguments[0], size)[8:]):
            self._enclosed.add(call.process.span)
        return PASS

    def _is_enclosed(self, process: Process | None) -> bool:
        while process is not None and self._enclosed:
            if process.span in self._enclosed:
                return True
            process = process.parent
        return False

    def _unfit(self, call: Call, sock: socket.socket, to: Endpoint) -> str:
        """Why this socket cannot be connected to the gateway in place of `to`; nothing if it can."""
        if self._is_enclosed(call.process):
            return "the program restricts its own connections"
        if sock.proto != socket.IPPROTO_TCP:
            return "it speaks another protocol than TCP"
        if self._network_of(call.tid, sock) != self._network:
            return "it belongs to another network"
        if to.ip.is_link_local:
            return "a link-local address"
        host, port = sock.getsockname()[:2]
        if port or host not in ("0.0.0.0", "::"):
            return "it is bound to an address"
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).strip(b"\0"):
            return "it is bound to a device"
        if sock.getsockopt(socket.SOL_SOCKET, _SO_MARK):
            return "its packets are marked"
        if sock.family == AF_INET6 and sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY):
            return "it speaks IPv6 alone"
        if sock.getsockopt(socket.IPPROTO_TCP, _TCP_FASTOPEN_CONNECT):
            return "TCP Fast Open"
        return ""

    def _network_of(self, tid: int, sock: socket.socket) -> bytes:
        try:
            return sock.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
        except OSError:  # before Linux 5.14
            return os.readlink(b"/proc/%d/ns/net" % tid)

    def _leads_somewhere(self, to: Endpoint) -> bool:
        """Not where the kernel would refuse at once, nor to a server of the run's own on port 443."""
        if not to.is_loopback:
            return _has_route(to)
        if to.port == self._settings.tcp_port:
            return False
        try:
            serving, _exact = self._listeners.serving(to, stream=True)
        except OSError:
            return True
        return bool(serving) and not (to.port == HTTPS_PORT and all(self._owners.ours(one) for one in serving))

    def _lead(self, call: Call, sock: socket.socket, to: Endpoint) -> int:
        if not self._hears():
            return PASS
        inode = os.fstat(sock.fileno()).st_ino
        port = _bind_source(sock)
        caller = Caller(inode, port, call.process.pid, call.process.span, "tcp", str(to.plain), to.port)
        self._settings.callers.send(encode(caller), socket.MSG_DONTWAIT)
        self._led[inode] = to
        self._led.move_to_end(inode)
        if len(self._led) > _MAX_LED:
            self._led.popitem(last=False)
        address = sockaddr.encode(Endpoint(_LOOPBACK, self._settings.tcp_port), sock.family)
        number, waits = begin(sock, address)
        if waits:
            self._later(call, sock, address)
            return ANSWERED
        if number == errno.ECONNREFUSED:
            # The gateway died just now. A failed connect has given the port back (net/ipv4/tcp.c, tcp_set_state).
            self._alive = False
            return PASS
        if number:
            return number
        self._answers.outcome(call.request, 0)
        return ANSWERED

    def _hears(self) -> bool:
        """Whether the gateway lives and would take a message now."""
        events = sum(mask for _descriptor, mask in self._hearing.poll(0))
        self._alive = not events & (select.POLLHUP | select.POLLERR)
        return self._alive and bool(events & select.POLLOUT)

    def _later(self, call: Call, sock: socket.socket, address: bytes) -> None:
        """The gateway's queue is full, and a blocking connect waits for it."""

        def done(ours: socket.socket, ended: int) -> int:
            # Given up because of a signal or SO_SNDTIMEO: the connection goes on, as natively (connect(2)).
            return -(errno.EINPROGRESS if ended == errno.ETIMEDOUT else ended or finish(ours, address))

        self._workers.wait(self._answers, call, sock, Until.CONNECTED, done)

    def _getpeername(self, call: Call, arguments: Arguments) -> int:
        """Where the program meant to go, for a socket that is connected to the gateway."""
        if not self._led:
            return PASS
        descriptor = signed(arguments[0])
        to = self._led.get(inode_of(call.tid, descriptor))
        if to is None:
            return PASS
        with socket.socket(fileno=raw_calls.take(call.process.pid, call.tid, descriptor)) as sock:
            if sock.getpeername()[1] != self._settings.tcp_port:
                return PASS
            raw = sockaddr.encode(to, sock.family)
        size = int.from_bytes(read(self._memory, call.tid, arguments[2], 4), "little", signed=True)
        if size < 0 or not self._answers.stands(call.request):
            return PASS
        pieces = [(arguments[1], raw[:size]), (arguments[2], len(raw).to_bytes(4, "little"))]
        if not write(call.tid, [piece for piece in pieces if piece[1]]):
            return errno.EFAULT
        self._answers.outcome(call.request, 0)
        return ANSWERED


def _own_network() -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            return sock.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
        except OSError:
            return os.readlink(b"/proc/self/ns/net")


def _state(sock: socket.socket) -> int:
    """TCP_INFO, tcpi_state (tcp(7))."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


def _bind_source(sock: socket.socket) -> int:
    """Give the socket a port before it calls, so that the gateway can be told who will. Raises OSError.

    No address: should the gateway be gone, the program's own connect has to find the socket as it was.
    """
    anywhere = sockaddr.encode(Endpoint(sockaddr.ANY[sock.family], 0), sock.family)
    number = raw_calls.bind(sock.fileno(), anywhere)
    if not number and not raw_calls.port_of(sock):
        # IP_BIND_ADDRESS_NO_PORT: the port would be chosen by connect.
        sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 0)
        number = raw_calls.bind(sock.fileno(), anywhere)
        sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
    if number:
        raise OSError(number, os.strerror(number))
    return raw_calls.port_of(sock)


def _has_route(to: Endpoint) -> bool:
    """Whether the machine would send anything there; nothing is sent. Else the program's own connect fails as well."""
    plain = to.plain
    family = AF_INET if plain.version == 4 else AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            return not raw_calls.connect(sock.fileno(), sockaddr.encode(Endpoint(plain, to.port, to.scope), family))
    except OSError:
        return False
