"""`agentwrap policy suggest`: the narrowest policy that would have allowed a recording."""

from pathlib import Path

import click

from agentwrap.cli import reading
from agentwrap.cli.output import SETTINGS, Output, common_options, pass_output
from agentwrap.errors import AgentwrapError


@click.command("suggest", context_settings=SETTINGS)
@click.argument("recording", required=False)
@click.option("-o", "--output", "target", metavar="FILE", help="Write the policy here; an existing file is kept.")
@click.option("--name", default="suggested", show_default=True, help="The policy's name.")
@common_options()
@pass_output
def suggest(output: Output, recording: str | None, target: str | None, name: str) -> int:
    """Write the narrowest policy that would have allowed RECORDING (default: the latest).

    Each entry says which programs needed it. Names that change from run to run (temporary files, caches, an agent's
    own state) are allowed as folders. Hosts are allowed by name and port where a gateway saw them (run with `--network
    gateway`). Without one a recording does not tell which name led to which address: names that were looked up are
    allowed, and addresses only where no name was. Of MCP servers, tools and requests that were used are allowed by
    name, whatever the arguments were.
    """
    from agentwrap.evidence.asked import asked, places_of
    from agentwrap.evidence.judge import judge
    from agentwrap.policy import suggest as suggesting
    from agentwrap.policy.document import load

    path = Path(recording) if recording is not None else reading.latest()
    with reading.open_recording(path) as source:
        places = places_of(source)
        acts = (one for one in asked(source) if isinstance(one, suggesting.Asked))
        text = suggesting.suggest(acts, places, name=name, source=path.name)
        data = text.encode()
        judged = judge(source, load(data, target or "suggestion", places, {}))
    if target is None:
        output.write_bytes([data])
    else:
        _write_new(Path(target), data)
    unclear = sum(one.count for one in judged.cannot_tell)
    told = f"judged by it, {path.name} has {judged.violated} violations"
    told += f"; about {unclear} of {judged.acts} acts it cannot be told" if unclear else ""
    output.note(told)
    return 0


def _write_new(path: Path, data: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError as error:
        raise AgentwrapError(
            "exists", "the policy is there already", evidence=str(path), hint="choose another name with -o"
        ) from error
    except OSError as error:
        raise AgentwrapError("output", "the policy cannot be written", evidence=f"{path}: {error.strerror}") from error
