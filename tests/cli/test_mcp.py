"""`agentwrap mcp` as a command line: whose options it has, and what others know of it."""

import click

from agentwrap.cli.mcp import command
from agentwrap.cli.run import command as run
from agentwrap.mcp.configs.named import VALUED, by_hand


def test_it_has_the_options_of_run_but_for_those_that_speak() -> None:
    own = {one.name for one in command.params}
    assert own - {one.name for one in run.params} == {"name"}
    assert {one.name for one in run.params} - own == {"stream", "quiet"}


def test_whoever_reads_its_command_line_knows_which_options_take_a_value() -> None:
    options = [one for one in command.params if isinstance(one, click.Option)]
    valued = {name for one in options if not one.is_flag and not one.count for name in one.opts}
    assert valued == VALUED


def test_the_name_is_found_behind_any_option() -> None:
    for option in sorted(VALUED - {"--name"}):
        words = ("agentwrap", "mcp", option, "--name", "server", "-x")
        assert by_hand(tuple(one.encode() for one in words)) == b"server", option
