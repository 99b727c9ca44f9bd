"""Datagrams that the gateway answers in the name of a name server: who sent them is told as the program expects it.

Programs compare the sender with whom they asked (glibc, musl, dig). Only recvfrom, recvmsg and recvmmsg of sockets that
have asked are performed on behalf, and only the sender's address is other than the kernel's.
"""

import errno
import os
import socket
import struct
from ipaddress import ip_address
from typing import NamedTuple

from agentwrap.tracing.guard import messages, sockaddr
from agentwrap.tracing.guard.answers import Answering
from agentwrap.tracing.guard.calls import ANSWERED, PASS, Arguments, Call, fail, read, write
from agentwrap.tracing.guard.messages import Buffer, Control, Header
from agentwrap.tracing.guard.route import Router
from agentwrap.tracing.guard.sockaddr import STORAGE, Endpoint
from agentwrap.tracing.guard.sockets import DATAGRAM, Known, Sockets, inode_of
from agentwrap.tracing.guard.waiting import Until, Waiting
from agentwrap.tracing.tracee import Memory, signed

_LARGEST = 65_536
_CONTROL = 4096
_TRUNCATED, _DONTWAIT, _ERRQUEUE, _WAITFORONE = 0x20, 0x40, 0x2000, 0x10000
_MAX_MESSAGES = 1024


class Place(NamedTuple):
    """Where one datagram is to be written. `header`: its address, 0 for recvfrom; `name_size_at`: of the size."""

    buffers: list[Buffer]
    name: int
    name_room: int
    name_size_at: int
    header: int = 0
    control: int = 0
    control_room: int = 0


