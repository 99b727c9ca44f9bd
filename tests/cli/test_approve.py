"""`pending`, `approve`, `deny` against a control socket of a real process that plays the run."""

import json
import os
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentwrap.approvals import folder
from agentwrap.approvals.messages import LayerText, RunFacts
from agentwrap.approvals.registry import Waiting
from agentwrap.cli.main import run
from agentwrap.policy.document import load
from agentwrap.policy.layers import Layer, decide_layers
from agentwrap.policy.paths import Places
from agentwrap.policy.questions import Connect

Capture = pytest.CaptureFixture[str]
Invoke = Callable[..., tuple[int, str, str]]
S = 1_000_000_000
ASKING = """version = 1
name = "ask"
mode = "ask"
[network]
default = "deny"
"""
PATIENCE_S = 300.0
"""For the seconds after which each side takes the other for stopped: no test but one is about them."""
# Plays a run: ends with its input, then prints how each question ended.
RUN = """
import os, sys, threading
from pathlib import Path
import msgspec
from agentwrap.approvals import folder, messages, registry, server
server.CONNECTION_S = 300.0
facts = msgspec.json.decode(sys.argv[1], type=messages.RunFacts)
known = registry.Registry()
for one in msgspec.json.decode(sys.argv[2], type=list[registry.Waiting]):
    known.add(one)
where = folder.prepare(os.environ, Path(os.environ["XDG_STATE_HOME"]) / "agentwrap")
ended = []
one = server.ControlServer(where / facts.run, known, lambda pid: False, ended.append,
    facts=facts, now=lambda: int(sys.argv[3]), objection=lambda waiting, answer, uid: sys.argv[4])
one.start()
print("ready", flush=True)
sys.stdin.read()
one.close()
for given in ended:
    print(given.waiting.ask, given.outcome, given.approver, given.reason)
"""
# `agentwrap` with patience.
APPROVER = f"""
import sys
from agentwrap.approvals import folder
from agentwrap.cli.main import run
connect = folder.connect
folder.connect = lambda path: connect(path, {PATIENCE_S})
sys.exit(run(sys.argv[1:]))
"""


def waiting(ask: str, question: str = "connect example.org:443", until_s: int = 300) -> Waiting:
    return Waiting(ask, question, "curl (7), started by bash (6)", 0, until_s * S)


class Runs:
    """Live runs of this test."""

    def __init__(self) -> None:
        self.live: dict[str, subprocess.Popen[str]] = {}

    def start(
        self, run: str, *questions: Waiting, now_s: int = 10, layers: tuple[LayerText, ...] = (), objection: str = ""
    ) -> None:
        facts = RunFacts(run, f"agent {run}", f"/r/{run}.agentlog", os.getcwd(), "ask", layers)
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, msgspec.json.encode(facts), msgspec.json.encode(questions), str(now_s * S),
             objection],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        self.live[run] = process

    def told(self, run: str) -> list[str]:
        """Ends the run and tells what it heard."""
        out, _ = self.live.pop(run).communicate(timeout=300)
        return out.splitlines()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Runs]:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    connect = folder.connect
    monkeypatch.setattr(folder, "connect", lambda path, timeout_s=PATIENCE_S: connect(path, timeout_s))
    one = Runs()
    yield one
    for process in one.live.values():
        process.kill()
        process.communicate()


@pytest.fixture
def invoke(capsys: Capture) -> Invoke:
    def call(*words: str) -> tuple[int, str, str]:
        status = run(list(words))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


# What waits


def test_without_any_run_nothing_waits(runs: Runs, invoke: Invoke) -> None:
    assert invoke("pending") == (0, "nothing is waiting (no run that could ask is alive)\n", "")
    status, out, _ = invoke("pending", "--json")
    assert (status, json.loads(out)) == (0, {"schema": "agentwrap.pending/1", "runs": [], "waiting": []})


