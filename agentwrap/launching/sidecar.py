"""The supervisor's side of a process of ours beside the agent: hears it out, keeps it going, ends it.

It knows frames (`tracing.wire`), signals and waiting; what the process is for, and what its death hides, its kind says.
The other side is `launching.attendant`.
"""

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from agentwrap.events import EXCHANGE_NEWS, MCP_NEWS, ExchangeNews, Gap, Item, McpNews

if TYPE_CHECKING:
    from agentwrap.tracing.wire import Failed, FrameReader, Message, Ready

_SILENT_S, _LOOK_S = 30.0, 0.05
_PATIENCE_S, _TURN_S = 3.0, 0.001
_CHANNEL_BYTES = 4 << 20
_PIECE_BYTES = 1 << 20
_NEWS = (*EXCHANGE_NEWS, *MCP_NEWS)

Put = Callable[[list[Item]], None]
Flush = Callable[[], bool]
Now = Callable[[], int]


def channel_pair(kind: socket.SocketKind) -> tuple[socket.socket, socket.socket]:
    """Two ends that talk to each other, with room for a burst."""
    pair = socket.socketpair(socket.AF_UNIX, kind)
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _CHANNEL_BYTES)
    return pair


class Sidecar(msgspec.Struct, kw_only=True):
    """One such process from its fork to `close`. A kind of it says what its news make, and what its death means.

    `channel`: a stream; frames come from it, lines go to it. `failure`: why it ended before its time.
    """

    pid: int
    channel: socket.socket
    failure: str = ""
    _over: bool = False
    _heard: int = 0  # pieces of what it said, the last one in work if `_noting`
    _noting: bool = False
    _too_slow: bool = False
    _thread: threading.Thread | None = None
    _frames: "FrameReader | None" = None
    _early: "list[Message]" = msgspec.field(default_factory=list)  # heard before anybody attended

    def _made_of(self, news: ExchangeNews | McpNews) -> list[Item]:
        """What news of the traffic through it make."""
        raise NotImplementedError

    def _welcome(self, ready: "Ready") -> None:
        """It listens."""

    def _left_over(self, *, lost: bool) -> list[Item]:
        """What is left when no more comes. `lost`: it died, so what is open went on unseen."""
        raise NotImplementedError

    def _loss(self, at_ns: int) -> tuple[Gap, str]:
        """It died before its time: what that hides, and the failure it is for the run, empty if none."""
        raise NotImplementedError

    def attend(self, put: Put, flush: Flush, now: Now) -> None:
        """Start to hear it: events go to `put`, and what must be on disk is answered after `flush`."""
        name = f"agentwrap-{type(self).__name__}"
        self._thread = threading.Thread(target=self._hear, args=(put, flush, now), daemon=True, name=name)
        self._thread.start()

    def _hear(self, put: Put, flush: Flush, now: Now) -> None:
        from agentwrap.tracing.wire import FrameReader

        frames = self._frames or FrameReader()
        self._note(self._early, put, flush)
        try:
            while data := self._piece():
                self._heard += 1
                for messages in frames.feed(data):
                    self._note(messages, put, flush)
                self._noting = False
            self._noting = False
            left = self._has_left()
        except ValueError:
            # It is not itself any more: where its next message begins cannot be known.
            self._signal(signal.SIGKILL)
            self._noting = left = False
        if items := self._left_over(lost=not left):
            put(items)
        if not left:
            gap, failure = self._loss(now())
            self.failure = self.failure or failure
            put([gap])

    def _piece(self) -> bytes:
        """What it says next, empty at its end. What is taken is being noted already, for whoever asks in between."""
        try:
            self.channel.recv(1, socket.MSG_PEEK)
            self._noting = True
            return self.channel.recv(_PIECE_BYTES)
        except OSError:
            return b""

    def _note(self, messages: "list[Message]", put: Put, flush: Flush) -> None:
        from agentwrap.tracing import wire

        items: list[Item] = []
        number = 0
        for message in messages:
            if isinstance(message, _NEWS):
                items += self._made_of(message)
            elif isinstance(message, wire.AckWanted):
                number = max(number, message.number)
            elif isinstance(message, wire.Failed):
                self.failure = self._failure_of(message)
            elif isinstance(message, wire.Ready):
                self._welcome(message)
            elif wire.is_item(message):
                items.append(message)
        if items:
            put(items)
        if number:
            flush()
            self.tell(b"A%d" % number)

    def _failure_of(self, message: "Failed") -> str:
        """The last line of a traceback."""
        return message.detail.decode("utf-8", "replace").rstrip().rpartition("\n")[2]

    def _has_left(self) -> bool:
        """Whether it ended because it was told to, having told everything; waits for its end."""
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            return self._over  # somebody else has asked for its status
        return self._over and ended is not None and (ended.si_code, ended.si_status) == (os.CLD_EXITED, 0)

    def tell(self, line: bytes) -> None:
        """One line to it; one that is gone needs none."""
        try:
            self.channel.sendall(line + b"\n")
        except OSError:
            pass  # its end is being told by the thread that hears it

    def catch_up(self) -> None:
        """Until it has nothing to say that is not noted: credentials that passed through it are known then.

        One that is behind for long is not waited for again before it has caught up.
        """
        waited_s, before = 0.0, time.monotonic()
        while behind := self._is_behind():
            now = time.monotonic()
            # Where we ourselves stood still, so did the thread that hears it.
            waited_s, before = waited_s + min(now - before, 10 * _TURN_S), now
            if self._too_slow or waited_s > _PATIENCE_S:
                break
            time.sleep(_TURN_S)
        self._too_slow = behind

    def _is_behind(self) -> bool:
        thread = self._thread
        return thread is not None and thread.is_alive() and (self._says_something() or self._noting)

    def keep_going(self) -> None:
        """An agent may stop it (SIGSTOP), and with it all that passes through it and is told: go on at once."""
        try:
            if os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG) is not None:
                os.kill(self.pid, signal.SIGCONT)
        except OSError:
            pass  # it is gone: the end of its stream tells

    def close(self) -> None:
        """The tree is gone: let it tell its last news, and end it."""
        self._over = True
        self.tell(b"Q")
        if self._thread is not None:
            self._hear_out(self._thread)
        self._end()

    def _hear_out(self, thread: threading.Thread) -> None:
        """Until it has left and all that it told is noted. One that hangs is killed, which is told as a gap."""
        heard, silent_s, before = self._heard, 0.0, time.monotonic()
        while thread.is_alive():
            thread.join(_LOOK_S)
            self.keep_going()
            now = time.monotonic()
            # Where we ourselves stood still (a stopped job, a container that is paused), it may have done so, too.
            silent_s, before = silent_s + min(now - before, 2 * _LOOK_S), now
            if heard != self._heard or self._noting or self._says_something():
                heard, silent_s = self._heard, 0.0
            elif silent_s > _SILENT_S:
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
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # ECHILD: its number may be another's
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
