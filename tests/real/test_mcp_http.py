"""Clients and servers on the official packages, over HTTP: nothing changes for them, all of it is recorded, rules hold.

What a server did not get is looked for at the server.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import far_side
import pytest
from internet import Internet
from wrapping import AGENTWRAP, PATIENCE, Event, command, environment, events

HERE = Path(__file__).resolve().parent
NAME, ADDRESS = "mcp.example.com", "203.0.113.10"
PLAIN, OLD, TLS = f"http://{NAME}:8080/mcp", f"http://{NAME}:8081/sse", f"https://{NAME}/mcp"
POLICY = f"""
version = 1
name = "mcp"
mode = "enforce"
[network]
default = "deny"
allow = ["{NAME}"]
[files]
write = {{ default = "allow" }}
"""
RULE = """
[[mcp]]
server = "everything"
tools = ["write_*"]
decision = "{decision}"
reason = "A person looks at what servers write."
"""
SAMPLING = """
[[mcp]]
server = "everything"
methods = ["sampling/createMessage"]
decision = "deny"
"""
WAYS = {
    "capture": (),
    "wall": ("--policy", "policy.toml", "--tier", "wall"),
    "guard": ("--policy", "policy.toml", "--tier", "guard"),
    "gate": ("--policy", "deny.toml"),
}

# Not everything in every way, for the time it takes.
CASES = [
    *(("capture", *one) for one in ((PLAIN, "legacy"), (OLD, "sse"), (TLS, "auto"))),
    *(("wall", *one) for one in ((PLAIN, "auto"), (TLS, "legacy"))),
    *(("guard", *one) for one in ((OLD, "sse"), (TLS, "auto"))),
    *(("gate", *one) for one in ((PLAIN, "legacy"), (PLAIN, "auto"), (OLD, "sse"), (TLS, "legacy"))),
]


class World:
    """A server three times: plain, with TLS, and with the old transport."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self._net = Internet(folder, {NAME: [ADDRESS]})
        except OSError as error:
            pytest.skip(f"no network of its own can be had here: {error}")
        self.calls = folder / "calls"
        self.calls.touch()
        certificate, key = far_side.certificate(folder, (NAME,))
        self._running = [
            self._serve("8080"),
            self._serve("8081", OLD="1"),
            self._serve("443", CERT=str(certificate), KEY=str(key)),
        ]
        for running in self._running:
            assert running.stdout is not None
            assert running.stdout.readline().startswith(b"ready"), (folder / "errors").read_text()[-2000:]
        (folder / "policy.toml").write_text(POLICY)
        # Nothing but messages is judged: the run keeps the machine's network.
        watched = POLICY.replace('default = "deny"', 'default = "allow"').replace(f'allow = ["{NAME}"]\n', "")
        (folder / "watched.toml").write_text(watched + RULE.format(decision="deny"))
        for decision in ("deny", "approve"):
            (folder / f"{decision}.toml").write_text(POLICY + RULE.format(decision=decision))
        (folder / "runtime").mkdir(mode=0o700)
        trusted = str(folder / "ca.pem")
        self.env = environment(folder, SSL_CERT_FILE=trusted, XDG_RUNTIME_DIR=str(folder / "runtime"))
        self._native: dict[tuple[str, str], Any] = {}

    def _serve(self, port: str, **more: str) -> "subprocess.Popen[bytes]":
        words = [sys.executable, str(HERE / "mcp_everything_server.py"), port]
        with self._net.listen(ADDRESS, int(port)) as listener, (self.folder / "errors").open("ab") as errors:
            fd = listener.fileno()
            env = environment(self.folder, HOST=ADDRESS, FD=str(fd), CALLS=str(self.calls), **more)
            return self._net.popen(
                words, env=env, cwd=self.folder, stdout=subprocess.PIPE, stderr=errors, pass_fds=(fd,)
            )

    def client(self, url: str, mode: str, *calls: str) -> list[str]:
        entry = {"type": "sse" if mode == "sse" else "http", "url": url}
        (self.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"everything": entry}}))
        return [sys.executable, str(HERE / "mcp_http_client.py"), url, mode, *calls]

    def recording(self, name: str) -> Path:
        path = self.folder / f"{name}.agentlog"
        path.unlink(missing_ok=True)
        return path

    def start(self, words: list[str], **more: str) -> "subprocess.Popen[bytes]":
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return self._net.popen(words, env={**self.env, **more}, cwd=self.folder, **pipes)

    def run(self, words: list[str]) -> Any:
        started = self.start(words)
        said, errors = started.communicate(timeout=300 * PATIENCE)
        assert started.returncode == 0, errors.decode()[-3000:]
        return json.loads(said)

    def native(self, url: str, mode: str) -> Any:
        if (url, mode) not in self._native:
            self._native[url, mode] = self.run(self.client(url, mode))
        return self._native[url, mode]

    def called(self) -> "Counter[str]":
        """How often the server was asked for each tool, since the last time."""
        found = Counter(line.split()[0] for line in self.calls.read_text().splitlines() if " over" not in line)
        os.truncate(self.calls, 0)
        return found

    def close(self) -> None:
        for running in self._running:
            running.terminate()
            running.wait(300)
            assert running.stdout is not None
            running.stdout.close()
        self._net.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if find_spec("mcp") is None:
        pytest.skip("the `mcp` package is not installed (the extra `sdks`)")
    made = World(tmp_path_factory.mktemp("mcp"))
    yield made
    made.close()


