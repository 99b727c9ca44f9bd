import subprocess
import sys
from pathlib import Path

import click
import pytest

from agentwrap.cli.main import agentwrap

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference" / "cli.md"
CONTEXT = click.Context(agentwrap, info_name="agentwrap")


@pytest.fixture(params=agentwrap.list_commands(CONTEXT))
def command(request: pytest.FixtureRequest) -> click.Command:
    found = agentwrap.get_command(CONTEXT, request.param)
    assert found is not None
    return found


def test_the_reference_is_what_the_program_says() -> None:
    done = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.returncode == 0


def test_every_command_and_every_option_says_what_it_does(command: click.Command) -> None:
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, parameter.opts
            assert parameter.help.rstrip().endswith((".", ")")), parameter.help


def test_every_option_is_in_the_reference(command: click.Command) -> None:
    told = REFERENCE.read_text("utf-8")
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert all(name in told for name in parameter.opts)