def test_all_runs_are_listed_with_who_asks_and_the_time_left(runs: Runs, invoke: Invoke) -> None:
    runs.start("3f2a0001", waiting("a1"), waiting("a2", "connect b.example:80", 20))
    runs.start("77770001")
    status, out, err = invoke("pending")
    assert (status, err) == (0, "")
    assert "a1-3f2a  connect example.org:443  4m50s left" in out
    assert "asked by curl (7), started by bash (6)" in out
    assert "in       agent 3f2a0001" in out
    assert "a2-3f2a  connect b.example:80  10.0s left" in out
    _, out, _ = invoke("pending", "--json")
    document = json.loads(out)
    assert [one["run"] for one in document["runs"]] == ["3f2a0001", "77770001"]
    first = document["waiting"][0]
    assert (first["id"], first["left_ns"], first["waited_ns"]) == ("a1-3f2a", 290 * S, 10 * S)
    assert first["answers"] == ["once", "run", "always", "deny"]
    runs.told("3f2a0001")
    assert invoke("pending")[1] == "nothing is waiting (1 run could ask)\n"


def test_a_call_of_a_server_is_shown_with_its_arguments_and_for_whom(runs: Runs, invoke: Invoke) -> None:
    call = Waiting(
        "r1", "call merge of github", "claude (4)", 0, 300 * S, (("server", "github"), ("SHA-256", "ab")),
        ("once", "run", "deny"), "bot", "dana", '{"branch":"main","x":"\x1b[2J"}' + " " * 5000,
    )  # fmt: skip
    runs.start("3f2a0001", call)
    _, out, _ = invoke("pending")
    for line in (
        "r1-3f2a  call merge of github", "for      dana by agent bot", 'with     {"branch":"main","x":"\\x1b[2J"}',
        "server   github", "SHA-256  ab",
    ):  # fmt: skip
        assert line in out
    assert len(out) < 3000
    first = json.loads(invoke("pending", "--json")[1])["waiting"][0]
    assert (first["agent"], first["on_behalf_of"], first["answers"]) == ("bot", "dana", ["once", "run", "deny"])
    status, _, err = invoke("approve", "r1", "--always")
    assert status == 2
    assert "cannot be answered with `always`" in err
    assert invoke("approve", "r1", "--approver", "lee")[0] == 0
    status, _, err = invoke("approve", "r1", "--approver", "kim")
    assert status == 1
    assert "by lee" in err
    assert runs.told("3f2a0001") == ["r1 once lee "]


def test_who_the_agent_acts_for_is_told_that_it_waits_for_somebody_else(runs: Runs, invoke: Invoke) -> None:
    runs.start("3f2a0001", waiting("r1"), objection="the agent acts for dana")
    status, _, err = invoke("approve", "r1", "--approver", "dana")
    assert status == 1
    assert "`r1-3f2a` is not yours to allow" in err
    assert "the agent acts for dana" in err
    assert "r1-3f2a" in invoke("pending")[1]


def test_a_dead_run_is_not_listed(runs: Runs, invoke: Invoke, tmp_path: Path) -> None:
    runs.start("3f2a0001", waiting("a1"))
    runs.live["3f2a0001"].kill()
    runs.live["3f2a0001"].wait()
    assert (tmp_path / "runtime/agentwrap/3f2a0001").exists()
    assert invoke("pending")[1] == "nothing is waiting (no run that could ask is alive)\n"
    assert not (tmp_path / "runtime/agentwrap/3f2a0001").exists()


def test_questions_of_an_agent_cannot_reach_the_terminal(runs: Runs, invoke: Invoke) -> None:
    runs.start("3f2a0001", waiting("a1", "connect \x1b[2J\u202eevil:443"))
    _, out, _ = invoke("pending")
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_following_prints_each_question_once(runs: Runs) -> None:
    runs.start("3f2a0001", waiting("a1"))
    with subprocess.Popen(
        [sys.executable, "-c", APPROVER, "pending", "--follow", "--json"], stdout=subprocess.PIPE, text=True
    ) as follower:
        assert follower.stdout is not None
        assert json.loads(follower.stdout.readline())["id"] == "a1-3f2a"
        runs.start("88880001", waiting("a1"))
        assert json.loads(follower.stdout.readline())["id"] == "a1-8888"
        follower.send_signal(2)
    assert follower.returncode == 130