def recorded_calls(rows: list[Event]) -> "Counter[str]":
    return Counter(row.data["tool"] for row in rows if row.kind == "mcp.call" and row.data["method"] == "tools/call")


@pytest.mark.parametrize(("way", "url", "mode"), CASES)
def test_a_client_finds_what_it_finds_without_us(world: World, way: str, url: str, mode: str) -> None:
    native = world.native(url, mode)
    world.called()
    recording = world.recording(way)
    assert world.run(command(recording, *world.client(url, mode), options=WAYS[way])) == native
    rows = events(recording)
    assert recorded_calls(rows) == world.called()
    assert [row.data for row in rows if row.kind == "gap"] == []
    sessions = [row.data for row in rows if row.kind == "mcp.session"]
    transport = "sse" if mode == "sse" else "http"
    assert {(one["server"], one["transport"], one["url"]) for one in sessions} == {("everything", transport, url)}
    results = Counter(row.data["ending"] for row in rows if row.kind == "mcp.result")
    assert results["complete"] >= 27
    assert set(results) <= {"complete", "cancelled", "unanswered", "input-required"}
    assert results["cancelled"] + results["unanswered"] == 1


NOTE = '{{"path":"{0}/note","words":"x"}}'


@pytest.mark.parametrize(
    ("tier", "url", "mode"),
    [
        *(("wall", PLAIN, "legacy"), ("wall", OLD, "sse"), ("wall", TLS, "auto"), ("guard", PLAIN, "auto")),
        *(("watched", PLAIN, "auto"), ("watched", TLS, "legacy")),
    ],
)
def test_a_denied_call_never_reaches_the_server(world: World, tier: str, url: str, mode: str) -> None:
    calls = (f"write_note={NOTE.format(world.folder)}", "test_simple_text={}")
    world.called()
    recording = world.recording("denied")
    options = ("--policy", "watched.toml") if tier == "watched" else ("--policy", "deny.toml", "--tier", tier)
    found = world.run(command(recording, *world.client(url, mode, *calls), options=options))
    [[is_error, text]] = found["write_note"]
    assert is_error
    assert "A person looks at what servers write." in text
    assert found["test_simple_text"][0][0] is False
    assert world.called() == {"test_simple_text": 1}
    assert not (world.folder / "note").exists()
    rows = events(recording)
    decisions = [(row.data["decision"], row.data["tool"]) for row in rows if row.kind == "mcp.decision"]
    assert decisions == [("deny", "write_note")]
    # Also where a policy says nothing of the network: no connection may go past who judges calls.
    assert [row for row in rows if row.kind == "net.decision"]
    endings = {row.data["tool"]: row.data["ending"] for row in rows if row.kind == "mcp.result" and "tool" in row.data}
    assert endings == {"write_note": "denied", "test_simple_text": "complete"}


