"""System calls about sockets, as a witness: what was asked for, read once, before the kernel answers."""

import ctypes
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentwrap.events import CoverageKind, DnsServer, NetBind, NetConnect, NetListen, NetSend, Sink, Transport
from agentwrap.tracing.announcer import Announcer
from agentwrap.tracing.blindspots import BlindSpots
from agentwrap.tracing.files.settings import Who
from agentwrap.tracing.files.tracker import FileTracker
from agentwrap.tracing.gaps import gap_of
from agentwrap.tracing.processes import Process, Tried
from agentwrap.tracing.syscalls import addresses
from agentwrap.tracing.syscalls.addresses import DNS_PORT, SOCKADDR_MAX, Address
from agentwrap.tracing.tracee import AT_FDCWD, Memory, locate, signed

if TYPE_CHECKING:
    from agentwrap.tracing.judged_sockets import SocketQuestions

Arguments = tuple[int, ...]
_libc = ctypes.CDLL(None, use_errno=True)
_QUERY_BYTES = 512
_TRANSPORTS: dict[int, Transport] = {
    socket.SOCK_STREAM: "tcp",
    socket.SOCK_DGRAM: "udp",
    socket.SOCK_SEQPACKET: "seqpacket",
    socket.SOCK_RAW: "raw",
}
_LOCAL_TRANSPORTS: dict[int, Transport] = {
    socket.SOCK_STREAM: "stream",
    socket.SOCK_DGRAM: "datagram",
    socket.SOCK_SEQPACKET: "seqpacket",
}
# linux/net.h: call number of socketcall(2) to name and number of its 32-bit arguments
_SOCKETCALLS = {2: ("bind", 3), 3: ("connect", 3), 4: ("listen", 2), 11: ("sendto", 6), 16: ("sendmsg", 3)}
_SOCKETCALLS |= {20: ("sendmmsg", 4)}
_SOCKETCALLS[20] = ("sendmmsg", 4)
_SOCKETCALLS |= {1: ("socket", 3), 8: ("socketpair", 4)}


def _pidfd_getfd(pid: int, descriptor: int) -> int:
    """A duplicate of another process's descriptor (pidfd_getfd(2)). Raises OSError."""
    handle = os.pidfd_open(pid)
    try:
        result = int(_libc.syscall(438, handle, descriptor, 0))
    finally:
        os.close(handle)
    if result < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return result


