"""Mode `ask` from end to end: a program waits, somebody answers from another terminal, the recording tells both."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import far_side
import pytest
from internet import Internet
from wrapping import AGENTWRAP, Event, environment, events

POLICY = """version = 1
name = "asks"
mode = "ask"
[network]
default = "deny"
deny = ["never.example"]
[files.write]
default = "allow"
"""
FETCH = "curl -s -m 300 -o /dev/null -w '%{http_code} ' http://"
RAW = """
import os, socket
folder = os.environ["XDG_RUNTIME_DIR"] + "/agentwrap/"
sock = socket.socket(socket.AF_UNIX)
sock.connect(folder + os.listdir(folder)[0])
sock.sendall(b'{"type":"answer","ask":"a1","answer":"run"}\\n')
print(sock.recv(4096))
"""
NOBODY_IN_TIME, NOBODY = "nobody answered in time", "nobody can be asked"


class World:
    """Servers, a policy that asks, and one run at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.internet = Internet(folder, {"a.example": ["203.0.113.1"], "inner.example": ["10.9.8.7"],
                                          "never.example": ["203.0.113.2"]})  # fmt: skip
        self.server = far_side.http(self.internet.listen("203.0.113.1", 80), "a")
        self.inner = far_side.http(self.internet.listen("10.9.8.7", 80), "inner")
        (folder / "runtime").mkdir(mode=0o700)
        os.mkfifo(folder / "go")
        self.env = environment(folder, XDG_RUNTIME_DIR=str(folder / "runtime"))
        self.policy = folder / "asks.toml"
        self.policy.write_text(POLICY)
        self.recording = folder / "run.agentlog"
        self.run: subprocess.Popen[bytes]
        self.follower: subprocess.Popen[str] | None = None

    def start(self, script: str, *options: str, stdin: int = subprocess.DEVNULL) -> None:
        self.recording.unlink(missing_ok=True)
        ours = ["run", "-o", str(self.recording), "--policy", str(self.policy), *options]
        self.run = self.internet.popen(
            [*AGENTWRAP, *ours, "--", "sh", "-c", script],
            env=self.env, cwd=self.folder, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip

    def question(self) -> dict[str, str]:
        """The next thing that waits."""
        if self.follower is None:
            self.follower = subprocess.Popen(
                [*AGENTWRAP, "pending", "--follow", "--json"], env=self.env, stdout=subprocess.PIPE, text=True
            )
        assert self.follower.stdout is not None
        found: dict[str, str] = json.loads(self.follower.stdout.readline())
        return found

    def say(self, *words: str) -> str:
        done = subprocess.run([*AGENTWRAP, *words], env=self.env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def end(self) -> tuple[str, str]:
        """What the program printed, and what agentwrap said."""
        out, err = self.run.communicate(timeout=300)
        return out.decode().strip(), err.decode()

    def events(self, *kinds: str) -> list[Event]:
        return events(self.recording, *kinds)

    def answers(self) -> list[tuple[str, str]]:
        return [(event.data["ask"], event.data["answer"]) for event in self.events("ask.answered")]

    def close(self) -> None:
        if self.follower is not None:
            self.follower.kill()
            self.follower.communicate()
        for server in (self.server, self.inner):
            server.close()
        self.internet.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    tmp_path.chmod(0o755)
    one = World(tmp_path)
    yield one
    one.close()


@pytest.mark.parametrize("tier", ["wall", "guard"])
def test_once_is_once_and_a_denial_is_told(world: World, tier: str) -> None:
    world.start(f"{FETCH}a.example/1; {FETCH}a.example/2", "--ask-timeout", "300", "--tier", tier)
    first = world.question()
    assert first["question"] == "connect to a.example:80 at 203.0.113.1"
    assert "curl" in first["who"]
    assert world.server.heard == []
    assert "allowed once" in world.say("approve", first["id"], "--approver", "ann")
    second = world.question()
    assert second["ask"] != first["ask"]
    world.say("deny", second["id"], "--approver", "bob", "--reason", "not twice")
    assert world.end()[0] == "200 403"
    assert len(world.server.heard) == 1
    waiting, (ann, bob) = world.events("ask.waiting"), world.events("ask.answered")
    assert [event.subject for event in waiting] == [first["question"]] * 2
    assert (ann.data["approver"], ann.data["uid"]) == ("ann", os.getuid())
    assert (bob.data["answer"], bob.data["reason"]) == ("deny", "not twice")
    allowed, denied = world.events("net.decision")
    assert (allowed.verdict, allowed.data["rule"]) == ("allow", "built-in.approved")
    assert waiting[0].seq < ann.seq < allowed.seq
    assert denied.verdict == "deny"
    assert "a human denied it" in denied.data["why"]


def test_for_the_run_is_asked_once(world: World) -> None:
    world.start(f"{FETCH}a.example/1; {FETCH}a.example/2; {FETCH}a.example/3", "--ask-timeout", "300")
    world.say("approve", world.question()["id"], "--run")
    assert world.end()[0] == "200 200 200"
    assert len(world.events("ask.waiting")) == 1


def test_always_holds_for_the_next_run_too(world: World) -> None:
    world.start(f"{FETCH}inner.example/1; {FETCH}inner.example/2", "--ask-timeout", "300")
    said = world.say("approve", world.question()["id"], "--always")
    assert '"inner.example:80", "10.9.8.7:80"' in said
    assert world.end()[0] == "200 200"
    world.start(f"{FETCH}inner.example/3; {FETCH}a.example/", "--ask-timeout", "300")
    other = world.question()
    assert "a.example" in other["question"]
    world.say("deny", other["id"])
    assert world.end()[0] == "200 403"


def test_silence_is_a_denial(world: World) -> None:
    world.start(f"{FETCH}a.example/", "--ask-timeout", "0.5")
    out, err = world.end()
    assert out == "403"
    assert "agentwrap: waiting for a human: connect to a.example:80" in err
    assert world.server.heard == []
    assert world.answers() == [("a1", "expired")]
    assert NOBODY_IN_TIME in world.events("net.decision")[0].data["why"]


def test_without_anybody_there_it_is_denied_at_once(world: World) -> None:
    """No terminal, and nobody said that somebody will answer: as in a CI job."""
    world.start(f"{FETCH}a.example/")
    out, err = world.end()
    assert (out, "(ask: nobody is there to be asked, see --ask-timeout)" in err) == ("403", True)
    assert world.events("ask.waiting", "ask.answered") == []
    assert NOBODY in world.events("net.decision")[0].data["why"]
    assert list((world.folder / "runtime").rglob("*")) == []


def test_at_a_terminal_somebody_is_asked(world: World) -> None:
    ours, theirs = pty.openpty()
    try:
        world.start(f"{FETCH}a.example/", stdin=theirs)
        question = world.question()
        world.say("approve", question["ask"])
        out, err = world.end()
        assert (out, f"(agentwrap approve {question['id']})" in err) == ("200", True)
        assert "(ask: agentwrap pending)" in err
    finally:
        os.close(ours)
        os.close(theirs)


def test_what_somebody_wrote_down_as_denied_is_not_asked(world: World) -> None:
    world.start(f"{FETCH}never.example/; true", "--ask-timeout", "300")
    assert world.end()[0] in ("000", "403")
    assert world.events("ask.waiting") == []


@pytest.mark.parametrize("tier", ["wall", "guard"])
def test_an_agent_cannot_answer_for_the_human(world: World, tier: str) -> None:
    """It may try with the command, with a socket of its own, and from a process that left its family."""
    itself = f"{sys.executable} -m agentwrap"
    (world.folder / "raw.py").write_text(RAW)
    world.start(
        f"{FETCH}a.example/ & read go < {world.folder}/go; {itself} approve a1 --run; {itself} approve a1 --always;"
        f" {sys.executable} raw.py; setsid -f -w {itself} approve a1; wait",
        "--ask-timeout", "300", "--tier", tier,
    )  # fmt: skip
    question = world.question()
    (world.folder / "go").write_text("go\n")
    world.say("deny", question["id"])
    out, _ = world.end()
    assert out.endswith("403")
    assert "taken" not in out
    assert world.answers() == [("a1", "deny")]
    assert world.server.heard == []
    assert world.events("act.denied")


def test_a_killed_supervisor_opens_nothing(world: World) -> None:
    world.start(f"{FETCH}a.example/", "--ask-timeout", "300")
    question = world.question()
    world.run.kill()
    world.run.communicate()
    done = subprocess.run([*AGENTWRAP, "approve", question["id"]], env=world.env, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no run that could ask is alive" in done.stderr
    assert world.server.heard == []
    assert list((world.folder / "runtime" / "agentwrap").iterdir()) == []


def test_a_run_that_ends_takes_its_questions_along(world: World) -> None:
    world.start(f"{FETCH}a.example/ & read go < {world.folder}/go", "--ask-timeout", "300")
    world.question()
    (world.folder / "go").write_text("go\n")
    world.end()
    assert world.say("pending") == "nothing is waiting (no run that could ask is alive)\n"
    assert world.answers() == [("a1", "expired")]
    assert world.events("ask.answered")[0].data["reason"] == "the run ended"
