"""`agentwrap report`: the controls of a review, performed again from a recording, in many formats."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentwrap.cli import reading
from agentwrap.cli.output import Output, common_options, pass_output
from agentwrap.errors import EXIT_FINDING, EXIT_NOT_COVERED, AgentwrapError
from agentwrap.export.reports import FORMATS

if TYPE_CHECKING:
    from agentwrap.evidence.report.reviewed import Review

_FAIL_ON = ("fail", "cannot-tell", "finding")


@click.command(
    epilog="Exit status: 0 the report was made; with --fail-on: 1 a control failed or there are findings, 3 something "
    "cannot be told; 2 usage or unreadable.",
)
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--format", "format_name", type=click.Choice(list(FORMATS)), help="Default: lines for a terminal.")
@click.option("-o", "--output", "target", metavar="FILE", help="Write to FILE, which must not exist.")
@click.option("--full", is_flag=True, help="Every exception, and how each control was tested.")
@click.option(
    "--fail-on", "fail_on", type=click.Choice(_FAIL_ON), multiple=True,
    help="Exit 1 if a control failed (`fail`) or there are findings (`finding`), 3 if one cannot be told.",
)
@click.option("--key", metavar="FILE", help="Public key to check signatures with (default: your own).")
@click.option("--anchor", metavar="FILE|TEXT", help="A checkpoint of this run that was kept elsewhere.")
@common_options(json_output=True, pager=True)
@pass_output
def command(
    output: Output,
    file: str | None,
    format_name: str | None,
    target: str | None,
    full: bool,
    fail_on: tuple[str, ...],
    key: str | None,
    anchor: str | None,
) -> int:
    """Perform the controls of a review again, from the recording alone.

    Is it complete and unaltered? Is every call of an MCP server attributed? Did calls that needed approval run only
    under a valid one, used once? Did nobody approve their own agent? Do decisions contradict no rule, and did nothing
    come of what was denied? Are tool definitions unchanged? Has every call an outcome? Did denied connections stay
    denied? Which gaps are there?

    Each is `pass`, `fail`, `not-applicable`, or `cannot-tell`: a gap, or contents that were not kept, never make a
    pass. A pass is evidence for requirements of frameworks (NIST SP 800-53, SOC 2, ISO/IEC 42001, EU AI Act), which the
    report names; whether they are met is for an assessor to say.
    """
    from agentwrap.cli.verify import anchor_text, public_key
    from agentwrap.evidence.report.review import review

    format_name = format_name or ("json" if output.json else "md" if target else None)
    if full and format_name is not None:
        raise AgentwrapError("usage", "--full is for the terminal: files have everything", hint="leave it out")
    path = Path(file) if file is not None else reading.latest()
    made = review(path, public_key=public_key(output, key), anchor=anchor_text(anchor))
    _write(output, made, format_name, target, full=full)
    return _status(made, fail_on)


def _write(output: Output, made: "Review", format_name: str | None, target: str | None, *, full: bool) -> None:
    if format_name is None:
        from agentwrap.views.report import report_lines

        with output.paged():
            output.lines(report_lines(made, full=full))
        return
    from agentwrap.cli.new_file import write_new
    from agentwrap.export.reports import renderer

    chunks = renderer(format_name)(made)
    if target is None or target == "-":
        output.write_bytes(chunks)
    else:
        write_new(Path(target), chunks)


def _status(made: "Review", fail_on: tuple[str, ...]) -> int:
    if ("fail" in fail_on and made.count("fail")) or ("finding" in fail_on and made.findings):
        return EXIT_FINDING
    return EXIT_NOT_COVERED if "cannot-tell" in fail_on and made.count("cannot-tell") else 0
