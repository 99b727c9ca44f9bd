"""The report as JSON: evidence for programs, with the SHA-256 of the recording and of every event it points at. Pure.

ASCII only. Foreign text stands as it was recorded; whoever shows it has to escape it.
"""

import json
from collections.abc import Iterator
from typing import Any

from agentwrap.evidence.report.controls import Control
from agentwrap.evidence.report.frameworks import WORDS, frameworks
from agentwrap.evidence.report.reviewed import SCHEMA, Review
from agentwrap.export.reports import wording

MEDIA = "application/json"


def render(review: Review) -> Iterator[bytes]:
    """The document."""
    yield written(document(review))


def written(value: dict[str, Any]) -> bytes:
    """JSON in printable ASCII."""
    # DEL is the one control character that JSON lets stand (RFC 8259, 7).
    return json.dumps(value, indent=2, ensure_ascii=True).replace("\x7f", "\\u007f").encode() + b"\n"


def document(review: Review) -> dict[str, Any]:
    """The document as a value; names are stable."""
    recorded = review.recorded
    return {
        "schema": SCHEMA,
        "recording": {
            "name": plain(recorded.name),
            "sha256": recorded.sha256,
            "run": plain(recorded.run),
            "command": plain(recorded.command),
            "started": wording.started(recorded),
            "ended": wording.ended(recorded),
            "events": recorded.events,
            "verdict": recorded.verdict,
            "detail": plain(recorded.verdict_detail),
            "tool_version": plain(recorded.tool_version),
        },
        "policy": {
            "name": plain(recorded.policy),
            "sha256": plain(recorded.policy_sha256),
            "mode": plain(recorded.mode),
        },
        "outcomes": review.counts,
        "controls": [_control(control, review) for control in review.controls],
        "findings": [
            {"what": plain(one.what), "count": one.count, "events": list(one.rows)} for one in review.findings
        ],
        "frameworks": {key: {"name": one.name, "href": one.href} for key, one in frameworks().items()},
    }


def plain(foreign: str) -> str:
    """Foreign text that every JSON reader takes: bytes that were no UTF-8 as visible escapes."""
    return foreign.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _control(control: Control, review: Review) -> dict[str, Any]:
    return {
        "id": control.id,
        "title": control.title,
        "outcome": control.outcome,
        "population": control.population,
        "unit": control.unit,
        "how": control.how,
        "broken": control.broken,
        "unclear": control.unclear,
        "exceptions": [
            {
                "why": plain(one.why),
                "about": plain(one.about),
                "broken": one.broken,
                "events": [{"seq": seq, "sha256": review.digests.get(seq, "")} for seq in one.rows],
            }
            for one in control.exceptions
        ],
        "notes": [plain(note) for note in control.notes],
        WORDS.replace(" ", "_"): {
            key: list(one.controls[control.id]) for key, one in frameworks().items() if control.id in one.controls
        },
    }
