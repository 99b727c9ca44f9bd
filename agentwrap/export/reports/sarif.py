"""The report as SARIF 2.1.0 (OASIS), for code scanning: a rule for each control, a result for each exception. Pure.

A control without exceptions has one result that says so (`pass`, `notApplicable`); what cannot be told is `open`. In
messages, `[text](link)` and `{0}` mean something (3.11.5, 3.11.6): foreign texts pass through `words`.
"""

from collections.abc import Iterator
from typing import Any

from agentwrap import __version__, text
from agentwrap.evidence.report.controls import Control, Exceptional
from agentwrap.evidence.report.frameworks import WORDS, evidence_for
from agentwrap.evidence.report.reviewed import Review
from agentwrap.export.reports.document import plain, written
from agentwrap.export.reports.oscal import href

MEDIA = "application/sarif+json"
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LONGEST = 2_000
_KINDS = {"pass": "pass", "not-applicable": "notApplicable", "cannot-tell": "open", "fail": "fail"}


def render(review: Review) -> Iterator[bytes]:
    """The log."""
    yield written(document(review))


def words(foreign: str) -> str:
    """Foreign text in a message: one line, without links and placeholders."""
    shown = text.escape(foreign)[:LONGEST].replace("\\", "\\\\")
    return shown.replace("[", "\\[").replace("]", "\\]").replace("{", "{{").replace("}", "}}")


def document(review: Review) -> dict[str, Any]:
    """The log as a value."""
    recorded = review.recorded
    results: list[dict[str, Any]] = []
    for index, control in enumerate(review.controls):
        found = [_exceptional(index, control, one, review) for one in control.exceptions]
        results += found or [_result(index, control, _KINDS[control.outcome], _tested(control))]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "agentwrap",
                        "semanticVersion": __version__,
                        "rules": [_rule(control) for control in review.controls],
                    }
                },
                "artifacts": [
                    {
                        "location": {"uri": href(recorded.name)},
                        "roles": ["analysisTarget"],
                        "hashes": {"sha-256": recorded.sha256},
                    }
                ],
                "columnKind": "unicodeCodePoints",
                "results": results,
                "properties": {
                    "run": plain(recorded.run),
                    "command": plain(recorded.command),
                    "verdict": recorded.verdict,
                    "policy": plain(recorded.policy),
                    "policySha256": plain(recorded.policy_sha256),
                },
            }
        ],
    }


def _rule(control: Control) -> dict[str, Any]:
    told = [f"{framework.name} {one}" for framework, ids in evidence_for(control.id) for one in ids]
    return {
        "id": control.id,
        "name": "".join(word.capitalize() for word in control.id.split("-")),
        "shortDescription": {"text": f"{control.title}."},
        "fullDescription": {"text": control.how},
        "help": {"text": f"{WORDS.capitalize()}: {', '.join(told)}."},
        "properties": {"tags": told},
    }


def _tested(control: Control) -> str:
    return f"{control.title}: {control.outcome}, {control.tested} tested."


def _result(index: int, control: Control, kind: str, message: str) -> dict[str, Any]:
    return {
        "ruleId": control.id,
        "ruleIndex": index,
        "kind": kind,
        "level": "error" if kind == "fail" else "none",
        "message": {"text": message},
        "locations": [{"physicalLocation": {"artifactLocation": {"index": 0}}}],
    }


def _exceptional(index: int, control: Control, one: Exceptional, review: Review) -> dict[str, Any]:
    about = f": {words(one.about)}" if one.about else ""
    made = _result(index, control, "fail" if one.broken else "open", f"{words(one.why)}{about}")
    if one.rows:
        made["locations"][0]["logicalLocations"] = [
            {"name": f"event {seq}", "kind": "event", "fullyQualifiedName": f"event/{seq}"} for seq in one.rows
        ]
        known = {f"event/{seq}": review.digests[seq] for seq in one.rows if seq in review.digests}
        if known:
            made["properties"] = {"eventSha256": known}
    return made
