"""The command line as a whole: which commands there are, what a bare command means, how failures leave.

Knows the table of commands and loads only the module of the one that was asked for: a reading command must start in
100 ms. Knows nothing of what the commands do. Every failure leaves as one clear error and an exit status; a traceback
is saved to a file and named, never shown unasked.
"""

import errno
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence

import click

from agentwrap import __version__
from agentwrap.cli.output import Output
from agentwrap.errors import EXIT_FAILED, EXIT_USAGE, AgentwrapError

GROUPS: dict[str, dict[str, str]] = {
    "Record": {
        "run": "Wrap a command: follow it and every child, and keep one file.",
        "proxy": "Record model traffic of programs that are not wrapped.",
        "mcp": "Run one MCP server and record what is said to it.",
    },
    "Read": {
        "show": "Show what a recording tells.",
        "tail": "Follow a recording while it is being written.",
        "rebuild": "Put a request or an answer together, byte by byte.",
    },
    "Judge": {
        "check": "Say whether a recording is clean, and whether it could have seen what you ask about.",
        "verify": "Say whether a recording is whole and unchanged.",
        "policy": "Check a policy, ask it, or have one written from a recording.",
        "report": "Perform the controls of a review again, as evidence for an audit.",
    },
    "Gate": {
        "pending": "List what waits for a human.",
        "approve": "Let something that waits go on.",
        "deny": "Say no to something that waits.",
    },
    "Share": {
        "export": "Write a recording's events in another format.",
        "snapshot": "Copy a recording, also while it is being written.",
        "redact": "Copy a recording with more of it hidden.",
        "undo": "Put files back as they were before the run.",
    },
    "Setup": {
        "demo": "Run a scripted agent under a policy, and see what is kept of it.",
        "doctor": "Probe this machine: check, result, fix.",
        "keygen": "Make the key that signs recordings.",
        "help": "Explain a topic: filters, exit-codes, environment, completion.",
    },
}
COMMANDS = {name: brief for group in GROUPS.values() for name, brief in group.items()}

EXAMPLES = (
    ("agentwrap -- claude", "wrap an agent and keep one file of what it did"),
    ("agentwrap show", "read the latest recording"),
    ("agentwrap undo", "see which files could be put back"),
)

EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141  # what a shell reports of a program ended by SIGPIPE

# Standard output may be a file on a full disk.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

_WRAPPERS = (["run"], ["mcp"])  # commands whose exit status is that of what they run

