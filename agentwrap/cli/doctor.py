"""`agentwrap doctor`: check, result, fix; what the checks are is decided in `launching.doctor`."""

import os
from typing import TYPE_CHECKING, Any

import click

from agentwrap.cli.output import Output, common_options, pass_output
from agentwrap.errors import EXIT_FINDING
from agentwrap.views.styled import Line, Role

if TYPE_CHECKING:
    from agentwrap.launching.doctor import Tier, Way
    from agentwrap.launching.probes import Probe

SCHEMA = 1


@click.command(short_help="Probe this machine: check, result, fix.")
@common_options(json_output=True)
@pass_output
def command(output: Output) -> int:
    """Probe this machine by doing what a run does: check, result, fix.

    Exit status: 0 when a run here would be whole, 1 when something that matters is missing.
    """
    from agentwrap.launching import doctor, doctor_mcp
    from agentwrap.recording import places
    from agentwrap.session import confinement
    from agentwrap.session.following import working_directory

    state, key = places.state_dir(os.environ), places.key_paths(os.environ)[0]
    groups = doctor.examine(state, key, (confinement.wall,))
    groups.append(("mcp", doctor_mcp.mcp_servers(os.environb, working_directory())))
    found = {probe.name: probe for _, members in groups for probe in members}
    chosen, tier = doctor.way(found), doctor.tier(found)
    healthy = doctor.healthy(chosen, found.values())
    if output.json:
        output.document(document(groups, chosen, tier, healthy))
    else:
        output.lines(report(groups, chosen, tier))
    return 0 if healthy else EXIT_FINDING


def document(groups: "list[tuple[str, list[Probe]]]", chosen: "Way", tier: "Tier", healthy: bool) -> dict[str, Any]:
    """The JSON form; names, weights and the names of ways and tiers are stable."""
    return {
        "schema": SCHEMA,
        "ok": healthy,
        "mode": {"name": chosen.name, "words": chosen.words, "whole": chosen.whole},
        "tier": {"name": tier.name, "words": tier.words},
        "checks": [
            {
                "group": head,
                "name": probe.name,
                "ok": probe.ok,
                "weight": probe.weight,
                "detail": probe.detail,
                "fix": probe.fix,
            }
            for head, members in groups
            for probe in members
        ],
    }


def _verdict(probe: "Probe", chosen: "Way") -> tuple[str, Role]:
    """One word for a result: `missing` matters to a run here, `without` only means less."""
    from agentwrap.launching.doctor import matters

    if probe.ok:
        return "ok", "good"
    if matters(chosen, probe):
        return "missing", "deny"
    return ("note", "dim") if probe.weight == "fact" else ("without", "bad")


def report(groups: "list[tuple[str, list[Probe]]]", chosen: "Way", tier: "Tier") -> list[Line]:
    """Lines for a person: result, check and detail in columns, a fix below where something is not as it could be."""
    wide = max(len(probe.name) for _, members in groups for probe in members) + 2
    lines: list[Line] = []
    for head, members in groups:
        lines.append([(head, "title")])
        for probe in members:
            word, role = _verdict(probe, chosen)
            lines.append([(f"  {word:<9}", role), (probe.name.ljust(wide), "name"), (probe.detail, "")])
            if probe.fix and not probe.ok:
                mark = "" if probe.fix.startswith(("not needed", "only needed")) else "fix: "
                lines.append([(" " * (11 + wide), ""), (mark + probe.fix, "dim")])
        lines.append([])
    confined: Role = {"wall": "good", "guard": "good", "none": "bad"}[tier.name]  # type: ignore[assignment]
    lines.append([("tier: ", ""), (tier.name, confined), (f" ({tier.words})", "dim")])
    lines.append([("agentwrap will follow with: ", ""), (chosen.words, "good" if chosen.whole else "bad")])
    return lines