@pytest.mark.parametrize(("url", "mode"), [(PLAIN, "legacy"), (OLD, "sse"), (TLS, "legacy")])
def test_a_server_that_must_not_ask_is_told_so(world: World, url: str, mode: str) -> None:
    (world.folder / "sampling.toml").write_text(POLICY + SAMPLING)
    recording = world.recording("sampling")
    words = world.client(url, mode, 'test_sampling={"prompt":"x"}', "test_simple_text={}")
    found = world.run(command(recording, *words, options=("--policy", "sampling.toml")))
    assert "sampled" not in found  # the client was never asked
    [told] = found["test_sampling"]
    assert told[0] == "failed"  # the server says what it was told
    assert "agentwrap denied" in told[2]
    assert found["test_simple_text"][0][0] is False
    decisions = [row.data for row in events(recording) if row.kind == "mcp.decision"]
    assert [(one["decision"], one["method"]) for one in decisions] == [("deny", "sampling/createMessage")]


def say(world: World, *words: str) -> None:
    done = subprocess.run([*AGENTWRAP, *words], env=world.env, capture_output=True, text=True, timeout=300 * PATIENCE)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("url", "mode"), [(PLAIN, "legacy"), (OLD, "sse"), (TLS, "auto")])
def test_an_approved_call_is_made_once_and_the_next_is_asked_again(world: World, url: str, mode: str) -> None:
    note = f"write_note={NOTE.format(world.folder)}"
    (world.folder / "note").unlink(missing_ok=True)
    world.called()
    recording = world.recording("approved")
    options = ("--policy", "approve.toml", "--ask-timeout", "300")
    run = world.start(command(recording, *world.client(url, mode, note, note), options=options))
    follow = [*AGENTWRAP, "pending", "--follow", "--json"]
    follower = subprocess.Popen(follow, env=world.env, stdout=subprocess.PIPE, text=True)
    assert follower.stdout is not None
    try:
        first = json.loads(follower.stdout.readline())
        assert world.called() == {}
        say(world, "approve", first["id"], "--approver", "Jane")
        second = json.loads(follower.stdout.readline())
        assert world.called() == {"write_note": 1}
        say(world, "deny", second["id"], "--reason", "once is enough")
        said, errors = run.communicate(timeout=300 * PATIENCE)
    finally:
        follower.kill()
        follower.communicate()
    assert run.returncode == 0, errors.decode()[-3000:]
    [allowed, denied] = json.loads(said)["write_note"]
    assert allowed == [False, "written"]
    assert denied[0]
    assert world.called() == {}
    assert (world.folder / "note").read_text() == "x"
    rows = events(recording)
    assert [row.data["decision"] for row in rows if row.kind == "mcp.decision"] == ["allow", "deny"]
    assert next(row.data["approver"] for row in rows if row.kind == "ask.answered") == "Jane"


def everything() -> list[str]:
    """The command of the server of the TypeScript package, where that is installed. Skips where it is not."""
    folder = Path(os.environ.get("AGENTWRAP_MCP_SERVERS") or "none")
    program = folder / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
    if not program.is_file():
        pytest.skip("AGENTWRAP_MCP_SERVERS names no folder with @modelcontextprotocol/server-everything")
    return ["node", str(program), "streamableHttp"]


def test_a_server_on_the_typescript_package(world: World) -> None:
    server = world.start(everything(), PORT="9200")
    try:
        assert server.stderr is not None
        while (told := server.stderr.readline()) and b"listening" not in told:
            pass
        assert told
        url = f"http://{NAME}:9200/mcp"
        slow = 'trigger-long-running-operation={"duration":1,"steps":3}'
        calls = ('echo={"message":"hi"}', 'get-sum={"a":1,"b":2}', slow)
        native = world.run(world.client(url, "legacy", *calls))
        (world.folder / "sum.toml").write_text(POLICY + RULE.format(decision="deny").replace("write_*", "get-sum"))
        for options in (WAYS["capture"], ("--policy", "sum.toml")):
            recording = world.recording("typescript")
            found = world.run(command(recording, *world.client(url, "legacy", *calls), options=options))
            if options:
                assert found.pop("get-sum")[0][0] is True
                assert found == {name: said for name, said in native.items() if name != "get-sum"}
            else:
                assert found == native
            assert sum(recorded_calls(events(recording)).values()) == 3
    finally:
        server.kill()
        server.communicate()
