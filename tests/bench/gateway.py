"""What the way through the gateway costs: connections, round trips and bulk, beside other ways.

One round is every way once with all shapes of `traffic.c`; rounds repeat, medians are taken. A recording that does not
hold every connection of its round fails the bench.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path

import measure
from place import NEAR, TESTS, Place, plain_cannot

SHAPES = ("r1", "down", "up", "c1", "c16")
SAMPLE_S, QUICK_S = 0.6, 0.05
DIRECT, WALL, GUARD, ALONE = "direct", "agentwrap wall", "agentwrap guard", "gateway alone"
_HERE = Path(__file__).resolve().parent


@dataclass
class Traffic:
    """One way: for each shape the samples of all rounds (`per_second`, `p50_us`, `p99_us`), or why there are none."""

    way: str
    missing: str = ""
    samples: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def median(self, shape: str, what: str) -> float | None:
        values = [sample[what] for sample in self.samples.get(shape, [])]
        return statistics.median(values) if values else None


@dataclass(frozen=True)
class Way:
    """`prefix(out, network)` is put before the client.

    `out` is where a recording goes, `network` what the client connects to. `plain`: run by a plain user.
    """

    name: str
    prefix: Callable[[str, str], list[str]]
    missing: str = ""
    plain: bool = False
    records: bool = False


def ways(place: Place, agentwrap: Sequence[str], port: int) -> list[Way]:
    """All ways, also those that this machine does not have."""

    def wrapped(*more: str) -> Callable[[str, str], list[str]]:
        return lambda out, network: [*agentwrap, "run", "-q", "-o", out, "--allow", f"{network}:{port}", *more, "--"]

    alone = [sys.executable, str(TESTS / "walled_run.py"), str(place.folder), "--"]
    return [
        Way(DIRECT, lambda _, __: []),
        Way(WALL, wrapped("--tier", "wall"), records=True),
        Way(f"{WALL} (plain user)", wrapped("--tier", "wall"), plain_cannot(place, agentwrap), True, True),
        Way(GUARD, wrapped("--tier", "guard"), records=True),
        Way(ALONE, lambda _, __: alone),
        Way("pasta", lambda _, __: ["pasta", "--config-net", "-q", "--"], _no_pasta(place), plain=True),
        Way("slirp4netns", lambda _, __: [sys.executable, str(_HERE / "slirped.py")], _no_slirp()),
    ]


def _no_pasta(place: Place) -> str:
    if not shutil.which("pasta"):
        return "not installed"
    if os.geteuid():
        return "its default route takes root to make"
    return "" if place.has_way_out else "no default route could be made for it"


def _no_slirp() -> str:
    if not shutil.which("slirp4netns"):
        return "not installed"
    return "this bench runs it as root" if os.geteuid() else ""


def compare(
    agentwrap: Sequence[str], *, rounds: int, quick: bool, only: Sequence[str], say: measure.Say
) -> list[Traffic]:
    """All ways. `only`: of these names."""
    if not shutil.which("gcc"):
        return [Traffic(DIRECT, "gcc is not installed")]
    with Place() as place:
        program = place.folder / "traffic"
        subprocess.run(["gcc", "-O2", "-pthread", "-o", program, _HERE / "traffic.c"], check=True)
        listener = place.net.listen("0.0.0.0", 0)
        port = listener.getsockname()[1]
        policy = f'version = 1\nname = "bench"\nmode = "enforce"\n[network]\nallow = ["{NEAR}:{port}"]\n'
        (place.folder / "policy.toml").write_text(policy)
        server = subprocess.Popen(
            [program, "serve", str(listener.fileno())], pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL
        )
        spinners = [subprocess.Popen([program, "spin"]) for _ in range(os.cpu_count() or 1)]
        try:
            found = [way for way in ways(place, agentwrap, port) if not only or way.name in only]
            client = [str(program), "", str(port), str(QUICK_S if quick else SAMPLE_S), *SHAPES]
            networks = NEAR.subnets(new_prefix=29)
            results = [Traffic(way.name, way.missing) for way in found]
            for _ in range(rounds):
                for way, result in zip(found, results, strict=True):
                    if not result.missing:
                        _once(place, way, client, next(networks), result, say)
        finally:
            for process in (server, *spinners):
                process.kill()
                process.wait()
            listener.close()
    return results


def _once(place: Place, way: Way, client: list[str], network: IPv4Network, result: Traffic, say: measure.Say) -> None:
    client[1] = str(network[1])
    out = (place.plain_home if way.plain else place.home) / "run.agentlog"
    done = place.run([*way.prefix(str(out), str(network)), *client], plain=way.plain)
    if done.returncode:
        failure = done.stderr.decode("utf-8", "replace").strip()[-300:]
        if way.records:
            raise RuntimeError(f"{way.name}: status {done.returncode}: {failure}")
        result.missing = f"status {done.returncode}: {failure.rpartition(chr(10))[2]}"
        return
    samples = [json.loads(line) for line in done.stdout.splitlines()]
    connections = 0
    for sample in samples:
        shape = sample.pop("shape")
        connections += int(sample["done"]) if shape.startswith("c") else 1
        if sample["failed"]:
            raise RuntimeError(f"{way.name}, {shape}: {sample['failed']} connections failed")
        result.samples.setdefault(shape, []).append(sample)
        say(f"{way.name:40.40} {shape:5} {sample['per_second']:16,.0f}/s   p50 {sample['p50_us']:8.0f} us")
    if way.records:
        told = measure.weights(out)
        for kind in ("net.decision", "net.closed", "net.connect"):
            if told.get(kind, 0) < connections:
                raise measure.TooFewRowsError(f"{way.name}: {told.get(kind, 0)} {kind} of {connections} connections")
        out.unlink()


def find(results: Sequence[Traffic], way: str) -> Traffic | None:
    return next((result for result in results if result.way == way), None)
