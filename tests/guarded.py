"""Runs a command under the guard alone, with a small gateway of its own, and writes down what was told and asked.

    python tests/guarded.py [--kept] [--stops trace|calls] [--limit N] [--dead] --out FILE -- COMMAND...

The gateway answers by the port that the program meant: 22 speaks first, 7 echoes until the end of input and says `bye`,
666 is forbidden (a reset, and counted), anything else answers one HTTP request with the address that was meant. It
answers every name with 203.0.113.7. The exit status is the command's. It must run in a network of its own. With
`--stops` the calls are performed at ptrace's stops, of a filter or of every call, by the tracer's own loop.
"""

import argparse
import collections
import fcntl
import ipaddress
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

from agentwrap.gateway.callers import Caller, CallerTable, decode
from agentwrap.launching.child import ChildPlan, Launched, launch
from agentwrap.launching.seccomp import RET_ALLOW, RET_TRACE, RET_USER_NOTIF, assemble
from agentwrap.tracing import ptrace
from agentwrap.tracing.guard import ANSWERED, Guard, GuardSettings
from agentwrap.tracing.guard.performer import Performer
from agentwrap.tracing.guard.stopped import Stopped
from agentwrap.tracing.loop import PtraceLoop
from agentwrap.tracing.notify import Listener
from agentwrap.tracing.processes import Process, ProcessTree
from agentwrap.tracing.syscalls import watched
from agentwrap.tracing.tracee import Memory

FORBIDDEN = 666
OWN_ADDRESS = "192.0.2.77"
ANSWER = ipaddress.IPv4Address("203.0.113.7")


