"""Runs with the tiny relay of `relayed_run.py`, and the clients of `kernel/interposing`, natively or in such a run."""

import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from containers import Container
from wrapping import PATIENCE, Wrapped, environment, program

HERE = Path(__file__).parent / "kernel" / "interposing"
SERVER = str(HERE / "server.py")
RELAYED = Path(__file__).parent / "relayed_run.py"
SWAPPED = (
    "piped", "merged", "one socket", "two sockets", "mixed", "odd pipes", "killed", "deaf", "sh", "sh exec", "env",
    "launcher", "ignoring", "vfork", "spawn", "thread",
)  # fmt: skip
ALONE = ("node", "go", "first instruction")
"""Those that need something that may not be here."""
UNTOUCHED = ("to a file",)
_LAUNCHER = '#!/bin/sh\ncd . && shift && exec env LAUNCHED=1 python3 "$1"\n'


@dataclass(frozen=True)
class Relayed(Wrapped):
    """A run whose servers were relayed: `sessions` in the order of their ends, `left`: the relay's descriptors then."""

    sessions: list[dict[str, Any]] = field(default_factory=list)
    left: int = 0


def relayed(
    folder: Path,
    *command: str,
    servers: dict[str, list[str]],
    options: Sequence[str] = (),
    inside: Container | None = None,
    stdin: Any = subprocess.DEVNULL,
    stdout: Any = subprocess.PIPE,
    user: int | None = None,
    **more: Any,
) -> Relayed:
    """`agentwrap run OPTIONS -- COMMAND` in `folder/work`, or in a container. `more`: see `relayed_run`."""
    work, log, settings, recording = (folder / name for name in ("work", "sessions", "servers.json", "run.agentlog"))
    work.mkdir(exist_ok=True)
    work.chmod(0o777)
    settings.write_text(json.dumps({"servers": servers, **more}))
    recording.unlink(missing_ok=True)
    words = [sys.executable, *map(str, (RELAYED, settings, log)), "run", "-q", "-o", str(recording), *options, "--"]
    if inside is not None:
        done = inside.run([*words, *command], cwd=work, env=environment(folder), timeout=300 * PATIENCE)
        run = Wrapped(done.returncode, done.stdout.encode(), done.stderr.encode(), recording)
    else:
        ran = subprocess.run(
            [*words, *command], cwd=work, env=environment(folder), timeout=300 * PATIENCE, stdin=stdin, stdout=stdout,
            stderr=subprocess.PIPE, user=user, group=user, extra_groups=None if user is None else [],
        )  # fmt: skip
        run = Wrapped(ran.returncode, ran.stdout or b"", ran.stderr, recording)
    *sessions, end = map(json.loads, log.read_text().splitlines() if log.exists() else ['{"descriptors": 0}'])
    return Relayed(run.status, run.stdout, run.stderr, recording, sessions, end["descriptors"])


class Clients:
    """The clients, compiled; what they see natively, and what in a run."""

    def __init__(self, folder: Path, *, without: Sequence[str] = ()) -> None:
        folder.chmod(0o777)
        self.folder, self.tools, work = folder, folder / "tools", folder / "work"
        for made in (self.tools, work):
            made.mkdir()
            made.chmod(0o777)
        program(self.tools, "spawn", (HERE / "spawn.c").read_text())
        launcher = self.tools / "launcher"
        launcher.write_text(_LAUNCHER)
        launcher.chmod(0o755)
        self.ways = [way for way in (*SWAPPED, *UNTOUCHED, *ALONE) if way not in without and self._has(way)]
        self._words = ["python3", str(HERE / "client.py"), SERVER, str(self.tools), *self.ways]
        done = subprocess.run(self._words, cwd=work, env=environment(folder), capture_output=True, check=True)
        self.natively: dict[str, dict[str, Any]] = json.loads(done.stdout)
        self.run = functools.cache(self._run)

    def _has(self, way: str) -> bool:
        if way == "node":
            return bool(shutil.which("node", path="/usr/bin:/usr/local/bin"))
        if way == "go":
            go = shutil.which("go", path="/usr/bin:/usr/local/go/bin:/usr/local/bin")
            env = {**environment(self.folder), "GOCACHE": str(self.folder / "cache"), "GO111MODULE": "off"}
            words = [str(go), "build", "-o", str(self.tools / "goclient"), str(HERE / "client.go")]
            return bool(go) and not subprocess.run(words, env=env).returncode
        if way == "first instruction":
            words = ["cc", "-nostdlib", "-static", "-no-pie", "-o", str(self.tools / "first"), str(HERE / "first.S")]
            return bool(shutil.which("setarch")) and not subprocess.run(words).returncode
        return True

    def _run(
        self, options: tuple[str, ...], inside: Container | None = None
    ) -> tuple[dict[str, dict[str, Any]], Relayed]:
        """What each saw, by its name, and the run."""
        servers = {
            "one": ["python3", SERVER],
            "launched": ["launcher", "package", SERVER],
            "deaf": ["python3", SERVER, "deaf"],
            "first": ["first"],
        }
        options = ("--no-intercept", "--no-undo", *options)
        run = relayed(self.folder, *self._words, servers=servers, options=options, inside=inside)
        assert run.status == 0, run.stderr.decode()
        return json.loads(run.stdout), run

    def wanted(self) -> list[str]:
        """The names of the servers that a relay must have had, in order."""
        names = {"launcher": "launched", "deaf": "deaf", "first instruction": "first"}
        return sorted(names.get(way, "one") for way in self.ways if way not in UNTOUCHED)


def seen(found: dict[str, Any]) -> dict[str, Any]:
    """What a client saw, without what is different each time, and what runs and containers add to the environment."""
    kept = {name: value for name, value in found.items() if name not in ("pid", "inode")}
    if "environment" in kept:
        added = ("CLIENT", "AGENTWRAP", "TERM")
        kept["environment"] = {name: v for name, v in kept["environment"].items() if not name.startswith(added)}
    return kept
