"""The results as Markdown, with the machine they were taken on and the targets they are held against."""

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import report_confined
from commands import Start, Stream
from confined import Confined
from gateway import Traffic
from measure import Result

MAX_ADDED_MS = 300
MAX_MEMORY_MB = 150
MIN_EVENTS_PER_SECOND = 50_000
MAX_START_MS = 100
MAX_FIRST_LINE_S = 1.0

INTRODUCTION = """\
# Benchmarks

Written by `python tests/bench/run.py -o docs/benchmarks.md`; numbers of another machine will differ, ratios less so.
All ways of a workload run in turns in the same session (A B C, A B C, ...); given are medians of wall time and the
ratio to native. The ratio is of the whole command, start-up and closing of the recording included. Every recording is
checked for the rows the workload must leave. `strace, same events` is `strace -f --seccomp-bpf` with the calls that
agentwrap watches; it stops at every open, agentwrap only at those that write (without `--reads`). The ways with strace
run in every other round. `less start-up` is agentwrap's ratio without what it adds to `true`: what a longer run of the
same kind tends to. `best rounds` is agentwrap's fastest round over the fastest native one: on a machine with other work
it is the steadier figure.
"""


WHERE = """
## Where the time goes

Profiled by hand on a virtual machine with two Zen 2 cores; the proportions, more than the figures, hold elsewhere.

* **Start-up and end, 100 ms, once a run.** Python 10, the command line 40, the recorder's modules 35 (the tracer loads
  its own meanwhile, on the other core), the first commit, the command's exec and the closing of the file 15. In a run
  of one second that is 10 %, in one of a minute nothing.
* **A confined start, about 120 ms of processor time more.** 75 to load the gateway (65 of them trio), which is forked
  first and loads while the rest goes on; 30 to read the policy, plan and fork; 8 for the namespaces; 6 for the tracer's
  judge.
* **A connection through the gateway, about 270 µs of its processor time:** 85 in the kernel, the rest in trio's tasks
  and waits and in looking up who it is, judging and telling. Beside that 75 in the tracer (guard: 200, it makes the
  connection itself) and 70 in the recorder, all on the cores that client and server need, too: with two of them this
  is what bounds connections/s.
* **A reported call, about 40 µs of processor time.** To receive and to answer it takes 12 µs, whatever is done between.
  To look at it (path, state before, what the call before it did) takes 17 µs in a loop and 30 µs in a run: each change
  between agent and tracer begins with cold caches, and without PCID (Zen 2 and older) with an empty TLB. There, a
  handler that does nothing already makes the create/write/unlink loop 4 times as long as native.
* **A written file, about 60 µs more,** when it has come to rest: read, hashed, compared, sent; then 20 µs in the
  recorder, in its own process.
* **A process, about 1 ms:** four stops under ptrace, 0.2 ms to look at it after its exec.
* **A model call, one to two milliseconds of the recorder's core:** for one of 22 KB in 41 messages with a streamed
  answer 0.9 to read it (the answer's 21 events 0.4, the messages, most of them known, 0.3) and 0.6 to redact and to
  store it; for one of 1 KB 0.5 and 0.35. The gateway's 0.1 for reading in passing is what the client waits for. What
  comes faster is buffered (4 MB), then the client waits: hence few large calls/s with four clients.
* **Nothing** for what is not reported: `read`, `write`, `close`, `stat`, opens that only read. Hence the CPU loop and
  `find` beside strace.
"""


@dataclass
class Results:
    """Everything of one session; what was not run is empty."""

    rounds: int
    quick: bool
    tables: list[Result] = field(default_factory=list)
    events_per_second: float = 0.0
    memory: list[dict[str, float]] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    stream_events: int = 0
    traffic: list[Traffic] = field(default_factory=list)
    confined: list[Confined] = field(default_factory=list)
    models: str = ""
    mcp: str = ""

    def put(self, result: Result) -> None:
        """Add a row of the table, in place of an earlier one of the same title."""
        titles = [old.title for old in self.tables]
        if result.title in titles:
            self.tables[titles.index(result.title)] = result
        else:
            self.tables.append(result)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, path: Path) -> "Results":
        told = json.loads(path.read_text())
        told["tables"] = [Result(**row) for row in told["tables"]]
        told["starts"] = [Start(**row) for row in told["starts"]]
        told["streams"] = [Stream(**row) for row in told["streams"]]
        told["traffic"] = [Traffic(**row) for row in told.get("traffic", [])]
        told["confined"] = [Confined(**row) for row in told.get("confined", [])]
        return cls(**told)


