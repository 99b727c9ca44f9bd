"""connect(2) on behalf: the address is copied once, judged, and the copy is what our duplicate is connected to.

The caller's own call is never continued, so that nothing it does to its memory or its descriptors meanwhile matters.
"""

import errno
import fcntl
import os
import socket

from agentwrap.events import Transport
from agentwrap.tracing.guard import raw_calls, sockaddr
from agentwrap.tracing.guard.answers import Answering
from agentwrap.tracing.guard.calls import ANSWERED, PASS, Arguments, Call, UnavailableError, fail, read
from agentwrap.tracing.guard.listeners import LISTENING, SYN_SENT
from agentwrap.tracing.guard.nowhere import Nowhere
from agentwrap.tracing.guard.route import Router
from agentwrap.tracing.guard.sockaddr import AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, AF_UNSPEC, STORAGE, Endpoint
from agentwrap.tracing.guard.sockets import STREAM, Known, Sockets, inode_of
from agentwrap.tracing.guard.told import Told
from agentwrap.tracing.guard.waiting import GIVEN_UP, Until, Waiting
from agentwrap.tracing.syscalls.addresses import DNS_PORT
from agentwrap.tracing.tracee import Memory, signed


def begin(sock: socket.socket, address: bytes) -> tuple[int, bool]:
    """Connect, or ask once more, without ever waiting: (errno or 0, whether a blocking socket has to wait)."""
    descriptor = sock.fileno()
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    if flags & os.O_NONBLOCK:
        return raw_calls.connect(descriptor, address), False
    # For some microseconds the program's own flags say non-blocking, too. It waits in connect, on this very socket.
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    try:
        number = raw_calls.connect(descriptor, address)
        # On loopback the handshake is over by the time that connect returns.
        if number == errno.EINPROGRESS and raw_calls.ready_to_write(sock, 0):
            number = finish(sock, address)
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    return number, number in (errno.EINPROGRESS, errno.EALREADY)


def finish(sock: socket.socket, address: bytes) -> int:
    """The outcome of a connect that is over. Asked again, the kernel takes note of it, too (af_inet.c)."""
    number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    taken = raw_calls.connect(sock.fileno(), address)
    return number or taken


