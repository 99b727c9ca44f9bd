"""The report as OSCAL 1.1.2 assessment results (pages.nist.gov/OSCAL), in JSON. Pure: identifiers are made of hashes.

An observation for each control that was performed, with its exceptions as evidence, and a finding for each that came
out `pass`, `fail` or `cannot-tell`. Its target is an objective of ours (`agentwrap.approved`), never a requirement of a
catalog: a recording gives evidence for those, and satisfies none. Texts are OSCAL's Markdown, so foreign ones stand in
code spans (`markdown.code`).
"""

import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid5

from agentwrap.evidence.report.controls import Control, Exceptional
from agentwrap.evidence.report.frameworks import WORDS, evidence_for
from agentwrap.evidence.report.reviewed import Review
from agentwrap.export.reports import wording
from agentwrap.export.reports.document import plain, written
from agentwrap.export.reports.markdown import code

MEDIA = "application/oscal+json"
VERSION = "1.1.2"
NAMESPACE = "urn:agentwrap:report"
_OURS = UUID("6b1f1b0e-5d0c-5a4e-9a53-1b7c3c1f0e52")
_CATALOG = "nist-sp-800-53"
_ENHANCED = re.compile(r"([A-Za-z]{2}-\d+)\((\d+)\)\Z")
_MOST_EVIDENCE = 50


def render(review: Review) -> Iterator[bytes]:
    """The document."""
    yield written(document(review))


def document(review: Review) -> dict[str, Any]:
    """The document as a value."""
    made = _Document(review)
    return {"assessment-results": made.results()}


def catalog_id(identifier: str) -> str:
    """`AC-3(2)` as OSCAL's catalog calls it: `ac-3.2`."""
    enhanced = _ENHANCED.match(identifier)
    return f"{enhanced[1]}.{enhanced[2]}".lower() if enhanced else identifier.lower()


class _Document:
    """One document; its ids are the same whenever the same recording is reviewed."""

    def __init__(self, review: Review) -> None:
        self._review = review
        self._run = uuid5(_OURS, review.recorded.sha256)

    def _id(self, name: str) -> str:
        return str(uuid5(self._run, name))

    def results(self) -> dict[str, Any]:
        recorded = self._review.recorded
        end = wording.ended(recorded)
        return {
            "uuid": self._id("results"),
            "metadata": {
                "title": wording.TITLE,
                "last-modified": end,
                "version": code(recorded.sha256).strip("`"),
                "oscal-version": VERSION,
                "remarks": wording.CAVEAT,
            },
            "import-ap": {"href": f"#{self._id('plan')}", "remarks": "There is no plan but the controls themselves."},
            "results": [
                {
                    "uuid": self._id("result"),
                    "title": f"Controls performed again from {code(recorded.name)}",
                    "description": f"{wording.CAVEAT} Outcome: {wording.summary(self._review)}.",
                    "start": wording.started(recorded),
                    "end": end,
                    "props": [_prop("verdict", recorded.verdict), _prop("events", str(recorded.events))],
                    "reviewed-controls": {
                        "description": f"Controls of NIST SP 800-53 that these results are {WORDS}.",
                        "control-selections": [{"include-controls": self._selected()}],
                    },
                    "observations": [self._observation(control) for control in self._review.controls],
                    "findings": [
                        self._finding(control)
                        for control in self._review.controls
                        if control.outcome != "not-applicable"
                    ],
                }
            ],
            "back-matter": {"resources": [self._recording(), self._plan()]},
        }

    def _selected(self) -> list[dict[str, str]]:
        found: dict[str, None] = {}
        for control in self._review.controls:
            found.update(dict.fromkeys(_nist(control)))
        return [{"control-id": one} for one in sorted(found)]

    def _observation(self, control: Control) -> dict[str, Any]:
        told = {
            "uuid": self._id(f"observation {control.id}"),
            "title": control.title,
            "description": f"Tested: {control.tested}. {control.how}",
            "props": [
                _prop("outcome", control.outcome),
                _prop("population", str(control.population)),
                _prop("exceptions", str(control.broken)),
                _prop("cannot-be-told", str(control.unclear)),
                *(_prop("evidence-for", identifier, kind) for kind, identifier in _requirements(control)),
            ],
            "methods": ["TEST"],
            "types": ["control-objective"],
            "collected": wording.ended(self._review.recorded),
            "relevant-evidence": [self._evidence(one) for one in control.exceptions[:_MOST_EVIDENCE]]
            or [self._whole()],
        }
        left = control.broken + control.unclear - min(len(control.exceptions), _MOST_EVIDENCE)
        notes = [*control.notes, *([f"and {left:,} more exceptions"] if left else [])]
        if notes:
            told["remarks"] = "\n\n".join(map(code, notes))
        return told

    def _whole(self) -> dict[str, Any]:
        return {"href": f"#{self._id('recording')}", "description": "The recording as a whole."}

    def _evidence(self, one: Exceptional) -> dict[str, Any]:
        word = "broken" if one.broken else "cannot tell"
        about = f": {code(one.about)}" if one.about else ""
        props = [_prop("event", str(seq)) for seq in one.rows]
        digests = [self._review.digests[seq] for seq in one.rows if seq in self._review.digests]
        return {
            "href": f"#{self._id('recording')}",
            "description": f"{word}: {code(one.why)}{about}",
            **({"props": [*props, *(_prop("event-sha256", digest) for digest in digests)]} if props else {}),
        }

    def _finding(self, control: Control) -> dict[str, Any]:
        passed = control.outcome == "pass"
        reason = {"pass": "pass", "fail": "fail"}.get(control.outcome, "other")
        return {
            "uuid": self._id(f"finding {control.id}"),
            "title": control.title,
            "description": f"The control came out `{control.outcome}`: {wording.MEANINGS[control.outcome]}.",
            "target": {
                "type": "objective-id",
                "target-id": f"agentwrap.{control.id}",
                "status": {"state": "satisfied" if passed else "not-satisfied", "reason": reason},
            },
            "related-observations": [{"observation-uuid": self._id(f"observation {control.id}")}],
        }

    def _recording(self) -> dict[str, Any]:
        recorded = self._review.recorded
        return {
            "uuid": self._id("recording"),
            "title": f"The recording {code(recorded.name)}",
            "description": f"Run {code(recorded.run)}, {recorded.events:,} events.",
            "rlinks": [
                {
                    "href": href(recorded.name),
                    "hashes": [{"algorithm": "SHA-256", "value": recorded.sha256}],
                }
            ],
        }

    def _plan(self) -> dict[str, Any]:
        listed = "; ".join(f"{control.id}: {control.title}" for control in self._review.controls)
        return {
            "uuid": self._id("plan"),
            "title": "What is tested",
            "description": f"The controls of agentwrap report. {listed}.",
        }


def href(name: str) -> str:
    """A file's name as a relative reference (RFC 3986)."""
    from urllib.parse import quote

    return "./" + quote(name.encode("utf-8", "surrogateescape"), safe="")


def _prop(name: str, value: str, kind: str = "") -> dict[str, str]:
    told = {"name": name, "ns": NAMESPACE, "value": plain(value).strip() or "none"}
    return {**told, "class": kind} if kind else told


def _nist(control: Control) -> list[str]:
    return [catalog_id(one) for kind, one in _requirements(control) if kind == _CATALOG]


def _requirements(control: Control) -> list[tuple[str, str]]:
    from agentwrap.evidence.report.frameworks import frameworks

    keys = {one.name: key for key, one in frameworks().items()}
    return [(keys[framework.name], one) for framework, ids in evidence_for(control.id) for one in ids]
