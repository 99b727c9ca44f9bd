"""Compares what a recording says of an agent's MCP traffic with sequences once taken between agent and server.

By hand, as `run_agents`: AGENTWRAP_LAB=FOLDER python tests/real/mcp_traffic.py [CASE...] [--user root|plain|PROFILE]

The lab keeps, for each agent, every message of one session (`configs/mcp-sequence-AGENT.json`). Paths, ids and versions
differ from run to run; the order of what is asked and answered does not.
"""

import argparse
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

from real import run_agents  # noqa: E402  run by hand, nobody has set the path
from real.run_agents import Run  # noqa: E402
from wrapping import Event, events  # noqa: E402

from agentwrap.recording.reader import Reader  # noqa: E402

RULE = """
version = 1
name = "writing"
mode = "enforce"
[network]
default = "allow"
[files]
write = {{ default = "allow" }}
[[mcp]]
server = "fs"
tools = ["write_*"]
decision = "{decision}"
reason = "a person looks at what servers write"
"""
CASES = ("claude:mcp", "codex:mcp", "codex:mcp/gpt-6-sol")
MODEL = "127.0.0.1:8099"
WRITTEN = "from-mcp.txt"
_PATH = re.compile(r"(?:file://)?(?:LAB|/var/tmp/agent-lab|[\w./-]*?)/?runs/[\w.-]+/repo")
_BESIDE = "\n[FILE] shell-proof.txt"


def run(case: str, user: str, *options: str, label: str = "") -> Run:
    """Run a case such as `codex:mcp/gpt-6-sol` (another model: another way to call tools)."""
    name, _, model = case.partition("/")
    more = ["--model", model] if model else []
    options = ("--intercept", MODEL, *options)
    done = run_agents.run(name, user, *options, more=more, label=f"-mcp-{model}{label}")
    return Run(case, done.user, done.result, done.folder)


def policy(decision: str) -> str:
    """A policy file that denies, or holds, the call that writes; where the lab's agents see it."""
    path = run_agents.installed() / f"runs/writing-{decision}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(RULE.format(decision=decision))
    path.chmod(0o644)
    return f"--policy={path}"


class Approver(threading.Thread):
    """Approves, as somebody else in another terminal would, the first call that waits in a case's run."""

    def __init__(self, case: str, user: str, name: str) -> None:
        super().__init__(daemon=True)
        self._home = run_agents.installed() / f"runs/agentwrap-{case.replace(':', '-')}-{user}-mcp-{name}/home"
        self._over = threading.Event()
        self.said: list[str] = []

    def run(self) -> None:
        while not self._over.wait(0.1):
            listed = self._agentwrap("pending")
            if "write_file" in listed:
                self.said.append(listed)
                self.said.append(self._agentwrap("approve", listed.split()[0], "--approver", "mary", "--once"))
                return

    def stop(self) -> None:
        self._over.set()
        self.join()

    def _agentwrap(self, *words: str) -> str:
        environment = {"HOME": str(self._home), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            [sys.executable, "-m", "agentwrap", *words], env=environment, capture_output=True, text=True, timeout=300
        )
        return done.stdout


def faults(run: Run, *, served: bool = True) -> Iterator[str]:
    """What does not agree, one sentence each. `served`: the writing tool was allowed."""
    if run.result["mcp_ok"] != served:
        yield f"the lab says mcp_ok = {run.result['mcp_ok']!r}"
    if run.result["rc"] != 0:
        yield f"the lab says rc = {run.result['rc']!r}"
    rows = events(run.recording)
    sessions = [row for row in rows if row.kind == "mcp.session"]
    if [row.data["server"] for row in sessions] != ["fs"]:
        yield f"sessions: {[row.data for row in sessions]}"
        return
    if any(row.kind == "gap" and row.data["what"].startswith("mcp") for row in rows):
        yield f"gaps: {[row.data for row in rows if row.kind == 'gap']}"
    if served and "/" not in run.case:  # another way to call tools makes other calls
        yield from _messages(run, rows)
    yield from _story(rows, served=served)


