"""Calls made by a program before its first instruction: it begins as if nothing had been, whatever comes in between."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from wrapping import program

from agentwrap.tracing import ptrace
from agentwrap.tracing.interposing.injection import SCRATCH_BYTES, GoneError, Injection, InjectionError
from agentwrap.tracing.stops import StopKind, classify

GETPID, PIPE2 = 39, 293
SOURCE = r"""
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    sigset_t set;
    sigprocmask(SIG_BLOCK, 0, &set);
    for (int i = 1; i < 65; i++) if (sigismember(&set, i) == 1) return 9;
    return 5;
}
"""


class Tracee:
    """A child that stands at PTRACE_EVENT_EXEC."""

    def __init__(self, path: str) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                # A group of its own is not orphaned, whatever ours is: its terminal stops count (setpgid(2)).
                os.setpgid(0, 0)
                os.close(writing)
                os.read(reading, 1)
                os.execv(path, [path])
            finally:
                os._exit(127)
        os.close(reading)
        ptrace.seize(self.pid, ptrace.OPT_SYSGOOD | ptrace.OPT_EXEC | ptrace.OPT_EXITKILL)
        os.close(writing)
        assert classify(os.waitpid(self.pid, ptrace.WALL)[1]).kind is StopKind.EXEC

    def rest(self) -> tuple[list[int], int]:
        """Let it go on: the signals it gets (each is delivered), and its wait status. Stops are ended."""
        got = []
        while True:
            ptrace.resume(self.pid, got[-1] if got and got[-1] > 0 else 0)
            status = os.waitpid(self.pid, ptrace.WALL)[1]
            stop = classify(status)
            if stop.kind is StopKind.GONE:
                return [abs(one) for one in got if one], status
            got.append(stop.value if stop.kind is StopKind.SIGNAL else 0)

    def kill(self) -> None:
        try:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # still ours, not another's by now
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, ptrace.WALL)
        except (ProcessLookupError, ChildProcessError):
            pass


Make = Callable[[str], Tracee]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Tracee] = []

    def one(path: str) -> Tracee:
        made.append(Tracee(path))
        return made[-1]

    yield one
    for tracee in made:
        tracee.kill()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return program(tmp_path_factory.mktemp("injection"), "target", SOURCE)


def memory(pid: int, address: int, size: int) -> bytes:
    with open(f"/proc/{pid}/mem", "rb") as file:
        file.seek(address)
        return file.read(size)


@pytest.mark.parametrize("vdso", [True, False], ids=["vdso", "poked"])
def test_it_begins_as_if_nothing_had_been(
    make: Make, path: str, vdso: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not vdso:
        monkeypatch.setattr(Injection, "_find_instruction", lambda _: 0)
    tracee = make(path)
    before = ptrace.registers(tracee.pid)
    mask = ptrace.signal_mask(tracee.pid)
    assert before is not None
    with Injection(tracee.pid) as inject:
        around = memory(tracee.pid, inject.scratch, SCRATCH_BYTES)
        ip = int.from_bytes(before[16 * 8 : 17 * 8], "little")
        code = memory(tracee.pid, ip, 64)
        inject.write(inject.scratch, b"\xff" * SCRATCH_BYTES)
        assert inject.call(GETPID) == tracee.pid
        assert inject.call(PIPE2, inject.scratch, 0) == 0
        assert inject.call(PIPE2, 1, 0) == -14  # EFAULT
        scratch = inject.scratch
    assert vdso == (code == memory(tracee.pid, ip, 64))
    assert memory(tracee.pid, scratch, SCRATCH_BYTES) == around
    after = ptrace.registers(tracee.pid)
    assert after is not None
    # rax, which execve's own return has set meanwhile; nothing else
    assert after[: 10 * 8] + after[11 * 8 :] == before[: 10 * 8] + before[11 * 8 :]
    assert after[10 * 8 : 11 * 8] == bytes(8)
    assert ptrace.signal_mask(tracee.pid) == mask
    assert tracee.rest() == ([], 5 << 8)


def test_signals_wait_until_it_is_over(make: Make, path: str) -> None:
    tracee = make(path)
    with Injection(tracee.pid) as inject:
        os.kill(tracee.pid, signal.SIGWINCH)
        assert inject.call(GETPID) == tracee.pid
        os.kill(tracee.pid, signal.SIGTERM)
        assert inject.call(GETPID) == tracee.pid
    got, status = tracee.rest()
    assert sorted(got) == sorted([signal.SIGTERM, signal.SIGWINCH]) or got == [signal.SIGTERM]  # deadly ones go first
    assert os.WTERMSIG(status) == signal.SIGTERM


@pytest.mark.parametrize(
    ("sent", "stops"),
    [((signal.SIGSTOP,), True), ((signal.SIGSTOP, signal.SIGCONT), False), ((signal.SIGTSTP,), True)],
)
def test_a_stop_is_put_off(make: Make, path: str, sent: tuple[signal.Signals, ...], stops: bool) -> None:
    tracee = make(path)
    with Injection(tracee.pid) as inject:
        for number in sent:
            os.kill(tracee.pid, number)
            assert inject.call(GETPID) == tracee.pid
    ptrace.resume(tracee.pid)
    seen = []
    while True:
        stop = classify(os.waitpid(tracee.pid, ptrace.WALL)[1])
        if stop.kind in (StopKind.GROUP, StopKind.GONE):
            break
        seen.append(stop)
        ptrace.resume(tracee.pid, stop.value if stop.kind is StopKind.SIGNAL else 0)
    assert (stop.kind is StopKind.GROUP) == stops, seen


@pytest.mark.parametrize("moment", ["before", "between", "at the end"])
def test_a_kill_in_the_middle_is_what_waitpid_said(make: Make, path: str, moment: str) -> None:
    tracee = make(path)
    if moment == "before":
        os.kill(tracee.pid, signal.SIGKILL)
    with pytest.raises(GoneError) as gone, Injection(tracee.pid) as inject:  # noqa: PT012
        assert inject.call(GETPID) == tracee.pid
        if moment == "between":
            os.kill(tracee.pid, signal.SIGKILL)
            inject.call(GETPID)
        os.kill(tracee.pid, signal.SIGKILL)
        inject.call(GETPID)
    assert os.WTERMSIG(gone.value.status) == signal.SIGKILL
    with pytest.raises(ChildProcessError):
        os.waitpid(tracee.pid, ptrace.WALL)


def test_a_kill_after_the_last_call_is_left_to_whoever_waits(make: Make, path: str) -> None:
    tracee = make(path)
    with Injection(tracee.pid) as inject:
        assert inject.call(GETPID) == tracee.pid
        os.kill(tracee.pid, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(tracee.pid, ptrace.WALL)[1]) == signal.SIGKILL


def test_a_32_bit_program_is_left_alone(make: Make, tmp_path: Path) -> None:
    (tmp_path / "small.S").write_text(".globl _start\n_start: movl $1, %eax; movl $6, %ebx; int $0x80\n")
    words = ["cc", "-m32", "-nostdlib", "-static", "-no-pie", "-o", tmp_path / "small", tmp_path / "small.S"]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("no assembler for 32-bit programs here")
    tracee = make(str(tmp_path / "small"))
    with pytest.raises(InjectionError, match="32-bit"), Injection(tracee.pid):
        pytest.fail("no call can be made there")
    assert tracee.rest() == ([], 6 << 8)
