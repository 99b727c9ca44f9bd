"""`agentwrap show`: what a recording tells, as a stream of lines, a tree, files, diffs, gaps or JSON."""

import click

from agentwrap.cli import reading
from agentwrap.cli.output import Output, common_options, pass_output
from agentwrap.cli.show_views import Wish, document_of, lines_of, named, required_lines
from agentwrap.errors import EXIT_NOT_COVERED, AgentwrapError
from agentwrap.evidence import check
from agentwrap.policy.coverage import parse_requirements


@click.command(cls=reading.FilterCommand)
@click.argument("words", metavar="[FILE] [FILTER]...", nargs=-1)
@click.option("--tree", "view", flag_value="tree", help="Who started whom, and what each touched.")
@click.option("--files", "view", flag_value="files", help="What changed on disk, by path.")
@click.option("--diff", "view", flag_value="diff", help="Each edit with its unified diff.")
@click.option("--errors", "view", flag_value="errors", help="What failed: exits, denials, model calls, tools.")
@click.option("--denied", "view", flag_value="denied", help="What was refused: by whom, which rule, what allows it.")
@click.option("--tools", "view", flag_value="tools", help="Each tool call: result, time, what it caused, how we know.")
@click.option("--tokens", "view", flag_value="tokens", help="Tokens of each model call and in all, as reported.")
@click.option("--cost", "view", flag_value="cost", help="Estimated cost of each model call and in all.")
@click.option("--context", "about", metavar="CALL", help="What the model was told in CALL (m3, t3): added, dropped.")
@click.option("--find", metavar="TEXT", help="With --context: where TEXT was told, and when last.")
@click.option("--mcp", "view", flag_value="mcp", help="Each MCP session: its tools and calls, and how we know whose.")
@click.option("--gaps", "view", flag_value="gaps", help="What could be seen, and what could not.")
@click.option("-a", "--all", "everything", is_flag=True, help="Show also what is left out as noise.")
@click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N events.")
@click.option("--utc", "in_utc", is_flag=True, help="Time of day in UTC instead of seconds since the start.")
@click.option("--require", metavar="LIST", help="Exit 3 unless this was covered, such as `exec,file-write`.")
@common_options(json_output=True, pager=True)
@pass_output
def command(
    output: Output,
    words: tuple[str, ...],
    view: str | None,
    everything: bool,
    limit: int | None,
    in_utc: bool,
    require: str | None,
    about: str | None,
    find: str | None,
) -> int:
    """Show what a recording tells: what was asked of models, what ran, what changed, and what could not be seen.

    Without FILE, the latest recording. FILTER words choose events, such as `kind:file`, `path:*.py`, `verdict:deny`,
    `since:2m`; a `-` before one negates it. `agentwrap help filters` tells all of them. The name of a call (m3), a turn
    (t3), a tool call (x2), an agent (a1), an exchange (h1), an MCP call (k3) or an MCP session (s1) shows it in full.
    """
    requirements = parse_requirements(require) if require is not None else None
    path, chosen = reading.file_and_filter(words)
    wish = _wish(Wish(view or "stream", chosen, everything, limit, in_utc), about, find)
    with reading.open_recording(path) as source:
        judged = check.check(source, requirements) if requirements is not None else None
        if output.json:
            output.document(document_of(source, wish, judged))
        else:
            with output.paged():
                output.lines(lines_of(source, wish, output.columns()))
                if judged is not None:
                    output.lines(required_lines(judged))
    return EXIT_NOT_COVERED if judged is not None and judged.status else 0


def _wish(wish: Wish, about: str | None, find: str | None) -> Wish:
    """The wish with what `--context` or a name such as `m3` asks for."""
    if find is not None and about is None:
        raise AgentwrapError("usage", "`--find` goes with `--context`", hint="agentwrap show --context t9 --find TEXT")
    if about is not None:
        wish.view, wish.about, wish.find = "context", about, find or ""
    elif wish.view == "stream" and wish.chosen:
        name = named(wish.chosen)
        if name:
            wish.view, wish.about = "about", name
    return wish