class Connecting:
    """connect for every kind of socket, and getpeername, which must agree with it."""

    def __init__(
        self,
        memory: Memory,
        answers: Answering,
        sockets: Sockets,
        router: Router,
        told: Told,
        workers: Waiting,
        nowhere: Nowhere,
    ) -> None:
        self._memory = memory
        self._answers = answers
        self._sockets = sockets
        self._router = router
        self._told = told
        self._workers = workers
        self._nowhere = nowhere

    def connect(self, call: Call, arguments: Arguments) -> int:
        """PASS for what is no internet socket, ANSWERED, or an errno. Raises OSError as the call would fail."""
        descriptor, pointer, size = signed(arguments[0]), arguments[1], signed(arguments[2])
        inode = inode_of(call.tid, descriptor)
        if not 0 <= size <= STORAGE:
            raise fail(errno.EINVAL)
        raw = read(self._memory, call.tid, pointer, size)
        known = self._sockets.get(inode)
        if known is None:
            known = self.adopt(call, descriptor, inode, raw)
            if known is None:
                return PASS
        with self._sockets.hold(known, call.process.pid, call.tid, descriptor) as sock:
            if known.kind == STREAM:
                return self._stream(call, known, sock, raw)
            if sock is None:
                self._told.unknown(call.process, call.name, f"socket:[{inode}]")
                return errno.EPERM
            return self._datagram(call, known, sock, raw)

    def adopt(self, call: Call, descriptor: int, inode: int, raw: bytes) -> Known | None:
        """A socket that we did not make: None if it is none of ours to handle. Raises OSError (EPERM) if it cannot be.

        Inherited, accepted, received over a unix socket, or made so long ago that it was forgotten.
        """
        if sockaddr.family_of(raw) in (AF_UNIX, AF_NETLINK):
            return None  # an internet socket takes no such address
        if self._sockets.takes(call.process.pid):
            sock = self._sockets.take(call.process.pid, call.tid, descriptor)
            if sock is not None:
                with sock:
                    if sock.family not in (AF_INET, AF_INET6):
                        return None
                    if sock.type in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                        raw_calls.keep_to_loopback(sock)
                        return self._sockets.add(sock, sock.type, sock.family, call.process.pid)
        elif is_local(call.tid, inode):
            return None
        to = sockaddr.decode(raw)
        self._told.unknown(call.process, call.name, f"to {to.host} port {to.port}" if to else f"socket:[{inode}]")
        raise UnavailableError(errno.EPERM, os.strerror(errno.EPERM))

    def _stream(self, call: Call, known: Known, sock: socket.socket | None, raw: bytes) -> int:
        if known.connecting:
            return errno.EALREADY
        if sock is None:
            return self._again(call, known)
        if sockaddr.family_of(raw) == AF_UNSPEC:
            known.peer = None
            return self._done(call, raw_calls.connect(sock.fileno(), raw))
        to = self._router.destination(known, sock, raw)
        inner = self._router.inner(to, stream=True)
        if known.peer is None:
            self._tell(call, known, to)
        if inner is None and (self._router.is_gateway(to) or self._router.is_vacant(to)):
            return errno.ECONNREFUSED
        if not self._answers.stands(call.request):
            return ANSWERED
        judge = self._router.settings.judge
        if judge is not None and (number := judge(call.process, "tcp", to.host, to.port)):
            return number
        served = self._router.settings.served
        if inner is not None and served is not None and (number := served(call.process, to.host, to.port)):
            return number
        if inner is not None:
            return self._start(call, known, sock, to, sockaddr.encode(inner, known.family))
        target = self._router.gateway(known, sock, to, self._router.settings.tcp_port)
        if known.peer is None:  # a connected one says so by itself: EISCONN
            self._router.bind_source(known, sock, target)
            try:
                self._router.announce(call.process, known, sock, to)
            except BlockingIOError:
                self._later(call, known, sock, to, sockaddr.encode(target, known.family))
                return ANSWERED
        return self._start(call, known, sock, to, sockaddr.encode(target, known.family))

    def _start(self, call: Call, known: Known, sock: socket.socket, to: Endpoint, address: bytes) -> int:
        number, waits = begin(sock, address)
        if waits:
            self._wait(call, known, sock, to, address, begun=number)
            return ANSWERED
        self._connected(known, sock, to, number)
        return self._done(call, number)

    def _connected(self, known: Known, sock: socket.socket, to: Endpoint, number: int) -> None:
        known.connecting = False
        if number in (0, errno.EINPROGRESS):
            known.fresh = number != 0
            known.peer = to
            known.port = raw_calls.port_of(sock)
            self._sockets.drop(known)

    def _later(self, call: Call, known: Known, sock: socket.socket, to: Endpoint, address: bytes) -> None:
        """The gateway is too busy to be told who calls: told later, and only then anything is begun."""
        known.connecting = True
        ours = raw_calls.duplicate(sock)

        def tell() -> None:
            number = errno.ECONNABORTED
            try:
                self._router.announce(call.process, known, ours, to, wait=True)
                number = self._start(call, known, ours, to, address)
            except OSError as error:
                number = error.errno or number
            finally:
                ours.close()
                if number != ANSWERED:
                    known.connecting = False
                    self._answers.outcome(call.request, number)

        self._workers.run(tell)

    def _wait(self, call: Call, known: Known, sock: socket.socket, to: Endpoint, address: bytes, *, begun: int) -> None:
        """The outcome has to be waited for. `begun`: what the kernel said to it so far."""
        known.connecting = True

        def done(ours: socket.socket, ended: int) -> int:
            if ended not in GIVEN_UP:
                number = ended or ours.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                taken = begin(ours, address)[0]
                number = number or taken
                self._connected(known, ours, to, number)
                return -number
            # Given up because of a signal or SO_SNDTIMEO: the connection goes on, as natively (connect(2)).
            self._connected(known, ours, to, errno.EINPROGRESS)
            return -(begun if ended == errno.ETIMEDOUT else ended)

        self._workers.wait(self._answers, call, sock, Until.CONNECTED, done)

    def _again(self, call: Call, known: Known) -> int:
        """A connect on a socket that we connected and kept no duplicate of."""
        if known.peer is None:
            self._told.unknown(call.process, call.name, f"socket:[{known.inode}]")
            return errno.EPERM
        state = self._router.listeners.state(known.family, known.port, known.inode)
        if state is None:
            return errno.ECONNREFUSED
        if state == SYN_SENT:
            return errno.EALREADY
        if known.fresh and state != LISTENING:
            known.fresh = False
            return self._done(call, 0)
        return errno.EISCONN

    def _datagram(self, call: Call, known: Known, sock: socket.socket, raw: bytes) -> int:
        self._nowhere.leave(known)
        if sockaddr.family_of(raw) == AF_UNSPEC:
            known.peer = known.server = None
            return self._done(call, raw_calls.connect(sock.fileno(), raw))
        to = self._router.destination(known, sock, raw)
        inner = self._router.inner(to, stream=False)
        self._tell(call, known, to)
        if not self._answers.stands(call.request):
            return ANSWERED
        known.server = None
        if inner is not None:
            known.peer = None
            return self._done(call, raw_calls.connect(sock.fileno(), sockaddr.encode(to, known.family)))
        if to.port == DNS_PORT:
            target = self._router.gateway(known, sock, to, self._router.settings.dns_port)
            number = raw_calls.connect(sock.fileno(), sockaddr.encode(target, known.family))
            if not number:
                known.server = to
                self._router.announce_datagrams(call.process, known, sock, to)
        else:
            ip = self._router.own_address(known, sock, to, six=self._nowhere.has_six)
            number = self._nowhere.connect(call.process, known, sock, to, ip)
        if not number:
            known.peer = to
        return self._done(call, number)

    def _tell(self, call: Call, known: Known, to: Endpoint) -> None:
        transport: Transport = "tcp" if known.kind == STREAM else "udp"
        self._told.connect(call.process, "inet" if known.family == AF_INET else "inet6", transport, to)

    def _done(self, call: Call, number: int) -> int:
        if number:
            return number
        self._answers.outcome(call.request, 0)
        return ANSWERED


def is_local(tid: int, inode: int) -> bool:
    """Whether a socket is a unix or netlink one, by the kernel's own lists."""
    for name, column in (("unix", 6), ("netlink", 9)):
        try:
            with open(f"/proc/{tid}/net/{name}", "rb") as lines:
                for line in lines:
                    words = line.split()
                    if len(words) > column and words[column] == b"%d" % inode:
                        return True
        except OSError:
            continue
    return False
