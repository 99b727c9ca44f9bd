"""How long a command takes to answer: on a small recording, and on one of a million events."""

import shutil
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import make_recording
import measure

GOOD = Path(__file__).resolve().parent.parent / "recordings" / "good.agentlog"
FILE = "FILE"
OUT = "OUT"
# (arguments, statuses that mean it did its work)
COMMANDS: list[tuple[list[str], tuple[int, ...]]] = [
    (["--version"], (0,)),
    (["--help"], (0,)),
    (["show", "--help"], (0,)),
    (["show", FILE], (0,)),
    (["show", "--tree", FILE], (0,)),
    (["show", "--files", FILE], (0,)),
    (["show", "--diff", FILE], (0,)),
    (["show", "--gaps", FILE], (0,)),
    (["show", "--json", FILE], (0,)),
    (["tail", FILE], (0,)),
    (["check", FILE], (0, 3)),
    (["verify", FILE], (0, 6)),
    (["export", "--jsonl", FILE], (0,)),
    (["snapshot", FILE, OUT], (0,)),
    (["undo", FILE], (0, 1)),
    (["help", "filters"], (0,)),
    (["keygen", "--help"], (0,)),
    (["doctor"], (0, 1)),
]


@dataclass(frozen=True)
class Start:
    """Median milliseconds of a whole command."""

    command: str
    median_ms: float
    least_ms: float


@dataclass(frozen=True)
class Stream:
    """A reading command on a long recording: seconds to its first line and to its end, and lines printed."""

    command: str
    first_s: float
    total_s: float
    lines: int


def start_ups(agentwrap: Sequence[str], folder: Path, *, rounds: int, say: measure.Say) -> list[Start]:
    """Every command on a small recording, `rounds` times, in turns; Python's own start is the first row."""
    with measure.fresh(folder / "commands") as run:
        recording = run / "good.agentlog"
        shutil.copy(GOOD, recording)
        asked = [([_python(agentwrap), "-c", "pass"], (0,))]
        asked += [([*agentwrap, *arguments], statuses) for arguments, statuses in COMMANDS]
        times: list[list[float]] = [[] for _ in asked]
        for number in range(rounds):
            for index, (command, statuses) in enumerate(asked):
                copy = run / f"copy-{number}-{index}.agentlog"
                names = {FILE: str(recording), OUT: str(copy)}
                times[index].append(_once([names.get(word, word) for word in command], statuses, run))
        titles = ["(python -c pass)", *(f"agentwrap {' '.join(arguments)}" for arguments, _ in COMMANDS)]
        out = [Start(title, statistics.median(mine), min(mine)) for title, mine in zip(titles, times, strict=True)]
    for row in out:
        say(f"{row.command:40} {row.median_ms:7.1f} ms")
    return out


def _python(agentwrap: Sequence[str]) -> str:
    first = Path(agentwrap[0])
    beside = first.with_name("python")
    return str(beside) if beside.exists() else str(first)


def _once(command: list[str], statuses: tuple[int, ...], folder: Path) -> float:
    began = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=measure.environment(folder), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    elapsed_ms = (time.perf_counter() - began) * 1e3
    if done.returncode not in statuses:
        raise RuntimeError(f"{command}: status {done.returncode}: {done.stderr[-300:]!r}")
    return elapsed_ms


def long_recording(count: int, folder: Path, say: measure.Say) -> Path:
    """A recording of `count` synthetic events; made once a folder."""
    path = folder / f"long-{count}.agentlog"
    if not path.exists():
        say(f"making a recording of {count:,} events")
        partial = path.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        make_recording.make(count, partial)
        partial.rename(path)
    return path


def streams(agentwrap: Sequence[str], recording: Path, folder: Path, say: measure.Say) -> list[Stream]:
    """`show` and `tail` to their ends."""
    asked = (["show"], ["show", "kind:process.exit"], ["show", "--files"], ["show", "--json"], ["tail"])
    out = []
    for arguments in (*asked, ["check"], ["verify"]):
        command = [*agentwrap, *arguments[:1], str(recording), *arguments[1:]]
        began = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, env=measure.environment(folder), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        first, lines = None, 0
        while data := process.stdout.read1(1 << 16):
            first = first or time.perf_counter() - began
            lines += data.count(b"\n")
        process.wait()
        total = time.perf_counter() - began
        row = Stream(f"agentwrap {' '.join(arguments)}", first or total, total, lines)
        out.append(row)
        say(f"{row.command:36} first line {row.first_s:6.2f} s, end {row.total_s:6.2f} s, {lines:,} lines")
    return out
