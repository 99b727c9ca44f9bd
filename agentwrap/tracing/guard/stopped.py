"""What the guard says about a call while the caller stands at its entry, stopped by ptrace(2).

In place of `answers` and `waiting`, where no listener is to be had. There the kernel lets the caller wait for us; here
the caller waits in a call of its own, which needs nothing but a number: it is interrupted, begun anew, limited in time
and killed as any other. What it looked like is undone at its exit, where the real outcome is told.
"""

import errno
import math
import socket
import time
from collections.abc import Callable
from typing import NamedTuple

from agentwrap.tracing.guard import raw_calls
from agentwrap.tracing.guard.answers import ERESTARTSYS, Answering
from agentwrap.tracing.guard.calls import Call
from agentwrap.tracing.guard.waiting import KILLED, Done, Until

_MSG_PEEK, _MSG_NOSIGNAL = 2, 0x4000
_SLEEP_MS = 5
Finish = Callable[[int | None], int | None]


class Result(NamedTuple):
    """The call is not made and returns this; a negative errno for a failure."""

    value: int


class Instead(NamedTuple):
    """Another call is made.

    `finish` is given what it returned, or None when the caller died in it. It returns what the program is told, None:
    the program makes its own call once more.
    """

    name: str
    arguments: tuple[int, ...]
    finish: Finish


Decision = Result | Instead


class Stopped:
    """Holds one decision at a time: the caller stands still until it is taken. One thread."""

    def __init__(self) -> None:
        self._decision: Decision | None = None
        self._ends_s: dict[int, float] = {}  # by request: until when those who sleep for room may wait

    def take(self) -> Decision:
        """What was decided about the call that was just looked at."""
        decision, self._decision = self._decision, None
        return decision if decision is not None else Result(-errno.EPERM)

    def value(self, request: int, value: int) -> None:
        """See `Answering`."""
        self.over(request)
        self._decision = Result(value)

    def error(self, request: int, number: int) -> None:
        """See `Answering`."""
        self.value(request, -number)

    def outcome(self, request: int, number: int) -> None:
        """See `Answering`."""
        self.value(request, -number)

    def over(self, request: int) -> None:
        """The caller waits no longer."""
        self._ends_s.pop(request, None)

    def stands(self, _request: int) -> bool:
        """Always: a tracee's id is not used again before we were told of its death."""
        return True

    def instead(self, name: str, arguments: tuple[int, ...], finish: Finish) -> None:
        """The caller makes another call, see `Instead`."""
        self._decision = Instead(name, arguments, finish)

    def run(self, job: Callable[[], None]) -> None:
        """At once. The whole tree waits: so it does for a gateway that is too busy to be told anything."""
        job()

    def wait(self, _answers: Answering, call: Call, sock: socket.socket, until: Until, done: Done) -> None:
        """See `Waiting`. A connect is waited for by sending nothing, data by looking at none of it (tcp(7), udp(7)).

        No call waits for room with numbers alone: the caller sleeps a little, and makes its own call once more.
        """
        ours = raw_calls.duplicate(sock)

        def finish(returned: int | None) -> int | None:
            with ours:
                return done(ours, KILLED if returned is None else _ended_by(returned))

        def slept(returned: int | None) -> int | None:
            with ours:
                late = time.monotonic() >= self._ends_s.get(call.request, math.inf)
                if returned == 0 and not late:
                    return None
                self.over(call.request)
                return done(ours, KILLED if returned is None else errno.ETIMEDOUT if late else ERESTARTSYS)

        if until is Until.ROOM:
            limit_s = raw_calls.time_limit_s(ours, socket.SO_SNDTIMEO)
            self._ends_s.setdefault(call.request, time.monotonic() + limit_s if limit_s is not None else math.inf)
            self.instead("poll", (0, 0, _SLEEP_MS), slept)
        elif until is Until.CONNECTED:
            self.instead("sendto", (call.descriptor, 0, 0, _MSG_NOSIGNAL, 0, 0), finish)
        else:
            self.instead("recvfrom", (call.descriptor, 0, 0, _MSG_PEEK, 0, 0), finish)


# What a socket's own error may be; anything else says that another thread put something else in its place.
_ERRORS = (errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EINTR, ERESTARTSYS)


def _ended_by(returned: int) -> int:
    """Why the caller waits no longer, see `waiting.Done`."""
    if returned == -errno.EAGAIN:
        return errno.ETIMEDOUT
    return -returned if -returned in _ERRORS else 0
