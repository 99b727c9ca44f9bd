"""A desk between a gateway and a recorder that are lists, and approvers that are real."""

import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from policy_texts import PLACES

from agentwrap.approvals import client, desk, folder, registry, server
from agentwrap.approvals.messages import AskPending, Failure, GiveAnswer, Pending, Taken
from agentwrap.events import ActDenied, AskAnswered, AskWaiting, Item, McpFinding
from agentwrap.policy.document import load
from agentwrap.policy.layers import Layer

POLICY = load(b'version = 1\nname = "t"\nmode = "ask"\n', "t.toml", PLACES, {})
ACTING = b'version = 1\nname = "t"\nmode = "enforce"\nagent = "bot"\non_behalf_of = "Dana"\n'
STRICT = ACTING + b'approvals = { self = "deny" }\n'
TRY = """import sys; from pathlib import Path; from agentwrap.approvals import client, folder, messages
folder.connect.__defaults__ = (300.0,)
for _ in range(int(sys.argv[2])): print(type(client.ask(Path(sys.argv[1]), messages.AskPending())).__name__)
"""


class Run:
    """A run's side. `log` has what was recorded and what the gateway was told, in order."""

    def __init__(self, state: Path, roots: tuple[int, ...] = (), *, policy: bytes = ACTING) -> None:
        self.log: list[Item | bytes] = []
        self.said: list[str] = []
        self.now = 1_000
        self.full = False
        self.changed = threading.Condition()
        env = {"XDG_RUNTIME_DIR": str(state)}
        facts = desk.facts_of(
            "3f2a0001", [b"sh", b"-c", b"a b\x1b"], Path("x.agentlog"), b"/w", [Layer("user", POLICY)]
        )
        self.desk = desk.open_desk(
            env,
            state,
            facts,
            roots=roots,
            now=lambda: self.now,
            record=self.record,
            tell=self.tell,
            say=self.said.append,
            layers=[Layer("user", load(policy, "t.toml", PLACES, {}))],
        )
        self.path = next(iter(client.paths(env, state)), Path("/none"))

    def record(self, items: list[Item]) -> None:
        if self.full:
            raise OSError("no space left")
        with self.changed:
            self.log += items

    def tell(self, line: bytes) -> None:
        with self.changed:
            self.log.append(line)
            self.changed.notify_all()

    def ask(self, ask: str = "a1", until_ns: int = 10**15) -> None:
        question = f"connect to {ask}.example:443".encode()
        waiting = AskWaiting(at_ns=self.now, pid=os.getpid(), ask=ask, question=question, until_ns=until_ns)
        self.desk.hear([waiting])

    def wait_for(self, line: bytes) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: line in self.log, 300)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about how long a slow machine, or a flood, may hold somebody up."""
    monkeypatch.setattr(server, "CONNECTION_S", 300.0)
    monkeypatch.setattr(folder.connect, "__defaults__", (300.0,))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    one = Run(tmp_path)
    yield one
    one.desk.close()


def test_what_the_gateway_asks_can_be_answered_and_is_recorded_first(run: Run) -> None:
    run.ask()
    listed = client.ask(run.path, AskPending(layers=True))
    assert isinstance(listed, Pending)
    assert listed.facts.command == "sh -c 'a b\\x1b'"
    assert listed.facts.recording == os.path.abspath("x.agentlog")
    assert [(one.name, one.text) for one in listed.facts.layers] == [("user", POLICY.source)]
    (waiting,) = listed.waiting
    assert waiting.question == "connect to a1.example:443"
    assert f"({os.getpid()})" in waiting.who
    assert run.said == ["agentwrap: waiting for a human: connect to a1.example:443 (agentwrap approve a1-3f2a)"]
    assert isinstance(client.ask(run.path, GiveAnswer("a1", "run", "änn", "fine")), Taken)
    answered = AskAnswered(
        at_ns=1_000, ask="a1", answer="run", approver="änn".encode(), uid=os.getuid(), approver_pid=os.getpid(),
        reason=b"fine",
    )  # fmt: skip
    assert run.log == [answered, b"Ya1 run"]


def test_an_answer_has_the_time_when_it_was_given(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = registry.Registry.answer

    def held_up(self: registry.Registry, *given: Any, **more: Any) -> Any:
        ended = answer(self, *given, **more)
        run.now = 3_000
        return ended

    run.ask(until_ns=2_000)
    monkeypatch.setattr(registry.Registry, "answer", held_up)
    assert isinstance(client.ask(run.path, GiveAnswer("a1", "once")), Taken)
    (told,) = (item for item in run.log if isinstance(item, AskAnswered))
    assert (told.answer, told.at_ns) == ("once", 1_000)


def test_what_cannot_be_recorded_is_not_allowed(run: Run) -> None:
    run.ask()
    run.full = True
    reply = client.ask(run.path, GiveAnswer("a1", "once"))
    assert reply == Failure("busy", "the run could not be told: no space left")
    assert run.log == [b"Ya1 deny"]
    run.full = False


def test_silence_is_a_denial(run: Run) -> None:
    run.ask("a1", until_ns=run.now + 20_000_000)
    run.ask("a2")
    run.now += 20_000_000
    run.wait_for(b"Ya1 expired")
    assert [(one.ask, one.answer) for one in run.log if isinstance(one, AskAnswered)] == [("a1", "expired")]
    assert isinstance(client.ask(run.path, GiveAnswer("a2", "deny")), Taken)
    assert run.log[-1] == b"Ya2 deny"


def test_what_the_gateway_gave_up_cannot_be_answered(run: Run) -> None:
    run.ask()
    run.desk.hear([AskAnswered(at_ns=2_000, ask="a1", answer="expired")])
    reply = client.ask(run.path, GiveAnswer("a1", "once"))
    assert isinstance(reply, Failure)
    assert reply.kind == "answered"
    assert run.log == []


def test_what_waits_at_the_end_is_recorded_as_unanswered(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.ask()
    run.desk.close()
    assert [(one.answer, one.reason) for one in run.log if isinstance(one, AskAnswered)] == [
        ("expired", b"the run ended")
    ]
    assert not run.path.exists()


def test_tries_of_the_agent_are_recorded_and_counted(tmp_path: Path) -> None:
    run = Run(tmp_path, roots=(os.getpid(),))
    run.ask()
    children = [
        subprocess.run([sys.executable, "-c", TRY, run.path, count], capture_output=True) for count in ("1", "40")
    ]
    assert [child.stdout.split() for child in children] == [[b"Failure"], [b"Failure"] * 40]
    run.desk.close()
    tries = [one for one in run.log if isinstance(one, ActDenied)]
    assert [one.count for one in tries] == [1, 1, 39]
    assert tries[1].pid == tries[2].pid
    assert tries[0].target == os.fsencode(run.path)
    assert tries[0].why == f"a process of the run may not answer for a human (user {os.getuid()})".encode()


FLOOD = """import os, socket, sys
os.fork(), os.fork()
os.chdir(os.path.dirname(sys.argv[1]))
kept, tries = [], 0
os.write(1, b"x")
while os.path.exists(sys.argv[1]):
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        one.connect(os.path.basename(sys.argv[1]))
        one.send(b"x" * 100)
        kept = kept[-400:] + [one]
    except OSError:
        continue
    tries += 1
    if tries == 200:
        os.write(1, b"y")
