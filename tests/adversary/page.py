"""The published table: `python tests/adversary/page.py` runs every tier that this machine can make and writes it.

`results.json` keeps what was seen; `docs/adversary.md` is made from it alone, so that a test can compare both.
`page.py TIER...` runs these tiers again and keeps the rest; `page.py --render` runs none.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from adversary.table import GROUPS, ROWS, Row  # noqa: E402
from adversary.tiers import TIERS, Tier, everything, refusal  # noqa: E402
from adversary.verdicts import NOTHING  # noqa: E402

RESULTS = HERE / "results.json"
HEAD = HERE / "page.head.md"
PAGE = HERE.parent.parent / "docs" / "adversary.md"
WORDS = ("block", "see", "gap", "accept", "machine", "skipped", NOTHING)


def told(tier: Tier) -> dict[str, Any]:
    """What of a tier is kept."""
    return {
        "covered": tier.covered,
        "attempts": len(tier.bare),
        "through_without": sum(not refused for refused in tier.bare.values()),
        "rows": {
            str(number): {attempt["letter"]: [attempt["what"], outcome.word] for attempt, outcome in attempts}
            for number, attempts in sorted(tier.rows.items())
        },
    }


def _words(results: dict[str, Any], tier: str, row: Row) -> str:
    attempts = results.get(tier, {}).get("rows", {}).get(str(row.number))
    if attempts is None:
        return "-"
    seen = {word for _, word in attempts.values()}
    return ", ".join(f"**{word}**" if word == NOTHING else word for word in WORDS if word in seen)


def render(results: dict[str, Any]) -> str:
    """The page, from what was kept."""
    tiers = [tier for tier in TIERS if tier in results]
    out = [
        HEAD.read_text(),
        "## Counts",
        "",
        "Attempts, by how they ended. *without*: how many get through where there is no agentwrap.",
        "",
    ]
    out.append("| run as | connections are kept by | " + " | ".join(WORDS) + " | without |")
    out.append("|---|---|" + "---|" * (len(WORDS) + 1))
    for tier in tiers:
        one = results[tier]
        count = Counter(word for row in one["rows"].values() for _, word in row.values())
        cells = " | ".join(str(count[word]) for word in WORDS)
        out.append(f"| {tier} | the {one['covered']} | {cells} | {one['through_without']} of {one['attempts']} |")
    out += ["", "## Rows"]
    for row in ROWS:
        if row.number in GROUPS:
            out += ["", f"### {GROUPS[row.number]}", "", "| # | technique | right | " + " | ".join(tiers) + " |"]
            out.append("|---|---|---|" + "---|" * len(tiers))
        cells = [row.not_run or _words(results, tier, row) for tier in tiers]
        if row.not_run:
            cells = ["not run"] * len(tiers)
        out.append(f"| {row.number} | {row.technique} | {row.right} | " + " | ".join(cells) + " |")
    out += ["", "Rows 61 to 67 come with the MCP relay: there is none in this version.", "", "## Lost", ""]
    lost = _lost(results, tiers)
    out += lost or ["None."]
    out += ["", "## Each attempt", "", "As the first tier has it, and where another one differs.", ""]
    for row in ROWS:
        out += _attempts(results, tiers, row)
    return "\n".join(out) + "\n"


def _lost(results: dict[str, Any], tiers: list[str]) -> list[str]:
    lines = []
    for row in ROWS:
        where: dict[str, list[str]] = {}
        for tier in tiers:
            for letter, (what, word) in results[tier]["rows"].get(str(row.number), {}).items():
                if word == NOTHING:
                    where.setdefault(f"{row.number}{letter}, {what}", []).append(tier)
        lines += [f"- {what}: {', '.join(names)}" for what, names in where.items()]
    return lines


def _attempts(results: dict[str, Any], tiers: list[str], row: Row) -> list[str]:
    found = {tier: results[tier]["rows"].get(str(row.number), {}) for tier in tiers}
    lines = []
    for letter in sorted({letter for attempts in found.values() for letter in attempts}):
        have = [(tier, *found[tier][letter]) for tier in tiers if letter in found[tier]]
        first = have[0]
        others = [f"{tier}: {word}" for tier, _, word in have[1:] if word != first[2]]
        what = first[1].replace("|", "\\|")
        lines.append(f"- {row.number}{letter} {what}: {first[2]}" + (f" ({'; '.join(others)})" if others else ""))
    return lines


def main(arguments: list[str]) -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for tier in [] if "--render" in arguments else arguments or TIERS:
        if why := refusal(tier):
            sys.stderr.write(f"{tier}: {why}\n")
            continue
        results[tier] = told(everything(tier))
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(render(results))


if __name__ == "__main__":
    main(sys.argv[1:])
