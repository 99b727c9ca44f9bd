"""Wait statuses of seized tracees, as ptrace(2) lays them out."""

import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.tracing import ptrace
from agentwrap.tracing.stops import STOPPING, Stop, StopKind, classify


def _stopped(number: int, event: int = 0) -> int:
    return event << 16 | number << 8 | 0x7F


@pytest.mark.parametrize(
    ("status", "stop"),
    [
        (_stopped(signal.SIGTRAP, ptrace.EVENT_SECCOMP), Stop(StopKind.CALL)),
        (_stopped(signal.SIGTRAP | 0x80), Stop(StopKind.EDGE)),
        (_stopped(signal.SIGTRAP, ptrace.EVENT_FORK), Stop(StopKind.CHILD, ptrace.EVENT_FORK)),
        (_stopped(signal.SIGTRAP, ptrace.EVENT_VFORK), Stop(StopKind.CHILD, ptrace.EVENT_VFORK)),
        (_stopped(signal.SIGTRAP, ptrace.EVENT_CLONE), Stop(StopKind.CHILD, ptrace.EVENT_CLONE)),
        (_stopped(signal.SIGTRAP, ptrace.EVENT_EXEC), Stop(StopKind.EXEC)),
        (_stopped(signal.SIGTRAP, ptrace.EVENT_STOP), Stop(StopKind.BEGIN)),
        (_stopped(signal.SIGCONT, ptrace.EVENT_STOP), Stop(StopKind.BEGIN)),
        (_stopped(signal.SIGTRAP), Stop(StopKind.SIGNAL, signal.SIGTRAP)),
        (_stopped(signal.SIGSTOP), Stop(StopKind.SIGNAL, signal.SIGSTOP)),
        (_stopped(signal.SIGRTMAX), Stop(StopKind.SIGNAL, signal.SIGRTMAX)),
        (_stopped(signal.SIGTRAP, 5), Stop(StopKind.OTHER, 5)),  # PTRACE_EVENT_VFORK_DONE
        (0, Stop(StopKind.GONE)),
        (255 << 8, Stop(StopKind.GONE)),
        (signal.SIGKILL, Stop(StopKind.GONE)),
        (signal.SIGSEGV | 0x80, Stop(StopKind.GONE)),
    ],
)
def test_known_statuses(status: int, stop: Stop) -> None:
    assert classify(status) == stop


@pytest.mark.parametrize("number", sorted(STOPPING))
def test_group_stops(number: int) -> None:
    assert classify(_stopped(number, ptrace.EVENT_STOP)) == Stop(StopKind.GROUP, number)


@given(st.integers(0, 2**24 - 1))
def test_any_status_is_something_and_gone_means_gone(status: int) -> None:
    stop = classify(status)
    assert (stop.kind is StopKind.GONE) == (not os.WIFSTOPPED(status))
    if stop.kind is StopKind.SIGNAL:
        assert stop.value == os.WSTOPSIG(status)
