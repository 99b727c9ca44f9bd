"""Ways around rules for an MCP server on standard input and output: each is judged, refused or told."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from wrapping import AGENTWRAP, Event, environment, events

POLICY = """version = 1
name = "calls"
mode = "enforce"
[network]
default = "allow"
[files.write]
default = "allow"
[[mcp]]
server = "notes"
tools = ["delete"]
decision = "deny"
"""
SERVER = """
import json, sys
with open("reached", "a") as reached:
    for line in sys.stdin:
        message = json.loads(line)
        print(message["id"], file=reached, flush=True)
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}), flush=True)
"""
# Says one message that is allowed, then one that is not, by the way that it is told; the server's words follow.
CLIENT = """
import ctypes, json, os, subprocess, sys
way, *words = sys.argv[1:]

def call(number, tool):
    params = {"name": tool, "arguments": {}}
    said = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return json.dumps(said).encode() + b"\\n"

server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
server.stdin.write(call(1, "read"))
server.stdin.flush()
server.stdout.readline()
try:
    if way == "said":
        sink = server.stdin.fileno()
    elif way == "folder":
        sink = os.open("0", os.O_WRONLY, dir_fd=os.open(f"/proc/{server.pid}/fd", os.O_RDONLY))
    else:
        path = f"/proc/{server.pid}/fd/0"
        if way == "link":
            os.symlink(path, "link")
            path = "link"
        if way in ("taken", "own link"):
            pidfd = os.pidfd_open(server.pid)
            taken = ctypes.CDLL(None, use_errno=True).syscall(438, pidfd, 0, 0)  # pidfd_getfd(2)
            assert taken >= 0, ctypes.get_errno()
            path = f"/dev/fd/{taken}" if way == "own link" else f"/proc/self/fd/{taken}"
        sink = os.open(path, os.O_WRONLY)
    os.write(sink, call(2, "delete"))
    server.stdout.readline()
    print("written")
except PermissionError:
    print("refused")
server.kill()
"""


class World:
    """A declared server and a client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "server.py").write_text(SERVER)
        (folder / "client.py").write_text(CLIENT)
        declared = {"notes": {"command": sys.executable, "args": ["server.py"]}}
        (folder / ".mcp.json").write_text(json.dumps({"mcpServers": declared}))
        (folder / "calls.toml").write_text(POLICY)
        (folder / "runtime").mkdir(mode=0o700)
        self.recording = folder / "run.agentlog"

    def run(self, way: str, *words: str, options: tuple[str, ...] = ("--policy", "calls.toml")) -> str:
        argv = [sys.executable, "client.py", way, *words]
        done = subprocess.run(
            [*AGENTWRAP, "run", "-o", str(self.recording), *options, "--", *argv],
            env=environment(self.folder, XDG_RUNTIME_DIR=str(self.folder / "runtime")), cwd=self.folder,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def reached(self) -> list[int]:
        return [int(line) for line in (self.folder / "reached").read_text().split()]

    def rows(self, kind: str) -> list[Event]:
        return [row for row in events(self.recording) if row.kind == kind]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("inner", ["{0} server.py; true", "exec {0} server.py"])
def test_a_server_within_another_is_judged_by_its_own_rules(world: World, inner: str) -> None:
    """Started as a server of another name, which starts it: of the rules for both the strictest word counts."""
    shell = ("sh", "-c", inner.format(sys.executable))
    assert world.run("said", *AGENTWRAP, "mcp", "--name", "other", "--", *shell) == "written"
    assert world.reached() == [1]
    assert [(row.data["server"], row.data["tool"]) for row in world.rows("mcp.decision")] == [("notes", "delete")]
    assert sorted(row.data["server"] for row in world.rows("mcp.session")) == ["notes", "other"]


@pytest.mark.parametrize("way", ["path", "folder", "link", "taken", "own link"])
def test_a_servers_input_is_not_opened_past_who_judges_it(world: World, way: str) -> None:
    assert world.run(way, sys.executable, "server.py") == "refused"
    assert world.reached() == [1]
    [denied] = world.rows("act.denied")
    assert (denied.data["act"], denied.data["target"], denied.data["rule"]) == ("reach", "notes", "built-in.mcp")


@pytest.mark.parametrize("way", ["path", "folder", "link"])
def test_what_is_said_past_the_relay_is_a_gap(world: World, way: str) -> None:
    """Where no rules are, nothing is refused."""
    assert world.run(way, sys.executable, "server.py", options=()) == "written"
    assert world.reached() == [1, 2]
    gaps = [(row.data["what"], row.data["cause"], row.data["detail"]) for row in world.rows("gap")]
    assert ("mcp-stdio", "unrelayed-mcp", "notes") in gaps
    [reached] = world.rows("process.reach")
    assert reached.data["call"] == "open /proc/PID/fd"


def test_a_program_opens_its_own_input_as_it_likes(world: World) -> None:
    (world.folder / "server.py").write_text("import os\nos.close(os.open('/dev/stdin', os.O_RDWR))\n" + SERVER)
    assert world.run("said", sys.executable, "server.py") == "written"
    assert world.rows("act.denied") == []
    assert os.path.exists(world.folder / "reached")
