"""Ends that nobody asked for: of the tracer, and of the time that two clocks agree."""

import os
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from agentwrap.events import Gap
from agentwrap.launching.options import Outcome
from agentwrap.session import endings
from agentwrap.session.conductor import Session


class _HeldUp:
    """Clocks of a process that is stopped for two seconds when it first asks for the time of day."""

    def __init__(self) -> None:
        self.paused_ns = 0

    def monotonic_ns(self) -> int:
        return time.monotonic_ns() + self.paused_ns

    def time_ns(self) -> int:
        self.paused_ns = 2_000_000_000
        return time.time_ns() + self.paused_ns


def test_a_pause_between_two_clocks_is_no_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    begun_ns, begun_unix_ns = endings.both_clocks()
    monkeypatch.setattr(endings, "time", _HeldUp())
    now_ns, now_unix_ns = endings.both_clocks()
    assert now_ns - begun_ns > 2_000_000_000
    assert endings.clock_jump(begun_unix_ns, now_unix_ns, now_ns - begun_ns) == []


def test_a_clock_that_was_set_is_a_jump() -> None:
    assert [one.cause for one in endings.clock_jump(10**18, 10**18 + 5 * 10**9, 10**9)] == ["clock-jump"]


def _orphan() -> int:
    return subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]).pid


def _read_to_the_end() -> None:
    """In a child, whose descendants are all of them the run's."""
    ours, theirs = socket.socketpair()
    tracer, orphan = _orphan(), _orphan()
    theirs.close()
    told: list[Gap] = []
    session = SimpleNamespace(
        _channel=ours, _over=False, _tracer_pid=tracer, outcome=Outcome(), _now=lambda: 7,
        _around=SimpleNamespace(pids=list), _pump=SimpleNamespace(put=told.extend),
    )  # fmt: skip
    Session._read_frames(session)  # type: ignore[arg-type]
    assert [gap.cause for gap in told] == ["tracer-lost"]
    assert os.waitpid(tracer, 0) == (tracer, signal.SIGKILL)
    with pytest.raises(ChildProcessError):
        os.waitpid(orphan, 0)


def test_a_tracer_that_has_closed_its_end_and_is_not_dead_yet_is_left_to_be_waited_for() -> None:
    code = "import session.test_endings as here; here._read_to_the_end(); print('all')"
    folder = os.path.dirname(os.path.dirname(__file__))
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.returncode) == ("all\n", 0), done.stderr
