"""How fast events become rows, and how much memory a long run takes."""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import make_recording
import measure
from workloads import LOOP, compiled

from agentwrap.events import Item
from agentwrap.recording.pump import RecorderPump
from agentwrap.recording.redact import Redactor
from agentwrap.recording.writer import Recorder

BATCH = 256


def events_per_second(count: int, path: Path) -> float:
    """Synthetic events of a build through RecorderPump in batches, from the first `put` to the closed file."""
    path.unlink(missing_ok=True)
    batches: list[list[Item]] = []
    for number, event in enumerate(make_recording.events(count)):
        if number % BATCH == 0:
            batches.append([])
        batches[-1].append(event)
    recorder = Recorder.create(
        path, run_id="00000000000000fe", meta={"command": "[]"}, redactor=Redactor(b"k" * 32), signer=None,
        now=lambda: 0,
    )  # fmt: skip
    pump = RecorderPump(recorder)
    made = sum(len(batch) for batch in batches)
    began = time.perf_counter()
    pump.start()
    for batch in batches:
        pump.put(batch)
    closed = pump.flush_and_close(600)
    elapsed = time.perf_counter() - began
    found = sum(measure.counts(path).values())
    if not closed or found < made:
        raise measure.TooFewRowsError(f"recorder: {found} rows of {made} events, {pump.failure}")
    return made / elapsed


def _high_water(pid: int) -> tuple[int, int]:
    """(VmHWM, VmRSS) of a process in bytes, zeros when it is gone (proc(5))."""
    values = {"VmHWM": 0, "VmRSS": 0}
    try:
        with open(f"/proc/{pid}/status") as file:
            for line in file:
                name, _, rest = line.partition(":")
                if name in values:
                    values[name] = int(rest.split()[0]) * 1024
    except OSError:
        pass
    return values["VmHWM"], values["VmRSS"]


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def memory(count: int, agentwrap: Sequence[str], folder: Path) -> dict[str, float]:
    """Wrap a loop that makes and removes `count` files; sizes in MB of supervisor and tracer.

    `early` is the resident size of both together after the first tenth of the rows, `late` at the end: flat means that
    they are alike.
    """
    with measure.fresh(folder / "memory") as run:
        compiled(run, "loop", LOOP)
        home, out = run / "home", run / "out.agentlog"
        home.mkdir()
        # It begins when both were seen once: however short it is, and however seldom we come to look.
        loop = ["sh", "-c", f"read -r _; exec ./loop {count}"]
        command = [*agentwrap, "run", "-q", "-o", str(out), "--", *loop]
        process = subprocess.Popen(command, cwd=run, env=measure.environment(home), stdin=subprocess.PIPE)
        assert process.stdin is not None
        samples: list[tuple[int, int, int]] = []
        tracer = 0
        while process.poll() is None:
            # The tracer is the supervisor's first child; the agent is the tracer's.
            tracer = tracer or next(iter(_children(process.pid)), 0)
            mine, other = _high_water(process.pid), _high_water(tracer) if tracer else (0, 0)
            if mine[0] and other[0]:
                samples.append((mine[0], other[0], mine[1] + other[1]))
                if len(samples) == 1:
                    process.stdin.write(b"\n")
                    process.stdin.close()
            time.sleep(0.1)
        found = sum(measure.counts(out).values())
        if process.returncode or found < count or not samples:
            raise measure.TooFewRowsError(f"memory: status {process.returncode}, {found} rows of {count}")
    mb = 1e-6
    return {
        "rows": found,
        "supervisor": max(s[0] for s in samples) * mb,
        "tracer": max(s[1] for s in samples) * mb,
        "early": samples[len(samples) // 10][2] * mb,
        "late": samples[-1][2] * mb,
    }
