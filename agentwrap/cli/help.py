"""`agentwrap help TOPIC`: what no single command's `--help` has room for."""

import click

from agentwrap import text
from agentwrap.cli.output import Output, pass_output
from agentwrap.errors import AgentwrapError
from agentwrap.views.styled import Line

Rows = tuple[tuple[str, str], ...]

EXIT_CODES: Rows = (
    ("run", "the command's own status; death by a signal is passed on"),
    ("run 123", "the policy denied something, and --fail-on-deny was given"),
    ("run 124", "--timeout ended it"),
    ("run 125", "agentwrap failed before the command could start"),
    ("run 126", "the command cannot be executed"),
    ("run 127", "the command was not found"),
    ("0", "fine"),
    ("1", "something was found: violated, tampered, a failed check; an answer came too late"),
    ("2", "wrong usage, or the recording cannot be read"),
    ("3", "clean, but what was required was not covered; a control of a report cannot be told (--fail-on cannot-tell)"),
    ("130", "ended by Ctrl-C"),
    ("141", "the reader of the output went away"),
)
ENVIRONMENT: Rows = (
    ("XDG_STATE_HOME", "recordings and undo stores lie in its agentwrap/ (default ~/.local/state)"),
    ("XDG_CONFIG_HOME", "the signing key and policy.toml lie in its agentwrap/ (default ~/.config)"),
    ("XDG_RUNTIME_DIR", "where runs that ask are found: control sockets lie in its agentwrap/"),
    ("AGENTWRAP_PAGER, PAGER", "the pager; empty or `cat` for none; LESS is set to FIRX unless it is set"),
    ("NO_COLOR", "no colour, unless --color says otherwise"),
    ("FORCE_COLOR, CLICOLOR_FORCE", "colour also where the output is no terminal"),
    ("COLUMNS", "the width lines are cut to on a terminal"),
)
COMPLETION: Rows = (
    ("bash", 'eval "$(_AGENTWRAP_COMPLETE=bash_source agentwrap)"  in ~/.bashrc'),
    ("zsh", 'eval "$(_AGENTWRAP_COMPLETE=zsh_source agentwrap)"  in ~/.zshrc'),
    ("fish", "_AGENTWRAP_COMPLETE=fish_source agentwrap | source  in config.fish"),
)
TOPICS: dict[str, str] = {
    "filters": "The words that choose events in show, tail and export.",
    "exit-codes": "What the exit status says.",
    "environment": "Variables that are looked at.",
    "completion": "Completing commands and options in a shell.",
}


def rows_of(topic: str) -> Rows:
    """The table of a topic."""
    if topic == "filters":
        from agentwrap.views.filter_keys import HELP

        return HELP
    return {"exit-codes": EXIT_CODES, "environment": ENVIRONMENT, "completion": COMPLETION}[topic]


@click.command()
@click.argument("topic", required=False)
@pass_output
@click.pass_context
def command(context: click.Context, output: Output, topic: str | None) -> int:
    """Explain a topic, or a command."""
    if topic is None:
        output.lines(_table("topics", tuple(TOPICS.items())))
        return 0
    if topic in TOPICS:
        output.lines(_table(TOPICS[topic], rows_of(topic)))
        return 0
    group = context.find_root().command
    assert isinstance(group, click.Group)
    named = group.get_command(context, topic)
    if named is None:
        topics = f"topics: {', '.join(TOPICS)}"
        raise AgentwrapError("usage", f"there is no help on `{topic}`", evidence=topics, hint="`agentwrap --help`")
    with named.make_context(topic, ["--"], parent=context.find_root(), resilient_parsing=True) as inner:
        output.line(named.get_help(inner))
    return 0


def _table(title: str, rows: Rows) -> list[Line]:
    wide = max(text.width(name) for name, _ in rows) + 3
    lines: list[Line] = [[(title, "title")], []]
    lines += [[("  " + text.pad(name, wide), "name"), (meaning, "")] for name, meaning in rows]
    return lines
