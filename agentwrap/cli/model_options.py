"""The options of `agentwrap run` about what an agent says and asks: whose TLS is read, what is kept of MCP calls."""

from collections.abc import Callable
from typing import Any

import click

Function = Callable[..., Any]


class ModelHost(click.ParamType[str]):
    """`HOST`, `HOST:PORT` or `*.SUFFIX`, as in a policy."""

    name = "host"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text, known to be a pattern."""
        from agentwrap.policy.hosts import HostError
        from agentwrap.policy.names import parse_pattern

        text = str(value)
        try:
            parse_pattern(text, {})
        except HostError as error:
            self.fail(f"`{text}`: {error}", param, ctx)
        return text


def model_options(function: Function) -> Function:
    """Put the options on the command."""
    options = [
        click.option("--intercept", multiple=True, type=ModelHost(), metavar="HOST[:PORT]",
                     help="Read what goes to this host over TLS, too, not only to the known model hosts."),
        click.option("--no-intercept", is_flag=True, help="End no TLS: model calls over it are not read."),
        click.option("--mcp-arguments", type=click.Choice(["digest", "redacted", "full"]), default="redacted",
                     metavar="HOW",
                     help="Keep of arguments of MCP calls: `digest`, `full`, or all but secrets (`redacted`)."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function
