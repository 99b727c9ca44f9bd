"""MCP servers over HTTP that the run serves itself, behind a wall or a guard: refused under rules, else a gap."""

import http.server
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from wrapping import AGENTWRAP, Event, environment, events

from agentwrap.gateway.connector import OWN4

RULE = '[[mcp]]\nserver = "near"\ntools = ["write_*"]\ndecision = "deny"\n'
# Serves a port itself if it is to, and asks at each of the addresses; says what it was told.
PROGRAM = """
import http.client, http.server, json, sys, threading
port, serves, *hosts = sys.argv[1:]

class Server(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        print("reached", flush=True)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
    log_message = lambda *_: None

if serves == "serves":
    server = http.server.HTTPServer(("0.0.0.0", int(port)), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "write_note", "arguments": {}}}
head = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
for host in hosts:
    try:
        client = http.client.HTTPConnection(host, int(port), timeout=300)
        client.request("POST", "/mcp", json.dumps(call), head)
        print(host, client.getresponse().read().decode(), flush=True)
    except OSError as error:
        print(host, type(error).__name__, flush=True)
"""


class Outside(http.server.BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def outside() -> Iterator[http.server.HTTPServer]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Outside)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def run(folder: Path, tier: str, port: int, rules: str, *words: str, network: str = 'default = "allow"') -> list[str]:
    (folder / "runtime").mkdir(mode=0o700)
    declared = {"near": {"type": "http", "url": f"http://localhost:{port}/mcp"}}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": declared}))
    head = 'version = 1\nname = "p"\nmode = "enforce"\n[files]\nwrite = { default = "allow" }\n'
    (folder / "p.toml").write_text(f"{head}[network]\n{network}\n{rules}")
    argv = [sys.executable, "-c", PROGRAM, str(port), *words]
    done = subprocess.run(
        [*AGENTWRAP, "run", "-o", "run.agentlog", "--policy", "p.toml", "--tier", tier, "--", *argv],
        env=environment(folder, XDG_RUNTIME_DIR=str(folder / "runtime")), cwd=folder, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    if done.returncode and "namespace" in done.stderr:
        pytest.skip("no wall can be had here")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def rows(folder: Path, kind: str) -> list[Event]:
    return [row for row in events(folder / "run.agentlog") if row.kind == kind]


@pytest.fixture
def port() -> Iterator[int]:
    """One that nobody is handed out meanwhile: whoever sets SO_REUSEADDR can listen on it, as we do not (socket(7))."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.mark.parametrize("tier", ["wall", "guard"])
def test_under_rules_nothing_reaches_it(tmp_path: Path, tier: str, port: int) -> None:
    hosts = ["127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0", "127.0.0.9", *([OWN4] if tier == "wall" else [])]
    told = run(tmp_path, tier, port, RULE, "serves", *hosts)
    assert "reached" not in told
    denied = [row.data for row in rows(tmp_path, "net.decision") if row.data["decision"] == "deny"]
    assert {one["rule"] for one in denied} <= {"built-in.own-mcp", "built-in.own-address"}
    assert len(denied) >= len(hosts) - 1
    assert [row.data for row in rows(tmp_path, "gap") if row.data["what"] == "mcp-http"] == []


@pytest.mark.parametrize("tier", ["wall", "guard"])
def test_without_rules_about_it_it_is_a_gap(tmp_path: Path, tier: str, port: int) -> None:
    network = 'default = "deny"\nallow = ["idle.example"]'
    assert run(tmp_path, tier, port, "", "serves", "127.0.0.1", network=network) == ["reached", "127.0.0.1 {}"]
    [gap] = [row.data for row in rows(tmp_path, "gap") if row.data["what"] == "mcp-http"]
    assert gap["cause"] == "not-led"
    assert gap["detail"].startswith("near at 127.0.0.1:")


@pytest.mark.parametrize("tier", ["wall", "guard"])
def test_a_server_of_the_machine_is_judged(tmp_path: Path, tier: str, outside: http.server.HTTPServer) -> None:
    Outside.asked.clear()
    port = int(outside.server_address[1])
    network = f'default = "allow"\nallow = ["host.loopback:{port}"]'
    [told] = run(tmp_path, tier, port, RULE, "asks", "127.0.0.1", network=network)
    assert "agentwrap denied" in told
    assert Outside.asked == []
    assert [row.data["tool"] for row in rows(tmp_path, "mcp.decision")] == ["write_note"]
    assert [row.data for row in rows(tmp_path, "gap") if row.data["what"] == "mcp-http"] == []
