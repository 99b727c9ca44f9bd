"""Benchmarks: `python tests/bench/run.py [--quick] [--only NAMES] [--rounds N] [-o docs/benchmarks.md]`.

Names: the workloads' (`--list`), `agents`, `gateway`, `starts-confined`, `models`, `mcp`, `recorder`, `memory`,
`commands`, `streams`. The real agents run where AGENTWRAP_LAB names the folder of their lab. `--peers` names a folder
with others: `node_modules` with srt, `venv` with sandlock, mitmproxy, backspin, mcpjail, wakeprint and mcp-rec; the
rest are looked for in PATH. Nothing leaves the machine.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

import commands
import confined
import gateway
import mcp_relay
import measure
import model_proxy
import recorder
import report
import ways as ways_module
import workloads

PARTS = ("agents", "gateway", "starts-confined", "models", "mcp", "recorder", "memory", "commands", "streams")
AGENTS = ("claude", "codex")


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round: only whether it works")
    parser.add_argument("--only", metavar="NAMES", default="", help="comma-separated names (default: all)")
    parser.add_argument("--skip", metavar="NAMES", default="", help="comma-separated names to leave out")
    parser.add_argument("--ways", metavar="NAMES", default="", help="comma-separated ways (default: all)")
    parser.add_argument("--peers", type=Path, metavar="DIR", help="where srt and sandlock are installed")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds (default: 5; quick: 1)")
    parser.add_argument("--size", type=int, metavar="N", help="another size for the workloads")
    parser.add_argument("--folder", type=Path, help="where to work (default: a new folder in TMPDIR)")
    parser.add_argument("--agentwrap", help="the program to measure (default: the one beside this Python)")
    parser.add_argument("-o", "--output", type=Path, help="write the page here (default: standard output)")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="keep the figures here, beside those of earlier parts"
    )
    parser.add_argument("--list", action="store_true", help="print the names and leave")
    return parser.parse_args(argv)


def names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def chosen(options: argparse.Namespace) -> list[str]:
    known = [workload.name for workload in workloads.all_workloads()] + list(PARTS)
    asked = names(options.only) or known
    unknown = sorted({*asked, *names(options.skip)} - {*known})
    if unknown:
        raise SystemExit(f"no such name: {', '.join(unknown)} (names: {', '.join(known)})")
    return [name for name in known if name in asked and name not in names(options.skip)]


def run(options: argparse.Namespace, folder: Path, say: measure.Say) -> tuple[report.Results, list[str]]:
    """Everything that was asked for."""
    wanted = chosen(options)
    agentwrap = [options.agentwrap] if options.agentwrap else ways_module.default_agentwrap()
    ways = ways_module.ways(agentwrap)
    if options.ways:
        ways = [way for way in ways if way.name in names(options.ways)]
    kept = options.keep is not None and options.keep.exists()
    rounds = options.rounds or (1 if options.quick else 5)
    results = report.Results.load(options.keep) if kept else report.Results(rounds, options.quick)
    try:
        _fill(results, options, wanted, ways, agentwrap, folder, say)
    finally:
        if options.keep is not None:
            results.save(options.keep)
    return results, [way.name for way in ways]


def _fill(
    results: report.Results,
    options: argparse.Namespace,
    wanted: list[str],
    ways: list[ways_module.Way],
    agentwrap: list[str],
    folder: Path,
    say: measure.Say,
) -> None:
    quick, rounds = options.quick, options.rounds or (1 if options.quick else 5)
    for workload in workloads.all_workloads():
        if workload.name in wanted:
            results.put(measure.compare(workload, ways, folder, rounds=rounds, quick=quick, size=options.size, say=say))
    if "agents" in wanted:
        lab = os.environ.get("AGENTWRAP_LAB")
        for result in measure.agents(Path(lab) if lab else None, AGENTS, ways, rounds=rounds, say=say):
            results.put(result)
    named = names(options.ways)
    if "gateway" in wanted:
        results.traffic = gateway.compare(agentwrap, rounds=rounds, quick=quick, only=named, say=say)
    if "starts-confined" in wanted:
        many = 1 if quick else max(rounds, 11)
        results.confined = confined.compare(agentwrap, options.peers, rounds=many, only=named, say=say)
    if "models" in wanted:
        results.models = model_proxy.page(rounds=rounds, quick=quick, peers=options.peers)
    if "mcp" in wanted:
        results.mcp = mcp_relay.page(rounds=rounds, quick=quick, peers=options.peers)
    if "recorder" in wanted:
        results.events_per_second = recorder.events_per_second(2_000 if quick else 200_000, folder / "rate.agentlog")
        say(f"recorder {results.events_per_second:,.0f} events/s")
    if "memory" in wanted:
        results.memory.clear()
        for count in (200,) if quick else (100_000, 1_000_000):
            results.memory.append(recorder.memory(count, agentwrap, folder))
            say(f"memory   {results.memory[-1]}")
    if "commands" in wanted:
        results.starts = commands.start_ups(agentwrap, folder, rounds=1 if quick else max(rounds, 15), say=say)
    if "streams" in wanted:
        results.stream_events = 2_000 if quick else 1_000_000
        recording = commands.long_recording(results.stream_events, folder, say)
        results.streams = commands.streams(agentwrap, recording, folder, say)


def main(argv: list[str] | None = None) -> None:
    options = arguments(argv)
    if options.list:
        print("\n".join([workload.name for workload in workloads.all_workloads()] + list(PARTS)))
        return
    folder = options.folder or Path(tempfile.mkdtemp(prefix="agentwrap-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        results, ways = run(options, folder, lambda line: print(line, file=sys.stderr, flush=True))
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    page = report.markdown(results, ways)
    if options.output:
        options.output.write_text(page)
    else:
        print(page)


if __name__ == "__main__":
    main()
