"""`agentwrap approve`: let something that waits go on, once, for the rest of the run, or always."""

from typing import TYPE_CHECKING

import click

from agentwrap.cli.output import Output, common_options, pass_output

if TYPE_CHECKING:
    from agentwrap.approvals.registry import Answer


@click.command(epilog="Exit status: 0 allowed, 1 too late or not for you to answer, 2 there is no such question.")
@click.argument("id")
@click.option("--once", "answer", flag_value="once", default="once", help="This one time (the default).")
@click.option("--run", "answer", flag_value="run", help="Whenever it is asked again in this run.")
@click.option("--always", "answer", flag_value="always", help="As --run, and written into your policy for later runs.")
@click.option("--reason", default="", metavar="TEXT", help="Why; it is recorded.")
@click.option("--approver", metavar="NAME", help="Who answers (default: your user name); it is recorded.")
@common_options(json_output=True)
@pass_output
def command(output: Output, id: str, answer: "Answer", reason: str, approver: str | None) -> int:  # noqa: A002
    """Allow what waits under ID, as `agentwrap pending` lists it.

    The first answer counts. A call of an MCP server is allowed with the arguments that are shown and no others; `--run`
    is for calls of the same tool with the same arguments. Where the policy says `approvals = { self = "deny" }`, whom
    the agent acts for cannot allow it.

    `--always` is for connections: it adds the host to `network.allow` of your own policy, and is refused where that
    would not allow it in later runs: then it says what would.
    """
    from agentwrap.cli import asking

    who = approver or asking.default_approver(output.env)
    if answer == "always":
        return _always(output, id, who, reason)
    target = asking.find(output, id)
    asking.tell(output, target, asking.give(target, answer, who, reason), {})
    return 0


def _always(output: Output, shown: str, approver: str, reason: str) -> int:
    """The policy is ready before the answer is given, and in its place after: neither is had without the other."""
    from agentwrap.cli import asking, permitting

    target = asking.find(output, shown, layers=True)
    if target.waiting is None:
        # Whoever answered it already is known to the run.
        asking.tell(output, target, asking.give(target, "once", approver, reason), {})
        return 0
    if "always" not in target.waiting.offers:
        raise asking.not_offered(target, "always")
    with permitting.prepared(output.env, target.run.facts, target.waiting.question, target.shown) as change:
        given = asking.give(target, "always", approver, reason)
        change.put()
    told = {"policy": str(change.path), "created": change.created, "lines": [list(line) for line in change.lines]}
    asking.tell(output, target, given, told)
    if output.json:
        return 0
    for number, line in change.lines:
        output.line(f"  {change.path}:{number}: {line}")
    if not change.lines:
        output.line(f"  {change.path} allows it already")
    if change.created:
        what = "told and not stopped" if change.mode == "observe" else "judged by it"
        output.line(f"  the file is new (mode {change.mode}): in runs without another policy, the rest is {what}")
    return 0
