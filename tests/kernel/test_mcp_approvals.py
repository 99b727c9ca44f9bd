"""Calls of MCP servers under rules, end to end: what the server got, what the client was told, what is recorded."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from wrapping import AGENTWRAP, Event, environment, events

POLICY = """version = 1
name = "calls"
mode = "enforce"
agent = "bot"
on_behalf_of = "env:WHO"
{more}
[network]
default = "allow"
[files.write]
default = "allow"
[[mcp]]
server = "github"
tools = ["merge"]
when = {{ arg = "branch", matches = "^(main|release/.*)$" }}
decision = "approve"
reason = "Merges need a human."
[[mcp]]
server = "github"
tools = ["delete"]
decision = "deny"
"""
LONG = ("--ask-timeout", "300")
SERVER = """
import json, sys
with open("reached", "a") as reached:
    for line in sys.stdin:
        print(line, end="", file=reached, flush=True)
        message = json.loads(line)
        if "id" in message:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}), flush=True)
"""
# Sends messages one after the other; each waits for its answer, or (`until`) for another message.
CLIENT = """
import json, subprocess, sys
server = subprocess.Popen([sys.executable, "server.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for step in json.loads(sys.argv[1]):
    server.stdin.write(json.dumps(step["say"]).encode() + b"\\n")
    server.stdin.flush()
    until = step.get("until", {"id": step["say"].get("id")})
    while until["id" if "id" in until else "method"] is not None:
        line = server.stdout.readline()
        if not line:
            sys.exit(9)
        print(line.decode(), end="", flush=True)
        message = json.loads(line)
        if all(message.get(name) == value for name, value in until.items()):
            break
server.stdin.close()
sys.exit(server.wait())
"""


def call(number: int, tool: str, branch: str = "main", **more: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": {"branch": branch}, **more}
    return {"say": {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}}


class World:
    """A declared server, a client, and one run at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "runtime").mkdir(mode=0o700)
        (folder / "server.py").write_text(SERVER)
        (folder / "client.py").write_text(CLIENT)
        declared = {"github": {"command": sys.executable, "args": ["server.py"]}}
        (folder / ".mcp.json").write_text(json.dumps({"mcpServers": declared}))
        self.env = environment(folder, XDG_RUNTIME_DIR=str(folder / "runtime"), WHO="dana")
        self.recording = folder / "run.agentlog"
        self.run: subprocess.Popen[bytes]
        self.follower: subprocess.Popen[str] | None = None
        self.said = ""

    def start(self, *steps: dict[str, Any], options: tuple[str, ...] = LONG, more: str = "") -> None:
        (self.folder / "calls.toml").write_text(POLICY.format(more=more))
        ours = ["run", "-o", str(self.recording), "--policy", "calls.toml", *options]
        self.run = subprocess.Popen(
            [*AGENTWRAP, *ours, "--", sys.executable, "client.py", json.dumps(steps)], env=self.env, cwd=self.folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def question(self) -> dict[str, Any]:
        """The next thing that waits."""
        if self.follower is None:
            self.follower = subprocess.Popen(
                [*AGENTWRAP, "pending", "--follow", "--json"], env=self.env, stdout=subprocess.PIPE, text=True
            )
        assert self.follower.stdout is not None
        found: dict[str, Any] = json.loads(self.follower.stdout.readline())
        return found

    def say(self, *words: str, status: int = 0) -> str:
        done = subprocess.run([*AGENTWRAP, *words], env=self.env, capture_output=True, text=True, timeout=300)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    def end(self) -> list[dict[str, Any]]:
        """What the client was told."""
        out, err = self.run.communicate(timeout=300)
        self.said = err.decode()
        assert self.run.returncode == 0, err
        return [json.loads(line) for line in out.splitlines()]

    def reached(self) -> list[int]:
        """Ids of what the server got."""
        file = self.folder / "reached"
        return [json.loads(line).get("id") for line in file.read_text().splitlines()] if file.exists() else []

    def events(self, *kinds: str) -> list[Event]:
        return events(self.recording, *kinds)

    def answers(self) -> list[tuple[str, str, str]]:
        rows = [event.data for event in self.events("ask.answered")]
        return [(row["ask"], row["answer"], row.get("approver", "")) for row in rows]

    def decisions(self) -> list[tuple[str, str, str]]:
        rows = [event.data for event in self.events("mcp.decision")]
        return [(row["tool"], row["decision"], row.get("ask", "")) for row in rows]

    def close(self) -> None:
        if self.follower is not None:
            self.follower.kill()
            self.follower.communicate()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    tmp_path.chmod(0o755)
    one = World(tmp_path)
    yield one
    one.close()


def text(message: dict[str, Any]) -> str:
    told: str = message["result"]["content"][0]["text"]
    return told


def test_a_denied_call_never_reaches_its_server_and_the_model_is_told_why(world: World) -> None:
    world.start(call(1, "delete"), call(2, "list"))
    denied, passed = world.end()
    assert denied["result"]["isError"] is True
    assert "Rule: mcp.deny `github delete`" in text(denied)
    assert passed["result"] == {"content": []}
    assert world.reached() == [2]
    (decision,) = world.events("mcp.decision")
    assert (decision.verdict, decision.data["agent"], decision.data["on_behalf_of"]) == ("deny", "bot", "dana")
    assert [event.data["ending"] for event in world.events("mcp.result")] == ["denied", "complete"]


def test_an_approval_is_for_one_call_and_the_same_again_waits_again(world: World) -> None:
    world.start(call(1, "merge"), call(2, "merge"), call(3, "merge", "feature"))
    first = world.question()
    assert world.reached() == []
    assert first["question"] == 'call merge of github with {"branch": "main"}'
    assert (first["agent"], first["on_behalf_of"], first["arguments"]) == ("bot", "dana", '{"branch": "main"}')
    world.say("approve", first["id"], "--approver", "lee")
    second = world.question()
    assert second["bound"] == first["bound"]
    assert "by lee" in world.say("approve", first["id"], "--approver", "kim", status=1)
    world.say("deny", second["id"], "--approver", "kim", "--reason", "not twice")
    done, denied, other = world.end()
    assert done["result"] == other["result"] == {"content": []}
    assert "Why: a human denied it: not twice" in text(denied)
    assert world.reached() == [1, 3]
    assert world.answers() == [("r1", "once", "lee"), ("r2", "deny", "kim")]
    assert world.decisions() == [("merge", "allow", "r1"), ("merge", "deny", "r2")]
    waiting, answered = world.events("ask.waiting")[0], world.events("ask.answered")[0]
    assert waiting.data["digest"] == dict(first["bound"])["SHA-256"] == world.events("mcp.call")[0].data["digest"]
    assert waiting.seq < answered.seq < world.events("mcp.result")[0].seq
    assert not world.events("mcp.finding")


def test_arguments_that_are_not_kept_are_shown_and_not_recorded(world: World) -> None:
    world.start(call(1, "merge", "main"), options=(*LONG, "--mcp-arguments", "digest"))
    asked = world.question()
    assert asked["arguments"] == '{"branch": "main"}'
    world.say("deny", asked["id"])
    world.end()
    (waiting,) = world.events("ask.waiting")
    assert (waiting.subject, waiting.data.get("arguments", "")) == ("call merge of github", "")
    assert len(waiting.data["digest"]) == 64


def test_for_the_run_is_for_the_same_arguments(world: World) -> None:
    world.start(call(1, "merge"), call(2, "merge"), call(3, "merge", "release/1"))
    world.say("approve", world.question()["id"], "--run", "--approver", "lee")
    other = world.question()
    while other["ask"] == "r2":  # seen in the moment before it was let go
        other = world.question()
    assert other["arguments"] == '{"branch": "release/1"}'
    world.say("deny", other["id"])
    assert [("isError" in one["result"]) for one in world.end()] == [False, False, True]
    assert world.reached() == [1, 2]
    assert [one[:2] for one in world.answers()] == [("r1", "run"), ("r2", "once"), ("r3", "deny")]


def test_whom_the_agent_acts_for_may_be_kept_from_allowing_it(world: World) -> None:
    world.start(call(1, "merge"), more='approvals = { self = "deny" }')
    asked = world.question()["id"]
    assert "is not yours to allow" in world.say("approve", asked, "--approver", "DANA", status=1)
    world.say("approve", asked, "--approver", "lee")
    world.end()
    assert world.reached() == [1]
    (finding,) = world.events("mcp.finding")
    assert (finding.data["what"], finding.data["tool"]) == ("self-approval", "merge")
    assert finding.data["detail"].startswith("r1 refused")


def test_a_self_approval_is_noticed(world: World) -> None:
    world.start(call(1, "merge"))
    world.say("approve", world.question()["id"], "--approver", "Dana")
    world.end()
    found = [event.data for event in world.events("mcp.finding")]
    assert [(one["what"], one["server"]) for one in found] == [("self-approval", "github")]


def test_what_its_client_cancels_is_neither_asked_nor_done(world: World) -> None:
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    held = call(1, "merge", _meta={"progressToken": "t"}) | {"until": {"method": "notifications/progress"}}
    world.start(held, {"say": cancel}, call(2, "list"))
    *waiting, passed = world.end()  # it is told again and again that it waits
    assert ({one["params"]["progressToken"] for one in waiting}, passed["id"]) == ({"t"}, 2)
    assert world.reached() == [2]
    assert world.answers() == [("r1", "withdrawn", "")]
    assert [event.data["ending"] for event in world.events("mcp.result")] == ["cancelled", "complete"]


def test_silence_is_a_denial(world: World) -> None:
    world.start(call(1, "merge"), options=("--ask-timeout", "1"))
    assert "nobody answered in time" in text(world.end()[0])
    assert world.reached() == []
    assert world.answers() == [("r1", "expired", "")]
    assert "policy calls (enforce: agentwrap pending)" in world.said


def test_where_nobody_can_be_asked_it_is_refused_at_once(world: World) -> None:
    world.start(call(1, "merge"), options=())
    assert "nobody can be asked" in text(world.end()[0])
    assert world.reached() == []
    assert world.decisions() == [("merge", "deny", "")]
    assert "policy calls (enforce: nobody is there to be asked, see --ask-timeout)" in world.said


def test_a_supervisor_that_is_killed_lets_nothing_through(world: World) -> None:
    world.start(call(1, "merge"))
    asked = world.question()["id"]
    os.kill(world.run.pid, signal.SIGKILL)
    out, _ = world.run.communicate(timeout=300)
    assert world.reached() == []
    assert not any("isError" not in json.loads(line)["result"] for line in out.splitlines())
    assert "no run that could ask is alive" in world.say("approve", asked, status=2)
