"""`agentwrap check`: whether a recording is clean, and whether it could have seen what is asked about."""

from pathlib import Path

import click

from agentwrap.cli import reading
from agentwrap.cli.output import Output, common_options, pass_output
from agentwrap.evidence import check
from agentwrap.policy.coverage import default_requirements, parse_requirements
from agentwrap.views import summary
from agentwrap.views.coverage import report_lines


@click.command(
    epilog="Exit status: 0 clean and covered, 1 violated, 3 clean but not covered, 2 usage or unreadable.",
)
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--require", metavar="LIST", help="What has to be covered: `exec,file-write`, `connect:wall|guard`.")
@click.option("--fail-on-deny", is_flag=True, help="Exit 1 if anything was denied.")
@common_options(json_output=True)
@pass_output
def command(output: Output, file: str | None, require: str | None, fail_on_deny: bool) -> int:
    """Judge a recording: violated, clean and covered, or clean but not covered.

    Covered means: an observer stated at the start that it sees this kind of thing, no gap touches it, and the end of
    the run is in the file. Without --require, that is asked of `process`, `exec`, `file-write` and `connect`. Whether
    the file is unchanged is another question: `agentwrap verify`.
    """
    requirements = default_requirements() if require is None else parse_requirements(require)
    path = Path(file) if file is not None else reading.latest()
    with reading.open_recording(path) as source:
        report = check.check(source, requirements, fail_on_deny=fail_on_deny)
        if output.json:
            output.document(report.document())
        else:
            output.lines(summary.header(source, reading.started_words(source.meta, in_utc=False), output.columns()))
            output.line()
            output.lines(report_lines(report))
    return report.status
