"""`agentwrap deny`: say no to something that waits."""

import click

from agentwrap.cli.output import Output, common_options, pass_output


@click.command(epilog="Exit status: 0 denied, 1 too late or not for you to answer, 2 there is no such question.")
@click.argument("id")
@click.option("--reason", default="", metavar="TEXT", help="Why; it is recorded.")
@click.option("--approver", metavar="NAME", help="Who answers (default: your user name); it is recorded.")
@common_options(json_output=True)
@pass_output
def command(output: Output, id: str, reason: str, approver: str | None) -> int:  # noqa: A002 - the argument's name
    """Deny the question ID, as `agentwrap pending` lists it.

    A connection that was denied is not asked again for half a minute. A call that was denied never reaches its server;
    the model is told so, with the reason.
    """
    from agentwrap.cli import asking

    target = asking.find(output, id)
    given = asking.give(target, "deny", approver or asking.default_approver(output.env), reason)
    asking.tell(output, target, given, {})
    return 0
