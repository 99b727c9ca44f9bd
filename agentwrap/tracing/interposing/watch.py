"""Decides at each exec whether a server begins, and has its standard input and output put into the relay's hands.

Knows names and descriptors; knows nothing of configurations (`Matcher` does) nor of what is said (the relay does).
"""

import errno
import os
import socket
from collections import OrderedDict
from collections.abc import Callable
from resource import struct_rusage
from signal import SIGKILL
from typing import NamedTuple

from agentwrap.events import Sink
from agentwrap.events.egress import ActDenied
from agentwrap.events.mcp import McpHow
from agentwrap.launching import attendant
from agentwrap.mcp.declared import Declared
from agentwrap.mcp.handover import Ends, Taken, hand_over
from agentwrap.tracing.gaps import gap_of
from agentwrap.tracing.image import Image
from agentwrap.tracing.interposing.descriptors import Kind, held
from agentwrap.tracing.interposing.errands import Errands
from agentwrap.tracing.interposing.giving import give
from agentwrap.tracing.interposing.injection import GoneError, Injection, InjectionError
from agentwrap.tracing.interposing.matcher import Matcher
from agentwrap.tracing.interposing.swap import HalfwayError, Standard, swap
from agentwrap.tracing.interposing.words import as_called, name_of, speaks_of_mcp
from agentwrap.tracing.processes import Process

_HOW: dict[str, McpHow] = {"hand": "hand", "policy": "pattern"}
_MOST_KNOWN = 4096
_PATIENCE_S = 2.0  # for a relay that has not taken the last ones yet
_DETAIL_BYTES = 4096
_FLAGS, _PF_EXITING, _KILLED = 5, 4, 1 << (SIGKILL - 1)  # proc_pid_stat(5), linux/sched.h, proc_pid_status(5)
_STREAMS = (Kind.PIPE, Kind.SOCKET)


class Server(NamedTuple):
    """A server that begins. `by_hand`: somebody said so of this very process."""

    name: bytes
    how: McpHow
    config: bytes
    by_hand: bool
    path: bytes
    argv: tuple[bytes, ...]


