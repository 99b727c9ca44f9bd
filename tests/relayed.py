"""A relay on its own: tests play the tracer, clients and servers, and read what the supervisor is told."""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from agentwrap.events import Item, McpBytes, McpClosed, McpJudged, McpNews, McpSaid
from agentwrap.mcp.handover import Ends, Taken, hand_over
from agentwrap.mcp.relay import started
from agentwrap.mcp.relay.process import Settings

NO_PROCESS = (1 << 22) - 1
PATIENCE_S = 300 * float(os.environ.get("AGENTWRAP_TESTS_PATIENCE") or 1)
Kind = Literal["pipes", "sockets", "socket"]
KINDS: tuple[Kind, ...] = ("pipes", "sockets", "socket")


class Heard:
    """What the supervisor is told. `slow`: it reads nothing on while this is held."""

    def __init__(self) -> None:
        self.news: list[McpNews] = []
        self.items: list[Item] = []
        self.slow = threading.Lock()
        self.keep = True
        self.lost: bool | None = None
        self.changed = threading.Condition()
        self.sizes = {True: 0, False: 0}

    def feed(self, news: McpNews) -> list[Item]:
        with self.slow, self.changed:
            if isinstance(news, McpBytes):
                self.sizes[news.up] += len(news.data)
            if self.keep or not isinstance(news, McpBytes):
                self.news.append(news)
            self.changed.notify_all()
        return []

    def finish(self, *, lost: bool) -> list[Item]:
        self.lost = lost
        return []

    def put(self, items: list[Item]) -> None:
        with self.changed:
            self.items += items
            self.changed.notify_all()

    def wait(self, holds: Callable[[], object]) -> Any:
        with self.changed:
            assert self.changed.wait_for(holds, PATIENCE_S), "nothing more was told"
            return holds()


class Pair:
    """One session: what the client holds (`write`, `read`), what the server holds (`stdin`, `stdout`)."""

    def __init__(self, write: int, read: int, stdin: int, stdout: int) -> None:
        self.write, self.read, self.stdin, self.stdout = write, read, stdin, stdout

    def close(self, *names: str) -> None:
        for name in names or ("write", "read", "stdin", "stdout"):
            fd = getattr(self, name)
            if fd >= 0:
                os.close(fd)
                setattr(self, name, -1)


class Relayed:
    """A relay process, from entering to leaving."""

    def __init__(self, **settings: Any) -> None:
        began = time.monotonic_ns()
        self.heard = Heard()
        self.relay = started.fork(Settings(now=lambda: time.monotonic_ns() - began, **settings))
        self.relay.traffic = self.heard
        self.relay.attend(self.heard.put, lambda: True, lambda: time.monotonic_ns() - began)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.relay.close()
        if error is None:
            assert self.relay.failure == ""

    def hand_over(self, ends: Sequence[int], pid: int = 0, server: bytes = b"files") -> None:
        taken = Taken(at_ns=1, span="p1", pid=pid or os.getpid(), server=server, how="config", command=(b"files",))
        hand_over(self.relay.channel_for_tracer, taken, Ends(*ends))
        for fd in ends:
            os.close(fd)

    def session(self, kind: Kind = "pipes", *, pid: int = 0) -> Pair:
        """Pipes, a socket pair for each direction as Node makes them, or one socket for both."""
        client, server = _channel(kind), _channel(kind)
        # client_in, client_out, server_in, server_out
        self.hand_over((client[1], client[2], server[0], server[3]), pid)
        return Pair(client[0], client[3], server[1], server[2])

    @contextmanager
    def server(
        self, command: Sequence[str | Path], kind: Kind = "pipes", *, pass_fds: Sequence[int] = ()
    ) -> Iterator["tuple[Pair, subprocess.Popen[bytes]]"]:
        """A real process behind the relay; the pair has the client's ends alone."""
        client, server = _channel(kind), _channel(kind)
        process = subprocess.Popen(command, stdin=server[1], stdout=server[2], pass_fds=pass_fds)
        os.close(server[1])
        os.close(server[2])
        self.hand_over((client[1], client[2], server[0], server[3]), process.pid)
        pair = Pair(client[0], client[3], -1, -1)
        try:
            yield pair, process
        finally:
            pair.close()
            process.kill()
            process.wait()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The relay stands still: several things happen at once for it."""
        os.kill(self.relay.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.relay.pid, os.WSTOPPED | os.WNOWAIT)
        yield
        os.kill(self.relay.pid, signal.SIGCONT)

    def told(self, *, up: bool, session: int = 1) -> bytes:
        return b"".join(
            one.data for one in self.heard.news
            if isinstance(one, McpBytes) and one.up is up and one.session == session
        )  # fmt: skip

    def said(self) -> list[McpSaid]:
        return [one for one in self.heard.news if isinstance(one, McpSaid)]

    def judged(self) -> list[McpJudged]:
        return [one for one in self.heard.news if isinstance(one, McpJudged)]

    def closed(self, session: int = 1) -> McpClosed:
        """How a session ended, once it has."""

        def found() -> McpClosed | None:
            return next((one for one in self.heard.news if isinstance(one, McpClosed) and one.session == session), None)

        ended = self.heard.wait(found)
        assert isinstance(ended, McpClosed)
        return ended


def _channel(kind: Kind) -> tuple[int, int, int, int]:
    """Who writes up, who reads that, who writes down, who reads that."""
    if kind == "pipes":
        up_read, up_write = os.pipe2(os.O_CLOEXEC)
        down_read, down_write = os.pipe2(os.O_CLOEXEC)
        return up_write, up_read, down_write, down_read
    first, second = socket.socketpair()
    if kind == "sockets":
        third, fourth = socket.socketpair()
    else:
        third, fourth = second.dup(), first.dup()
    return first.detach(), second.detach(), third.detach(), fourth.detach()


def read_line(fd: int) -> bytes:
    """One line, as slowly as it is needed to leave what follows it."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(fd, 1)):
        line += byte
    return line


def read_to_end(fd: int) -> bytes:
    pieces = []
    try:
        while piece := os.read(fd, 1 << 20):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


def write_until_refused(fd: int, data: bytes = b"anybody?\n") -> bool:
    """Write until nobody reads any more, as a program that does not look at its input."""
    try:
        while True:
            os.write(fd, data)
    except (BrokenPipeError, ConnectionResetError):  # the latter from a unix socket whose reader left bytes unread
        return True
