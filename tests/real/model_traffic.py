"""Compares what a recording says of model traffic with what the fake model logged: calls, bytes, tokens, tools.

By hand, as `run_agents`: AGENTWRAP_LAB=FOLDER python tests/real/model_traffic.py [CASE...] [--user root|plain]
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

from real import run_agents  # noqa: E402  run by hand, nobody has set the path
from real.run_agents import Run  # noqa: E402
from wrapping import Event, events  # noqa: E402

from agentwrap.recording.reader import Reader  # noqa: E402

CASES = (
    "claude", "codex", "codex-openai", "pi/anthropic", "pi/chat", "pi/responses", "mini/chat", "mini/anthropic",
    "claude+tls", "codex+tls", "pi/anthropic+tls", "pi/responses+tls", "mini/chat+tls",
)  # fmt: skip
MODEL = "127.0.0.1:8099"
CALLS = ("/messages", "/chat/completions", "/responses")
# What the world says it used, whatever the answer was.
OUTPUT_TOKENS = 40


@dataclass(frozen=True)
class Seen:
    """One call as the world saw it."""

    body: str
    input_tokens: int


def world(run: Run) -> tuple[list[Seen], list[str]]:
    """The calls, and the names of the tools that the answers called."""
    calls: list[Seen] = []
    tools: list[str] = []
    kept_silent = False
    for line in (run.folder / "world.jsonl").read_text().splitlines():
        row = json.loads(line)
        path = row.get("path", "").partition("?")[0]
        if row["kind"] == "http" and row["method"] == "POST" and path.endswith(CALLS):
            calls.append(_seen(run, f"{row['n']:03d}.json"))
        elif row["kind"] == "ws-msg" and row["type"] == "response.create":
            calls.append(_seen(run, f"{row['n']:03d}-ws{row['k']}.json"))
            kept_silent = row["generate"] is False  # a client that only warms up: nothing is answered
        elif row["kind"] == "decision" and row["call"]:
            tools += [] if kept_silent else [row["call"]]
            kept_silent = False
    return calls, tools


def _seen(run: Run, name: str) -> Seen:
    body = (run.folder / "world.jsonl.bodies" / name).read_bytes()
    return Seen(sha256(body).hexdigest(), max(1, len(json.dumps(json.loads(body))) // 4))


def recorded(run: Run, rows: list[Event]) -> list[Seen]:
    """The same, as the recording has it."""
    answers = {row.data["call"]: row for row in rows if row.kind == "model.response"}
    found = []
    with Reader.open(run.recording) as reader:
        for row in rows:
            if row.kind == "model.request":
                body = b"".join(piece or b"" for piece in reader.body(row.seq, "request"))
                answer = answers.get(row.data["call"])
                found.append(Seen(sha256(body).hexdigest(), answer.data.get("input_tokens") or 0 if answer else -1))
    return found


def run(case: str, user: str, *options: str, label: str = "") -> Run:
    """Run a case such as `pi/chat+tls`."""
    agent, _, how = case.partition("+")
    name, _, wire = agent.partition("/")
    more = ["--wire", wire] if wire else []
    if how == "tls":
        more += ["--tls", "--ca", "none"]
    else:
        options = ("--intercept", MODEL, *options)
    # The world's own authority, which we have to trust to speak for the agent.
    trust = (f"SSL_CERT_FILE={run_agents.installed() / 'fake/ca/bundle.crt'}",)
    return run_agents.run(name, user, *options, more=more, label=f"-model-{wire}{how}{label}", settings=trust)


def faults(run: Run) -> Iterator[str]:
    """What does not agree, one sentence each."""
    for key, value in {"rc": 0, "shell_ok": True, "edit_ok": True}.items():
        if run.result[key] != value:
            yield f"the lab says {key} = {run.result[key]!r}"
    rows = events(run.recording)
    calls, tools = world(run)
    told = recorded(run, rows)
    if not calls:
        yield "the world saw no call"
    if Counter(calls) != Counter(told):
        yield f"the world saw {len(calls)} calls, the recording has {len(told)}; {_differences(calls, told)}"
    for row in rows:
        if row.kind == "model.response":
            data = row.data
            if data.get("ending") != "complete" or (data.get("output_tokens") or 0) != OUTPUT_TOKENS:
                yield f"{data['call']}: {data.get('ending')} {data.get('error', '')} output {data.get('output_tokens')}"
            if data.get("unknown"):
                yield f"{data['call']}: unknown {data['unknown']}"
        if row.kind == "gap" and row.data["what"] == "model":
            yield f"a gap: {row.data}"
    yield from _tools(rows, tools)


def _differences(calls: list[Seen], told: list[Seen]) -> str:
    bodies = Counter(one.body for one in calls), Counter(one.body for one in told)
    return f"{(bodies[0] - bodies[1]).total()} bodies are not there, {(bodies[1] - bodies[0]).total()} are others"


def _tools(rows: list[Event], wanted: list[str]) -> Iterator[str]:
    called = [row.data for row in rows if row.kind == "tool.call"]
    if [_last(one["name"]) for one in called] != [_last(name) for name in wanted]:
        yield f"tools {[one['name'] for one in called]}, the world called {wanted}"
    results = [row.data for row in rows if row.kind == "tool.result"]
    unknown = [one["id"] for one in results if not one.get("tool")]
    if unknown:
        yield f"results without a call: {unknown}"
    silent = {one["tool"] for one in called} - {one["tool"] for one in results}
    # The last command of one agent ends it: nobody is told what became of that.
    if len(silent) > (1 if wanted and "mini" in str(rows[0].data.get("command")) else 0):
        yield f"calls without a result: {sorted(silent)}"


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--user", default="root")
    parser.add_argument("--option", action="append", default=[])
    given = parser.parse_args()
    bad = 0
    for case in given.cases:
        done = run(case, given.user, *given.option)
        found = list(faults(done))
        bad += bool(found)
        told: Any = Counter(row.kind for row in events(done.recording) if row.kind[:5] in ("model", "tool.", "http."))
        sys.stdout.write(f"{case} {given.user}: {dict(told)} {done.result.get('wall_s', '')}\n")
        sys.stdout.writelines(f"    {fault}\n" for fault in found)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
