"""The supervisor's side of the relay: forks it, hears it out, ends it."""

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from agentwrap.events import MCP_NEWS, Gap, Item, McpNews
from agentwrap.mcp.relay import process

if TYPE_CHECKING:
    from agentwrap.tracing.wire import Message

_SILENT_S, _LOOK_S = 30.0, 0.05
_CHANNEL_BYTES = 4 << 20


class Traffic(Protocol):
    """Who makes items of what passes between clients and servers."""

    def feed(self, news: McpNews) -> list[Item]:
        """What the next news make."""
        ...

    def finish(self, *, lost: bool) -> list[Item]:
        """What is left when there are no more. `lost`: who told them died, so what is open went on unseen."""
        ...


class StartedRelay(msgspec.Struct):
    """The run's relay, from `fork` to `close`.

    `channel_for_tracer`: SEQPACKET, servers are handed over there (`mcp.handover`); to be closed here once the tracer
    has it. `traffic`: makes items of what passed; without one that is dropped.
    """

    pid: int
    channel: socket.socket
    channel_for_tracer: socket.socket
    failure: str = ""
    traffic: Traffic | None = None
    _over: bool = False
    _heard: int = 0  # pieces of what it said, the last one in work if `_noting`
    _noting: bool = False
    _thread: threading.Thread | None = None

    def close_in_tracer(self) -> None:
        """In the tracer, right after the fork: what only the supervisor may hold."""
        self.channel.close()

    def forked_all(self) -> None:
        """In the supervisor, when the tracer has its copy: with the tracer its end of the channel is gone."""
        self.channel_for_tracer.close()

    def attend(self, put: Callable[[list[Item]], None], flush: Callable[[], bool], now: Callable[[], int]) -> None:
        """Start to hear the relay: events go to `put`, and what must be on disk is answered after `flush`."""
        self._thread = threading.Thread(target=self._hear, args=(put, flush, now), daemon=True, name="agentwrap-mcp")
        self._thread.start()

    def _hear(self, put: Callable[[list[Item]], None], flush: Callable[[], bool], now: Callable[[], int]) -> None:
        from agentwrap.tracing.wire import FrameReader

        frames = FrameReader()
        while True:
            try:
                data = self.channel.recv(1 << 20)
            except OSError:
                data = b""
            if not data:
                break
            self._noting = True
            self._heard += 1
            for messages in frames.feed(data):
                self._note(messages, put, flush)
            self._noting = False
        left = self._has_left()
        if self.traffic is not None and (items := self.traffic.finish(lost=not left)):
            put(items)
        if not left:
            self.failure = self.failure or "the relay of MCP servers died, and their sessions with it"
            put([_lost(now())])

    def _note(
        self, messages: "list[Message]", put: Callable[[list[Item]], None], flush: Callable[[], bool]
    ) -> None:
        from agentwrap.tracing import wire

        items: list[Item] = []
        number = 0
        for message in messages:
            if isinstance(message, MCP_NEWS):
                items += self.traffic.feed(message) if self.traffic is not None else []
            elif isinstance(message, wire.AckWanted):
                number = max(number, message.number)
            elif isinstance(message, wire.Failed):
                told = message.detail.decode("utf-8", "replace")
                self.failure = f"{message.step}: {told.rstrip().rpartition(chr(10))[2]}"
            elif wire.is_item(message):
                items.append(message)
        if items:
            put(items)
        if number:
            flush()
            self.tell(b"A%d" % number)

    def _has_left(self) -> bool:
        """Whether it ended because it was told to, having told everything; waits for its end."""
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            return self._over  # somebody else has asked for its status
        return self._over and ended is not None and (ended.si_code, ended.si_status) == (os.CLD_EXITED, 0)

    def tell(self, line: bytes) -> None:
        """One line to the relay; one that is gone needs none."""
        try:
            self.channel.sendall(line + b"\n")
        except OSError:
            pass  # its end is being told by the thread that hears it

    def keep_going(self) -> None:
        """An agent may stop it (SIGSTOP), and with it every session and what is told of it: go on at once."""
        try:
            if os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG) is not None:
                os.kill(self.pid, signal.SIGCONT)
        except OSError:
            pass  # it is gone: the end of its stream tells

    def close(self) -> None:
        """The tree is gone: let the relay tell its last news, and end it."""
        self._over = True
        self.tell(b"Q")
        if self._thread is not None:
            self._hear_out(self._thread)
        self._end()

    def _hear_out(self, thread: threading.Thread) -> None:
        """Until it has left and all that it told is noted. One that hangs is killed, which is told as a gap."""
        heard, since = self._heard, time.monotonic()
        while thread.is_alive():
            thread.join(_LOOK_S)
            self.keep_going()
            now = time.monotonic()
            if heard != self._heard or self._noting or self._says_something():
                heard, since = self._heard, now
            elif now - since > _SILENT_S:
                # Killed unreaped, so that the thread sees how it ended and tells what is missing.
                self._signal(signal.SIGKILL)

    def _says_something(self) -> bool:
        """Whether there is something to hear, which the thread has not come to yet."""
        waiting = select.poll()
        waiting.register(self.channel, select.POLLIN)
        return [state for _, state in waiting.poll(0)] == [select.POLLIN]

    def abandon(self) -> None:
        """Nothing ran."""
        self._over = True
        self._end()

    def _signal(self, number: int) -> None:
        try:
            os.kill(self.pid, number)
        except OSError:
            pass  # it ended by itself

    def _end(self) -> None:
        self._signal(signal.SIGKILL)
        try:
            os.waitpid(self.pid, 0)
        except OSError:
            pass  # nothing is left of it
        self.channel.close()
        self.channel_for_tracer.close()


def fork(settings: process.Settings) -> StartedRelay:
    """Fork the relay, which sleeps until a server is handed over. Before any thread and before the tracer is forked."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for_tracer, channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs, for_tracer, channel):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _CHANNEL_BYTES)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        for_tracer.close()
        process.become(channel, theirs, settings, parent)
    theirs.close()
    channel.close()
    return StartedRelay(pid, ours, for_tracer)


def _lost(at_ns: int) -> Gap:
    return Gap(
        at_ns=at_ns,
        what="mcp-stdio",
        cause="relay-lost",
        could_hide="messages of MCP sessions that were open; they ended with it",
        from_ns=at_ns,
    )