class NetworkCalls:
    """Handlers by call name, for both ABIs; `wide` says which layout the caller's structs have."""

    def __init__(
        self,
        memory: Memory,
        files: FileTracker,
        sink: Sink,
        now: Callable[[], int],
        blind: BlindSpots,
        announce: Announcer | None = None,
        questions: "SocketQuestions | None" = None,
    ) -> None:
        self._memory = memory
        self._files = files
        self._sink = sink
        self._now = now
        self._blind = blind
        self._announce = announce
        self._questions = questions
        self._can_duplicate = True
        # The guard tells of internet addresses itself, from the one copy that it acts on.
        self.guarded = False
        self.served: Callable[[Process, int, str, int], int] | None = None
        """Asked about connections to internet addresses: from process, thread, host and port an errno, or 0."""
        self.handlers: dict[str, Callable[[Process, int, Arguments, bool], int]] = {
            "connect": self._connect,
            "bind": self._bind,
            "listen": self._listen,
            "sendto": self._sendto,
            "sendmsg": self._sendmsg,
            "sendmmsg": self._sendmmsg,
            "socketcall": self._socketcall,
            "socket": self._socket("socket"),
            "socketpair": self._socket("socketpair"),
        }

    def _socket(self, call: str) -> Callable[[Process, int, Arguments, bool], int]:
        def handle(process: Process, _tid: int, arguments: Arguments, _wide: bool) -> int:
            return 0 if self._questions is None else self._questions.making(process, arguments[0], arguments[1], call)

        return handle

    def _asked(self, process: Process, tid: int, address: Address, call: str) -> int:
        """What the policy says to a unix socket being used."""
        if self._questions is None or address.family != "unix":
            return 0
        return self._questions.connecting(process, tid, address, call)

    def _is_guarded(self, address: Address) -> bool:
        return self.guarded and address.family in ("inet", "inet6")

    def _address(self, tid: int, pointer: int, size: int) -> Address | None:
        size = min(size & 0xFFFFFFFF, SOCKADDR_MAX)
        return addresses.decode(self._memory.read(tid, pointer, size)) if pointer and size >= 2 else None

    def _absolute(self, process: Process, tid: int, path: bytes) -> bytes:
        """A unix socket's path as the process means it (unix(7): relative ones are looked up like any other)."""
        if not path or path.startswith((b"/", b"@")):
            return path
        try:
            return locate(tid, AT_FDCWD, path, foreign=process.foreign).path
        except OSError:
            return path

    def _transport(self, process: Process, descriptor: int, family: str) -> Transport:
        """The kind of the socket, from a duplicate of it; `unknown` where duplicates are refused (Docker's profile)."""
        if not self._can_duplicate:
            return "unknown"
        try:
            duplicate = _pidfd_getfd(process.pid, descriptor)
        except PermissionError:
            self._can_duplicate = False
            return "unknown"
        except OSError:
            return "unknown"
        with socket.socket(fileno=duplicate) as sock:
            try:
                kind = sock.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
            except OSError:
                return "unknown"
        return (_LOCAL_TRANSPORTS if family == "unix" else _TRANSPORTS).get(kind, "unknown")

    def _connect(self, process: Process, tid: int, arguments: Arguments, _wide: bool) -> int:
        address = self._address(tid, arguments[1], arguments[2])
        if address is None or address.family == "netlink" or self._is_guarded(address):
            return 0
        if self.served is not None and address.host:
            refused = self.served(process, tid, address.host.decode("ascii", "replace"), address.port)
            if refused:
                return refused
        descriptor = signed(arguments[0])
        transport = self._transport(process, descriptor, address.family)
        if self._announce is not None and address.host:
            self._announce(process, tid, descriptor, address, transport)
        at_ns = self._now()
        process.dns_descriptors.pop(descriptor, None)
        if address.port == DNS_PORT and address.family in ("inet", "inet6"):
            process.dns_descriptors[descriptor] = (address.host, address.port)
            self._sink(
                DnsServer(
                    at_ns=at_ns,
                    span=process.span,
                    pid=process.pid,
                    host=address.host,
                    port=address.port,
                    transport="tcp" if transport == "tcp" else "udp",
                )
            )
            return 0
        if refused := self._asked(process, tid, address, "connect"):
            return refused
        path = self._absolute(process, tid, address.path)
        if address.family == "unix":
            self._blind.connecting(process, address, path)
        tried = (address.family, transport, address.host, address.port, path)
        if count := process.connects.due(tried, at_ns):
            self._sink(_connect_event(at_ns, process, tried, count))
        return 0

    def _bind(self, process: Process, tid: int, arguments: Arguments, _wide: bool) -> int:
        address = self._address(tid, arguments[1], arguments[2])
        if address is not None and address.family != "netlink":
            path = self._absolute(process, tid, address.path)
            if self._questions is not None and (refused := self._questions.binding(process, tid, address)):
                return refused
            self._blind.bound(address._replace(path=path))
            self._sink(
                NetBind(
                    at_ns=self._now(),
                    span=process.span,
                    pid=process.pid,
                    family=address.family,
                    transport=self._transport(process, signed(arguments[0]), address.family),
                    host=address.host,
                    port=address.port,
                    path=path,
                )
            )
            if address.family == "unix" and path[:1] not in (b"", b"@"):
                self._socket_file(process, tid, address.path)
        return 0

    def _socket_file(self, process: Process, tid: int, path: bytes) -> None:
        """A bound unix socket is a node in the file system (unix(7))."""
        try:
            place = locate(tid, AT_FDCWD, path, foreign=process.foreign)
        except OSError:
            return  # no such folder: the bind fails
        self._files.making_node(Who(tid, process.pid, process.span), place, 0o140000)

    def _listen(self, process: Process, tid: int, arguments: Arguments, _wide: bool) -> int:
        address = Address("other")
        try:
            with socket.socket(fileno=_pidfd_getfd(process.pid, signed(arguments[0]))) as sock:
                address = _local_address(sock)
        except OSError:
            pass  # no duplicate to be had (Docker's profile): the bind before it has told the address
        self._sink(
            NetListen(
                at_ns=self._now(),
                span=process.span,
                pid=process.pid,
                family=address.family,
                host=address.host,
                port=address.port,
                path=self._absolute(process, tid, address.path),
            )
        )
        return 0

    def _sendto(self, process: Process, tid: int, arguments: Arguments, _wide: bool) -> int:
        address = self._address(tid, arguments[4], arguments[5])
        if refused := self._flagged(process, address, arguments[3], "sendto"):
            return refused
        if address is None:
            return 0
        return self._sent(process, tid, signed(arguments[0]), address, arguments[1], arguments[2])

    def _flagged(self, process: Process, address: Address | None, flags: int, call: str) -> int:
        return 0 if self._questions is None else self._questions.sending(process, address, flags, call)

    def _sendmsg(self, process: Process, tid: int, arguments: Arguments, wide: bool) -> int:
        if refused := self._flagged(process, None, arguments[2], "sendmsg"):
            return refused
        return self._message(process, tid, signed(arguments[0]), arguments[1], wide)

    def _sendmmsg(self, process: Process, tid: int, arguments: Arguments, wide: bool) -> int:
        # struct mmsghdr: a msghdr and its length (sendmmsg(2)), 64 or 32 bytes
        size = 64 if wide else 32
        count = min(arguments[2] & 0xFFFFFFFF, 1024)
        if refused := self._flagged(process, None, arguments[3], "sendmmsg"):
            return refused
        for i in range(count):
            if refused := self._message(process, tid, signed(arguments[0]), arguments[1] + i * size, wide):
                return refused
        return 0

    def _message(self, process: Process, tid: int, descriptor: int, pointer: int, wide: bool) -> int:
        header = addresses.message_header(self._memory.read(tid, pointer, 32), wide=wide)
        if header is None:
            return 0
        known = process.dns_descriptors.get(descriptor)
        if not header.name and known is None:
            return 0
        buffer = addresses.first_buffer(self._memory.read(tid, header.vector, 16), wide=wide) or (0, 0)
        if header.name:
            address = self._address(tid, header.name, header.name_size)
            return self._sent(process, tid, descriptor, address, *buffer) if address is not None else 0
        if known is not None:
            self._question(process, tid, known, *buffer)
        return 0

    def _question(self, process: Process, tid: int, server: tuple[bytes, int], pointer: int, size: int) -> None:
        name = addresses.dns_question(self._memory.read(tid, pointer, min(size, _QUERY_BYTES)))
        if name is not None and process.once("dns " + name.hex()):
            self._sink(
                DnsServer(
                    at_ns=self._now(), span=process.span, pid=process.pid, host=server[0], port=server[1], names=(name,)
                )
            )

    def _sent(self, process: Process, tid: int, descriptor: int, address: Address, pointer: int, size: int) -> int:
        """A datagram with an address: told the first time, counted after that (`ended` tells the count)."""
        if self._is_guarded(address):
            return 0
        if address.port == DNS_PORT and address.family in ("inet", "inet6"):
            self._question(process, tid, (address.host, address.port), pointer, size)
        if address.family == "netlink":
            return 0
        if refused := self._asked(process, tid, address, "sendto"):
            return refused
        if self._announce is not None and address.host:
            self._announce(process, tid, descriptor, address, "udp")
        seen = process.sends.get(address, 0)
        process.sends[address] = seen + 1
        if seen == 0:
            transport = self._transport(process, descriptor, address.family)
            if address.family == "unix":
                self._blind.connecting(process, address, self._absolute(process, tid, address.path))
            self._sink(_send_event(self._now(), process, address, 1, transport))
        return 0

    def ended(self, process: Process) -> None:
        """The process is gone: tell what was counted and not told, datagrams and connects."""
        for address, count in process.sends.items():
            if count > 1:
                self._sink(_send_event(self._now(), process, address, count - 1))
        process.sends.clear()
        for tried, count in process.connects.rest():
            self._sink(_connect_event(self._now(), process, tried, count))

    def _socketcall(self, process: Process, tid: int, arguments: Arguments, _wide: bool) -> int:
        call = _SOCKETCALLS.get(arguments[0])
        if call is None:
            return 0
        name, count = call
        raw = self._memory.read(tid, arguments[1], 4 * count)
        values = tuple(int.from_bytes(raw[i : i + 4], "little") for i in range(0, len(raw), 4))
        if len(values) < count:
            return 0
        return self.handlers[name](process, tid, values, False)

    def refused(self, process: Process, call: str, error: OSError) -> None:
        """The kernel would not let us read the address: a gap, once a process."""
        if process.once("net-unreadable"):
            what: CoverageKind = "bind" if call in ("bind", "listen") else "connect"
            could_hide = "where this process connects or sends to"
            self._sink(gap_of(process, self._now(), what, "not-dumpable", could_hide, f"{call}: {error.strerror}"))


def _local_address(sock: socket.socket) -> Address:
    name = sock.getsockname()
    if sock.family == socket.AF_INET:
        return Address("inet", name[0].encode(), name[1])
    if sock.family == socket.AF_INET6:
        return Address("inet6", name[0].encode(), name[1])
    if sock.family == socket.AF_UNIX:
        raw = name if isinstance(name, bytes) else os.fsencode(name)
        return Address("unix", path=b"@" + raw[1:] if raw[:1] == b"\0" else raw)
    return Address("other")


def _connect_event(at_ns: int, process: Process, tried: Tried, count: int) -> NetConnect:
    family, transport, host, port, path = tried
    return NetConnect(
        at_ns=at_ns,
        span=process.span,
        pid=process.pid,
        family=family,
        transport=transport,
        host=host,
        port=port,
        path=path,
        count=count,
    )


def _send_event(
    at_ns: int, process: Process, address: Address, count: int, transport: Transport = "unknown"
) -> NetSend:
    return NetSend(
        at_ns=at_ns,
        span=process.span,
        pid=process.pid,
        family=address.family,
        transport=transport if transport != "unknown" else "datagram" if address.family == "unix" else "udp",
        host=address.host,
        port=address.port,
        path=address.path,
        count=count,
    )