def messages(run: Run, rows: list[Event]) -> list[tuple[str, Any]]:
    """Direction and content of every message that client or server said, in the recording's order."""
    found = []
    with Reader.open(run.recording) as reader:
        for row in rows:
            if row.kind == "mcp.message" and not row.data.get("ours"):
                body = b"".join(piece or b"" for piece in reader.body(row.seq, "body"))
                found.append((row.data["number"], "C->S" if row.data["up"] else "S->C", json.loads(body)))
    return [(way, message) for _number, way, message in sorted(found, key=lambda one: one[0])]


def _messages(run: Run, rows: list[Event]) -> Iterator[str]:
    agent = run.case.partition(":")[0]
    found = run_agents.lab()
    assert found is not None
    saved = json.loads((found / f"agents/configs/mcp-sequence-{agent}.json").read_text())
    said = messages(run, rows)
    for way in ("C->S", "S->C"):
        mine = [_normal(message) for direction, message in said if direction == way]
        theirs = [_normal(one["msg"]) for one in saved if one["dir"] == way]
        for number, (one, other) in enumerate(zip(mine, theirs, strict=False)):
            if one != other:
                yield f"{way} message {number}: {json.dumps(one)[:300]} was {json.dumps(other)[:300]}"
        if len(mine) != len(theirs):
            yield f"{way}: {len(mine)} messages, there were {len(theirs)}"


def _normal(message: Any) -> Any:
    """Without what differs from run to run: paths, ids of calls and turns, long lists that the lab left out."""
    if isinstance(message, dict):
        kept = {key: _normal(value) for key, value in message.items() if key not in ("_meta", "id", "version")}
        if isinstance(kept.get("tools"), list):
            kept["tools"] = "tools"
        if isinstance(kept.get("_meta"), dict):
            kept["_meta"] = sorted(kept["_meta"])
        return kept
    if isinstance(message, list):
        return [_normal(one) for one in message]
    # Agents run tools side by side: what the shell has made by then may be listed, or not yet.
    return _PATH.sub("REPO", message).replace(_BESIDE, "") if isinstance(message, str) else message


def _story(rows: list[Event], *, served: bool) -> Iterator[str]:
    """The model's tool call, the MCP call and the server's write are one story."""
    calls = [row.data for row in rows if row.kind == "mcp.call" and row.data["method"] == "tools/call"]
    if not calls:
        yield "no tools/call"
    tools = {row.data["tool"]: row.data for row in rows if row.kind == "tool.call"}
    later = {row.data["call"]: row.data["tool_call"] for row in rows if row.kind == "mcp.joined"}
    # In a container as Docker makes it model traffic is read where a client takes a base URL, which Codex does not.
    for one in calls if tools else ():
        joined = one.get("tool_call") or later.get(one["call"])
        if not joined:
            yield f"{one['call']} {one.get('tool')} is joined to no tool call of the model's"
        elif joined not in tools:
            yield f"{one['call']} is joined to {joined}, which is not there"
    ended = {row.data["call"]: row.data["ending"] for row in rows if row.kind == "mcp.result"}
    writes = [one["call"] for one in calls if one.get("tool") == "write_file"]
    wanted = "complete" if served else "denied"
    if [ended.get(call) for call in writes] != [wanted] * len(writes) or not writes:
        yield f"write_file ended as {[ended.get(call) for call in writes]}"
    server = next(row.span for row in rows if row.kind == "mcp.session")
    written = [row for row in rows if row.kind == "file.edit" and row.subject.endswith(WRITTEN)]
    if served and [row.span for row in written] != [server]:
        yield f"{WRITTEN} was written by {[row.span for row in written]}, the server is {server}"


def main() -> int:
    """Run the cases that are named, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--user", default="root")
    parser.add_argument("--option", action="append", default=[])
    arguments = parser.parse_args()
    failed = 0
    for case in arguments.cases:
        done = run(case, arguments.user, *arguments.option)
        found = list(faults(done))
        joined = {}
        for row in events(done.recording, "mcp.call", "mcp.joined"):
            if how := row.data.get("joined"):
                joined[how] = joined.get(how, 0) + 1
        print(f"{'FAULTS' if found else 'ok'}  {case} ({arguments.user})  {done.recording}  joined by {joined}")
        print("".join(f"    {one}\n" for one in found), end="")
        failed += bool(found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
