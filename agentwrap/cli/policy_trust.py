"""`agentwrap policy trust` and `untrust`: whether a project's own policy may also widen what the others allow."""

import os
from pathlib import Path

import click

from agentwrap.cli import trust
from agentwrap.cli.output import SETTINGS, Output, common_options, pass_output
from agentwrap.cli.package_hosts import configured, policy_bytes


@click.command("trust", context_settings=SETTINGS)
@click.argument("file")
@common_options()
@pass_output
def trust_command(output: Output, file: str) -> int:
    """Trust FILE, a project's own policy, with the content it has now.

    Until then it may only narrow what the user's and the system's policies allow: the agent can write it. A change of
    one byte, and another place, need a new trust.
    """
    from agentwrap.cli.layers import run_places
    from agentwrap.policy.document import MAX_BYTES, load

    path = Path(file)
    data = policy_bytes(path, MAX_BYTES)
    cwd = Path.cwd()
    policy = load(data, file, run_places(output.env, output.env, cwd, [file]), configured(output.env, cwd))
    fresh = trust.trust(output.env, path, data)
    word = "trusted" if fresh else "trusted already"
    output.line([(word, "good"), (f"  {os.path.realpath(path)}: {policy.name}, mode {policy.mode}", "")])
    output.line([(f"  SHA-256 {trust.digest(data)}", "dim")])
    return 0


@click.command("untrust", context_settings=SETTINGS)
@click.argument("file")
@common_options()
@pass_output
def untrust_command(output: Output, file: str) -> int:
    """Take the trust in FILE back; the file need not be there any more."""
    gone = trust.untrust(output.env, Path(file))
    output.line([("not trusted any more" if gone else "was not trusted", ""), (f"  {os.path.realpath(file)}", "dim")])
    return 0
