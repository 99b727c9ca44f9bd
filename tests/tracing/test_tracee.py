"""What an error about a tracee means."""

import errno
import os
import subprocess

from agentwrap.tracing.tracee import refused

KEPT = PermissionError(errno.EACCES, "")


def test_a_thread_that_is_ending_or_gone_is_not_kept_from_us() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not refused(KEPT, child.pid)
    child.wait()
    assert not refused(KEPT, child.pid)


def test_what_is_kept_from_us_is_not_what_is_not_there() -> None:
    assert refused(KEPT, os.getpid())
    assert refused(PermissionError(errno.EPERM, ""), os.getpid())
    assert not refused(FileNotFoundError(errno.ENOENT, ""), os.getpid())
