"""Runs real agents, wrapped, against a fake model, and checks what their recordings say.

Needs a lab: a folder named by AGENTWRAP_LAB with `agents/lab.py`, which runs an agent in a network namespace of its own
(`lab.py run AGENT --wrap "COMMAND --"`), and the agents themselves, which its `scripts/install.sh` installs. By hand:

    AGENTWRAP_LAB=FOLDER python tests/real/run_agents.py [AGENT[:SCENARIO]...] [--user root|plain|both]

Prints a line for each run and the faults below it; the exit status is 0 only where there is none. Needs root, for the
namespace; `plain` means that agentwrap and the agent run as somebody else.
"""

import argparse
import json
import os
import runpy
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

from wrapping import Event, events  # noqa: E402  run by hand, nobody has set the path

from agentwrap.recording.reader import Reader  # noqa: E402
from agentwrap.views import noise, passing  # noqa: E402

NOBODY = 65534
CASES = (
    "claude", "codex", "pi", "mini", "claude-sandbox", "codex-openai", "claude:mcp", "codex:mcp",
)  # fmt: skip
TIMEOUT_S = 300
# Without, claude asks its model after 5 seconds, with the servers that have answered by then.
PATIENT = tuple(f"{name}={TIMEOUT_S * 1000}" for name in ("MCP_CONNECT_TIMEOUT_MS", "MCP_TIMEOUT"))
# The lab's names have one second to be looked up, and codex gives its servers ten.
NAMES = 'echo "options timeout:30 attempts:5" >>{dir}/resolv.conf'
CODEX_SERVERS = (
    f'sed -i "1i mcp_optional_startup_grace_ms = {TIMEOUT_S * 1000}" {{dir}}/home/.codex/config.toml && '
    f'printf "startup_timeout_sec = %d\\ntool_timeout_sec = %d\\n" {TIMEOUT_S} {TIMEOUT_S} '
    ">>{dir}/home/.codex/config.toml"
)
BEFORE = 'def greet(name):\n    return "helo, " + name\n\n\nif __name__ == "__main__":\n    print(greet("world"))\n'
AFTER = BEFORE.replace("helo", "hello")
# What each scenario tells the agent to run: a word of the shell's command line, and programs the shell has to start.
SHELL_WORD = "agent-was-here"
PROGRAMS = {"basic": (["git", "status", "--short"], ["cat", "hello.py"]), "mcp": (["cat", "hello.py"],)}
AFTER_EDIT = {"basic": ["python3", "hello.py"], "mcp": None}
# Work besides hello.py: what the scenario asks for, where the lab sends output, the log `mini` is told to write and the
# folder it makes in HOME for everybody's configuration.
WORK = {"hello.py", "shell-proof.txt", "from-mcp.txt", "out.txt", "err.txt", "traj.json", ".config"}


@dataclass(frozen=True)
class Run:
    """One finished run: the lab's own judgement, its folder and the recording."""

    case: str
    user: str
    result: dict[str, Any]
    folder: Path

    @property
    def recording(self) -> Path:
        return self.folder / "run.agentlog"

    @property
    def scenario(self) -> str:
        return self.case.partition(":")[2] or "basic"


def lab() -> Path | None:
    """The lab's folder, where there is one."""
    named = os.environ.get("AGENTWRAP_LAB")
    return Path(named) if named and (Path(named) / "agents/lab.py").is_file() else None


def installed() -> Path:
    """Where the lab has its agents and its runs."""
    found = lab()
    assert found is not None
    return Path(runpy.run_path(str(found / "agents/lab.py"), run_name="lab")["L"])


