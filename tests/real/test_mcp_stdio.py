"""Clients and servers on the official MCP packages, over stdio: nothing changes for them, and all of it is recorded."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from real.programs import installed
from wrapping import PATIENCE, Event, environment, events, wrap

from agentwrap.recording.reader import Reader

HERE = Path(__file__).resolve().parent
PACKAGES = ("@modelcontextprotocol/sdk", "@modelcontextprotocol/client", "@modelcontextprotocol/server", "zod")
# Which client meets which server: Python, and both lines of the TypeScript packages.
PAIRS = [("python", "python"), ("python", "node-2"), ("node-1", "python"), ("node-1", "node-1"), ("node-2", "node-2")]
SECOND_HOP = (
    "unrelayed-mcp",
    "what this server and its client say to each other: no configuration names this server",
)
ENOUGH = {"echo": 24, "large": 1, "fail": 1, "slow": 1}


@cache
def packages() -> Path:
    """Where the TypeScript packages are installed, once for all runs. Skips where they cannot be."""
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    given = os.environ.get("AGENTWRAP_NODE_MCP")
    folder = Path(given or f"{tempfile.gettempdir()}/agentwrap-node-mcp-{os.getuid()}")
    npm = ["npm", "install", "--no-audit", "--no-fund", "--prefix"]
    return installed(folder, lambda made: [*npm, str(made), *PACKAGES], "the TypeScript packages")


def words(side: str, role: str) -> list[str]:
    """The command of a client or a server."""
    if side == "python":
        if find_spec("mcp") is None:
            pytest.skip("the `mcp` package is not installed (the extra `mcp`)")
        return [sys.executable, str(HERE / f"mcp_sdk_{role}.py")]
    return ["node", str(HERE / f"mcp_sdk_{role}.mjs"), str(packages()), side.partition("-")[2]]


def declare(folder: Path, server: list[str]) -> None:
    entry = {"command": server[0], "args": server[1:]}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"fixture": entry}}))


def said(recording: Path, rows: list[Event], *, up: bool) -> bytes:
    """What one side said, by the recording, a message a line."""
    found = b""
    with Reader.open(recording) as reader:
        for row in rows:
            if row.kind == "mcp.message" and row.data["up"] == up:
                found += b"".join(piece or b"" for piece in reader.body(row.seq, "body")) + b"\n"
    return found


def native(client: list[str], server: list[str], env: dict[str, str], folder: Path) -> Any:
    done = subprocess.run([*client, *server], capture_output=True, timeout=300 * PATIENCE, env=env, cwd=folder)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.serial
@pytest.mark.parametrize(("client", "server"), PAIRS)
def test_a_client_and_its_server(tmp_path: Path, client: str, server: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    tapped = [sys.executable, str(HERE / "mcp_tap.py"), str(tmp_path), *words(server, "server")]
    declare(work, tapped)
    env = environment(tmp_path)
    wanted = native(words(client, "client"), words(server, "server"), env, work)
    ran = wrap(tmp_path, *words(client, "client"), *tapped, env=env, timeout_s=300 * PATIENCE)
    assert ran.status == 0, ran.stderr.decode()
    assert json.loads(ran.stdout) == wanted
    rows = events(ran.recording)
    # Behind our tap there is a second hop, which no configuration names.
    assert {(row.data["cause"], row.data["could_hide"]) for row in rows if row.kind == "gap"} <= {SECOND_HOP}
    assert [(row.data["server"], row.data.get("how", "config")) for row in rows if row.kind == "mcp.session"] == [
        ("fixture", "config")
    ]
    assert said(ran.recording, rows, up=True) == (tmp_path / "up").read_bytes()
    assert said(ran.recording, rows, up=False) == (tmp_path / "down").read_bytes()
    calls = {row.data["call"]: row.data.get("tool", "") for row in rows if row.kind == "mcp.call"}
    endings = [
        (calls[row.data["call"]], row.data["ending"])
        for row in rows
        if row.kind == "mcp.result" and calls[row.data["call"]] in ENOUGH
    ]
    assert sorted(endings) == sorted(
        (tool, "tool-error" if tool == "fail" else "complete") for tool, count in ENOUGH.items() for _ in range(count)
    )
