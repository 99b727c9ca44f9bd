"""How long a confined command takes to start and to end: `true`, and a `curl` that the policy allows, beside peers.

A way that says it enforces proves it first: another host must stay out of reach.
"""

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import measure
from contained import COMMANDS, DENIED
from place import HOST, TESTS, WEB_PORT, Place, plain_cannot

sys.path.insert(0, str(TESTS))

from containers import missing as no_containers

BARE, WALL, SRT = "bare", "agentwrap wall", "srt"
CONTAINER_BARE, CONTAINER = "bare (docker profile)", "agentwrap guard (docker profile)"
_HERE = Path(__file__).resolve().parent
_SRT_SETTINGS = {
    "network": {"allowedDomains": [HOST], "deniedDomains": []},
    "filesystem": {"denyRead": [], "allowWrite": ["/tmp"], "denyWrite": []},
}


@dataclass
class Confined:
    """One way: seconds of every round by command, or why there are none.

    `enforced`: it keeps to names of hosts. `failed`: how often a command that is allowed failed under it.
    """

    way: str
    missing: str = ""
    enforced: bool = False
    failed: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def median_ms(self, command: str) -> float | None:
        times = self.seconds.get(command)
        return statistics.median(times) * 1e3 if times else None


@dataclass(frozen=True)
class Way:
    """`prefix` is put before the command. `enforces`: it keeps to names of hosts. `network`: there is one at all."""

    name: str
    prefix: list[str]
    missing: str = ""
    enforces: bool = False
    network: bool = True
    plain: bool = False


def ways(place: Place, agentwrap: Sequence[str], peers: Path | None) -> list[Way]:
    """All ways, also those that this machine does not have."""
    settings = place.folder / "srt.json"
    settings.write_text(json.dumps(_SRT_SETTINGS))
    run, allow = [*agentwrap, "run", "-q", "-o"], ["--allow", f"{HOST}:{WEB_PORT}"]
    here, there = str(place.home / "run.agentlog"), str(place.plain_home / "run.agentlog")
    srt = _peer(peers, "node_modules/.bin/srt", "srt")
    python = _peer(peers, "venv/bin/python", "") if _has_sandlock(peers) else ""
    bwrap, firejail = shutil.which("bwrap") or "", shutil.which("firejail") or ""
    return [
        Way(BARE, []),
        Way("agentwrap (no policy)", [*run, here, "--"]),
        Way(WALL, [*run, here, *allow, "--tier", "wall", "--"], enforces=True),
        Way(f"{WALL} (plain user)", [*run, there, *allow, "--tier", "wall", "--"],
            plain_cannot(place, agentwrap), enforces=True, plain=True),
        Way("agentwrap guard", [*run, here, *allow, "--tier", "guard", "--"], enforces=True),
        Way(SRT, [srt, "-s", str(settings), "--"], _unless(srt), enforces=True),
        Way("sandlock", [python, str(_HERE / "sandlocked.py"), f"{HOST}:{WEB_PORT}"], _unless(python), enforces=True),
        Way("bwrap (no network)", [bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
            "--unshare-net", "--"], _unless(bwrap), network=False),
        Way("firejail (no network)", [firejail, "--quiet", "--noprofile", "--net=none", "--"],
            _unless(firejail), network=False),
    ]  # fmt: skip


def _unless(program: str) -> str:
    return "" if program else "not installed"


def _peer(peers: Path | None, inside: str, name: str) -> str:
    """A program of the folder of peers (which has `node_modules` and `venv`), else of PATH."""
    if peers is not None and (peers / inside).exists():
        return str(peers / inside)
    return shutil.which(name) or "" if name else ""


def _has_sandlock(peers: Path | None) -> bool:
    return peers is not None and any(peers.glob("venv/lib/python*/site-packages/sandlock"))


def compare(
    agentwrap: Sequence[str], peers: Path | None, *, rounds: int, only: Sequence[str], say: measure.Say
) -> list[Confined]:
    """All ways, and the container if one can be had. `only`: of these names."""
    with Place() as place:
        if not place.has_way_out:
            return [Confined(BARE, "no second network namespace could be joined by a wire (ip, unshare, veth)")]
        found = [way for way in ways(place, agentwrap, peers) if not only or way.name in only]
        results = [Confined(way.name, way.missing, way.enforces) for way in found]
        for way, result in zip(found, results, strict=True):
            if way.enforces and not result.missing:
                result.missing = _proven(place, way)
        contained = [Confined(CONTAINER_BARE, no_containers()), Confined(CONTAINER, no_containers(), enforced=True)]
        for _ in range(rounds):
            for way, result in zip(found, results, strict=True):
                if not result.missing:
                    _once(place, way, result, say)
            if not only and not contained[0].missing:
                _container(place, agentwrap, contained, say)
    return results if only else results + contained


def _proven(place: Place, way: Way) -> str:
    """Raises RuntimeError if a host that is not allowed is reached; why the way cannot be measured, if so."""
    if _run(place, way, DENIED).returncode == 0:
        raise RuntimeError(f"{way.name}: a host was reached that is not allowed")
    for command in COMMANDS.values():
        done = _run(place, way, command)
        if done.returncode:
            words = (done.stderr + done.stdout).decode("utf-8", "replace").strip()
            if way.name.startswith("agentwrap"):
                raise RuntimeError(f"{way.name}: {words}")
            return f"`{command[0]}` fails: {words.rpartition(chr(10))[2][:200]}"
    return ""


def _run(place: Place, way: Way, command: Sequence[str]) -> "subprocess.CompletedProcess[bytes]":
    for home in (place.home, place.plain_home):
        (home / "run.agentlog").unlink(missing_ok=True)
    return place.run([*way.prefix, *command], plain=way.plain)


def _once(place: Place, way: Way, result: Confined, say: measure.Say) -> None:
    for name, command in COMMANDS.items():
        if name == "curl" and not way.network:
            continue
        began = time.perf_counter()
        done = _run(place, way, command)
        elapsed = time.perf_counter() - began
        if done.returncode and not way.name.startswith("agentwrap"):
            result.failed += 1
            say(f"{way.name:36} {name:5} failed with status {done.returncode}")
            continue
        if done.returncode:
            raise RuntimeError(f"{way.name}, {name}: status {done.returncode}: {done.stderr[-300:]!r}")
        result.seconds.setdefault(name, []).append(elapsed)
        say(f"{way.name:36} {name:5} {elapsed * 1e3:8.1f} ms")


def _container(place: Place, agentwrap: Sequence[str], results: Sequence[Confined], say: measure.Say) -> None:
    done = place.run([sys.executable, str(_HERE / "contained.py"), "out", *agentwrap])
    if done.returncode:
        raise RuntimeError(f"container: {done.stderr.decode('utf-8', 'replace')[-500:]}")
    for result, took in zip(results, json.loads(done.stdout).values(), strict=True):
        for name, elapsed in took.items():
            result.seconds.setdefault(name, []).append(elapsed)
            say(f"{result.way:36} {name:5} {elapsed * 1e3:8.1f} ms")


def find(results: Sequence[Confined], way: str) -> Confined | None:
    return next((result for result in results if result.way == way), None)
