"""`agentwrap policy unused`, and the line about it after a run: entries of the policy that decided nothing."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentwrap.cli import reading
from agentwrap.cli.output import SETTINGS, Output, common_options, pass_output
from agentwrap.cli.package_hosts import configured
from agentwrap.errors import AgentwrapError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentwrap.evidence.unused import Idle, Unused
    from agentwrap.policy.layers import Layer
    from agentwrap.recording.reader import Reader

# After a run nobody waits for a million edits to be asked again.
_ACTS_AFTER_A_RUN = 20_000
_TOLD_AFTER_A_RUN = 3
_FOR_THE_DAY = (".deny", ".approve")  # what refuses or holds is there for the day it is needed


@click.command("unused", context_settings=SETTINGS)
@click.argument("recording", required=False)
@click.option(
    "--config", "given", multiple=True, metavar="NAME=HOST", help="What `config:pip` or `config:npm` stood for."
)
@common_options(json_output=True)
@pass_output
def unused_command(output: Output, recording: str | None, given: tuple[str, ...]) -> int:
    """Tell which entries of its policy decided nothing in RECORDING (default: the latest).

    What no run ever needs can go. An entry of `deny`, or a rule about MCP that denies or asks, is there for
    the day it is needed; it is listed apart.
    """
    from agentwrap.evidence.asked import places_of
    from agentwrap.evidence.unused import recorded_layers, unused

    path = Path(recording) if recording is not None else reading.latest()
    with reading.open_recording(path) as source:
        places = places_of(source)
        configs = configured(output.env, Path(places.cwd), given)
        try:
            layers = recorded_layers(source, places, configs)
        except AgentwrapError as error:
            raise AgentwrapError(
                "refused", "the recorded policy cannot be read as one", evidence=error.evidence,
                hint="a secret in it was hidden, or another version wrote it",
            ) from error  # fmt: skip
        found = unused(source, layers) if layers else None
    if output.json:
        rows = [] if found is None else [{"layer": one.layer, "rule": str(one.rule)} for one in found.idle]
        output.document({"schema": "agentwrap.unused/1", "policy": bool(layers), "unused": rows})
        return 0
    if found is None:
        output.line("the run had no policy")
        return 0
    _tell(output, found)
    return 0


def _tell(output: Output, found: "Unused") -> None:
    allow = [one for one in found.idle if not one.rule.where.endswith(_FOR_THE_DAY)]
    deny = [one for one in found.idle if one.rule.where.endswith(_FOR_THE_DAY)]
    for title, rows in (("no use seen", allow), ("never met", deny)):
        if rows:
            output.line([(title, "title")])
            output.lines([("  ", ""), (str(one.rule), "name"), (f"  {one.layer}", "dim")] for one in rows)
    if not found.idle:
        output.line("every entry decided something")
    if found.unread:
        output.line([("entries about reads cannot be judged: the run recorded none (`--reads`)", "gap")])


def after_run(source: "Reader", layers: "Sequence[Layer]") -> str:
    """One line about entries of the command's and the project's own policy that allowed nothing, or nothing."""
    from agentwrap.evidence.unused import unused

    found = unused(source, layers, _ACTS_AFTER_A_RUN)
    if not found.complete:
        return ""
    idle: list[Idle] = [
        one for one in found.idle if one.layer in ("flags", "project") and not one.rule.where.endswith(_FOR_THE_DAY)
    ]
    if not idle:
        return ""
    told = ", ".join(str(one.rule) for one in idle[:_TOLD_AFTER_A_RUN])
    more = (
        f" and {len(idle) - _TOLD_AFTER_A_RUN} more (`agentwrap policy unused`)"
        if len(idle) > _TOLD_AFTER_A_RUN
        else ""
    )
    return f"no use was seen of {told}{more}"