def missing(case: str, user: str) -> str:
    """Why a case cannot be run here; empty if it can."""
    if lab() is None:
        return "AGENTWRAP_LAB names no lab"
    if os.geteuid():
        return "the lab needs root for its namespaces"
    agent = case.partition(":")[0].partition("-")[0]
    program = installed() / "agents" / agent / ("bin/mini" if agent == "mini" else f"node_modules/.bin/{agent}")
    if not program.exists():
        return f"{agent} is not installed in the lab"
    if user == "plain":
        for what, words in (("this Python", [sys.executable, "-c", "import agentwrap"]), (agent, [program, "--help"])):
            # Told by trying: a Python in root's home, or an agent that needs one, is closed to others.
            with tempfile.TemporaryDirectory(dir="/tmp") as home:
                os.chown(home, NOBODY, NOBODY)
                probe = [*_as_plain_user(), "env", f"HOME={home}", *words]
                done = subprocess.run(probe, capture_output=True, cwd="/", timeout=TIMEOUT_S, stdin=subprocess.DEVNULL)
            if done.returncode:
                return f"a plain user cannot run {what}"
    return ""


def _as_plain_user() -> list[str]:
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all"]


def run(
    case: str, user: str, *options: str, more: Sequence[str] = (), label: str = "", settings: Sequence[str] = ()
) -> Run:
    """Run one case. The lab makes a repository, starts the fake model, puts our command before the agent's.

    `user`: `root`, `plain`, or a container's profile (`containers`). `options`: of `agentwrap run`, `more`: of the lab.
    `label` keeps runs of the same case apart. `settings`: NAME=VALUE of our environment, and so of the agent's.
    """
    agent, _, scenario = case.partition(":")
    settings = (*settings, *PATIENT) if scenario == "mcp" else settings
    name = f"agentwrap-{case.replace(':', '-')}-{user}{label}"
    wrap = shlex.join([sys.executable, "-m", "agentwrap", "run", "-q", "-o", "{dir}/run.agentlog", *options, "--"])
    if settings:
        wrap = f"{shlex.join(['env', *settings])} {wrap}"
    if user not in ("root", "plain"):
        inside = Path(__file__).with_name("in_container.py")
        wrap = f"{shlex.join([sys.executable, str(inside), user])} {{dir}} -- {wrap}"
    if user == "plain":
        give = f'chown -R {NOBODY}:{NOBODY} {{dir}} && cd {{dir}}/repo && exec {shlex.join(_as_plain_user())} "$@"'
        wrap = f"sh -c '{give}' sh env USER=plain {wrap}"
    before = [NAMES, *([CODEX_SERVERS] if case.startswith("codex:mcp") else [])]
    first = shlex.quote(" && ".join([*before, 'exec "$@"']))
    wrap = f"sh -c {first} sh {wrap}"
    found = lab()
    assert found is not None
    words = [sys.executable, "lab.py", "run", agent, "--name", name, "--wrap", wrap, "--no-sample"]
    words += ["--scenario", scenario or "basic", "--timeout", str(TIMEOUT_S - 10), *more]
    environment = dict(os.environ)
    # A plain user's Python does not write its caches into somebody else's checkout anyway.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        words, cwd=found / "agents", env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    return Run(case, user, json.loads(done.stdout), installed() / "runs" / name)


def faults(run: Run) -> Iterator[str]:
    """What is wrong with a run or its recording, one sentence each."""
    wanted = {"rc": 0, "shell_ok": True, "edit_ok": True, "leftover": []}
    if run.scenario == "mcp":
        wanted["mcp_ok"] = True
    for key, value in wanted.items():
        if run.result[key] != value:
            yield f"the lab says {key} = {run.result[key]!r}"
    recorded = events(run.recording)
    yield from _frame(run, recorded)
    yield from _commands(run, recorded)
    yield from _the_edit(run, recorded)
    yield from _noise(run)


def _frame(run: Run, recorded: list[Event]) -> Iterator[str]:
    with Reader.open(run.recording) as reader:
        if reader.state() != "closed":
            yield f"the recording is {reader.state()}"
    start, end = recorded[0], [event for event in recorded if event.kind == "run.end"]
    if start.data["mode"] != "ptrace+notify":
        yield f"followed by {start.data['mode']}"
    if not end or end[0].data.get("status") != 0:
        yield f"run.end says {end[0].data if end else 'nothing'}"
    for event in recorded:
        if event.kind == "gap" and not _true_gap(run, event):
            yield f"gap {event.data['cause']}: {event.data.get('detail', '')} ({event.data['could_hide']})"
    started = {e.span for e in recorded if e.kind == "process.start"}
    for event in recorded:
        if event.kind in ("process.exec", "process.exit") and event.span not in started:
            yield f"{event.kind} of {event.span}, which never started"
    if unended := started - {e.span for e in recorded if e.kind == "process.exit"}:
        yield f"no exit of {sorted(unended)}"