COMPLETION = "_AGENTWRAP_COMPLETE"  # asks for shell completion instead of a command

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Commands(click.Group):
    """The group of commands; a command is the object `command` in `agentwrap/cli/NAME.py`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names of the commands that are there, in the order of the groups."""
        return [name for name in COMMANDS if importlib.util.find_spec(f"agentwrap.cli.{name}")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load one command, or None if there is none of that name."""
        if cmd_name not in COMMANDS or not importlib.util.find_spec(f"agentwrap.cli.{cmd_name}"):
            return None
        command = importlib.import_module(f"agentwrap.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        command.context_settings = {**SETTINGS, **command.context_settings}
        command.short_help = COMMANDS[cmd_name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with suggestions out of the table of commands."""
        command = self.get_command(ctx, args[0])
        if command is None:
            raise no_such_command(args)
        return args[0], command, args[1:]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by group."""
        present = set(self.list_commands(ctx))
        for title, group in GROUPS.items():
            rows = [(name, brief) for name, brief in group.items() if name in present]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=12)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Both forms: the wrapper and the commands."""
        formatter.write_usage("agentwrap", "[RUN OPTIONS] -- COMMAND [ARGS]...")
        formatter.write_usage("agentwrap", "COMMAND [OPTIONS] [ARGS]...", prefix="       ")


@click.group(cls=Commands, context_settings=SETTINGS)
@click.version_option(__version__, message="%(prog)s %(version)s")
def agentwrap() -> None:
    """Wrap any command and keep one file that tells what it ran, changed, connected to, and what could not be seen.

    `agentwrap -- COMMAND` is short for `agentwrap run -- COMMAND`. Without FILE, the reading commands take the latest
    recording.
    """


def no_such_command(arguments: Sequence[str]) -> AgentwrapError:
    """The error for a first word that is no command; it may have been meant as the command to wrap."""
    from difflib import get_close_matches

    word = arguments[0]
    near = get_close_matches(word, COMMANDS, n=1)
    if near:
        hint = f"did you mean `agentwrap {near[0]}`?"
    else:
        hint = f"to wrap a command, put `--` before it: `agentwrap -- {' '.join(arguments)}`"
    return AgentwrapError("usage", f"no such command `{word}`", evidence=f"commands: {', '.join(COMMANDS)}", hint=hint)


def complete(arguments: Sequence[str]) -> list[str]:
    """The arguments with `run` put in front where a command to wrap was given without it."""
    first = arguments[0] if arguments else ""
    if first.startswith("-") and first not in ("-h", "--help", "--version"):
        return ["run", *arguments]
    return list(arguments)


def usage_error(failure: click.ClickException, arguments: Sequence[str]) -> AgentwrapError:
    """Click's complaint in our form: lower case, the usage line as evidence, one hint."""
    message = getattr(failure, "message", "") or failure.format_message()
    if isinstance(failure, click.MissingParameter | click.BadParameter):
        message = failure.format_message()
    message = message[:1].lower() + message[1:].rstrip().removesuffix(".")
    context = getattr(failure, "ctx", None)
    path = "agentwrap"
    if context is not None:
        path = context.command_path
    elif arguments and arguments[0] in COMMANDS:
        path = f"agentwrap {arguments[0]}"
    hint = f"`{path} --help` lists what there is"
    if isinstance(failure, click.NoSuchOption):
        message = f"no such option `{failure.option_name}`"
        if failure.possibilities:
            hint = f"did you mean `{failure.possibilities[0]}`?"
    evidence = context.get_usage().removeprefix("Usage: ") if context else ""
    return AgentwrapError("usage", message, evidence=f"usage: {evidence}" if evidence else "", hint=hint)


def welcome(output: Output) -> int:
    """What a bare `agentwrap` says: three examples, then the commands."""
    wide = max(len(example) for example, _ in EXAMPLES)
    for example, meaning in EXAMPLES:
        output.line([("  " + example.ljust(wide + 3), "name"), (meaning, "dim")])
    for title, group in GROUPS.items():
        output.line()
        output.line([(f"{title}:", "title")])
        for name, brief in group.items():
            output.line([("  " + name.ljust(12), "name"), (brief, "")])
    output.line()
    output.line("`agentwrap COMMAND --help` tells the rest.")
    return 0


def _verbosity(arguments: Sequence[str]) -> int:
    """`-vv` before any `--`: needed where the command line itself could not be read to its end."""
    own = list(arguments)[: list(arguments).index("--")] if "--" in arguments else list(arguments)
    return 2 if "-vv" in own or own.count("-v") > 1 else 0


def _invoke(arguments: list[str], output: Output) -> int:
    with agentwrap.make_context("agentwrap", arguments, obj=output) as context:
        status = agentwrap.invoke(context)
    return status if isinstance(status, int) else 0


def _before_the_command(arguments: list[str], status: int) -> int:
    """Of `run`, 2 would read as the command's own status: what fails before it is 125, as with docker."""
    return EXIT_FAILED if arguments[:1] in _WRAPPERS and status == EXIT_USAGE else status


def _told(arguments: list[str], output: Output) -> int:
    """Run the command; turn every way it can fail into a status and at most one error."""
    try:
        status = _invoke(arguments, output) if arguments else welcome(output)
        output.flush()
        return status
    except click.exceptions.Exit as leaving:
        output.flush()
        return leaving.exit_code
    except click.ClickException as failure:
        output.error(usage_error(failure, arguments))
        return _before_the_command(arguments, EXIT_USAGE)
    except AgentwrapError as failure:
        output.error(failure)
        return _before_the_command(arguments, failure.exit_status)
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        output.abandon()
        return EXIT_BROKEN_PIPE
    except OSError as failure:
        if failure.errno not in _NO_ROOM:
            raise
        output.abandon()
        output.json = False  # there is no room for an object either
        output.error(AgentwrapError("output", "cannot write the output", evidence=failure.strerror or str(failure)))
        return EXIT_USAGE


def _guarded(arguments: list[str], output: Output) -> int:
    """As `_told`, and what nobody expected becomes an error of ours."""
    running = arguments[:1] in _WRAPPERS
    try:
        return _told(arguments, output)
    except BrokenPipeError:
        raise
    except Exception as fault:
        from agentwrap.cli.faults import internal_fault

        status = EXIT_FAILED if running else EXIT_USAGE
        error = internal_fault(fault, verbose=output.verbose >= 2, exit_status=status)
        output.error(error)
        return error.exit_status


def run(argv: Sequence[str] | None = None) -> int:
    """Run the program with `argv` (without the program's name; default: the process's own). Returns the exit status."""
    if argv is None and COMPLETION in os.environ:
        agentwrap.main([], prog_name="agentwrap", complete_var=COMPLETION)
    arguments = complete(sys.argv[1:] if argv is None else argv)
    output = Output.standard()
    if arguments[:1] not in _WRAPPERS:
        output.json = "--json" in arguments
    output.verbose = _verbosity(arguments)
    try:
        return _guarded(arguments, output)
    except BrokenPipeError:  # while the error itself was being printed
        output.abandon()
        return EXIT_BROKEN_PIPE
