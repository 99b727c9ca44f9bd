"""MCP servers whose standard input and output are swapped: a client sees what it sees natively, byte for byte.

The clients are in `interposing/`; the relay is the tiny one of `relayed_run.py`.
"""

import functools
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rows import MODES, mode_name
from wrapping import PATIENCE, Wrapped, environment, program

HERE = Path(__file__).parent / "interposing"
RELAYED = Path(__file__).parent.parent / "relayed_run.py"
SWAPPED = (
    "piped", "merged", "one socket", "two sockets", "odd pipes", "killed", "deaf", "sh", "sh exec", "env", "launcher",
    "ignoring", "vfork", "spawn", "thread",
)  # fmt: skip
ALONE = ("node", "go", "first instruction")  # need something that may not be here
UNTOUCHED = ("to a file",)
LAUNCHER = '#!/bin/sh\ncd . && shift && exec env LAUNCHED=1 python3 "$1"\n'


class Relayed(Wrapped):
    """A run whose servers were relayed: `sessions` in the order of their ends, `left`: the relay's descriptors then."""

    sessions: list[dict[str, Any]]
    left: int


def relayed(
    folder: Path, *command: str, servers: dict[str, list[str]], options: tuple[str, ...] = (), **more: Any
) -> Relayed:
    """`agentwrap run OPTIONS -- COMMAND` in `folder/work` with the tiny relay."""
    work, log, settings = folder / "work", folder / "sessions", folder / "servers.json"
    work.mkdir(exist_ok=True)
    keywords = {name: more.pop(name) for name in ("stdin", "input", "stdout") if name in more}
    settings.write_text(json.dumps({"servers": servers, **more}))
    recording = folder / "run.agentlog"
    recording.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, RELAYED, settings, log, "run", "-q", "-o", recording, *options, "--", *command],
        cwd=work, env=environment(folder), timeout=120 * PATIENCE, stderr=subprocess.PIPE,
        **({"stdout": subprocess.PIPE} | keywords),
    )  # fmt: skip
    run = Relayed(done.returncode, done.stdout, done.stderr, recording)
    with open(f"{log}.over", "rb") as over:  # a fifo that the relay holds until it is done
        over.read()
    *sessions, end = map(json.loads, log.read_text().splitlines())
    object.__setattr__(run, "sessions", sessions)
    object.__setattr__(run, "left", end["descriptors"])
    return run


class World:
    """The clients, compiled; what they see natively, and what in each way of following."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        self.folder, self.tools = folder, folder / "tools"
        self.tools.mkdir()
        program(self.tools, "spawn", (HERE / "spawn.c").read_text())
        launcher = self.tools / "launcher"
        launcher.write_text(LAUNCHER)
        launcher.chmod(0o755)
        self.ways = [*SWAPPED, *UNTOUCHED, *(way for way in ALONE if self._has(way))]
        self.run = functools.cache(self._run)
        self.natively = self._native()

    def _has(self, way: str) -> bool:
        if way == "node":
            return bool(shutil.which("node", path="/usr/bin:/usr/local/bin"))
        if way == "go":
            go, made = shutil.which("go", path="/usr/bin:/usr/local/go/bin"), self.tools / "goclient"
            env = {**environment(self.folder), "GOCACHE": str(self.folder / "cache"), "GO111MODULE": "off"}
            words = [str(go), "build", "-o", made, HERE / "client.go"]
            return bool(go) and not subprocess.run(words, env=env).returncode
        words = ["cc", "-nostdlib", "-static", "-no-pie", "-o", self.tools / "first", HERE / "first.S"]
        return bool(shutil.which("setarch")) and not subprocess.run(words).returncode

    @property
    def _command(self) -> list[str]:
        return ["python3", str(HERE / "client.py"), str(HERE / "server.py"), str(self.tools), *self.ways]

    def _native(self) -> dict[str, dict[str, Any]]:
        work = self.folder / "work"
        work.mkdir()
        done = subprocess.run(self._command, cwd=work, env=environment(self.folder), capture_output=True, check=True)
        return dict(json.loads(done.stdout))

    def _run(self, options: tuple[str, ...]) -> tuple[dict[str, dict[str, Any]], Relayed]:
        servers = {
            "one": ["python3", str(HERE / "server.py")],
            "launched": ["launcher", "package", str(HERE / "server.py")],
            "deaf": ["python3", str(HERE / "server.py"), "deaf"],
            "first": ["first"],
        }
        run = relayed(self.folder, *self._command, servers=servers, options=("--no-intercept", *options))
        assert run.status == 0, run.stderr
        return json.loads(run.stdout), run


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("interposing"))


def seen(found: dict[str, Any]) -> dict[str, Any]:
    """Without what is different each time, and what every run adds to the environment."""
    kept = {name: value for name, value in found.items() if name not in ("pid", "inode")}
    for name in [name for name in kept.get("environment", ()) if name == "CLIENT" or name.startswith("AGENTWRAP")]:
        del kept["environment"][name]
    return kept


@pytest.mark.parametrize("way", [*SWAPPED, *UNTOUCHED, *ALONE])
@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_a_client_sees_what_it_sees_natively(world: World, options: tuple[str, ...], way: str) -> None:
    if way not in world.ways:
        pytest.skip(f"{way}: not installed here")
    results, _ = world.run(options)
    assert seen(results[way]) == seen(world.natively[way])


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_the_relay_had_each_server_once(world: World, options: tuple[str, ...]) -> None:
    results, run = world.run(options)
    names = {"launcher": "launched", "deaf": "deaf", "first instruction": "first"}
    wanted = sorted(names.get(way, "one") for way in world.ways if way not in UNTOUCHED)
    assert sorted(session["server"] for session in run.sessions) == wanted
    assert run.left == 0
    assert "unrelayed-mcp" not in run.gaps()
    pids = {session["pid"]: session for session in run.sessions}
    for way in ("piped", "one socket", "two sockets", "sh", "vfork"):
        session = pids[results[way]["pid"]]
        assert session["up"] == "hello\n"
        assert session["down"].partition("\n")[2] == "echo hello\nbye\n"
        assert (session["how"], session["config"]) == ("config", "/conf/.mcp.json")
        assert session["command"] == ["python3", str(HERE / "server.py")]
