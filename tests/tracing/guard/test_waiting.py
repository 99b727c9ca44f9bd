"""Threads for what waits: as many as needed, none lost, none left over."""

import errno
import os
import signal
import threading
import time

from agentwrap.tracing.guard import waiting
from agentwrap.tracing.guard.answers import ERESTARTSYS, Answers
from agentwrap.tracing.guard.waiting import Workers


def test_jobs_that_wait_for_each_other_all_run() -> None:
    workers, barrier, done = Workers(), threading.Barrier(50), threading.Semaphore(0)

    def job() -> None:
        barrier.wait(300)
        done.release()

    for _ in range(50):
        workers.run(job)
    assert all(done.acquire(timeout=300) for _ in range(50))


def test_idle_threads_are_used_again() -> None:
    workers, seen = Workers(), set[int]()
    for _ in range(200):
        over = threading.Event()
        workers.run(lambda over=over: (seen.add(threading.get_ident()), over.set()))  # type: ignore[misc]
        assert over.wait(300)
        while workers._idle < workers._threads:  # the job is over before its thread has said so
            time.sleep(0)
    assert len(seen) <= 3


class Standing(Answers):
    def __init__(self, *answers: bool) -> None:
        super().__init__(-1)
        self.answers = list(answers)

    def stands(self, _request: int) -> bool:
        return self.answers.pop(0) if self.answers else True


def test_a_wait_ends_by_its_reason_its_limit_or_the_death_of_the_caller() -> None:
    never = lambda _patience: False  # noqa: E731
    assert waiting.wait_until(lambda _patience: True, Standing(), 1, os.getpid(), None) == 0
    assert waiting.wait_until(never, Standing(), 1, os.getpid(), 0.0) == errno.ETIMEDOUT
    assert waiting.wait_until(never, Standing(True, True, False), 1, os.getpid(), None) == waiting.KILLED


def test_a_pending_signal_is_seen_unless_it_is_blocked_or_ignored() -> None:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        os.write(writing, b"x")
        signal.pause()
        os._exit(0)
    try:
        os.read(reading, 1)
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)
        os.kill(pid, signal.SIGUSR2)
        os.kill(pid, signal.SIGTERM)
        assert waiting.signal_pending(pid) == 0
        os.kill(pid, signal.SIGUSR1)
        assert waiting.signal_pending(pid) == ERESTARTSYS
        assert waiting.signal_pending(0) == 0
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)
        os.close(writing)
