"""`agentwrap snapshot`: a copy of a recording as one file, also while it is being written or after a crash."""

from pathlib import Path

import click

from agentwrap.cli import reading
from agentwrap.cli.output import Output, common_options, pass_output


@click.command(short_help="Copy a recording, also while it is being written.")
@click.argument("files", metavar="[FILE] OUT", nargs=-1, required=True)
@common_options(json_output=True)
@pass_output
def command(output: Output, files: tuple[str, ...]) -> int:
    """Write a consistent copy of a recording (the latest one if no FILE is given) to the new file OUT.

    Copying a live recording by hand loses what its write-ahead log holds. A snapshot keeps events, contents,
    checkpoints and signatures; only the seal over every byte of the file stays behind, as the bytes are others.
    """
    from agentwrap.recording.snapshot import snapshot

    if len(files) > 2:
        raise click.UsageError("give one recording and one output")
    source = Path(files[0]) if len(files) == 2 else reading.latest()
    events = snapshot(source, Path(files[-1]))
    if output.json:
        output.document({"file": files[-1], "events": events})
    else:
        output.line(f"{events} events  {files[-1]}")
    return 0
