"""Unix and netlink sockets, and messages of streams, of a program whose threads share descriptors: spoken for as well.

Let go, each of these calls could be given another socket and another address in the moment in between (`sharing`). On
our duplicate and our copy there is no such moment. What the peer may notice: credentials that come with a message or a
connection name the tracer's process, with the program's user (unix(7)). What it cannot do as the program would, it
leaves to the kernel: PASS.
"""

import errno
import os
import socket
import struct
from typing import NamedTuple

from agentwrap.tracing.guard import messages, raw_calls, sockaddr
from agentwrap.tracing.guard.answers import Answering
from agentwrap.tracing.guard.calls import ANSWERED, PASS, Arguments, Call, fail, read, write
from agentwrap.tracing.guard.connecting import begin
from agentwrap.tracing.guard.sockaddr import AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, STORAGE
from agentwrap.tracing.guard.sockets import Sockets
from agentwrap.tracing.guard.waiting import Until, Waiting
from agentwrap.tracing.tracee import Memory, signed

_LARGEST = 1 << 20
_MAX_CONTROL = 4096
_MAX_MESSAGES = 1024
_PATH_BYTES = 108  # sizeof(sun_path)
_DONTWAIT, _NOSIGNAL, _ZEROCOPY = 0x40, 0x4000, 0x4000000
_SCM_RIGHTS, _SCM_CREDENTIALS = 1, 2
_LEFT_OUT = (1 << 12) | (1 << 13)  # capabilities that no program under the guard has


class CannotError(Exception):
    """Only the kernel can make this call as it is meant."""


class Message(NamedTuple):
    """A message as it is sent. `held`: descriptors of ours that go with it."""

    address: bytes | None
    payload: bytes
    control: bytes
    held: tuple[int, ...]


