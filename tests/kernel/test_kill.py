"""kill -9 of the supervisor at any moment: the file is readable and lacks at most the last 50 ms."""

import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from waiting_bystander import Bystander, stop, waited_ns
from wrapping import AGENTWRAP, command, environment, events

LOSS_NS = 50_000_000
HANDS = 3
"""The tracer, the supervisor and the recorder's thread: each of them may be woken as late as anybody."""
# Makes directories named after the clock that the kill is read from; each is an event of its own.
AGENT = """
import os, time
print("ready", flush=True)
while True:
    os.mkdir("d%d" % time.monotonic_ns())
    time.sleep(0.001)
"""


@pytest.mark.parametrize("turn", range(12))
def test_at_most_50_ms_are_lost(tmp_path: Path, turn: int) -> None:
    work = tmp_path / "work"
    work.mkdir()
    recording = tmp_path / "run.agentlog"
    process = subprocess.Popen(
        command(recording, "/usr/bin/python3", "-c", AGENT),
        stdout=subprocess.PIPE,
        cwd=work,
        env=environment(tmp_path),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    waited_before_ns = waited_ns(process.pid)
    with Bystander() as bystander:
        # The moment is the test's input, not a wait for anything.
        time.sleep(random.Random(turn).uniform(0.02, 0.6))
        killed_ns = time.monotonic_ns()
        tracer = stop(process.pid)
        waited_already_ns = waited_ns(process.pid) - waited_before_ns
        process.kill()
    for pid in tracer:
        os.kill(pid, signal.SIGCONT)
    process.wait()
    process.stdout.close()
    made = {int(name.name[1:]) for name in work.iterdir()}
    told = {int(m[1]) for e in events(recording, "file.directory") if (m := re.search(r"/d(\d+)$", e.data["path"]))}
    lost = sorted(at for at in made - told if at < killed_ns)
    # What each of them has waited, and how late it may have been woken.
    allowed_ns = LOSS_NS + waited_already_ns + HANDS * bystander.longest_wait_ns
    assert not [at for at in lost if at < killed_ns - allowed_ns], (killed_ns - lost[0]) / 1e6
    assert told <= made
    checked = subprocess.run([*AGENTWRAP, "verify", str(recording)], capture_output=True, env=environment(tmp_path))
    assert checked.returncode == 4, checked.stdout + checked.stderr  # torn, nothing worse
