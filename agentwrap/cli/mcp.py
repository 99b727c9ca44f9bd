"""`agentwrap mcp`: run one MCP server and record what its client and it say to each other."""

import errno
import os
import signal
from typing import TYPE_CHECKING, Any, NoReturn

import click

from agentwrap.cli.output import Output, pass_output
from agentwrap.cli.run import command as run
from agentwrap.cli.run import environment_with
from agentwrap.errors import EXIT_FAILED, EXIT_NOT_EXECUTABLE, AgentwrapError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Of the options of `run`: what a client's standard error is no place for.
_LEFT_OUT = frozenset({"stream", "quiet"})
# Those that a server inside of a run heeds, too; all others are about a run of its own.
_HEEDED = frozenset({"additions", "directory"})


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Exit status: the server's own; 123 something was denied (--fail-on-deny), 124 time-out, "
    "125 agentwrap failed, 126 cannot execute, 127 not found.",
)
@click.option("--name", metavar="NAME", help="What the server is called in rules and in the recording (its command).")
@pass_output
@click.pass_context
def command(context: click.Context, output: Output, /, name: str | None, command: tuple[str, ...], **given: Any) -> int:
    """Run SERVER, an MCP server that speaks over standard input and output, and relay what is said.

    For a client's configuration, in front of the server's own command. It is a quiet `agentwrap run` of the server:
    the options are those of `run`. Nothing of ours is printed on standard output, ever.

    Inside of a run that is being recorded already, the server belongs to that one: it is relayed there, under this
    name, and the options about policy and recording are without effect.
    """
    if not command:
        raise AgentwrapError(
            "usage", "no server to run", hint="agentwrap mcp --name NAME -- SERVER", exit_status=EXIT_FAILED
        )
    from agentwrap.approvals import ancestry

    if ancestry.tracer_above(os.getpid()):
        _tell_unheeded(context, output)
        _become(command, given)
    server = os.fsencode(name or os.path.basename(command[0]) or command[0])
    status = context.invoke(run, command=command, stream=False, quiet=True, server=server, **given)
    return int(status)


command.params[1:1] = [one for one in run.params if one.name not in _LEFT_OUT]


def _tell_unheeded(context: click.Context, output: Output) -> None:
    """Who limits a server by options has to know that they limit nothing here."""
    source = click.core.ParameterSource.COMMANDLINE
    unheeded = [
        max(one.opts, key=len)
        for one in command.params
        if isinstance(one, click.Option)
        and one.name is not None
        and one.name not in _HEEDED | {"name", "verbose"}
        and context.get_parameter_source(one.name) is source
    ]
    if unheeded:
        output.note([("agentwrap ", "dim"), (f"inside of a run: {', '.join(unheeded)} without effect", "")])
        output.flush()


def _become(words: tuple[str, ...], given: "Mapping[str, Any]") -> NoReturn:
    """Be the server: the tracer above has seen our own command line, and relays what we become.

    Raises AgentwrapError where there is nothing to become.
    """
    from agentwrap.launching.command import find

    environment = environment_with(given["additions"])
    directory = given["directory"]
    cwd = os.fsencode(os.path.abspath(directory)) if directory is not None else None
    argv = [os.fsencode(word) for word in words]
    path = find(argv[0], environment, cwd)
    # Python ignores these, and what is ignored stays so across execve(2); a server expects the default.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        if cwd is not None:
            os.chdir(cwd)
        try:
            os.execve(path, argv, environment)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
        os.execve(b"/bin/sh", [b"sh", path, *argv[1:]], environment)  # as execvp(3)
    except OSError as error:
        raise AgentwrapError(
            "not-executable", "the server could not be started", evidence=f"{os.fsdecode(path)}: {error.strerror}",
            exit_status=EXIT_NOT_EXECUTABLE,
        ) from error  # fmt: skip
