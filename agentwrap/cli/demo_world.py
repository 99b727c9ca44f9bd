"""The world of `agentwrap demo`: a folder with a scripted agent, its server and a policy, and a run in it.

Knows how the run is started, who answers what waits in it, and how its recording is forged. Everything is done with the
command line, as a person would do it, so that all of it can be repeated by hand.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

from agentwrap.errors import AgentwrapError

OURS = (sys.executable, "-m", "agentwrap")
APPROVERS = ("dana", "alex")
"""Who answers the first and the second question; the second is whom the agent acts for."""

RECORDING, TAMPERED, KEY, POLICY = "run.agentlog", "tampered.agentlog", "demo.pub", "policy.toml"
COMMAND = (sys.executable, "-I", "agent.py")
_SHIPPED = ("agent.py", "server.py", POLICY)
_PATIENCE_S = 280
_CONFINING = '[network]\ndefault = "deny"\n\n[files.write]\nallow = ["$CWD/**", "$TMP/**"]\n'
_OPEN = '[network]\ndefault = "allow"\n\n[files.write]\ndefault = "allow"\n'


class Answer(NamedTuple):
    """What one of the agent's calls came to. `text`: what the agent was told."""

    tool: str
    text: str
    failed: bool


class World:
    """A folder for one demo. `runtime`: a private one with a short name, for control sockets (unix(7): 108 bytes)."""

    def __init__(self, folder: Path, runtime: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "XDG_RUNTIME_DIR": str(runtime),
            "XDG_STATE_HOME": str(runtime / "state"),
            "XDG_CONFIG_HOME": str(runtime / "config"),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "COLUMNS": "120",
            "NO_COLOR": "1",
        }
        self.confined = True
        self.answered: list[tuple[str, str]] = []

    def prepare(self) -> None:
        """Write the files, make a key. Raises AgentwrapError `output`."""
        source = Path(__file__).resolve().parent.parent / "demo"
        server = {"command": sys.executable, "args": ["-I", "server.py"]}
        try:
            for name in _SHIPPED:
                shutil.copyfile(source / name, self.folder / name)
            declared = json.dumps({"mcpServers": {"forge": server}}, indent=2)
            (self.folder / ".mcp.json").write_text(declared + "\n", "utf-8")
        except OSError as failure:
            evidence = f"{self.folder}: {failure.strerror}"
            raise AgentwrapError("output", "cannot write the demo's files", evidence=evidence) from failure
        public = json.loads(self.ours("keygen", "--json"))["public_key"]
        shutil.copyfile(public, self.folder / KEY)

    def ours(self, *words: str, any_status: bool = False) -> str:
        """Standard output of one of our commands. Raises AgentwrapError `internal` where it fails."""
        done = self._finished([*OURS, *words])
        if done.returncode and not any_status:
            raise AgentwrapError("internal", f"`agentwrap {words[0]}` failed in the demo", evidence=done.stderr)
        return done.stdout

    def _finished(self, argv: list[str]) -> "subprocess.CompletedProcess[str]":
        try:
            return subprocess.run(
                argv, env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                errors="replace", timeout=_PATIENCE_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            words = " ".join(argv[len(OURS) :][:2])
            evidence = (late.stderr or b"").decode(errors="replace") if isinstance(late.stderr, bytes) else ""
            why = f"`agentwrap {words}` did not end in {_PATIENCE_S} seconds"
            raise AgentwrapError("busy", why, evidence=evidence) from late

    def run(self) -> list[Answer]:
        """The run; what it was asked is answered meanwhile. Raises AgentwrapError where it does not come about."""
        status, out, error = self._run()
        if status == 125:  # this machine cannot confine a network or files: the calls are gated all the same
            self.confined = False
            policy = self.folder / POLICY
            policy.write_text(policy.read_text("utf-8").replace(_CONFINING, _OPEN), "utf-8")
            status, out, error = self._run("--best-effort")
        if status:
            raise AgentwrapError("unsupported", "the demo's run failed", evidence=error, hint="agentwrap doctor")
        return [_answer(line) for line in out.splitlines()]

    def _run(self, *options: str) -> tuple[int, str, str]:
        (self.folder / RECORDING).unlink(missing_ok=True)
        follower = subprocess.Popen(
            [*OURS, "pending", "--follow", "--json"], env=self.environment, stdout=subprocess.PIPE, text=True
        )
        answering = threading.Thread(target=self._answer, args=(follower,))
        answering.start()
        try:
            done = self._finished([*OURS, *run_words(*options)])
        finally:
            follower.kill()
            follower.wait()
            answering.join()
        return done.returncode, done.stdout, done.stderr

    def _answer(self, follower: "subprocess.Popen[str]") -> None:
        """Allow what waits, each question by another person."""
        assert follower.stdout is not None
        with follower.stdout:
            for line, approver in zip(follower.stdout, APPROVERS, strict=False):
                try:
                    question = json.loads(line)
                    self.ours("approve", question["id"], "--approver", approver, any_status=True)
                    self.answered.append((str(question["question"]), approver))
                except (AgentwrapError, ValueError, KeyError):
                    return  # an error instead of a question: what nobody answered is told by who reads `answered`

    def forge(self) -> None:
        """A copy of the recording in which the denied push was allowed."""
        import sqlite3
        from contextlib import closing

        shutil.copyfile(self.folder / RECORDING, self.folder / TAMPERED)
        with closing(sqlite3.connect(self.folder / TAMPERED, isolation_level=None)) as database:
            database.execute(
                "UPDATE event SET verdict = 'allow', data = replace(data, '\"deny\"', '\"allow\"') "
                "WHERE kind = 'mcp.decision' AND verdict = 'deny'"
            )


def short_folder() -> str | None:
    """Where a folder has a short name; None for wherever temporary ones are."""
    return "/tmp" if os.access("/tmp", os.W_OK | os.X_OK) else None


def run_words(*options: str) -> list[str]:
    """The words of the run, without those that start us."""
    return ["run", "-o", RECORDING, "--policy", POLICY, "--ask-timeout", "120", *options, "--", *COMMAND]


def _answer(line: str) -> Answer:
    tool, _, told = line.partition(" ")
    result = json.loads(told)
    return Answer(tool, str(result["content"][0]["text"]), bool(result["isError"]))