class Local:
    """`perform` answers a call that would be let go. `_sent`: what of a stream's message went out before a wait."""

    def __init__(self, memory: Memory, answers: Answering, sockets: Sockets, workers: Waiting) -> None:
        self._memory = memory
        self._answers = answers
        self._sockets = sockets
        self._workers = workers
        self._rights: tuple[bytes, ...] | None = None
        self._sent: dict[int, tuple[Arguments, int]] = {}
        self._calls = {
            "connect": self._connect, "sendto": self._sendto, "sendmsg": self._sendmsg, "sendmmsg": self._sendmmsg,
        }  # fmt: skip

    def perform(self, call: Call, arguments: Arguments) -> int:
        """PASS, ANSWERED, or an errno. Raises OSError as the call would fail."""
        if not self._sockets.takes(call.process.pid):
            return PASS
        sock = self._sockets.take(call.process.pid, call.tid, call.descriptor)
        if sock is None:
            return PASS
        with sock:
            if sock.family in (AF_INET, AF_INET6):
                if sock.type != socket.SOCK_STREAM or call.name not in ("sendmsg", "sendmmsg"):
                    return errno.EBADF  # another by now
            elif sock.family not in (AF_UNIX, AF_NETLINK):
                return PASS
            try:
                return self._calls[call.name](call, sock, arguments)
            except CannotError:
                return PASS

    def _connect(self, call: Call, sock: socket.socket, arguments: Arguments) -> int:
        address = self._address(call, sock, self._name(call, arguments[1], signed(arguments[2])))
        number = begin(sock, address)[0]
        if number == errno.EAGAIN and os.get_blocking(sock.fileno()):
            raise CannotError  # the queue of the other is full, and no call tells when it is not
        return self._done(call, -number)

    def _sendto(self, call: Call, sock: socket.socket, arguments: Arguments) -> int:
        address = self._address(call, sock, self._name(call, arguments[4], signed(arguments[5])))
        if arguments[2] > _LARGEST:
            raise CannotError
        payload = read(self._memory, call.tid, arguments[1], arguments[2])
        return self._send(call, sock, Message(address, payload, b"", ()), signed(arguments[3]), arguments)

    def _sendmsg(self, call: Call, sock: socket.socket, arguments: Arguments) -> int:
        message = self._message(call, sock, arguments[1])
        try:
            return self._send(call, sock, message, signed(arguments[2]), arguments)
        finally:
            _close(message.held)

    def _sendmmsg(self, call: Call, sock: socket.socket, arguments: Arguments) -> int:
        """As many as go without waiting, at least one."""
        step, length_at = messages.many_size(wide=call.wide), messages.header_size(wide=call.wide)
        flags, sent, outcome = signed(arguments[3]), 0, 0
        for i in range(min(arguments[2] & 0xFFFFFFFF, _MAX_MESSAGES)):
            at = arguments[1] + i * step
            try:
                message = self._message(call, sock, at)
            except CannotError:
                if not sent:
                    raise
                break
            outcome = self._try(sock, message, flags)
            _close(message.held)
            if outcome < 0 or not write(call.tid, [(at + length_at, struct.pack("=I", outcome))]):
                break
            sent += 1
        if outcome == -errno.EAGAIN and not sent and self._blocks(sock, flags):
            raise CannotError
        return self._done(call, sent or outcome, flags)

    def _name(self, call: Call, pointer: int, size: int) -> bytes:
        if not 0 <= size <= STORAGE:
            raise fail(errno.EINVAL)
        return read(self._memory, call.tid, pointer, size)

    def _message(self, call: Call, sock: socket.socket, pointer: int) -> Message:
        wide = call.wide
        header = messages.header(read(self._memory, call.tid, pointer, messages.header_size(wide=wide)), wide=wide)
        if header is None:
            raise fail(errno.EFAULT)
        address = None
        if header.name and header.name_size and sock.family in (AF_UNIX, AF_NETLINK):
            if signed(header.name_size) < 0:
                raise fail(errno.EINVAL)
            size = min(header.name_size, STORAGE)
            address = self._address(call, sock, read(self._memory, call.tid, header.name, size))
        if header.vector_count > messages.MAX_BUFFERS:
            raise fail(errno.EMSGSIZE)
        vector = read(self._memory, call.tid, header.vector, header.vector_count * messages.buffer_size(wide=wide))
        buffers = messages.buffers(vector, wide=wide)
        if sum(size for _at, size in buffers) > _LARGEST or header.control_size > _MAX_CONTROL:
            raise CannotError
        payload = b"".join(read(self._memory, call.tid, at, size) for at, size in buffers)
        control, held = b"", tuple[int, ...]()
        if header.control and header.control_size:
            raw = read(self._memory, call.tid, header.control, header.control_size)
            control, held = self._control(call, raw)
        return Message(address, payload, control, held)

    def _control(self, call: Call, raw: bytes) -> tuple[bytes, tuple[int, ...]]:
        """Control data with our own duplicates of the descriptors that it passes on."""
        given = messages.controls(raw, wide=call.wide)
        if given is None:
            raise fail(errno.EINVAL)
        out: list[messages.Control] = []
        held: list[int] = []
        try:
            for level, kind, data in given:
                if level == socket.SOL_SOCKET and kind == _SCM_CREDENTIALS:
                    raise CannotError
                if level == socket.SOL_SOCKET and kind == _SCM_RIGHTS:
                    numbers = struct.unpack(f"={len(data) // 4}i", data[: len(data) // 4 * 4])
                    ours = [raw_calls.take(call.process.pid, call.tid, number) for number in numbers]
                    held += ours
                    data = struct.pack(f"={len(ours)}i", *ours)  # noqa: PLW2901
                out.append((level, kind, data))
        except BaseException:
            _close(held)
            raise
        return messages.control(out, 2 * _MAX_CONTROL, wide=True)[0], tuple(held)

    def _address(self, call: Call, sock: socket.socket, raw: bytes) -> bytes:
        """The same place as we see it."""
        if not self._has_our_rights(call.tid):
            raise CannotError
        if sock.family != AF_UNIX or sockaddr.family_of(raw) != AF_UNIX:
            return raw
        path = raw[2:]
        if path[:1] in (b"", b"\0"):
            raise CannotError  # an abstract name may be closed to the program by Landlock, and is not to us
        path = path.partition(b"\0")[0]
        if path.startswith(b"/") and not call.process.foreign:
            return raw
        base = b"/proc/%d/root" if path.startswith(b"/") else b"/proc/%d/cwd/"
        path = base % call.tid + path
        if len(path) >= _PATH_BYTES:
            raise CannotError
        return raw[:2] + path + b"\0"

    def _has_our_rights(self, tid: int) -> bool:
        """Whether what we may do to a path or a service the program may do as well (credentials(7))."""
        if self._rights is None:
            self._rights = _rights("self")
        try:
            return _rights(str(tid)) == self._rights
        except OSError:
            return False

    def _try(self, sock: socket.socket, message: Message, flags: int) -> int:
        return raw_calls.message(
            sock.fileno(), message.payload, message.control, flags | _DONTWAIT | _NOSIGNAL, message.address
        )

    def _blocks(self, sock: socket.socket, flags: int) -> bool:
        return not flags & _DONTWAIT and os.get_blocking(sock.fileno())

    def _send(self, call: Call, sock: socket.socket, message: Message, flags: int, arguments: Arguments) -> int:
        if flags & _ZEROCOPY:
            raise CannotError
        before, sent = self._sent.pop(call.tid, ((), 0))
        sent = sent if before == arguments else 0
        outcome = self._more(sock, message, flags, sent)
        if not self._blocks(sock, flags) or (outcome != -errno.EAGAIN and not 0 <= outcome < len(message.payload)):
            return self._done(call, outcome, flags)
        # A blocking stream takes all of it, or waits. A datagram waits for the other's queue, which nothing tells of;
        # descriptors would have to wait with us.
        if outcome < 0 and not sent and (message.held or sock.type != socket.SOCK_STREAM):
            raise CannotError
        self._sent[call.tid] = arguments, max(outcome, sent)

        def done(ours: socket.socket, ended: int) -> int | None:
            already = self._sent[call.tid][1]
            if ended:
                self._sent.pop(call.tid, None)
                return already or -(errno.EAGAIN if ended == errno.ETIMEDOUT else abs(ended))
            outcome = self._more(ours, message._replace(held=()), flags, already)
            if outcome == -errno.EAGAIN or 0 <= outcome < len(message.payload):
                self._sent[call.tid] = arguments, max(outcome, already)
                return None
            self._sent.pop(call.tid, None)
            self._pipe(call, outcome, flags)
            return outcome

        self._workers.wait(self._answers, call, sock, Until.ROOM, done)
        return ANSWERED

    def _more(self, sock: socket.socket, message: Message, flags: int, sent: int) -> int:
        """Bytes sent in all, or a negative errno. Control data goes with the first of them."""
        rest = message if not sent else message._replace(payload=message.payload[sent:], control=b"")
        outcome = self._try(sock, rest, flags)
        return outcome + sent if outcome >= 0 else outcome if outcome == -errno.EAGAIN or not sent else sent

    def _pipe(self, call: Call, outcome: int, flags: int) -> None:
        if outcome == -errno.EPIPE and not flags & _NOSIGNAL:
            raw_calls.signal_broken_pipe(call.process.pid, call.tid)

    def _done(self, call: Call, outcome: int, flags: int = _NOSIGNAL) -> int:
        if outcome < 0:
            self._pipe(call, outcome, flags)
            return -outcome
        self._answers.value(call.request, outcome)
        return ANSWERED


def _close(descriptors: "tuple[int, ...] | list[int]") -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _rights(who: str) -> tuple[bytes, ...]:
    """User, groups and capabilities (proc(5), status)."""
    with open(f"/proc/{who}/status", "rb") as file:
        told = dict(line.split(b":", 1) for line in file if line.startswith((b"Uid", b"Gid", b"Groups", b"CapEff")))
    # The last of four ids is the one that counts for files.
    user, group, capabilities = (told[name].split()[-1] for name in (b"Uid", b"Gid", b"CapEff"))
    return user, group, told[b"Groups"].strip(), b"%x" % (int(capabilities, 16) & ~_LEFT_OUT)