class Receiving:
    """Receives on behalf. `recv` and `read` are nobody's business: they tell no sender."""

    def __init__(self, memory: Memory, answers: Answering, sockets: Sockets, router: Router, workers: Waiting) -> None:
        self._memory = memory
        self._answers = answers
        self._sockets = sockets
        self._router = router
        self._workers = workers

    def _known(self, call: Call, descriptor: int, flags: int) -> Known | None:
        known = self._sockets.get(inode_of(call.tid, descriptor))
        if known is None or known.kind != DATAGRAM or not known.redirected or flags & _ERRQUEUE:
            return None
        return known

    def recvfrom(self, call: Call, arguments: Arguments) -> int:
        """recvfrom(2) with room for an address."""
        descriptor, pointer, size, flags = signed(arguments[0]), arguments[1], arguments[2], signed(arguments[3])
        name, size_at = arguments[4], arguments[5]
        known = self._known(call, descriptor, flags)
        if known is None or not name:
            return PASS
        room = self._size(call, size_at)
        return self._receive(
            call, known, descriptor, [Place([(pointer, size)], name, room, size_at)], flags, many=False
        )

    def recvmsg(self, call: Call, arguments: Arguments) -> int:
        """recvmsg(2)."""
        descriptor, pointer, flags = signed(arguments[0]), arguments[1], signed(arguments[2])
        known = self._known(call, descriptor, flags)
        if known is None:
            return PASS
        return self._receive(call, known, descriptor, [self._place(call, pointer)], flags, many=False)

    def recvmmsg(self, call: Call, arguments: Arguments) -> int:
        """recvmmsg(2). Its time limit is looked at between datagrams only, as in the kernel (see its BUGS)."""
        descriptor, pointer, flags = signed(arguments[0]), arguments[1], signed(arguments[3])
        known = self._known(call, descriptor, flags)
        count = min(arguments[2] & 0xFFFFFFFF, _MAX_MESSAGES)
        if known is None or not count:
            return PASS
        step = messages.many_size(wide=call.wide)
        places = [self._place(call, pointer + i * step) for i in range(count)]
        return self._receive(call, known, descriptor, places, flags, many=True)

    def _size(self, call: Call, pointer: int) -> int:
        size = int(struct.unpack("=i", read(self._memory, call.tid, pointer, 4))[0])
        if size < 0:
            raise fail(errno.EINVAL)
        return min(size, STORAGE)

    def _place(self, call: Call, pointer: int) -> Place:
        wide = call.wide
        header = messages.header(read(self._memory, call.tid, pointer, messages.header_size(wide=wide)), wide=wide)
        if header is None:
            raise fail(errno.EFAULT)
        if header.vector_count > messages.MAX_BUFFERS:
            raise fail(errno.EMSGSIZE)
        vector = read(self._memory, call.tid, header.vector, header.vector_count * messages.buffer_size(wide=wide))
        return _place_of(header, pointer, messages.buffers(vector, wide=wide), wide=wide)

    def _receive(
        self, call: Call, known: Known, descriptor: int, places: list[Place], flags: int, *, many: bool
    ) -> int:
        with self._sockets.hold(known, call.process.pid, call.tid, descriptor) as sock:
            if sock is None:
                return PASS  # nothing is lost by it but the sender's name
            if not self._answers.stands(call.request):
                return ANSWERED
            outcome = self._all(call, known, sock, places, flags, many=many)
            if outcome == -errno.EAGAIN and not flags & _DONTWAIT and os.get_blocking(sock.fileno()):
                self._later(call, known, sock, places, flags, many=many)
                return ANSWERED
        if outcome < 0:
            return -outcome
        self._answers.value(call.request, outcome)
        return ANSWERED

    def _later(
        self, call: Call, known: Known, sock: socket.socket, places: list[Place], flags: int, *, many: bool
    ) -> None:
        def done(ours: socket.socket, ended: int) -> int | None:
            if ended:
                return -(errno.EAGAIN if ended == errno.ETIMEDOUT else abs(ended))
            outcome = self._all(call, known, ours, places, flags, many=many)
            return None if outcome == -errno.EAGAIN else outcome  # another thread was quicker

        self._workers.wait(self._answers, call, sock, Until.DATA, done)

    def _all(
        self, call: Call, known: Known, sock: socket.socket, places: list[Place], flags: int, *, many: bool
    ) -> int:
        """What is there now, into as many places as there are: bytes of the one, or how many; or a negative errno."""
        if not many:
            return self._one(call, known, sock, places[0], flags)
        length_at = messages.header_size(wide=call.wide)
        for done, place in enumerate(places):
            outcome = self._one(call, known, sock, place, flags & ~_WAITFORONE)
            if outcome < 0:
                return done or outcome
            write(call.tid, [(place.header + length_at, struct.pack("=I", outcome))])
        return len(places)

    def _one(self, call: Call, known: Known, sock: socket.socket, place: Place, flags: int) -> int:
        """One datagram into its place, without waiting: its size, or a negative errno."""
        ask = flags & ~_TRUNCATED | _DONTWAIT
        try:
            data, control, told_flags, sender = sock.recvmsg(_LARGEST, _CONTROL if place.control_room else 0, ask)
        except OSError as error:
            return -(error.errno or errno.EIO)
        room = sum(size for _address, size in place.buffers)
        pieces = messages.scatter(data, place.buffers)
        if place.name:
            raw = self._sender(known, data, sender)
            pieces.append((place.name, raw[: place.name_room]))
            pieces.append((place.name_size_at, struct.pack("=I", len(raw))))
        if len(data) > room:
            told_flags |= _TRUNCATED
        if place.header:
            pieces += _header_pieces(place, control, told_flags, wide=call.wide)
        if not write(call.tid, pieces):
            return -errno.EFAULT
        return len(data) if flags & _TRUNCATED else min(len(data), room)

    def _sender(self, known: Known, data: bytes, sender: tuple[str, int]) -> bytes:
        """The sockaddr of whoever sent this, or of whom the gateway answers for."""
        address = Endpoint(ip_address(sender[0].partition("%")[0]), sender[1])
        server = None
        if address.is_loopback and address.port == self._router.settings.dns_port:
            server = known.server_of(int.from_bytes(data[:2], "big"))
        return sockaddr.encode(server or address, known.family)


def _header_pieces(place: Place, control: list[Control], flags: int, *, wide: bool) -> list[tuple[int, bytes]]:
    """What recvmsg changes in the header, and the control data."""
    packed, cut = messages.control(control, place.control_room, wide=wide) if place.control_room else (b"", False)
    size = struct.pack("=Q" if wide else "=I", len(packed))
    flags = flags & ~_DONTWAIT | (messages.CONTROL_TRUNCATED if cut else 0)
    pieces = [
        (place.header + messages.CONTROL_SIZE_AT[wide], size),
        (place.header + messages.FLAGS_AT[wide], struct.pack("=I", flags)),
    ]
    return [(place.control, packed), *pieces] if packed else pieces


def _place_of(header: Header, pointer: int, buffers: list[Buffer], *, wide: bool) -> Place:
    return Place(
        buffers,
        header.name,
        min(header.name_size, STORAGE),
        pointer + messages.NAME_SIZE_AT[wide],
        pointer,
        header.control,
        min(header.control_size, _CONTROL) if header.control else 0,
    )
