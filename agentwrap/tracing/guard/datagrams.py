"""Datagrams on behalf: sendto, sendmsg and sendmmsg of UDP sockets, and the refusal of TCP Fast Open.

A message header lies in the caller's memory, address included: of a UDP socket no sendmsg is ever continued, or another
thread could write an address into it after we looked. Control data is left out: it can choose an interface (IP_PKTINFO)
or a route (IP_RETOPTS, IPV6_RTHDR).
"""

import errno
import os
import socket
import struct

from agentwrap.tracing.guard import messages, raw_calls, sockaddr
from agentwrap.tracing.guard.answers import Answering
from agentwrap.tracing.guard.calls import ANSWERED, PASS, Arguments, Call, fail, read, write
from agentwrap.tracing.guard.connecting import Connecting
from agentwrap.tracing.guard.route import Router
from agentwrap.tracing.guard.sockaddr import AF_INET, STORAGE, Endpoint
from agentwrap.tracing.guard.sockets import STREAM, Known, Sockets, inode_of
from agentwrap.tracing.guard.told import Told
from agentwrap.tracing.guard.waiting import Until, Waiting
from agentwrap.tracing.syscalls.addresses import DNS_PORT
from agentwrap.tracing.tracee import Memory, signed

MSG_FASTOPEN = 0x20000000
# MSG_DONTROUTE, MSG_DONTWAIT, MSG_CONFIRM, MSG_NOSIGNAL, MSG_MORE
_FLAGS = 0x4 | 0x40 | 0x800 | 0x4000 | 0x8000
_DONTWAIT = 0x40
_LARGEST = 65_536
_MAX_MESSAGES = 1024


