"""MCP over stdio through agentwrap and beside it: `python tests/bench/mcp_relay.py [--rounds N] [--peers DIR]`.

One client and one server in Python: direct; with the relay alone between; in a run, without and with rules; and through
others that record, where `--peers` names a folder whose `venv` has mcpjail, wakeprint and mcp-rec. All in turns,
medians of the rounds. A recording that does not hold every call fails the bench.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from measure import counts  # noqa: E402
from wrapping import AGENTWRAP, environment  # noqa: E402

DIRECT = "direct"
POLICY = """version = 1
name = "bench"
mode = "enforce"
[[mcp]]
server = "bench"
tools = ["read_*"]
when = { arg = "path", path_within = ["/home/user"] }
decision = "allow"
[[mcp]]
server = "bench"
decision = "deny"
"""
SIZES = {"turns": 1000, "pipelined": 10_000, "long": 20_000_000, "servers": 10, "each": 1000}
QUICK = {"turns": 20, "pipelined": 200, "long": 100_000, "servers": 2, "each": 50}
_FEWER = {"pipelined": 1000, "each": 100}  # for those who take a minute for ten thousand
Sample = dict[str, float]


@dataclass
class Measured:
    """One way and the samples of its rounds, or why there are none. `without`: what it cannot do, as it turned out."""

    name: str
    samples: list[Sample] = field(default_factory=list)
    missing: str = ""
    without: dict[str, str] = field(default_factory=dict)

    def median(self, what: str) -> float | None:
        values = [sample[what] for sample in self.samples if what in sample]
        return statistics.median(values) if values else None


class Bench:
    """A folder with a configuration that declares the server, and one measurement after the other."""

    def __init__(self, folder: Path, sizes: dict[str, Any], peers: Path | None) -> None:
        self.folder, self.sizes = folder, sizes
        self.server = [sys.executable, "-S", "-E", str(HERE / "mcp_server.py")]
        self.bin = peers / "venv" / "bin" if peers is not None else Path("/nonexistent")
        self.env = {**environment(folder), "MCPJAIL_HOME": str(folder / "mcpjail")}
        self.env["PYTHONPATH"] = str(HERE.parent.parent)
        declared = {"mcpServers": {"bench": {"command": self.server[0], "args": self.server[1:]}}}
        (folder / ".mcp.json").write_text(json.dumps(declared))
        (folder / "policy.toml").write_text(POLICY)

    def run(self, prefix: list[str], between: list[str], patience_s: float = 3000, **more: Any) -> Sample:
        client = [sys.executable, str(HERE / "mcp_client.py"), json.dumps({**self.sizes, **more})]
        done = subprocess.run(
            [*prefix, *client, *between, *self.server], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=patience_s,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"status {done.returncode}: {done.stderr[-1500:]}")
        told: Sample = json.loads(done.stdout)
        return told

    def wrapped(self, *more: str, judged: bool = False) -> Callable[[], Sample]:
        def measure() -> Sample:
            out = self.folder / "run.agentlog"
            told = self.run([*AGENTWRAP, "run", "-q", "-o", str(out), *more, "--"], [])
            found = counts(out)
            out.unlink()
            greetings = 1 + self.sizes["servers"]
            wanted = {"mcp.call": told["calls"], "mcp.result": told["calls"]}
            wanted["mcp.decision"] = told["calls"] - greetings if judged else 0
            for kind, count in wanted.items():
                if found.get(kind, 0) != count:
                    raise RuntimeError(f"{found.get(kind, 0)} {kind} in the recording of {count:.0f}")
            return told

        return measure

    def peer(self, name: str, *more: str) -> Callable[[], Sample]:
        def measure() -> Sample:
            between = [str(self.bin / name), *more, "--"]
            try:
                return self.run([], between, 90, **_FEWER)
            except (RuntimeError, subprocess.TimeoutExpired):
                # It may be the long line alone that it does not pass.
                return self.run([], between, 90, **_FEWER, long=0)

        return measure

    def ways(self) -> dict[str, Callable[[], Sample]]:
        found: dict[str, Callable[[], Sample]] = {
            DIRECT: lambda: self.run([], []),
            "agentwrap's relay alone": lambda: self.run([], [], relay=True),
            "agentwrap run": self.wrapped(),
            "agentwrap run, with rules": self.wrapped("--policy", "policy.toml", judged=True),
        }
        peers = {
            "mcpjail": self.peer("mcpjail", "wrap"),
            "wakeprint": self.peer("wakeprint", "--root", "traces", "mcp-proxy"),
            "mcp-rec": self.peer("mcp-rec", "record", "-o", "rec.jsonl"),
        }
        return {**found, **{name: way for name, way in peers.items() if (self.bin / name).exists()}}


def compare(options: argparse.Namespace) -> list[Measured]:
    with tempfile.TemporaryDirectory(prefix="agentwrap-bench-") as folder:
        bench = Bench(Path(folder), QUICK if options.quick else SIZES, options.peers)
        ways = {name: way for name, way in bench.ways().items() if not options.ways or name in options.ways}
        results = [Measured(name) for name in ways]
        for _ in range(options.rounds):
            for one in results:
                if one.missing:
                    continue
                try:
                    sample = ways[one.name]()
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    if "agentwrap" in one.name or one.name == DIRECT:
                        raise
                    if isinstance(error, subprocess.TimeoutExpired):
                        one.missing = f"it takes more than {error.timeout:.0f} s"
                    else:
                        one.missing = str(error).strip().rpartition("\n")[2][:100]
                    continue
                one.samples.append(sample)
                shown = ", ".join(f"{key} {value:,.2f}" for key, value in sample.items())
                sys.stderr.write(f"{one.name:26} {shown}\n")
    return results


def table(results: list[Measured], options: argparse.Namespace) -> str:
    sizes = QUICK if options.quick else SIZES
    direct = next((one for one in results if one.name == DIRECT), None)
    base = direct.median("p50_us") if direct is not None else None
    heads = ("way", "p50", "it adds", "p99", "messages/s", f"a line of {sizes['long'] / 1e6:g} MB", "ten at once")
    lines = [f"| {' | '.join(heads)} |", "|---|" + "--:|" * 6]
    for one in results:
        p50, p99 = one.median("p50_us"), one.median("p99_us")
        if p50 is None or p99 is None:
            lines.append(f"| {one.name} | missing: {one.missing} |" + " |" * 5)
            continue
        added = f"{(p50 - base) / 1e3:+.3f} ms" if base is not None and one is not direct else ""
        long = one.median("long_s")
        alone, together = (f"{2 * (one.median(f'{what}per_second') or 0):,.0f}" for what in ("", "together_"))
        passes = f"{long:.2f} s" if long is not None else "does not pass"
        cells = [one.name, f"{p50 / 1e3:.3f} ms", added, f"{p99 / 1e3:.2f} ms", alone, passes, together]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


WORDS = """
## MCP over standard input and output

A client and a server in Python that answers at once; all of it shares this machine's cores, so that what stands between
takes time from both. `p50`, `p99`: of a call, one after the other. `messages/s`: calls written without waiting, both
directions counted; `ten at once`: the same with ten servers. A line of that length is one call's arguments.
`with rules`: every call is judged by the policy before it goes on. Every recording of agentwrap's is checked to tell of
every call. Others get a tenth of the pipelined calls. Medians of the rounds.
"""


def page(*, rounds: int, quick: bool, peers: Path | None) -> str:
    """The part of the page about MCP."""
    options = argparse.Namespace(rounds=rounds, quick=quick, peers=peers, ways=None)
    return WORDS.lstrip() + "\n" + table(compare(options), options)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", action="append", metavar="NAME", help="only these")
    parser.add_argument("--peers", type=Path, metavar="DIR", help="where a `venv` has other recorders")
    parser.add_argument("--quick", action="store_true", help="a few calls, one round: only whether it works")
    options = parser.parse_args()
    if options.quick:
        options.rounds = 1
    sys.stdout.write(table(compare(options), options))
    sys.stderr.write(f"load {os.getloadavg()[0]:.1f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