class Interposer:
    """One run's. `at_exec` is for the thread that traces, the rest for the one that is notified.

    `listener`: its descriptor, -1 for none.
    """

    def __init__(
        self,
        matcher: Matcher,
        relay: socket.socket | None,
        sink: Sink,
        now: Callable[[], int],
        *,
        gated: bool = False,
        root_server: bytes = b"",
        listener: int = -1,
    ) -> None:
        self._matcher = matcher
        self._relay = relay
        self._sink = sink
        self._now = now
        self._gated = gated
        self._root_server = root_server
        self._listener = listener
        self.begins: Callable[[tuple[bytes, ...], int], None] = lambda _argv, _pid: None
        """Hears of each program, by its words and process, before anybody is asked about it."""
        self._errands = Errands(listener)
        self._given: OrderedDict[tuple[int, int], tuple[bytes, str]] = OrderedDict()  # name and span of the server
        self._by_hand: OrderedDict[str, bytes] = OrderedDict()
        self._asked: tuple[Process, bytes, tuple[bytes, ...]] | None = None
        self.injecting: set[int] = set()
        if relay is not None:
            relay.settimeout(_PATIENCE_S)

    def at_exec(self, process: Process, image: Image) -> tuple[int, struct_rusage] | None:
        """`process` stands at PTRACE_EVENT_EXEC. What waitpid said of its death, if it died under our hands."""
        argv = image.argv
        if image.exe not in (image.path, image.resolved):
            argv = as_called(image.path, image.cwd, argv)
        self.begins(argv, process.pid)
        server = self._server(process, image.path, argv, image.cwd)
        if server is None:
            return None
        try:
            standard = self._to_swap(process, server)
            if standard is not None:
                self._swap(process, server, standard)
        except GoneError as gone:
            return gone.status, gone.usage
        except (InjectionError, OSError) as error:
            if self._unrelayed(process, server, str(error)):
                _kill(process)
        except HalfwayError as error:
            self._unrelayed(process, server, str(error))
            _kill(process)
        return None

    def asked(self, process: Process, path: bytes, argv: tuple[bytes, ...]) -> None:
        """`process`, which is not traced, is in an execve of this file, which is there and can be run."""
        self._asked = process, path, argv

    def before_exec(self, request: int) -> int:
        """That execve, if there was one, waits as `request`. 0, or the errno to refuse it with."""
        if self._asked is None:
            return 0
        (process, path, argv), self._asked = self._asked, None
        try:
            cwd = os.readlink(b"/proc/%d/cwd" % process.pid)
        except OSError:
            cwd = b""
        server = self._server(process, path, argv, cwd)
        if server is None:
            return 0
        try:
            standard = self._to_swap(process, server)
            if standard is not None:
                handing = self._handing(process, server)
                self._know(process, server, give(self._listener, request, process.pid, standard, handing))
        except OSError as error:
            return self._unrelayed(process, server, str(error))
        return 0

    def answer(self, request: int, tid: int, number: int) -> bool:
        """A reported call of a thread in `injecting`: whether it has been answered. Else it is to go on, untold."""
        return self._errands.answer(request, tid, number)

    def written_past(self, process: Process, identity: tuple[int, int]) -> int:
        """A pipe is opened by its name in /proc: an errno, 0 if it may be. A server's own input is only its own."""
        name, server = self._given.get(identity, (b"", ""))
        above: Process | None = process
        while above is not None and above.span != server:
            above = above.parent
        if not name or above is not None:
            return 0
        if not self._gated:
            if process.once("written past"):
                could_hide = "what this process says to an MCP server, past who relays that"
                self._sink(gap_of(process, self._now(), "mcp-stdio", "unrelayed-mcp", could_hide, name))
            return 0
        self._sink(
            ActDenied(
                at_ns=self._now(), span=process.span, pid=process.pid, decision="deny", by="witness", act="reach",
                target=name, call="open", mechanism="stop", errno="EACCES", rule=b"built-in.mcp",
                why=b"rules are about the MCP server %b, whose input this is" % name,
            )
        )  # fmt: skip
        return errno.EACCES

    # What begins

    def _server(self, process: Process, path: bytes, argv: tuple[bytes, ...], cwd: bytes) -> Server | None:
        name = self._matcher.by_hand(argv)
        if name is not None:
            self._by_hand[process.span] = name
            if len(self._by_hand) > _MOST_KNOWN:
                self._by_hand.popitem(last=False)
            return None
        name = self._by_hand.pop(process.span, b"")
        if not name and process.parent is None:
            name, self._root_server = self._root_server, b""
        elif self._gated and name and (declared := self._matcher.match(path, argv, cwd)) is not None:
            # Rules go by the declared name: an agent would only have to call a server otherwise to get around them.
            return _server_of(declared, path, argv)._replace(by_hand=True)
        if name:
            return Server(name, "hand", b"", True, path, argv)
        declared = self._matcher.match(path, argv, cwd)
        if declared is not None:
            return _server_of(declared, path, argv)
        if speaks_of_mcp(argv):
            self._suspect(process, argv)
        return None

    def _suspect(self, process: Process, argv: tuple[bytes, ...]) -> None:
        """Nobody named it, but it looks like a server: what is said there passes unseen."""
        try:
            standard = _standard(process.pid)
        except OSError:
            return
        if standard is None or standard.input.identity in self._given:
            return
        if all(one.kind in _STREAMS for one in standard) and process.once("unnamed mcp"):
            self._gap(process, argv, "no configuration names this server")

    def _to_swap(self, process: Process, server: Server) -> Standard | None:
        """What is to be swapped; None where nothing is. Raises OSError where it would have to be, and cannot."""
        whatever = server.by_hand or self._gated
        standard = _standard(process.pid)
        if standard is None or not standard.is_open:
            if whatever:
                raise OSError("it has no standard input or output")
            return None
        before = self._given.get(standard.input.identity)
        # A server of ours within another: one session, unless rules about this one are not those that it is under.
        if before is not None and (before[0] == server.name or not self._gated):
            return None
        kinds = {one.kind for one in standard}
        if kinds <= set(_STREAMS):
            return standard
        if not whatever:
            return None  # a server that is tried in a terminal, or started with nothing to read: no session
        if Kind.TERMINAL in kinds:
            raise OSError("its standard input or output is a terminal")
        return standard

    def _swap(self, process: Process, server: Server, standard: Standard) -> None:
        pid = process.pid
        handing = self._handing(process, server)
        self.injecting.add(pid)
        try:
            with Injection(pid) as inject:
                given = self._given_to(inject, standard, handing) or self._made(inject, standard, handing)
                self._know(process, server, given)
        finally:
            self.injecting.discard(pid)

    def _given_to(
        self, inject: Injection, standard: Standard, handing: Callable[[Ends], None]
    ) -> tuple[int, int] | None:
        """The quick way: it stands in one call, and is given everything. None where that cannot be."""
        if not self._errands.possible:
            return None
        found: list[tuple[int, int]] = []

        def do(request: int) -> bool:
            found.append(give(self._listener, request, inject.tid, standard, handing))
            return False

        try:
            self._errands.run(inject, do)
        except (InjectionError, PermissionError):
            return None  # a filter of its own; Docker's profile, which forbids pidfd_getfd(2)
        return found[0]

    def _made(self, inject: Injection, standard: Standard, handing: Callable[[Ends], None]) -> tuple[int, int]:
        return swap(inject, standard, handing, self._errands.lend if self._errands.possible else None)

    def _handing(self, process: Process, server: Server) -> Callable[[Ends], None]:
        def give_to_relay(ends: Ends) -> None:
            if self._relay is None:
                raise BrokenPipeError(errno.EPIPE, "there is no relay")
            taken = Taken(
                at_ns=self._now(),
                span=process.span,
                pid=process.pid,
                server=server.name,
                how=server.how,
                config=server.config,
                command=server.argv,
            )
            hand_over(self._relay, taken, ends)

        return give_to_relay

    def _know(self, process: Process, server: Server, identity: tuple[int, int]) -> None:
        self._given[identity] = server.name, process.span
        if len(self._given) > _MOST_KNOWN:
            self._given.popitem(last=False)
        if process.parent is None:
            attendant.let_go_of_streams()  # the command's own are ours as well

    # What is told

    def _unrelayed(self, process: Process, server: Server, why: str) -> int:
        """A server is not relayed: told, and the errno where it may not run so. One that is dying is no server."""
        if _is_dying(process.pid):
            return 0
        if not self._gated:
            self._gap(process, server.argv, why)
            return 0
        self._sink(
            ActDenied(
                at_ns=self._now(), span=process.span, pid=process.pid, decision="deny", by="guard", act="exec",
                target=server.path, call="execve", mechanism="stop", errno="EACCES", rule=b"built-in.mcp",
                why=b"rules are about the MCP server %b, which cannot be relayed: %b" % (server.name, os.fsencode(why)),
            )
        )  # fmt: skip
        return errno.EACCES

    def _gap(self, process: Process, argv: tuple[bytes, ...], why: str) -> None:
        could_hide = f"what this server and its client say to each other: {why}"
        detail = b" ".join(argv)[:_DETAIL_BYTES]
        self._sink(gap_of(process, self._now(), "mcp-stdio", "unrelayed-mcp", could_hide, detail))


def _server_of(declared: Declared, path: bytes, argv: tuple[bytes, ...]) -> Server:
    how = _HOW.get(declared.client, "config")
    return Server(declared.name or name_of(argv), how, declared.config, declared.client == "hand", path, argv)


def _standard(pid: int) -> Standard | None:
    """Raises OSError where we may not look."""
    there, back = held(pid, 0), held(pid, 1)
    return Standard(there, back) if there is not None and back is not None else None


def _is_dying(pid: int) -> bool:
    """Whether it is dead, on its way, or about to be: what was looked for in it was not there any more for that."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, *numbers = file.read().rpartition(b")")[2].split()
        with open(f"/proc/{pid}/status", "rb") as file:
            pending = [int(line[7:], 16) for line in file if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    except (OSError, ValueError):
        return True
    exiting = int(numbers[_FLAGS]) & _PF_EXITING
    return state in (b"Z", b"X") or bool(exiting) or any(mask & _KILLED for mask in pending)


def _kill(process: Process) -> None:
    try:
        os.kill(process.pid, SIGKILL)
    except ProcessLookupError:
        pass  # it went by itself
