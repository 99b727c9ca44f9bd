"""One server and its client: two ways, and what is told of them.

Bytes go on as they come. Where the policy has a say about a side, its lines go on as `judged` says.
"""

import os
import select
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentwrap.events import McpBytes, McpClosed, McpOpened
from agentwrap.events.mcp import McpSessionEnding
from agentwrap.mcp.handover import Ends, Taken
from agentwrap.mcp.relay.ends import end_of
from agentwrap.mcp.relay.link import Link
from agentwrap.mcp.relay.way import Watch, Way

if TYPE_CHECKING:
    from agentwrap.mcp.gate import Gate
    from agentwrap.mcp.relay.asks import Asks
    from agentwrap.mcp.relay.judged import Judged


class Session:
    """Stands from `Session` until `over`; then `close` tells how it ended. `now`: ns since the start of the run."""

    def __init__(
        self, number: int, taken: Taken, ends: Ends, *, watch: Watch, link: Link, now: Callable[[], int]
    ) -> None:
        self.number, self.span, self.pid = number, taken.span, taken.pid
        self._link, self._now = link, now
        self._watch = watch
        self._process = _process(taken.pid)
        self._first: McpSessionEnding | None = None
        self._told = False
        self.detail = b""
        self.judged: Judged | None = None
        link.put(
            McpOpened(
                session=number, at_ns=taken.at_ns, span=taken.span, pid=taken.pid, server=taken.server, how=taken.how,
                config=taken.config, command=taken.command,
            )
        )  # fmt: skip
        # All four, before any of them is looked at: two may be one socket.
        client_in, server_in = end_of(ends.client_in, writes=False), end_of(ends.server_in, writes=True)
        server_out, client_out = end_of(ends.server_out, writes=False), end_of(ends.client_out, writes=True)
        about = (self._received, self._ended, self._broke)
        self.up = Way(watch, client_in, server_in, *about, up=True)
        self.down = Way(watch, server_out, client_out, *about, up=False)

    @property
    def ways(self) -> tuple[Way, Way]:
        """Both directions."""
        return self.up, self.down

    @property
    def over(self) -> bool:
        """Whether nothing goes on in either direction."""
        return self.up.over and self.down.over

    def pause(self, paused: bool) -> None:
        """Whether the supervisor is far behind: nothing is read then."""
        for way in self.ways:
            way.paused = paused
            way.look()

    def _received(self, way: Way, data: bytes) -> None:
        if self.judged is not None:
            self.judged.received(way, data)
            return
        self._link.put(McpBytes(self.number, self._now(), way.up, data))
        way.send(data)

    def _ended(self, way: Way) -> None:
        if self._first is None:
            self._first = "client-closed" if way.up else "server-closed"
        if self.judged is not None:
            self.judged.ended(way)
        way.finish()

    def _broke(self, way: Way) -> None:
        if self.judged is not None:
            self.judged.give_up(b"the server has left" if way.up else b"the client has left")

    def judge(self, gate: "Gate", asks: "Asks") -> None:
        """What the gate reads goes on by its word only. To be called before anything is read."""
        from agentwrap.mcp.relay.judged import About, Judged

        about = About(self.number, self.span, self.pid, self.up, self.down, self._now, self._too_long)
        self.judged = Judged(about, gate, asks, self._link)

    def _too_long(self) -> None:
        from agentwrap.mcp.relay.judged import TOO_LONG

        self.detail = TOO_LONG
        for way in self.ways:
            way.finish()

    def cut(self, detail: bytes) -> None:
        """End it from here, for a fault of ours: both sides see the other one leave."""
        self.detail, self._first = self.detail or detail, "lost"
        for way in self.ways:
            way.cut()

    def await_exit(self, handler: Callable[[int], None]) -> bool:
        """Whether it has to be seen first if the server's process ends now; `handler` is called when it has.

        A process's descriptors are closed a moment before it is over (exit(2)).
        """
        self._first = self._first or ("client-closed" if self.down.broken else "server-closed")
        if self._process < 0 or self._first != "server-closed" or self.exited():
            return False
        self._watch.change(self._process, handler, reads=True, writes=False)
        return True

    def exited(self) -> bool:
        """Whether the server's process is over."""
        if self._process < 0:
            return self._process == _GONE
        waiting = select.poll()
        waiting.register(self._process, select.POLLIN)
        return bool(waiting.poll(0))

    def exiting(self) -> bool:
        """Whether the kernel is taking the server's process down (PF_EXITING), however long that takes."""
        try:
            with open(f"/proc/{self.pid}/stat", "rb") as file:
                flags = int(file.read().rpartition(b")")[2].split()[6])  # proc(5): the ninth field
        except (OSError, ValueError, IndexError):
            return False  # gone by now, or hidden from us
        return bool(flags & _PF_EXITING)

    def close(self, ending: McpSessionEnding | None = None) -> None:
        """Tell its last news, once. `ending`: if it did not end by itself."""
        if self._told:
            return
        self._told = True
        if self.judged is not None:
            self.judged.give_up(b"the session is over")
        for way in self.ways:
            way.cut()
        if ending is None:
            ending = self._first or "lost"
            if ending == "server-closed" and self.exited():
                ending = "server-exited"
        if self._process >= 0:
            self._watch.drop(self._process)
            os.close(self._process)
            self._process = _NONE
        self._link.put(McpClosed(session=self.number, at_ns=self._now(), ending=ending, detail=self.detail))


_NONE, _GONE = -1, -2
_PF_EXITING = 0x4  # include/linux/sched.h


def _process(pid: int) -> int:
    """A descriptor of the process (pidfd_open(2))."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return _GONE
    except OSError:
        return _NONE
