"""The guard: internet sockets of the run are made, connected and spoken for by the tracer.

Where no namespace can be had, the tracee stands in the same network as everybody. So whatever names an internet address
is performed here, on our own copy of the arguments, and leads to the gateway; what a name leads to is decided there.

Underneath lies what holds even where a call has to be continued because of its other uses (connect of a unix socket
must show the peer the tracee's credentials): each socket is bound to the loopback device. A thread that puts such a
socket under a call that was judged as something else gets a connection that cannot leave the machine.
"""

import errno
import os
import socket
from collections.abc import Callable

from agentwrap.events import Sink
from agentwrap.launching.seccomp import ARCH_X86_64
from agentwrap.tracing.guard import raw_calls, sockaddr
from agentwrap.tracing.guard.answers import Answering, Answers
from agentwrap.tracing.guard.calls import ANSWERED, PASS, Arguments, Call, UnavailableError, read, write
from agentwrap.tracing.guard.connecting import Connecting
from agentwrap.tracing.guard.datagrams import Datagrams
from agentwrap.tracing.guard.listeners import SYN_SENT, Owners
from agentwrap.tracing.guard.local import Local
from agentwrap.tracing.guard.nowhere import Nowhere
from agentwrap.tracing.guard.receiving import Receiving
from agentwrap.tracing.guard.route import GuardSettings, Router, is_own
from agentwrap.tracing.guard.sharing import RACY, Sharing
from agentwrap.tracing.guard.sockaddr import AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, STORAGE, Endpoint
from agentwrap.tracing.guard.sockets import DATAGRAM, MAX_KEPT, STREAM, Sockets, inode_of
from agentwrap.tracing.guard.stopped import Stopped
from agentwrap.tracing.guard.told import Told
from agentwrap.tracing.guard.waiting import Waiting, Workers
from agentwrap.tracing.processes import Process
from agentwrap.tracing.syscalls import watched
from agentwrap.tracing.tracee import Memory, refused, signed

_KIND, _NON_BLOCKING, _CLOSE_ON_EXEC = 0xF, 0o4000, 0o2000000
_MPTCP = 262
_FIRST_PLAIN_PORT = 1024  # below, the program's own rights count (ip(7), ip_unprivileged_port_start)
_PROTOCOLS: dict[int, tuple[int, int]] = {STREAM: (0, socket.IPPROTO_TCP), DATAGRAM: (0, socket.IPPROTO_UDP)}
# linux/net.h: call number of socketcall(2) to name and number of its 32-bit arguments
_SOCKETCALLS = {1: ("socket", 3), 2: ("bind", 3), 3: ("connect", 3), 4: ("listen", 2), 7: ("getpeername", 3)}
_SOCKETCALLS |= {11: ("sendto", 6), 12: ("recvfrom", 6), 16: ("sendmsg", 3), 17: ("recvmsg", 3)}
_SOCKETCALLS |= {19: ("recvmmsg", 5), 20: ("sendmmsg", 4)}
Handler = Callable[[Call, Arguments], int]


