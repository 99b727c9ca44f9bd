"""The relay's loop: servers that are handed over, their sessions, the line to the supervisor; one thread, epoll(7).

Loaded when the first server begins, not before.
"""

import gc
import os
import resource
import select
import socket
import time
from collections.abc import Callable
from typing import NamedTuple

from agentwrap.events import Gap
from agentwrap.mcp.gate import Gate
from agentwrap.mcp.handover import Ends, Taken, take_over
from agentwrap.mcp.relay.asks import Asks
from agentwrap.mcp.relay.link import Link
from agentwrap.mcp.relay.process import Settings
from agentwrap.mcp.relay.session import Session

_EXIT_S = 0.25  # from a server's last descriptor to the beginning of its end, or to the next look at it
_LEAVING_S = 20.0  # how long whoever takes bytes may take none while the run ends
_QUIET_S = 0.05
_READS, _WRITES = select.EPOLLIN, select.EPOLLOUT


def run(channel: socket.socket, supervisor: socket.socket, settings: Settings) -> None:
    """Relay until the supervisor says `Q` or is gone. `channel`: from the tracer."""
    gc.freeze()  # what was there before the fork is never looked at, so that its pages stay shared
    Relay(channel, supervisor, settings).run()


class _Watched(NamedTuple):
    handler: Callable[[int], None]
    events: int