def _true_gap(run: Run, event: Event) -> bool:
    """What really cannot be seen: a plain user may not look into Claude's sandbox starter, which is not dumpable."""
    closed = run.case.startswith("claude-sandbox") and run.user == "plain"
    return closed and event.data["cause"] == "not-dumpable" and str(event.data.get("detail", "")).startswith("mount")


def _commands(run: Run, recorded: list[Event]) -> Iterator[str]:
    """The shell the model asked for, what it started, and how it comes from the agent."""
    execs = [event for event in recorded if event.kind == "process.exec"]
    parents = _parents(run)
    shells = {e.span for e in execs if any(SHELL_WORD in word for word in e.data["argv"] if isinstance(word, str))}
    if not shells:
        yield "the shell command is not in the recording"
    for words in PROGRAMS[run.scenario]:
        found = [e for e in execs if _same_program(e.data["argv"], words)]
        lines = [_line(parents, e.span) for e in found]
        if not any(shells & set(line) for line in lines):
            yield f"{shlex.join(words)} under the shell is not in the recording"
        if any(line[-1] != "run" for line in lines):
            yield f"{shlex.join(words)} does not come from the command: {lines}"
    after = AFTER_EDIT[run.scenario]
    if after is not None and not any(_same_program(e.data["argv"], after) for e in execs):
        yield f"{shlex.join(after)} is not in the recording"


def _same_program(argv: list[Any], words: list[str]) -> bool:
    return [os.path.basename(str(argv[0])), *argv[1:]] == words if argv else False


def _parents(run: Run) -> dict[str, str]:
    with Reader.open(run.recording) as reader:
        return {span.id: span.parent or "" for span in reader.spans().values()}


def _line(parents: dict[str, str], span: str) -> list[str]:
    line = [span]
    while parents.get(line[-1]):
        line.append(parents[line[-1]])
    return line


def _the_edit(run: Run, recorded: list[Event]) -> Iterator[str]:
    edits = [e for e in recorded if e.kind == "file.edit" and e.subject.endswith("/hello.py")]
    if len(edits) != 1:
        yield f"hello.py has {len(edits)} edits: {[(e.subject, e.data['change'], e.data.get('via')) for e in edits]}"
    for edit in edits:
        with Reader.open(run.recording) as reader:
            texts = [reader.blob(edit.data[side].get("sha256", "")) for side in ("before", "after")]
        if texts != [BEFORE.encode(), AFTER.encode()]:
            yield f"the edit's contents are not those of hello.py: {texts}"
        if edit.data["change"] != "modify" or edit.data.get("klass", "work") != "work":
            yield f"the edit of hello.py is told as {edit.data['change']} of {edit.data.get('klass', 'work')}"


def _noise(run: Run) -> Iterator[str]:
    """Paths the default view shows and nobody asked for."""
    with Reader.open(run.recording) as reader:
        gone = passing.passed(reader)
        rows = [row for row in reader.rows() if row.kind.startswith("file.")]
        shown = [row for row in rows if not noise.hidden(row) and not passing.of_a_passing_file(row, gone)]
    for row in shown:
        if os.path.basename(row.subject) not in WORK:
            yield f"noise: {row.kind} {row.data.get('change', '')} {row.subject}"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--user", choices=("root", "plain", "both"), default="both")
    chosen = parser.parse_args()
    bad = 0
    for user in ("root", "plain") if chosen.user == "both" else (chosen.user,):
        for case in chosen.cases:
            if reason := missing(case, user):
                print(f"{case:16} {user:6} skipped: {reason}")
                continue
            done = run(case, user)
            found = list(faults(done))
            bad += len(found)
            told = f"{done.result['wall_s']:6.2f} s  {len(events(done.recording)):5} events  {len(found)} faults"
            print(f"{case:16} {user:6} {told}", flush=True)
            for fault in found[:20]:
                print("    " + fault)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