class Datagrams:
    """Sends of sockets that we know; of others what has no internet address passes."""

    def __init__(
        self,
        memory: Memory,
        answers: Answering,
        sockets: Sockets,
        router: Router,
        told: Told,
        workers: Waiting,
        connecting: Connecting,
    ) -> None:
        self._memory = memory
        self._answers = answers
        self._sockets = sockets
        self._router = router
        self._told = told
        self._workers = workers
        self._connecting = connecting

    def sendto(self, call: Call, arguments: Arguments) -> int:
        """sendto(2) with an address."""
        descriptor, pointer, size, flags = signed(arguments[0]), arguments[1], arguments[2], signed(arguments[3])
        name, name_size = arguments[4], signed(arguments[5])
        if not name:
            return PASS  # socketcall alone asks about these: its arguments lie in memory
        raw = self._name(call, name, name_size)
        known = self._find(call, descriptor, raw)
        if known is None:
            return PASS
        if known.kind == STREAM:
            return _stream_refusal(known, flags)
        if size > _LARGEST:
            return errno.EMSGSIZE
        payload = read(self._memory, call.tid, pointer, size)
        with self._sockets.hold(known, call.process.pid, call.tid, descriptor) as sock:
            if sock is None:
                return self._lost(call, known)
            return self._one(call, known, sock, payload, flags, raw)

    def sendmsg(self, call: Call, arguments: Arguments) -> int:
        """sendmsg(2)."""
        descriptor, pointer, flags = signed(arguments[0]), arguments[1], signed(arguments[2])
        known = self._sockets.get(inode_of(call.tid, descriptor))
        if known is not None and known.kind == STREAM:
            # Without that flag the kernel takes no notice of an address (tcp_sendmsg).
            return errno.EOPNOTSUPP if flags & MSG_FASTOPEN else PASS
        raw, payload = self._message(call, pointer, known is not None)
        if known is None:
            known = self._find(call, descriptor, raw) if raw is not None else None
            if known is None:
                return PASS
            if known.kind == STREAM:
                return _stream_refusal(known, flags)
            raw, payload = self._message(call, pointer, True)
        with self._sockets.hold(known, call.process.pid, call.tid, descriptor) as sock:
            if sock is None:
                return self._lost(call, known)
            return self._one(call, known, sock, payload, flags, raw)

    def sendmmsg(self, call: Call, arguments: Arguments) -> int:
        """sendmmsg(2): as many as go without waiting, at least one."""
        descriptor, pointer, flags = signed(arguments[0]), arguments[1], signed(arguments[3])
        count = min(arguments[2] & 0xFFFFFFFF, _MAX_MESSAGES)
        step = messages.many_size(wide=call.wide)
        known = self._sockets.get(inode_of(call.tid, descriptor))
        if known is None:
            raws = [self._message(call, pointer + i * step, False)[0] for i in range(count)]
            for raw in raws:
                if raw is not None and (known := self._find(call, descriptor, raw)) is not None:
                    break
            if known is None:
                return PASS
        if known.kind == STREAM:
            return errno.EOPNOTSUPP if flags & MSG_FASTOPEN else PASS
        with self._sockets.hold(known, call.process.pid, call.tid, descriptor) as sock:
            if sock is None:
                return self._lost(call, known)
            return self._many(call, known, sock, pointer, count, flags)

    def _many(self, call: Call, known: Known, sock: socket.socket, pointer: int, count: int, flags: int) -> int:
        step, length_at = messages.many_size(wide=call.wide), messages.header_size(wide=call.wide)
        sent, failed = 0, 0
        for i in range(count):
            try:
                raw, payload = self._message(call, pointer + i * step, True)
                address = self._address(call, known, sock, payload, flags, raw)
                outcome = raw_calls.send(sock.fileno(), payload, flags & _FLAGS | _DONTWAIT, address)
            except OSError as error:
                outcome = -(error.errno or errno.EFAULT)
            if outcome < 0:
                failed = -outcome
                break
            if not write(call.tid, [(pointer + i * step + length_at, struct.pack("=I", outcome))]):
                failed = errno.EFAULT
                break
            sent += 1
        if failed and not sent:
            return failed
        self._answers.value(call.request, sent)
        return ANSWERED

    def _name(self, call: Call, pointer: int, size: int) -> bytes:
        if not 0 <= size <= STORAGE:
            raise fail(errno.EINVAL)
        return read(self._memory, call.tid, pointer, size)

    def _message(self, call: Call, pointer: int, whole: bool) -> tuple[bytes | None, bytes]:
        """Address and payload of a message header; the payload only where it is asked for. Raises OSError."""
        wide = call.wide
        header = messages.header(read(self._memory, call.tid, pointer, messages.header_size(wide=wide)), wide=wide)
        if header is None:
            raise fail(errno.EFAULT)
        raw = None
        if header.name and header.name_size:
            # A size beyond the largest address is cut, not refused (net/socket.c, __copy_msghdr).
            size = min(header.name_size, STORAGE)
            if signed(header.name_size) < 0:
                raise fail(errno.EINVAL)
            raw = read(self._memory, call.tid, header.name, size)
        if not whole:
            return raw, b""
        if header.vector_count > messages.MAX_BUFFERS:
            raise fail(errno.EMSGSIZE)
        vector = read(self._memory, call.tid, header.vector, header.vector_count * messages.buffer_size(wide=wide))
        buffers = messages.buffers(vector, wide=wide)
        if sum(size for _address, size in buffers) > _LARGEST:
            raise fail(errno.EMSGSIZE)
        return raw, b"".join(read(self._memory, call.tid, address, size) for address, size in buffers)

    def _find(self, call: Call, descriptor: int, raw: bytes) -> Known | None:
        inode = inode_of(call.tid, descriptor)
        known = self._sockets.get(inode)
        return known or self._connecting.adopt(call, descriptor, inode, raw)

    def _lost(self, call: Call, known: Known) -> int:
        self._told.unknown(call.process, call.name, f"socket:[{known.inode}]")
        return errno.EPERM

    def _one(self, call: Call, known: Known, sock: socket.socket, payload: bytes, flags: int, raw: bytes | None) -> int:
        address = self._address(call, known, sock, payload, flags, raw)
        outcome = raw_calls.send(sock.fileno(), payload, flags & _FLAGS | _DONTWAIT, address)
        if outcome == -errno.EAGAIN and not flags & _DONTWAIT and os.get_blocking(sock.fileno()):
            self._later(call, sock, payload, flags, address)
            return ANSWERED
        if outcome < 0:
            return -outcome
        self._answers.value(call.request, outcome)
        return ANSWERED

    def _address(
        self, call: Call, known: Known, sock: socket.socket, payload: bytes, flags: int, raw: bytes | None
    ) -> bytes | None:
        """Where the datagram really goes; None: to whom the socket is connected. Raises OSError for a refusal."""
        if flags & MSG_FASTOPEN:
            raise fail(errno.EOPNOTSUPP)
        if not self._answers.stands(call.request):
            raise fail(errno.EINTR)  # nobody hears it: the caller was killed
        if raw is None:
            return None
        if known.family != AF_INET and sockaddr.family_of(raw) == sockaddr.AF_UNSPEC:
            return None  # an address in name only (net/ipv6/udp.c)
        to = self._router.destination(known, sock, raw, sending=True)
        if not to.port:
            raise fail(errno.EINVAL)
        self._told.sent(call.process, "inet" if known.family == AF_INET else "inet6", to, payload)
        if self._router.inner(to, stream=False) is not None:
            return sockaddr.encode(to, known.family)
        if to.port != DNS_PORT:
            self._told.refused(call.process, to)
            raise fail(errno.ECONNREFUSED)
        target = self._router.gateway(known, sock, to, self._router.settings.dns_port)
        self._ask(call, known, sock, payload, to)
        return sockaddr.encode(target, known.family)

    def _ask(self, call: Call, known: Known, sock: socket.socket, payload: bytes, to: Endpoint) -> None:
        known.ask(int.from_bytes(payload[:2], "big"), to)
        if known.told != to:
            if not raw_calls.port_of(sock):
                any_address = Endpoint(sockaddr.ANY[known.family], 0)
                raw_calls.bind(sock.fileno(), sockaddr.encode(any_address, known.family))
            if self._router.announce_datagrams(call.process, known, sock, to):
                known.told = to

    def _later(self, call: Call, sock: socket.socket, payload: bytes, flags: int, address: bytes | None) -> None:
        def done(ours: socket.socket, ended: int) -> int | None:
            if ended:
                return -(errno.EAGAIN if ended == errno.ETIMEDOUT else abs(ended))
            outcome = raw_calls.send(ours.fileno(), payload, flags & _FLAGS | _DONTWAIT, address)
            return None if outcome == -errno.EAGAIN else outcome

        self._workers.wait(self._answers, call, sock, Until.ROOM, done)


def _stream_refusal(known: Known, flags: int) -> int:
    """A stream takes no address but by Fast Open, which connects without a connect; clients fall back to that."""
    if flags & MSG_FASTOPEN:
        return errno.EOPNOTSUPP
    return errno.EISCONN if known.peer is not None else errno.EPIPE
