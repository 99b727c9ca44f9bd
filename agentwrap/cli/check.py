"""`agentwrap check`: whether a recording is clean, and whether it could have seen what is asked about."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentwrap.cli import reading
from agentwrap.cli.output import Output, common_options, pass_output
from agentwrap.cli.presets import find
from agentwrap.evidence import check
from agentwrap.policy.coverage import default_requirements, parse_requirements
from agentwrap.views import summary
from agentwrap.views.coverage import report_lines

if TYPE_CHECKING:
    from agentwrap.evidence.judged import Judged
    from agentwrap.policy.coverage import Requirement
    from agentwrap.policy.rules import Policy
    from agentwrap.recording.reader import Reader


@click.command(
    epilog="Exit status: 0 clean and covered, 1 violated, 3 clean but not covered, 2 usage or unreadable.",
)
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--require", metavar="LIST", help="What has to be covered: `exec,file-write`, `connect:wall|guard`.")
@click.option(
    "--policy", "policy_file", metavar="FILE|PRESET", help="Judge every act in the recording by this policy."
)
@click.option(
    "--config", "given", multiple=True, metavar="NAME=HOST", help="What `config:pip` or `config:npm` stands for."
)
@click.option("--fail-on-deny", is_flag=True, help="Exit 1 if anything was denied.")
@common_options(json_output=True)
@pass_output
def command(
    output: Output,
    file: str | None,
    require: str | None,
    policy_file: str | None,
    given: tuple[str, ...],
    fail_on_deny: bool,
) -> int:
    """Judge a recording: violated, clean and covered, or clean but not covered.

    Covered means: an observer stated at the start that it sees this kind of thing, no gap touches it, and the end of
    the run is in the file. Without --require, that is asked of `process`, `exec`, `file-write` and `connect`, and with
    --policy of what the policy requires or restricts. Whether the file is unchanged is another question: `agentwrap
    verify`.

    With --policy, connections, lookups, changes of files, programs, reads and calls of MCP servers are judged as that
    policy would have judged them; nothing is undone by it. A recording that was made through the gateway is judged by
    name; what another one cannot tell (the name behind an address) is told as such.
    """
    requirements = default_requirements() if require is None else parse_requirements(require)
    path = Path(file) if file is not None else reading.latest()
    with reading.open_recording(path) as source:
        judged = None
        if policy_file is not None:
            policy, judged = _judged(output, source, find(policy_file), given)
            if require is None:
                requirements = _required(policy)
        report = check.check(source, requirements, fail_on_deny=fail_on_deny, judged=judged)
        if output.json:
            output.document(report.document())
        else:
            output.lines(summary.header(source, reading.started_words(source.meta, in_utc=False), output.columns()))
            output.line()
            output.lines(report_lines(report))
    return report.status


def _judged(output: Output, source: "Reader", file: Path, given: tuple[str, ...]) -> "tuple[Policy, Judged]":
    from agentwrap.cli.package_hosts import configured
    from agentwrap.cli.policy import load_policy
    from agentwrap.evidence.asked import places_of
    from agentwrap.evidence.judge import judge

    configs = configured(output.env, Path.cwd(), given)
    policy = load_policy(file, places_of(source, os.path.realpath(file)), configs)
    return policy, judge(source, policy)


def _required(policy: "Policy") -> "tuple[Requirement, ...]":
    if policy.require:
        return policy.require
    kinds = policy.restricts()
    return parse_requirements(",".join(kinds)) if kinds else ()