def loopback_up() -> None:
    """And give the machine an address that is not a loopback one, if we may."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            # struct ifreq, SIOCSIFFLAGS, IFF_UP | IFF_RUNNING (netdevice(7))
            fcntl.ioctl(sock, 0x8914, struct.pack("16sH14x", b"lo", 0x41))
            # SIOCSIFADDR
            address = struct.pack("=H2x4s8x", socket.AF_INET, socket.inet_aton(OWN_ADDRESS))
            fcntl.ioctl(sock, 0x8916, struct.pack("16s16s8x", b"lo:1", address))
        except OSError:
            pass  # it is up already, and not ours to change


class Gateway:
    """A thread for each connection: it is small, not fast."""

    def __init__(self) -> None:
        self.six = True
        try:
            self.tcp = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=4096)
        except OSError:
            self.six = False
            self.tcp = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.dns = socket.socket(self.tcp.family, socket.SOCK_DGRAM)
        if self.six:
            self.dns.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.dns.bind(("::" if self.six else "127.0.0.1", 0))
        self.theirs, self.callers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.table = CallerTable()
        self.lock = threading.Lock()
        self.seen: collections.Counter[str] = collections.Counter()
        self.callers_seen: list[Caller] = []

    def start(self) -> None:
        for target in (self._accept, self._answer, self._take):
            threading.Thread(target=target, daemon=True).start()

    def _take(self) -> None:
        """Take what the tracer says while nothing connects, so that it never waits for us: not every call does."""
        while self.callers.recv(1, socket.MSG_PEEK):
            self._drain()

    def _drain(self) -> None:
        with self.lock:
            while True:
                try:
                    caller = decode(self.callers.recv(65_536, socket.MSG_DONTWAIT))
                except BlockingIOError:
                    return
                self.table.add(caller)
                self.callers_seen.append(caller)

    def _who(self, port: int, transport: str) -> Caller | None:
        self._drain()
        with self.lock:
            caller = self.table.by_port(port)
            word = f"{caller.transport} {caller.host} {caller.port}" if caller else f"{transport} nobody"
            self.seen[word] += 1
            return caller

    def _accept(self) -> None:
        while True:
            connection, address = self.tcp.accept()
            threading.Thread(target=self._serve, args=(connection, address[1]), daemon=True).start()

    def _serve(self, connection: socket.socket, port: int) -> None:
        with connection:
            caller = self._who(port, "tcp")
            try:
                self._talk(connection, caller)
            except OSError:
                pass  # the program went away

    def _talk(self, connection: socket.socket, caller: Caller | None) -> None:
        if caller is None or caller.port == FORBIDDEN:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        if caller.port == 22:
            connection.sendall(b"SSH-2.0-fake\r\n")
        if caller.port in (7, 22):
            while data := connection.recv(65_536):
                connection.sendall(data)
            connection.sendall(b"bye")
            return
        head = b""
        while b"\r\n\r\n" not in head:
            data = connection.recv(65_536)
            if not data:
                return
            head += data
        body = f"{caller.host} {caller.port}\n".encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    def _answer(self) -> None:
        while True:
            query, address = self.dns.recvfrom(65_536)
            self._who(address[1], "udp")
            if len(query) < 17:
                continue  # no question, no answer
            at = query.index(b"\0", 12) + 5
            kind = query[at - 3]
            answer = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + ANSWER.packed if kind == 1 else b""
            counts = struct.pack("!4H", 1, kind == 1, 0, 0)
            self.dns.sendto(query[:2] + b"\x81\x80" + counts + query[12:at] + answer, address)


class Bystander:
    """A service of the machine's own that no rule allows, by both transports on one port.

    The port lies below those that the kernel hands out: what has been handed out for one transport may be taken for the
    other.
    """

    port = 20_009

    def __init__(self) -> None:
        self.tcp = socket.create_server(("127.0.0.1", self.port), backlog=4096)
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", self.port))

    def passed(self) -> int:
        """How many connections and datagrams came."""
        count = 0
        for sock, take in ((self.tcp, self.tcp.accept), (self.udp, lambda: self.udp.recv(10))):
            sock.setblocking(False)
            while True:
                try:
                    take()
                except BlockingIOError:
                    break
                count += 1
        return count


class Tree:
    """Who is a process of the command, as /proc tells."""

    def __init__(self, root: int) -> None:
        self.root = root
        self.processes: dict[int, Process] = {}

    def find(self, tid: int) -> Process:
        found = self.processes.get(tid)
        if found is None:
            pid = _field(tid, b"Tgid")
            found = self.processes.get(pid) or Process(pid, f"p{len(self.processes) + 1}", None)
            self.processes[tid] = self.processes[pid] = found
        return found

    def has(self, pid: int) -> bool:
        while pid > 1:
            if pid == self.root:
                return True
            pid = _field(pid, b"PPid")
        return False


def _field(tid: int, name: bytes) -> int:
    try:
        with open(f"/proc/{tid}/status", "rb") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(name))
    except (OSError, StopIteration):
        return 0


def _plan(argv: list[str], stops: str) -> ChildPlan:
    abis = watched.abis(guard=True)
    program = assemble(abis, RET_USER_NOTIF)
    path = next(
        path for folder in ("", *os.environ["PATH"].split(":")) if os.access(path := os.path.join(folder, argv[0]), 1)
    )
    return ChildPlan(
        path=path.encode(),
        argv=tuple(os.fsencode(word) for word in argv),
        environment=dict(os.environb),
        cwd=None,
        inherit=tuple(int(word) for word in os.environ.get("GUARDED_INHERIT", "").split()),
        ignored=frozenset(),
        blocked=frozenset(),
        notify_program=program,
        alone_program=program,
        trace_program=assemble(abis, RET_TRACE),
        allow_program=assemble(abis, RET_ALLOW),
        follow="calls" if stops == "calls" else "trace" if stops else "notify",
        without=(12, 13),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _row(event: Any) -> dict[str, Any]:
    row = {name: _plain(getattr(event, name)) for name in event.__struct_fields__}
    return {"kind": event.__struct_config__.tag, **row}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kept", action="store_true", help="as where pidfd_getfd is refused")
    parser.add_argument("--stops", choices=["", "trace", "calls"], default="", help="by ptrace, without a listener")
    parser.add_argument("--limit", type=int, default=4096)
    parser.add_argument("--dead", action="store_true", help="the gateway is gone")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    loopback_up()
    gateway = Gateway()
    tcp_port = gateway.tcp.getsockname()[1]
    # Of nobody in the tree, on an address of the machine's own: what is connected to it has passed the guard.
    bystander = Bystander()
    inherited = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    os.environ["GUARDED_INHERIT"] = str(inherited.fileno())
    os.environ["GUARDED_BYSTANDER"] = str(bystander.port)
    launched = launch(_plan(options.command, options.stops), _seize, want_ptrace=bool(options.stops))
    if options.dead:
        gateway.tcp.close()
    else:
        gateway.start()
    tree = Tree(launched.pid)
    events: list[Any] = []
    settings = GuardSettings(tcp_port, gateway.dns.getsockname()[1], gateway.theirs, tree.has, six=gateway.six)
    taking = False if options.kept else None
    stopped = Stopped() if options.stops else None
    start = time.monotonic_ns()
    guard = Guard(
        Memory(),
        launched.listener,
        events.append,
        lambda: time.monotonic_ns() - start,
        settings,
        stopped=stopped,
        taking=taking,
        limit=options.limit,
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if stopped is not None:
        calls, status = _perform_all(launched, guard, stopped, tree, every=options.stops == "calls")
    else:
        listener = Listener(launched.listener)
        listener.wake_in_place()
        launched.channel.send(b"go")
        calls = _answer_all(listener, guard, tree)
        _, status = os.waitpid(launched.pid, 0)
    guard.settle(everything=True)
    if not options.dead:
        gateway._drain()
    record = {
        "events": [_row(event) for event in events],
        "seen": dict(gateway.seen),
        "callers": [[one.pid, one.span, one.transport, one.host, one.port] for one in gateway.callers_seen],
        "calls": calls,
        "passed": bystander.passed(),
        "kept": len(guard._sockets._kept),
        "taking": guard._sockets._taking,
    }
    options.out.write_text(json.dumps(record))
    guard.close()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _seize(pid: int) -> int:
    ptrace.seize(pid, ptrace.FOLLOW | ptrace.OPT_SECCOMP)
    return 0


class Unwatched:
    """In place of whoever would record what the loop sees."""

    calls = 0

    def call(self, *_call: Any) -> int:
        self.calls += 1
        return 0

    def started(self, *_process: Any) -> None:
        pass

    became = ended = thread_stopped = started


def _perform_all(launched: Launched, guard: Guard, stopped: Stopped, tree: Tree, *, every: bool) -> tuple[int, int]:
    tasks, nobody, statuses, faults = ProcessTree(), Unwatched(), [0], list[str]()
    root = tasks.start(launched.pid, None)
    tree.processes[launched.pid] = root
    rules = watched.by_call(reads=False, guard=True) if every else None
    memory = Memory()
    anybody: Any = nobody
    loop = PtraceLoop(
        tasks, anybody, anybody, anybody, memory, statuses.append, lambda _signal: None,
        lambda what, detail: faults.append(f"{what}: {detail}"), rules,
    )  # fmt: skip
    loop.perform_by(lambda resume, answer: Performer(guard, stopped, resume, answer))
    launched.channel.send(b"go")
    loop.run()
    assert not faults, faults
    return nobody.calls, statuses[-1]


def _answer_all(listener: Listener, guard: Guard, tree: Tree) -> int:
    poll = select.poll()
    poll.register(listener.descriptor, select.POLLIN)
    calls = 0
    while True:
        events = poll.poll()
        if not events[0][1] & select.POLLIN:
            return calls  # nobody is left under the filter
        request = listener.receive()
        if request is None:
            continue
        calls += 1
        request_id, tid, _flags, number, arch, _pointer, *arguments = request
        answer = guard.handle(tree.find(tid), tid, request_id, arch, number, tuple(arguments))
        if answer == 0:
            listener.proceed(request_id)
        elif answer != ANSWERED:
            listener.refuse(request_id, answer)


if __name__ == "__main__":
    sys.exit(main())