class Guard:
    """Performs calls for the notify thread, or at ptrace's stops for that one, which alone calls `handle`."""

    def __init__(
        self,
        memory: Memory,
        listener: int,
        sink: Sink,
        now: Callable[[], int],
        settings: GuardSettings,
        *,
        stopped: Stopped | None = None,
        taking: bool | None = None,
        limit: int = MAX_KEPT,
    ) -> None:
        """`listener`: its descriptor; `stopped`: in its place. `request` of a call is then nobody's business.

        `taking`: whether pidfd_getfd is used; None: if it works. `limit`: of duplicates kept where it does not.
        """
        self._memory = memory
        self._listening = Answers(listener)
        self._stopped = stopped
        self._answers: Answering = stopped or self._listening
        self.asked: tuple[str, Arguments] = ("", ())
        self._settings = settings
        self._told = Told(sink, now)
        self._owners = Owners(settings.in_tree)
        self._sockets = Sockets(self._owners, taking=taking, limit=limit)
        self._router = Router(settings, self._sockets, self._owners)
        self._sharing = Sharing(self._told, self._sockets, landlock=settings.landlock)
        workers: Waiting = stopped or Workers()
        self._nowhere = Nowhere(self._told)
        connecting = Connecting(
            memory, self._answers, self._sockets, self._router, self._told, workers, self._nowhere
        )  # fmt: skip
        datagrams = Datagrams(
            memory, self._answers, self._sockets, self._router, self._told, workers, connecting
        )  # fmt: skip
        self._local = Local(memory, self._answers, self._sockets, workers)
        receiving = Receiving(memory, self._answers, self._sockets, self._router, workers)
        self._lets_out = _device_can_be_changed()
        self._told_unseen = False
        handlers: dict[str, Handler] = {
            "clone": self._clone,
            "socket": self._socket,
            "connect": connecting.connect,
            "bind": self._bind,
            "listen": self._listen,
            "getpeername": self._getpeername,
            "sendto": datagrams.sendto,
            "sendmsg": datagrams.sendmsg,
            "sendmmsg": datagrams.sendmmsg,
            "recvfrom": receiving.recvfrom,
            "recvmsg": receiving.recvmsg,
            "recvmmsg": receiving.recvmmsg,
            "recvmmsg_time64": receiving.recvmmsg,
        }
        self._handlers = handlers
        self._table = {
            key: (name, self._socketcall if name == "socketcall" else handlers[name], key[0] == ARCH_X86_64)
            for key, name in watched.names().items()
            if name in handlers or name == "socketcall"
        }

    def handle(
        self, process: Process | None, tid: int, request: int, arch: int, number: int, arguments: Arguments
    ) -> int:
        """PASS (0): none of ours, it may go on. ANSWERED (-1): it is or will be. Else an errno to refuse it with.

        Never raises, and what it cannot do it refuses.
        """
        self.asked = ("", ())
        entry = self._table.get((arch, number))
        if entry is None:
            return PASS
        name, handler, wide = entry
        call = Call(process or Process(tid, "", None), tid, request, wide, name, signed(arguments[0]))
        outcome = self._outcome(handler, call, arguments)
        if self._router.unseen and not self._told_unseen:
            # Kernels without tcp_diag, or that may not load it (modules_disabled).
            self._told_unseen = True
            could_hide = "nothing: servers of the run itself on loopback are judged as if they were others'"
            self._told.gap(call.process, "connect", "own-servers-unknown", could_hide, self._router.unseen)
        if self._stopped is not None and outcome != ANSWERED:
            self._stopped.over(request)
        return outcome

    def _outcome(self, handler: Handler, call: Call, arguments: Arguments) -> int:
        name = call.name
        try:
            return self._performed(handler, call, arguments)
        except OSError as error:
            unreadable = refused(error, call.tid) and not isinstance(error, UnavailableError)
            if unreadable and call.process.once("guard unreadable"):
                self._told.gap(
                    call.process,
                    "connect",
                    "not-dumpable",
                    "nothing: its calls about sockets are refused",
                    f"{name}: {error}",
                )
            return error.errno or errno.EFAULT
        except Exception as error:
            if call.process.once("guard fault " + name):
                self._told.gap(
                    call.process, "connect", "internal-fault", "nothing: the call was refused", f"{name}: {error!r}"
                )
            return errno.EPERM

    def shares(self, process: Process) -> bool:
        """Whether another thread, or who else shares its descriptors, could change those of a standing one."""
        return self._sharing.shares(process)

    def group(self, process: Process) -> int:
        """The same number for all who may share descriptors with each other."""
        return self._sharing.group(process)

    def _performed(self, handler: Handler, call: Call, arguments: Arguments, *, in_memory: bool = False) -> int:
        outcome = handler(call, arguments)
        if outcome == PASS and (call.name in RACY or (in_memory and call.name == "socket")):
            if call.name in RACY and (in_memory or self._sharing.shares(call.process)):
                outcome = self._local.perform(call, arguments)
            if outcome == PASS:
                self._sharing.let_go(call.process, call.name, in_memory=in_memory)
        self._sharing.settle()
        return outcome

    def _clone(self, call: Call, arguments: Arguments) -> int:
        self._sharing.cloned(call.process, arguments[0])
        return PASS

    def settle(self, *, everything: bool = False) -> None:
        """Tell the counts of refusals that are due; `everything` at the end. From any thread."""
        if everything:
            self._nowhere.settle()
        self._told.settle(everything=everything)

    def close(self) -> None:
        """The run is over: close all sockets that are still held."""
        self._sockets.close()
        self._router.close()

    def _socketcall(self, call: Call, arguments: Arguments) -> int:
        """socketcall(2) of i386: the arguments are copied once, and what is performed is performed with the copy."""
        found = _SOCKETCALLS.get(arguments[0] & 0xFFFFFFFF)
        if found is None:
            return PASS
        name, count = found
        raw = read(self._memory, call.tid, arguments[1], 4 * count)
        words = tuple(int.from_bytes(raw[i : i + 4], "little") for i in range(0, len(raw), 4))
        self.asked = name, words
        asked = call._replace(name=name, wide=False, descriptor=signed(words[0]))
        in_memory = self._stopped is None  # at a stop they are put into registers
        return self._performed(self._handlers[name], asked, words, in_memory=in_memory)

    def _socket(self, call: Call, arguments: Arguments) -> int:
        family, word, protocol = (signed(argument) for argument in arguments[:3])
        if family in (AF_UNIX, AF_NETLINK):
            return PASS
        kind = word & _KIND
        protocols = _PROTOCOLS.get(kind)
        if family not in (AF_INET, AF_INET6):
            number = errno.EAFNOSUPPORT
        elif word & ~(_KIND | _NON_BLOCKING | _CLOSE_ON_EXEC):
            return errno.EINVAL
        elif protocols is None:
            number = errno.EPERM
        elif protocol in protocols:
            return self._make(call, family, word, protocol)
        else:
            number = errno.EPROTONOSUPPORT
        if protocol != _MPTCP:  # tried first by Go and others, which then do without
            self._told.socket(call.process, sockaddr.socket_words(family, kind, protocol), number)
        return number

    def _make(self, call: Call, family: int, word: int, protocol: int) -> int:
        kind = word & _KIND
        if self._stopped is not None:
            made = lambda result: self._made(call, kind, family, result)  # noqa: E731
            self._stopped.instead("socket", (family, word, protocol), made)
            return ANSWERED
        with socket.socket(family, kind | word & _NON_BLOCKING, protocol) as sock:
            self._hold_back(call, sock, kind)
            known = self._sockets.add(sock, kind, family, call.process.pid)
            if not self._listening.descriptor(call.request, sock.fileno(), close_on_exec=bool(word & _CLOSE_ON_EXEC)):
                self._sockets.drop(known)
        return ANSWERED

    def _made(self, call: Call, kind: int, family: int, result: int | None) -> int | None:
        """The program has made it: ours from here on, before it hears of it."""
        if result is None or result < 0:
            return result
        sock = self._sockets.take(call.process.pid, call.tid, result)
        if sock is None:
            self._told.unknown(call.process, call.name, "made by itself")
            return -errno.EPERM
        with sock:
            if os.fstat(sock.fileno()).st_ino == inode_of(call.tid, result) and sock.family == family:
                self._hold_back(call, sock, kind)
                self._sockets.add(sock, kind, family, call.process.pid)
        return result

    def _hold_back(self, call: Call, sock: socket.socket, kind: int) -> None:
        if kind == STREAM and self._settings.landlock and not self._lets_out:
            return  # Landlock holds it, and a server of the run could not be let out again
        if not raw_calls.keep_to_loopback(sock) and call.process.once("guard device"):
            self._told.gap(
                call.process, "connect", "no-device-binding",
                "a connection that a thread slips under a call judged as another, in the moment in between",
                "SO_BINDTODEVICE was refused (before Linux 5.7 it needs CAP_NET_RAW)",
            )  # fmt: skip

    def _bind(self, call: Call, arguments: Arguments) -> int:
        descriptor = signed(arguments[0])
        known = self._sockets.get(inode_of(call.tid, descriptor))
        if known is None:
            return PASS
        size = min(max(signed(arguments[2]), 0), STORAGE)
        address = sockaddr.decode(read(self._memory, call.tid, arguments[1], size))
        if address is None:
            return PASS
        if address.port:
            self._nowhere.free(address.port)
            self._sockets.make_room_for(address.port)
        if address.is_loopback or 0 < address.port < _FIRST_PLAIN_PORT or not is_own(address.plain):
            return PASS
        with self._sockets.hold(known, call.process.pid, call.tid, descriptor) as sock:
            if sock is None or not raw_calls.is_kept_to_loopback(sock):
                return PASS
            # What comes back to a network card's own address is not for a socket on the loopback device (inet_iif in
            # include/net/ip.h): with no address it hears the same, by way of loopback.
            number = raw_calls.bind(
                sock.fileno(), sockaddr.encode(Endpoint(sockaddr.ANY[known.family], address.port), known.family)
            )
        if not number:
            self._answers.outcome(call.request, 0)
        return number or ANSWERED

    def _listen(self, call: Call, arguments: Arguments) -> int:
        """A server may be reached from elsewhere; it calls nobody. A connect on it later is refused and told."""
        descriptor = signed(arguments[0])
        known = self._sockets.get(inode_of(call.tid, descriptor))
        if known is not None and known.kind == STREAM:
            with self._sockets.hold(known, call.process.pid, call.tid, descriptor) as sock:
                inward = sock is not None and not raw_calls.is_on_loopback(sock) and not raw_calls.let_out(sock)
                if inward and call.process.once("guard inbound"):
                    self._told.gap(
                        call.process, "bind", "loopback-only", "nothing: connections from other machines do not arrive",
                        "SO_BINDTODEVICE cannot be undone without CAP_NET_RAW",
                    )  # fmt: skip
            self._sockets.drop(known)
        return PASS

    def _getpeername(self, call: Call, arguments: Arguments) -> int:
        known = self._sockets.get(inode_of(call.tid, signed(arguments[0])))
        if known is None or known.peer is None or known.connecting:
            return PASS
        if known.kind == STREAM:
            state = self._router.listeners.state(known.family, known.port, known.inode)
            if state is None or state == SYN_SENT:
                return errno.ENOTCONN
        size = int.from_bytes(read(self._memory, call.tid, arguments[2], 4), "little", signed=True)
        if size < 0:
            return errno.EINVAL
        raw = sockaddr.encode(known.peer, known.family)
        pieces = [(arguments[1], raw[:size]), (arguments[2], len(raw).to_bytes(4, "little"))]
        if not write(call.tid, [piece for piece in pieces if piece[1]]):
            return errno.EFAULT
        self._answers.outcome(call.request, 0)
        return ANSWERED


def _device_can_be_changed() -> bool:
    """Whether a socket that was bound to a device can be released again (CAP_NET_RAW)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        return raw_calls.keep_to_loopback(sock) and raw_calls.let_out(sock)