def machine() -> list[tuple[str, str]]:
    """Facts that a reader needs to compare."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    system = platform.freedesktop_os_release().get("PRETTY_NAME", "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return [
        ("date", time.strftime("%Y-%m-%d")),
        ("system", system),
        ("kernel", f"{platform.release()} {platform.machine()}"),
        ("processor", f"{model}, {os.cpu_count()} cores"),
        ("memory", f"{memory:.0f} GiB"),
        ("Python", platform.python_version()),
        ("load when written", f"{os.getloadavg()[0]:.1f}"),
    ]


def _mark(good: bool) -> str:
    return "yes" if good else "**no**"


def comparison(results: Sequence[Result], ways: Sequence[str]) -> list[str]:
    """One row a workload: native seconds, then the ratio of every other way."""
    others = [way for way in ways if way != "native"]
    start_s = next((result.added_ms("agentwrap") or 0.0 for result in results if result.title == "`true`"), 0.0) / 1e3
    told = ("agentwrap adds", "less start-up", "best rounds", "target", "met")
    lines = [
        f"| {' | '.join(('workload', 'native', *others, *told))} |",
        "|---|--:|" + "--:|" * len(others) + "--:|--:|--:|--:|---|",
    ]
    for result in results:
        if result.skipped:
            lines.append(f"| {result.title} | skipped: {result.skipped} |" + " |" * (len(others) + 5))
            continue
        native, added = result.median("native"), result.added_ms("agentwrap")
        cells = [f"{native:.3f} s" if native is not None else ""]
        for way in others:
            ratio = result.ratio(way)
            cells.append("" if ratio is None else f"{ratio:.2f}x" if ratio < 100 else f"{ratio:.0f}x")
        cells.append("" if added is None else f"{added:+,.0f} ms")
        cells.append(_less_start(result, start_s))
        best = result.best_ratio("agentwrap")
        cells.append("" if best is None else f"{best:.2f}x" if best < 100 else f"{best:.0f}x")
        cells += _target(result, added)
        lines.append(f"| {result.title} | " + " | ".join(cells) + " |")
    return lines


def _less_start(result: Result, start_s: float) -> str:
    mine, native = result.median("agentwrap"), result.median("native")
    if mine is None or native is None or not start_s or result.title == "`true`":
        return ""
    return f"{(mine - start_s) / native:.2f}x"


def _target(result: Result, added: float | None) -> list[str]:
    if added is not None and result.title == "`true`":
        return [f"< +{MAX_ADDED_MS} ms", _mark(added < MAX_ADDED_MS)]
    ratio = result.ratio("agentwrap")
    if result.target is None or ratio is None:
        return ["", ""]
    return [f"< {result.target:.2f}x", _mark(ratio < result.target)]


def _recorder(results: Results) -> list[str]:
    lines = ["", "## Recorder and memory", "", "| what | figure | target | met |", "|---|--:|--:|---|"]
    if results.events_per_second:
        rate = results.events_per_second
        good = _mark(rate > MIN_EVENTS_PER_SECOND)
        lines.append(f"| synthetic events of a build through the recorder | {rate:,.0f}/s | > 50,000/s | {good} |")
    for told in results.memory:
        both = told["supervisor"] + told["tracer"]
        what = f"peak memory of supervisor and tracer while {told['rows']:,.0f} rows were made"
        figure = f"{told['supervisor']:.0f} + {told['tracer']:.0f} = {both:.0f} MB"
        lines.append(f"| {what} | {figure} | < {MAX_MEMORY_MB} MB | {_mark(both < MAX_MEMORY_MB)} |")
        flat = f"{told['early']:.0f} → {told['late']:.0f} MB"
        lines.append(f"| resident size of both, early and at the end | {flat} | flat | |")
    return lines


def _starts(results: Results) -> list[str]:
    lines = ["", "## Start-up of every command", "", "Whole commands on a small recording; median of the rounds."]
    lines += ["", "| command | median | least | < 100 ms |", "|---|--:|--:|---|"]
    for row in results.starts:
        own = row.command.startswith("agentwrap")
        good = _mark(row.median_ms < MAX_START_MS) if own else ""
        lines.append(f"| `{row.command.strip('()')}` | {row.median_ms:.0f} ms | {row.least_ms:.0f} ms | {good} |")
    return lines


def _streams(results: Results) -> list[str]:
    lines = ["", f"## Reading {results.stream_events:,} events", ""]
    lines += ["| command | first line | all of it | lines | first line < 1 s |", "|---|--:|--:|--:|---|"]
    for row in results.streams:
        good = _mark(row.first_s < MAX_FIRST_LINE_S) if row.command.split()[1] in ("show", "tail") else ""
        lines.append(f"| `{row.command}` | {row.first_s:.2f} s | {row.total_s:.1f} s | {row.lines:,} | {good} |")
    return lines


def markdown(results: Results, ways: Sequence[str]) -> str:
    """The whole page."""
    lines = [INTRODUCTION, "| machine | |", "|---|---|", *(f"| {name} | {value} |" for name, value in machine())]
    lines.append(f"| rounds | {results.rounds}{' (quick sizes: figures mean little)' if results.quick else ''} |")
    if results.tables:
        lines += ["", "## Side by side", "", *comparison(results.tables, ways)]
    if results.traffic:
        lines += report_confined.traffic(results.traffic)
    if results.confined:
        lines += report_confined.starts(results.confined)
    if results.models:
        lines += ["", *results.models.rstrip().split("\n")]
    if results.mcp:
        lines += ["", *results.mcp.rstrip().split("\n")]
    if results.events_per_second or results.memory:
        lines += _recorder(results)
    if results.starts:
        lines += _starts(results)
    if results.streams:
        lines += _streams(results)
    lines += WHERE.rstrip().split("\n")
    return "\n".join(lines) + "\n"
