"""Runs workloads side by side and keeps the times. One round is every way once; rounds repeat, medians are taken.

Interleaved, because this machine has other work: what disturbs one round disturbs all ways of it.
"""

import os
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ways import Way
from workloads import Workload

Say = Callable[[str], None]


class TooFewRowsError(Exception):
    """The recording of a workload does not hold what the workload did: its time means nothing."""


@dataclass
class Result:
    """Wall seconds of every round, by way. `skipped`: why there are none. `rows`: events of the last recording."""

    title: str
    target: float | None = None
    skipped: str = ""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    rows: int = 0

    def median(self, way: str) -> float | None:
        times = self.seconds.get(way)
        return statistics.median(times) if times else None

    def ratio(self, way: str) -> float | None:
        """Median of the way over median of native."""
        mine, native = self.median(way), self.median("native")
        return mine / native if mine is not None and native else None

    def best_ratio(self, way: str) -> float | None:
        """Fastest round of the way over fastest of native: what is left when other work on the machine is left out."""
        mine, native = self.seconds.get(way), self.seconds.get("native")
        return min(mine) / min(native) if mine and native else None

    def added_ms(self, way: str) -> float | None:
        mine, native = self.median(way), self.median("native")
        return (mine - native) * 1e3 if mine is not None and native is not None else None


def environment(home: Path) -> dict[str, str]:
    """Nothing of the user's: no configuration, no recordings among theirs, PATH without version managers' shims."""
    places = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
    return {
        "PATH": ":".join(places),
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
    }


def counts(recording: Path) -> dict[str, int]:
    """Kind of event to number of rows."""
    db = sqlite3.connect(f"file:{recording}?mode=ro", uri=True)
    try:
        return dict(db.execute("select kind, count(*) from event group by kind"))
    finally:
        db.close()


def weights(recording: Path) -> dict[str, int]:
    """Kind of event to how often it happened: a row may stand for many."""
    weight = "sum(coalesce(json_extract(data, '$.count'), 1))"
    db = sqlite3.connect(f"file:{recording}?mode=ro", uri=True)
    try:
        return dict(db.execute(f"select kind, {weight} from event group by kind"))
    finally:
        db.close()


def demand(workload: Workload, size: int, found: dict[str, int]) -> None:
    """Raises TooFewRowsError."""
    for kind, least in workload.rows(size).items():
        if found.get(kind, 0) < least:
            raise TooFewRowsError(f"{workload.name}: {found.get(kind, 0)} rows of {kind}, at least {least} expected")


@contextmanager
def fresh(folder: Path) -> Iterator[Path]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def once(workload: Workload, size: int, way: Way, folder: Path) -> tuple[float, dict[str, int]]:
    """One run in a fresh folder: wall seconds, and what was recorded."""
    with fresh(folder / "run") as run:
        work, home, out = run / "work", run / "home", run / "out.agentlog"
        work.mkdir()
        home.mkdir()
        workload.prepare(work, size)
        os.sync()
        command = [*way.prefix(str(out)), *workload.command(size)]
        began = time.perf_counter()
        done = subprocess.run(
            command, cwd=work, env=environment(home), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
        seconds = time.perf_counter() - began
        if done.returncode:
            raise RuntimeError(f"{workload.name}, {way.name}: status {done.returncode}: {done.stderr[-300:]!r}")
        found = counts(out) if way.records else {}
        if way.records:
            demand(workload, size, found)
        return seconds, found


def in_round(way: Way, number: int) -> bool:
    return not way.slow or number % 2 == 0


def compare(
    workload: Workload, ways: Sequence[Way], folder: Path, *, rounds: int, quick: bool, size: int | None, say: Say
) -> Result:
    """All ways of one workload."""
    size = size or (workload.quick_size if quick else workload.size)
    result = Result(workload.title.format(size=f"{size:,}"), workload.target)
    missing = [program for program in workload.needs if not shutil.which(program)]
    if missing:
        result.skipped = f"not installed: {', '.join(missing)}"
        return result
    for number in range(rounds):
        for way in ways:
            if in_round(way, number):
                seconds, found = once(workload, size, way, folder)
                result.seconds.setdefault(way.name, []).append(seconds)
                result.rows = sum(found.values()) or result.rows
                say(f"{workload.name:8} {way.name:20} {seconds:8.3f} s")
    return result


def agents(lab: Path | None, names: Sequence[str], ways: Sequence[Way], *, rounds: int, say: Say) -> list[Result]:
    """Real agents on a fake model, by the lab's own driver, which prints wall= and what worked."""
    out = []
    for name in names:
        result = Result(f"{name} on a fake model", 1.10)
        if lab is None:
            result.skipped = "AGENTWRAP_LAB does not name the folder with the agents' lab"
        elif os.geteuid():
            result.skipped = "the lab needs root for its namespaces"
        else:
            for number in range(rounds):
                for way in ways:
                    if in_round(way, number):
                        seconds = _agent(lab, name, way)
                        result.seconds.setdefault(way.name, []).append(seconds)
                        say(f"{name:8} {way.name:20} {seconds:8.3f} s")
        out.append(result)
    return out


def _agent(lab: Path, name: str, way: Way) -> float:
    script = next(path for path in (lab / "agents" / "lab.py", lab / "lab.py") if path.exists())
    prefix = " ".join(way.prefix("{dir}/bench.agentlog"))
    command = [sys.executable, str(script), "run", name, "--quiet", "--no-sample", "--name", f"bench-{name}"]
    if prefix:
        command += ["--wrap", prefix]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    wall = re.search(r"wall=([0-9.]+)", done.stdout)
    if done.returncode or wall is None or "rc=0" not in done.stdout or "edit=True" not in done.stdout:
        raise RuntimeError(f"{name}, {way.name}: {done.stdout[-300:]}{done.stderr[-300:]}")
    return float(wall[1])
