import os
import subprocess
import sys
import threading

import pytest

from agentwrap.approvals import ancestry

# A subreaper whose grandchild has lost its parent: what an agent that daemonises looks like.
TREE = """
import ctypes, os, sys; root = os.getpid()
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        while os.getppid() != root:
            os.sched_yield()
        print(os.getpid(), flush=True)
        sys.stdin.read()
    os._exit(0)
os.wait()
os.wait()
"""


def test_a_daemon_still_descends_from_the_subreaper() -> None:
    with subprocess.Popen([sys.executable, "-c", TREE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as root:
        assert root.stdout is not None
        daemon = int(root.stdout.readline())
        assert ancestry.chain(daemon)[:2] == [daemon, root.pid]
        assert ancestry.descends(daemon, {root.pid})
        assert ancestry.descends(root.pid, {root.pid})
        assert ancestry.descends(daemon, {os.getpid()})
        assert not ancestry.descends(os.getpid(), {root.pid})
        shown = ancestry.told(daemon, {root.pid})
        assert shown.endswith(f"({daemon})")
        assert "python" in shown
        assert f"started by {os.path.basename(os.readlink('/proc/self/exe'))} ({root.pid})" in ancestry.told(
            daemon, {os.getpid()}
        )
        root.communicate()


def test_of_a_process_that_is_gone_nothing_is_claimed() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    for ask in (ancestry.chain, lambda pid: ancestry.started_after(pid, 0)):
        with pytest.raises(ancestry.OutOfSight):
            ask(gone.pid)
    for nobody in (0, -1):
        with pytest.raises(ancestry.OutOfSight, match="not of our PID namespace"):
            ancestry.descends(nobody, {1})
    assert ancestry.told(gone.pid, set()) == f"process {gone.pid}, which is gone"
    assert ancestry.told(0, set()) == ""


def test_a_tracer_is_found_by_its_name_however_deep() -> None:
    script = "echo aw-tracer > /proc/self/comm; sh -c 'echo $$; read -r _'; true"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tracer:
        assert tracer.stdout is not None
        child = int(tracer.stdout.readline())
        assert ancestry.tracer_above(child) == tracer.pid
        assert ancestry.tracer_above(tracer.pid) == 0
        assert ancestry.tracer_above(os.getpid()) == 0
        tracer.communicate()
    assert ancestry.tracer_above(child) == 0


def test_a_number_used_again_is_noticed_by_the_start() -> None:
    before = ancestry.now_boottime_ns()
    assert not ancestry.started_after(os.getpid(), before)
    assert ancestry.started_after(os.getpid(), before - 10**9 * 86_400 * 365)


def test_a_name_with_a_parenthesis_is_no_way_out() -> None:
    """The second field of /proc/PID/stat is the process's own choice: `x) S 1 1`."""
    code = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'x) S 1 1', 0, 0, 0); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as odd:
        assert odd.stdout is not None
        odd.stdout.readline()
        assert ancestry.chain(odd.pid)[1] == os.getpid()
        odd.communicate()


def test_long_chains_are_cut_for_showing() -> None:
    code = (
        "import os, sys\nfor _ in range(9):\n  if os.fork(): os.wait(); os._exit(0)\n"
        "print(os.getpid(), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as root:
        assert root.stdout is not None
        pid = int(root.stdout.readline())
        shown = ancestry.told(pid, {os.getpid()}, limit=3)
        assert shown.count("(") == 3
        assert shown.endswith(", ...")
        root.communicate()


def test_threads_of_the_asker_do_not_confuse_it() -> None:
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.append(ancestry.chain(os.getpid())))
    thread.start()
    thread.join()
    assert found == [ancestry.chain(os.getpid())]