class Poller:
    """Calls handlers when descriptors are ready. Files, which epoll refuses (EPERM), always are."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, _Watched] = {}
        self._always: set[int] = set()
        self.dropped = 0  # how many descriptors in all

    def change(self, fd: int, handler: Callable[[int], None], *, reads: bool, writes: bool) -> None:
        """As `way.Watch` says."""
        events = (_READS if reads else 0) | (_WRITES if writes else 0)
        if fd in self._always:
            pass
        elif fd in self._watched:
            self._epoll.modify(fd, events)
        else:
            try:
                self._epoll.register(fd, events)
            except PermissionError:
                self._always.add(fd)
        self._watched[fd] = _Watched(handler, events)

    def drop(self, fd: int) -> None:
        """As `way.Watch` says."""
        if self._watched.pop(fd, None) is None:
            return
        self.dropped += 1
        if fd in self._always:
            self._always.discard(fd)
        else:
            self._epoll.unregister(fd)

    def once(self, timeout_s: float | None, failed: Callable[[Callable[[int], None], Exception], None]) -> bool:
        """Wait for what is ready and call for it; whether there was anything. `failed`: a handler raised."""
        ready = [(fd, events) for fd in self._always if (events := self._watched[fd].events)]
        ready += self._epoll.poll(0 if ready else timeout_s)
        for fd, events in ready:
            watched = self._watched.get(fd)
            if watched is None:
                continue  # dropped by a handler before
            try:
                watched.handler(events)
            except Exception as error:
                failed(watched.handler, error)
        return bool(ready)


class Relay:
    """All sessions of a run."""

    def __init__(self, channel: socket.socket, supervisor: socket.socket, settings: Settings) -> None:
        channel.setblocking(False)
        self._channel, self._settings, self._now = channel, settings, settings.now
        self._poller = Poller()
        self._link = Link(supervisor)
        self._asks = Asks(self._link, self._now, settings.ask_timeout_s, unattended=settings.unattended)
        self._gates: dict[bytes, Gate] = {}
        self._sessions: dict[int, Session] = {}
        self._ending: dict[int, float] = {}  # sessions whose server's end is waited for, and until when
        self._count = self._swept = 0
        self._crowded = self._given = self._leaving = False
        self._blocked: bool | None = None
        _raise_descriptors()

    def run(self) -> None:
        """Until the supervisor does not want any more; then everything is told."""
        self._poller.change(self._channel.fileno(), self._on_channel, reads=True, writes=False)
        while not self._link.over and not self._leaving:
            self._turn(self._patience())
        if not self._link.over:
            self._leave()

    def _turn(self, timeout_s: float | None) -> bool:
        self._look_at_link()
        active = self._poller.once(timeout_s, self._failed)
        if self._given:
            # After all others: their descriptors' numbers may be taken anew, and what was ready is about old ones.
            self._given = False
            self._take_over()
        if self._asks.due_s() == 0.0:
            self._asks.tick()
        self._sweep()
        if self._link.due_s() == 0.0:
            self._link.send()
        if self._link.crowded != self._crowded:
            self._crowded = not self._crowded
            for session in self._sessions.values():
                session.pause(self._crowded)
        return active

    def _patience(self) -> float | None:
        due = [self._link.due_s(), self._asks.due_s()]
        if self._ending:
            due.append(max(0.0, min(self._ending.values()) - time.monotonic()))
        return min((one for one in due if one is not None), default=None)

    def _look_at_link(self) -> None:
        if self._link.blocked != self._blocked:
            self._blocked = self._link.blocked
            self._poller.change(self._link.fd, self._on_link, reads=True, writes=self._blocked)

    def _on_link(self, events: int) -> None:
        if events & select.EPOLLOUT:
            self._link.send()
        if events & ~select.EPOLLOUT:
            for line in self._link.receive():
                self._line(line)

    def _line(self, line: bytes) -> None:
        if line == b"Q":
            self._leaving = True
        elif line[:1] == b"W":
            whose, _, reason = line[1:].partition(b" ")
            self._asks.because(whose.decode("ascii", "replace"), reason)
        elif line[:1] == b"Y":
            ask, _, answer = line[1:].decode("ascii", "replace").partition(" ")
            self._asks.answered(ask, answer)

    def _on_channel(self, _events: int) -> None:
        self._given = True

    def _take_over(self) -> None:
        try:
            given = take_over(self._channel)
        except BlockingIOError:
            return
        except OSError as error:
            self._refuse(error)
            return
        if given is None:
            self._poller.drop(self._channel.fileno())  # the tracer is gone
        else:
            self._begin(*given)

    def _begin(self, taken: Taken, ends: Ends) -> None:
        self._count += 1
        session = Session(self._count, taken, ends, watch=self._poller, link=self._link, now=self._now)
        if self._settings.layers:
            gate = self._gates.get(taken.server)
            if gate is None:
                gate = self._gates[taken.server] = Gate(self._settings.layers, taken.server)
            if gate.reads(up=True) or gate.reads(up=False):
                session.judge(gate, self._asks)
        self._sessions[self._count] = session
        if self._crowded:
            session.pause(True)

    def _refuse(self, error: OSError) -> None:
        """A server came that cannot be taken: its descriptors are closed, and it and its client see that."""
        now = self._now()
        told = "calls of an MCP server that could not be taken: it was cut off from its client"
        self._link.put(
            Gap(at_ns=now, what="mcp-stdio", cause="no-descriptors", could_hide=told, from_ns=now, to_ns=now,
                detail=os.fsencode(error.strerror or str(error)))
        )  # fmt: skip

    def _sweep(self) -> None:
        """Close the sessions through which nothing goes any more."""
        if self._poller.dropped == self._swept and not self._ending:
            return
        self._swept = self._poller.dropped
        for number, session in [one for one in self._sessions.items() if one[1].over]:
            if number in self._ending:
                if session.exited():
                    pass
                elif time.monotonic() < self._ending[number]:
                    continue
                elif session.exiting():
                    self._ending[number] = time.monotonic() + _EXIT_S
                    continue
            elif session.await_exit(lambda _events: None):
                self._ending[number] = time.monotonic() + _EXIT_S
                continue
            self._end(number)

    def _end(self, number: int) -> None:
        self._ending.pop(number, None)
        self._sessions.pop(number).close()

    def _failed(self, handler: Callable[[int], None], error: Exception) -> None:
        """A fault of ours ends the session that met it, and no other."""
        for session in self._sessions.values():
            if getattr(handler, "__self__", None) in session.ways:
                session.cut(repr(error).encode("utf-8", "backslashreplace")[:400])
                return
        raise error

    def _leave(self) -> None:
        """The tree is gone: what is still on its way arrives, then the sessions are over, and all of it is told."""
        quiet_s, before = 0.0, time.monotonic()
        while not self._link.over:
            active = self._turn(_QUIET_S if self._sessions else 0)
            now = time.monotonic()
            # Where we ourselves stood still nobody could take anything.
            quiet_s, before = quiet_s + min(now - before, 2 * _QUIET_S), now
            if active:
                quiet_s = 0.0
                continue
            owed = any(way.out.size for session in self._sessions.values() for way in session.ways)
            if not self._crowded and (not owed or quiet_s > _LEAVING_S):
                break
        for number in list(self._sessions):
            session = self._sessions.pop(number)
            session.close(None if session.over else "run-ended")
        self._link.send_all()


def _raise_descriptors() -> None:
    """Each session has five descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