# Answers


@pytest.mark.parametrize(
    ("words", "heard", "said"),
    [
        ((), "once", "allowed once: connect example.org:443"),
        (("--once",), "once", "allowed once: connect example.org:443"),
        (("--run",), "run", "allowed for the rest of the run: connect example.org:443"),
    ],
)
def test_an_answer_reaches_the_run(runs: Runs, invoke: Invoke, words: tuple[str, ...], heard: str, said: str) -> None:
    runs.start("3f2a0001", waiting("a1"))
    status, out, err = invoke("approve", "a1-3f2a", *words, "--approver", "ann", "--reason", "it is fine")
    assert (status, out, err) == (0, said + "\n", "")
    assert runs.told("3f2a0001") == [f"a1 {heard} ann it is fine"]


def test_denying_and_json(runs: Runs, invoke: Invoke) -> None:
    runs.start("3f2a0001", waiting("a1"))
    status, out, _ = invoke("deny", "a1", "--reason", "who is that?", "--json")
    answer = json.loads(out)
    assert (status, answer["id"], answer["answer"], answer["uid"]) == (0, "a1-3f2a", "deny", os.getuid())
    assert answer["approver"]
    assert runs.told("3f2a0001")[0].endswith("who is that?")


def test_the_second_answer_is_told_what_the_first_was(runs: Runs, invoke: Invoke) -> None:
    runs.start("3f2a0001", waiting("a1"))
    assert invoke("approve", "a1-3f2a", "--approver", "ann")[0] == 0
    for words in (("deny", "a1-3f2a"), ("approve", "a1-3f2a", "--always"), ("approve", "a1", "--run")):
        status, _, err = invoke(*words)
        assert status == 1
        assert "`a1-3f2a` is answered already: allowed once" in err
        assert "by ann (user" in err
    assert len(runs.told("3f2a0001")) == 1


def test_too_late_is_said(runs: Runs, invoke: Invoke) -> None:
    runs.start("3f2a0001", waiting("a1", until_s=20), now_s=20)
    status, _, err = invoke("approve", "a1-3f2a")
    assert status == 1
    assert "is answered already: denied, as nobody answered in time" in err


def test_an_unknown_id_lists_what_there_is(runs: Runs, invoke: Invoke) -> None:
    status, _, err = invoke("approve", "a1")
    assert (status, "no run that could ask is alive" in err) == (2, True)
    runs.start("3f2a0001", waiting("a1"))
    for shown in ("a7", "a7-3f2a", "a1-9999", "zzz", ""):
        status, _, err = invoke("deny", shown)
        assert status == 2, shown
        assert "a1-3f2a  connect example.org:443" in err or "there is no question" in err
    _, out, _ = invoke("deny", "a7", "--json")
    assert json.loads(out)["error"]["kind"] == "not-found"


def test_a_short_id_must_mean_one_question(runs: Runs, invoke: Invoke) -> None:
    runs.start("3f2a0001", waiting("a1"), waiting("a2"))
    runs.start("77770001", waiting("a1"))
    status, _, err = invoke("approve", "a1")
    assert status == 2
    assert "a1-3f2a  agent 3f2a0001" in err
    assert "a1-7777  agent 77770001" in err
    assert invoke("approve", "a2")[0] == 0
    assert invoke("approve", "a1-7777")[0] == 0
    assert runs.told("77770001")[0].startswith("a1 once")


