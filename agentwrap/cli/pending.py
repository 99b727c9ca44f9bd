"""`agentwrap pending`: what waits for a human, in all live runs of this user."""

import time
from typing import TYPE_CHECKING

import click

from agentwrap import text
from agentwrap.cli.output import Output, common_options, pass_output

if TYPE_CHECKING:
    from agentwrap.approvals.registry import Waiting
    from agentwrap.cli.asking import Run

_POLL_S = 0.5
_ARGUMENT_COLUMNS = 2000


@click.command(epilog="Exit status: 0, also where nothing waits.")
@click.option("--follow", is_flag=True, help="Go on, and print each question when it begins (Ctrl-C ends it).")
@common_options(json_output=True)
@pass_output
def command(output: Output, follow: bool) -> int:
    """List what waits for a human: the question, who asks, and how long it still waits.

    A run asks where its policy says `mode = "ask"` and no rule allows a connection, and where a rule about MCP says
    `decision = "approve"`: then the arguments of the call are shown, too. Answer with `agentwrap approve ID`
    or `agentwrap deny ID`, from any terminal outside of the run. What nobody answers is denied.
    """
    from agentwrap.cli import asking

    if follow:
        return _follow(output)
    every = asking.runs(output)
    if output.json:
        output.document({
            "schema": "agentwrap.pending/1",
            "runs": [_run_object(run) for run in every],
            "waiting": [_object(run, one) for run in every for one in run.waiting],
        })  # fmt: skip
        return 0
    for run in every:
        for one in run.waiting:
            _show(output, run, one)
    if not any(run.waiting for run in every):
        able = f"{text.count(len(every), 'run')} could ask" if every else "no run that could ask is alive"
        output.line(f"nothing is waiting ({able})")
    return 0


def _follow(output: Output) -> int:
    """New questions as they begin; with `--json` one object per line."""
    from agentwrap.cli import asking

    seen: set[tuple[str, str]] = set()
    while True:
        for run in asking.runs(output):
            for one in run.waiting:
                if (run.facts.run, one.ask) in seen:
                    continue
                seen.add((run.facts.run, one.ask))
                if output.json:
                    output.record(_object(run, one))
                else:
                    _show(output, run, one)
        output.flush()
        time.sleep(_POLL_S)


def _show(output: Output, run: "Run", one: "Waiting") -> None:
    from agentwrap.approvals.messages import public_id

    left = text.duration(max(0, one.until_ns - run.now_ns))
    shown = public_id(one.ask, run.facts.run)
    output.line([(f"{shown:<9}", "name"), (one.question, ""), (f"  {left} left", "dim")])
    acting = " by ".join(filter(None, (one.on_behalf_of, one.agent and f"agent {one.agent}")))
    arguments = text.clip(one.arguments, _ARGUMENT_COLUMNS)
    details = [("asked by", one.who), ("in", run.facts.command), ("for", acting), ("with", arguments), *one.bound]
    for name, value in details:
        if value:
            output.line([(f"{'':9}{name:<9}", "dim"), (value, "")])


def _object(run: "Run", one: "Waiting") -> dict[str, object]:
    from agentwrap.approvals.messages import public_id

    return {
        "id": public_id(one.ask, run.facts.run),
        "run": run.facts.run,
        "ask": one.ask,
        "question": one.question,
        "who": one.who,
        "agent": one.agent,
        "on_behalf_of": one.on_behalf_of,
        "arguments": one.arguments,
        "bound": dict(one.bound),
        "answers": list(one.offers),
        "waited_ns": max(0, run.now_ns - one.since_ns),
        "left_ns": max(0, one.until_ns - run.now_ns),
    }


def _run_object(run: "Run") -> dict[str, object]:
    facts = run.facts
    return {"run": facts.run, "command": facts.command, "recording": facts.recording, "cwd": facts.cwd,
            "mode": facts.mode, "waiting": len(run.waiting)}  # fmt: skip