"""


def test_a_flood_of_the_agents_does_not_keep_the_human_out(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with subprocess.Popen([sys.executable, "-c", FLOOD, run.path], stdout=subprocess.PIPE) as agent:
        run.desk._roots = frozenset({agent.pid})
        run.ask()
        assert agent.stdout is not None
        assert agent.stdout.read(4) == b"xxxx"
        for number in range(2, 12):
            run.ask(f"a{number}")
            assert isinstance(client.ask(run.path, GiveAnswer(f"a{number}", "once")), Taken)
        assert agent.stdout.read(4) == b"yyyy"  # each of them has tried often, however long that took
        run.desk.close()
    tries = [one for one in run.log if isinstance(one, ActDenied)]
    assert 4 <= len(tries) <= 8
    assert sum(one.count for one in tries) > 100


def test_without_a_folder_everything_is_denied_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").write_text("a file")
    monkeypatch.setattr(desk.folder, "places", lambda _env, state: [state / "run"])
    run = Run(tmp_path / "state")
    run.ask()
    answer, told = run.log
    assert isinstance(answer, AskAnswered)
    assert (answer.answer, told) == ("unattended", b"Ya1 deny")
    assert b"there is no folder for the control socket" in answer.reason
    run.desk.close()


WORDS = "from agentwrap.approvals import desk; print(repr(desk.nobody_to_ask(waits_anyway={})), desk.may_speak())"


def elsewhere(waits: bool, **keywords: object) -> str:
    """As a process without the terminal of this test run."""
    done = subprocess.run(
        [sys.executable, "-c", WORDS.format(waits)], start_new_session=True, stdout=subprocess.PIPE,
        **{"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **keywords}, text=True,
    )  # type: ignore[call-overload]  # fmt: skip
    return str(done.stdout.strip())


def test_without_a_terminal_nobody_is_asked_unless_a_time_was_given() -> None:
    assert elsewhere(False) == "'the run has no terminal, and no --ask-timeout' True"
    assert elsewhere(True) == "'' True"


@pytest.mark.parametrize("stream", ["stdin", "stderr"])
def test_a_terminal_is_somebody(stream: str) -> None:
    ours, theirs = pty.openpty()
    try:
        assert elsewhere(False, **{stream: theirs}) == "'' True"
    finally:
        os.close(ours)
        os.close(theirs)


def test_nothing_is_said_where_the_agent_draws() -> None:
    pid, ours = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", WORDS.format(False)])
    shown = b""
    try:
        while data := os.read(ours, 4096):
            shown += data
    except OSError:  # EIO: the other side has closed its terminal
        assert shown.strip() == b"'' False"
    finally:
        os.waitpid(pid, 0)
        os.close(ours)


# Calls of MCP servers


MERGE = b'{"branch":"main","note":"\x1b[2J"}'


def call(ask: str = "r1", digest: str = "d1", until_ns: int = 10**15, *, tool: bytes = b"merge") -> AskWaiting:
    return AskWaiting(
        at_ns=1_000, pid=os.getpid(), span="p1", ask=ask, question=b"call merge of github", until_ns=until_ns,
        server=b"github", tool=tool, digest=digest, arguments=MERGE, agent=b"bot", on_behalf_of=b"Dana",
    )  # fmt: skip


def answers(run: Run) -> list[tuple[str, str, bytes]]:
    return [(one.ask, one.answer, one.approver) for one in run.log if isinstance(one, AskAnswered)]


def test_a_call_is_shown_with_its_arguments_and_for_whom(run: Run) -> None:
    run.desk.hear([call()])
    listed = client.ask(run.path, AskPending())
    assert isinstance(listed, Pending)
    (waiting,) = listed.waiting
    assert waiting.arguments == '{"branch":"main","note":"\\x1b[2J"}'
    assert (waiting.agent, waiting.on_behalf_of) == ("bot", "Dana")
    assert waiting.bound == (("server", "github"), ("tool", "merge"), ("SHA-256", "d1"))
    assert waiting.offers == ("once", "run", "deny")
    refused = client.ask(run.path, GiveAnswer("r1", "always", "lee"))
    assert isinstance(refused, Failure)
    assert refused.kind == "not-offered"


def test_once_is_once(run: Run) -> None:
    run.desk.hear([call("r1")])
    assert isinstance(client.ask(run.path, GiveAnswer("r1", "once", "lee")), Taken)
    run.desk.hear([call("r2")])
    assert run.log[-1] == b"Yr1 once"
    second = client.ask(run.path, GiveAnswer("r1", "once", "kim"))
    assert isinstance(second, Failure)
    assert second.given is not None
    assert (second.kind, second.given.approver) == ("answered", "lee")
    listed = client.ask(run.path, AskPending())
    assert isinstance(listed, Pending)
    assert [one.ask for one in listed.waiting] == ["r2"]


def test_for_the_run_is_for_the_same_arguments_and_each_call_has_its_own_answer(run: Run) -> None:
    run.desk.hear([call("r1")])
    assert isinstance(client.ask(run.path, GiveAnswer("r1", "run", "lee", "fine")), Taken)
    run.desk.hear([call("r2"), call("r3", digest="other"), call("r4", tool=b"delete")])
    assert answers(run) == [("r1", "run", b"lee"), ("r2", "once", b"lee")]
    again = [one for one in run.log if isinstance(one, AskAnswered)][1]
    assert (again.uid, again.reason) == (os.getuid(), b"allowed for the run as r1: fine")
    assert run.log[-1] == b"Yr2 once"


def test_what_could_not_be_recorded_is_not_allowed_for_the_run(run: Run) -> None:
    run.desk.hear([call("r1")])
    run.full = True
    assert isinstance(client.ask(run.path, GiveAnswer("r1", "run", "lee")), Failure)
    run.full = False
    run.desk.hear([call("r2")])
    assert [one for one in run.log if isinstance(one, bytes)] == [b"Yr1 deny"]


def test_a_call_that_its_client_gave_up_cannot_be_answered(run: Run) -> None:
    run.desk.hear([call()])
    run.desk.hear([AskAnswered(at_ns=2_000, ask="r1", answer="withdrawn")])
    assert isinstance(client.ask(run.path, GiveAnswer("r1", "once", "lee")), Failure)
    assert run.log == []


@pytest.mark.parametrize("approver", ["Dana", " dANA ", "BOT", "\uff24ana"])
def test_who_approves_for_themselves_is_told_with_the_answer(run: Run, approver: str) -> None:
    run.desk.hear([call()])
    assert isinstance(client.ask(run.path, GiveAnswer("r1", "once", approver)), Taken)
    answered, finding, line = run.log
    assert isinstance(answered, AskAnswered)
    assert isinstance(finding, McpFinding)
    assert (finding.what, finding.server, finding.tool, finding.span) == ("self-approval", b"github", b"merge", "p1")
    assert finding.detail.startswith(b"r1 allowed: approved by")
    assert line == b"Yr1 once"


def test_somebody_elses_word_and_a_denial_are_no_self_approval(run: Run) -> None:
    run.desk.hear([call("r1"), call("r2")])
    assert isinstance(client.ask(run.path, GiveAnswer("r1", "once", "lee")), Taken)
    assert isinstance(client.ask(run.path, GiveAnswer("r2", "deny", "dana", "not\nnow \u20ac")), Taken)
    run.desk.hear([call("r3", digest="d3")])
    assert isinstance(client.ask(run.path, GiveAnswer("r3", "deny", "lee", "\u0301" * 1000)), Taken)
    assert isinstance(run.log[-2], bytes)
    assert len(run.log[-2]) <= 1010
    del run.log[-3:]
    assert run.log[-2:] == ["Wr2 not\\nnow \u20ac".encode(), b"Yr2 deny"]
    assert not any(isinstance(one, McpFinding) for one in run.log)


def test_where_the_policy_says_so_nobody_approves_for_themselves(tmp_path: Path) -> None:
    run = Run(tmp_path, policy=STRICT)
    try:
        run.desk.hear([call()])
        for _ in range(2):
            refused = client.ask(run.path, GiveAnswer("r1", "once", "dana"))
            assert isinstance(refused, Failure)
            assert refused.kind == "oneself"
        assert [one.detail.partition(b":")[0] for one in run.log if isinstance(one, McpFinding)] == [b"r1 refused"]
        assert isinstance(client.ask(run.path, GiveAnswer("r1", "once", "lee")), Taken)
        assert run.log[-1] == b"Yr1 once"
        # Connections, too: the gateway does not say for whom they are.
        run.ask("a1")
        refused = client.ask(run.path, GiveAnswer("a1", "once", "dana"))
        assert isinstance(refused, Failure)
        assert isinstance(client.ask(run.path, GiveAnswer("a1", "deny", "dana")), Taken)
    finally:
        run.desk.close()


def test_where_nobody_can_be_asked_a_call_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").write_text("a file")
    monkeypatch.setattr(desk.folder, "places", lambda _env, state: [state / "run"])
    run = Run(tmp_path / "state")
    run.desk.hear([call()])
    assert [one.answer for one in run.log if isinstance(one, AskAnswered)] == ["unattended"]
    assert run.log[-1] == b"Yr1 deny"


def test_lines_go_to_whoever_asked() -> None:
    told: list[tuple[str, bytes]] = []
    tell = desk.route(lambda line: told.append(("gateway", line)), lambda line: told.append(("relay", line)))
    tell(b"Yr1 once")
    tell(b"Ya1 deny")
    desk.route(None, None)(b"Yr1 once")
    assert told == [("relay", b"Yr1 once"), ("gateway", b"Ya1 deny")]