def test_a_stopped_run_does_not_keep_the_others_from_being_listed(
    runs: Runs, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = folder.connect
    monkeypatch.setattr(folder, "connect", lambda path: connect(path, 0.3 if path.name == "3f2a0001" else 300))
    runs.start("3f2a0001", waiting("a1"))
    runs.start("77770001", waiting("a1"))
    os.kill(runs.live["3f2a0001"].pid, 19)
    os.waitid(os.P_PID, runs.live["3f2a0001"].pid, os.WSTOPPED)
    status, out, err = invoke("pending")
    assert status == 0
    assert "a1-7777" in out
    assert "the run 3f2a does not answer" in err


# Always


def policy_file() -> Path:
    return Path(os.environ["XDG_CONFIG_HOME"]) / "agentwrap" / "policy.toml"


def layer(name: str, text: str, *, trusted: bool = True, file: str = "") -> LayerText:
    return LayerText(name, file or f"/p/{name}.toml", trusted, text)  # type: ignore[arg-type]


def allows(question: Connect, *texts: tuple[str, str]) -> bool:
    layers = [
        Layer(name, load(text.encode(), name, Places("/", "/h"), {}))  # type: ignore[arg-type]
        for name, text in (*texts, ("user", policy_file().read_text()))
    ]
    return decide_layers(layers, question).verdict == "allow"


def test_always_makes_a_policy_where_there_is_none(runs: Runs, invoke: Invoke) -> None:
    runs.start("3f2a0001", waiting("a1"), layers=(layer("flags", ASKING),))
    status, out, err = invoke("approve", "a1-3f2a", "--always", "--approver", "ann")
    assert (status, err) == (0, "")
    file = policy_file()
    assert out.splitlines()[0] == "allowed always: connect example.org:443"
    assert f'{file}:6: allow = ["example.org:443"]' in out
    assert "the file is new (mode observe): in runs without another policy, the rest is told and not stopped" in out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert tomllib.loads(file.read_text())["network"] == {"allow": ["example.org:443"]}
    assert allows(Connect("example.org", 443), ("flags", ASKING))
    assert not allows(Connect("other.example", 443), ("flags", ASKING))
    assert runs.told("3f2a0001") == ["a1 always ann "]


def test_a_new_policy_is_no_weaker_than_the_systems(runs: Runs, invoke: Invoke) -> None:
    runs.start("3f2a0001", waiting("a1"), layers=(layer("system", ASKING),))
    assert invoke("approve", "a1-3f2a", "--always")[0] == 0
    assert tomllib.loads(policy_file().read_text())["mode"] == "ask"


def test_always_keeps_what_stands_in_the_policy(runs: Runs, invoke: Invoke) -> None:
    text = ASKING + '# the model\nallow = [\n  "api.example.com",  # needed\n]\n'
    file = policy_file()
    file.parent.mkdir(parents=True)
    file.write_text(text)
    file.chmod(0o640)
    runs.start(
        "3f2a0001",
        waiting("a1"),
        waiting("a2", "connect [2001:db8::1]:22"),
        layers=(layer("user", text, file=str(file)),),
    )
    status, out, _ = invoke("approve", "a1-3f2a", "--always", "--json")
    answer: dict[str, Any] = json.loads(out)
    assert (status, answer["created"], answer["lines"]) == (0, False, [[9, '"example.org:443",']])
    assert file.read_text() == text.replace("# needed\n", '# needed\n  "example.org:443",\n')
    assert invoke("approve", "a2-3f2a", "--always")[0] == 0
    assert tomllib.loads(file.read_text())["network"]["allow"][1:] == ["example.org:443", "[2001:db8::1]:22"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert sorted(path.name for path in file.parent.iterdir()) == ["policy.toml"]


def test_a_policy_that_is_a_link_stays_one(runs: Runs, invoke: Invoke, tmp_path: Path) -> None:
    policy_file().parent.mkdir(parents=True)
    (tmp_path / "dotfiles.toml").write_text(ASKING)
    policy_file().symlink_to(tmp_path / "dotfiles.toml")
    runs.start("3f2a0001", waiting("a1"))
    assert invoke("approve", "a1-3f2a", "--always")[0] == 0
    assert policy_file().is_symlink()
    assert "example.org:443" in (tmp_path / "dotfiles.toml").read_text()


def test_what_stands_there_already_is_said(runs: Runs, invoke: Invoke) -> None:
    policy_file().parent.mkdir(parents=True)
    policy_file().write_text(ASKING + 'allow = ["example.org:443"]\n')
    runs.start("3f2a0001", waiting("a1"))
    status, out, _ = invoke("approve", "a1-3f2a", "--always")
    assert status == 0
    assert f"{policy_file()} allows it already" in out


def refuses_always(runs: Runs, invoke: Invoke, *told: str) -> None:
    """Nothing is answered, nothing is written, and what would help is said."""
    before = policy_file().read_bytes() if policy_file().exists() else None
    status, _, err = invoke("approve", "a1-3f2a", "--always")
    assert status == 2
    for one in told:
        assert one in err
    assert "agentwrap approve a1-3f2a --run" in err
    assert (policy_file().read_bytes() if policy_file().exists() else None) == before
    assert "a1-3f2a" in invoke("pending")[1]
    assert runs.told("3f2a0001") == []


def test_a_denial_by_name_elsewhere_is_not_lifted(runs: Runs, invoke: Invoke) -> None:
    text = ASKING + 'deny = ["*.org"]\n'
    runs.start("3f2a0001", waiting("a1"), layers=(layer("system", text),))
    refuses_always(runs, invoke, "your policy alone cannot allow this", "/p/system.toml:6", "remove network.deny")


def test_an_untrusted_project_that_does_not_allow_it_is_not_lifted(runs: Runs, invoke: Invoke) -> None:
    runs.start("3f2a0001", waiting("a1"), layers=(layer("project", ASKING, trusted=False),))
    refuses_always(runs, invoke, "add `example.org:443` to network.allow of /p/project.toml")


def test_a_policy_whose_default_allows_gets_no_idle_entry(runs: Runs, invoke: Invoke) -> None:
    policy_file().parent.mkdir(parents=True)
    policy_file().write_text(ASKING.replace('"deny"', '"allow"'))
    runs.start("3f2a0001", waiting("a1"), layers=(layer("flags", ASKING),))
    refuses_always(runs, invoke, "your policy would be refused", "has no effect")


def test_a_broken_policy_is_not_touched(runs: Runs, invoke: Invoke) -> None:
    policy_file().parent.mkdir(parents=True)
    policy_file().write_text("[network\n")
    runs.start("3f2a0001", waiting("a1"))
    status, _, err = invoke("approve", "a1-3f2a", "--always")
    assert (status, "your policy cannot be added to" in err) == (2, True)
    assert policy_file().read_text() == "[network\n"
    assert runs.told("3f2a0001") == []


def test_what_no_policy_can_allow_is_not_allowed_always(runs: Runs, invoke: Invoke) -> None:
    runs.start("3f2a0001", waiting("a1", "call github.merge"))
    refuses_always(runs, invoke, "no entry of a policy can allow this")


def test_an_address_behind_a_name_is_named_too(runs: Runs, invoke: Invoke) -> None:
    runs.start("3f2a0001", waiting("a1", "connect to git.example:22 at 10.1.2.3"), layers=(layer("flags", ASKING),))
    assert invoke("approve", "a1-3f2a", "--always")[0] == 0
    assert tomllib.loads(policy_file().read_text())["network"]["allow"] == ["git.example:22", "10.1.2.3:22"]
    assert allows(Connect("git.example", 22, address="10.1.2.3"), ("flags", ASKING))


def test_two_who_write_at_once_both_get_their_line(runs: Runs, invoke: Invoke) -> None:
    questions = [waiting(f"a{n}", f"connect host{n}.example:443") for n in range(6)]
    runs.start("3f2a0001", *questions)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", APPROVER, "approve", f"a{n}-3f2a", "--always"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for n in range(6)
    ]  # fmt: skip
    assert [(writer.communicate(timeout=300)[1], writer.returncode) for writer in writers] == [(b"", 0)] * 6
    allowed = tomllib.loads(policy_file().read_text())["network"]["allow"]
    assert sorted(allowed) == [f"host{n}.example:443" for n in range(6)]


def test_a_folder_that_cannot_be_written_answers_nothing(runs: Runs, invoke: Invoke) -> None:
    policy_file().parent.parent.mkdir(parents=True)
    policy_file().parent.write_text("not a folder")
    runs.start("3f2a0001", waiting("a1"))
    status, _, err = invoke("approve", "a1-3f2a", "--always")
    assert (status, "your policy cannot be written" in err) == (2, True)
    assert runs.told("3f2a0001") == []
