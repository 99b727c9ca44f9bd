"""Waiting on a tracee's behalf: threads for the calls that block, and what ends the wait besides its reason.

The notify thread must never wait: every reported call of the whole tree goes through it. A thread that waits looks up
every `SLICE_S`: was the caller killed (its request is void then), is a signal pending that it would have woken up for.
"""

import enum
import errno
import queue
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Protocol

from agentwrap.tracing.guard import raw_calls
from agentwrap.tracing.guard.answers import ERESTARTSYS, Answering
from agentwrap.tracing.guard.calls import Call

SLICE_S = 0.05
KILLED = -1
GIVEN_UP = (KILLED, errno.ETIMEDOUT, errno.EINTR, ERESTARTSYS)
_MAX_THREADS = 512
_IDLE_S = 10.0
_SO_RCVTIMEO = 20


class Until(enum.Enum):
    """What a call waits for: a connect that is over, room to send, something to receive."""

    CONNECTED = "connected"
    ROOM = "room"
    DATA = "data"


Done = Callable[[socket.socket, int], int | None]
"""Called when a wait is over, with a duplicate of the socket and what ended it: 0 for its reason, ETIMEDOUT for the
socket's own limit, KILLED, or an errno. Returns what the call comes to (a negative errno for a failure), None to wait
again."""


class Waiting(Protocol):
    """How the guard's parts wait on a caller's behalf."""

    def wait(self, answers: Answering, call: Call, sock: socket.socket, until: Until, done: Done) -> None:
        """Let the caller, whose descriptor `sock` is, wait, and answer with what `done` returns. Returns at once."""

    def run(self, job: Callable[[], None]) -> None:
        """Do what may block, and must not raise."""


class Workers:
    """As many threads as calls are waiting; an idle one ends after a while."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = self._threads = 0

    def run(self, job: Callable[[], None]) -> None:
        """Do `job`, which must not raise, on another thread."""
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            elif self._threads < _MAX_THREADS:
                self._threads += 1
                threading.Thread(target=self._work, daemon=True).start()
        self._jobs.put(job)

    def wait(self, answers: Answering, call: Call, sock: socket.socket, until: Until, done: Done) -> None:
        """On a thread, with a duplicate of its own."""
        ours = raw_calls.duplicate(sock)

        def watch() -> None:
            outcome: int | None = -errno.ECONNABORTED
            ended = 0
            try:
                option = _SO_RCVTIMEO if until is Until.DATA else socket.SO_SNDTIMEO
                limit_s = raw_calls.time_limit_s(ours, option)
                outcome = None
                while outcome is None:
                    ended = wait_until(lambda s: _ready(ours, until, s), answers, call.request, call.tid, limit_s)
                    outcome = done(ours, ended)
            except OSError as error:
                outcome = -(error.errno or errno.ECONNABORTED)
            finally:
                ours.close()
                if ended != KILLED:
                    _answer(answers, call.request, -errno.ECONNABORTED if outcome is None else outcome)

        self.run(watch)

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._lock:
                    if self._idle == 0:
                        continue  # a job was just promised to this thread
                    self._idle -= 1
                    self._threads -= 1
                    return
            job()
            with self._lock:
                self._idle += 1


def _ready(sock: socket.socket, until: Until, patience_s: float) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLIN if until is Until.DATA else select.POLLOUT)
    return bool(poll.poll(patience_s * 1000))


def _answer(answers: Answering, request: int, outcome: int) -> None:
    if outcome >= 0:
        answers.value(request, outcome)
    else:
        answers.error(request, -outcome)


def wait_until(
    ready: Callable[[float], bool], answers: Answering, request: int, tid: int, limit_s: float | None
) -> int:
    """Wait for `ready(patience)`: 0, KILLED, ETIMEDOUT after `limit_s`, or what an interrupted call returns."""
    end = None if limit_s is None else time.monotonic() + limit_s
    while True:
        left = SLICE_S if end is None else min(SLICE_S, end - time.monotonic())
        if ready(max(left, 0.0)):
            return 0
        if left <= 0:
            return errno.ETIMEDOUT
        if not answers.stands(request):
            return KILLED
        interrupted = signal_pending(tid)
        if interrupted:
            return interrupted


def signal_pending(tid: int) -> int:
    """What a waiting call of `tid` would return now: 0 for no signal, else an errno.

    WAIT_KILLABLE_RECV keeps the caller waiting whatever signal comes, so we must let it go (seccomp_unotify(2)).
    """
    try:
        with open(f"/proc/{tid}/status", "rb") as file:
            lines = dict(line.split(b":", 1) for line in file if line[:3] in (b"Sig", b"Shd", b"Thr"))
    except OSError:
        return 0
    masks = {name: int(value, 16) for name, value in lines.items() if name not in (b"SigQ", b"Threads")}
    heard = ~(masks[b"SigBlk"] | masks[b"SigIgn"])
    if masks[b"SigPnd"] & heard or (masks[b"ShdPnd"] & heard and int(lines[b"Threads"]) == 1):
        return ERESTARTSYS
    # It may be another thread that takes it; then nobody would turn ERESTARTSYS into something a program knows.
    return errno.EINTR if masks[b"ShdPnd"] & heard else 0
