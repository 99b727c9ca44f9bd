"""The shell of the review: reads the recording once for each question, and hands the rows to the controls."""

import os
import sqlite3
from collections import Counter
from collections.abc import Callable
from hashlib import file_digest
from pathlib import Path
from typing import Any

from agentwrap.errors import AgentwrapError
from agentwrap.evidence.check import UNSEEN_END
from agentwrap.evidence.report import facts as facts_
from agentwrap.evidence.report.again import Judge
from agentwrap.evidence.report.approval import Approvals, separation
from agentwrap.evidence.report.asks import KINDS as ASKS
from agentwrap.evidence.report.asks import Asks, asks
from agentwrap.evidence.report.attribution import Attribution
from agentwrap.evidence.report.completeness import completeness
from agentwrap.evidence.report.connections import DECIDED, TRAFFIC, connections
from agentwrap.evidence.report.controls import CONTROLS, MOST_KEPT, Control, Test
from agentwrap.evidence.report.decisions import Decisions
from agentwrap.evidence.report.facts import Facts
from agentwrap.evidence.report.fields import Source, flag, raw, text, word
from agentwrap.evidence.report.gaps import gaps
from agentwrap.evidence.report.net_decisions import KINDS as NETWORK
from agentwrap.evidence.report.net_decisions import NetDecisions
from agentwrap.evidence.report.principal import principal
from agentwrap.evidence.report.results import Results
from agentwrap.evidence.report.reviewed import Finding, Recorded, Review
from agentwrap.evidence.report.story import KINDS as CALLS
from agentwrap.evidence.report.story import stories
from agentwrap.evidence.report.tools import KIND as TOOL
from agentwrap.evidence.report.tools import Tools
from agentwrap.evidence.report.written_policy import told_policies
from agentwrap.evidence.verify import Verdict, verify
from agentwrap.recording.envelope import Part, envelope, leaf_hash
from agentwrap.recording.header import read_header
from agentwrap.recording.reader import Reader
from agentwrap.rows import Row

_PARTS = "SELECT role, ordinal, sha256 FROM part WHERE seq = ? ORDER BY role, ordinal"
_LONGEST_BODY = 16 << 20
"""A longer message is not read again: it would have to be held whole."""


def review(path: Path, *, public_key: bytes | None = None, anchor: str | None = None) -> Review:
    """Perform every control on the recording at `path`.

    Raises AgentwrapError: `not-found`, `not-a-recording`, `newer-format`, `damaged`; `usage` for a bad anchor.
    """
    read_header(path)  # what is no recording may have no end
    sha256 = _sha256(path)
    verdict = verify(path, public_key=public_key, anchor=anchor)
    try:
        return _review(path, sha256, verdict)
    except AgentwrapError as error:
        if error.kind != "damaged":
            raise
        return _unreadable(path, sha256, verdict, error.evidence)


def _unreadable(path: Path, sha256: str, verdict: Verdict, why: str) -> Review:
    """It says that it is a recording and cannot be read as one: nothing can be told, and that is the answer."""
    facts = Facts(verdict.word)
    controls = [completeness(verdict, facts)]
    for ident in CONTROLS:
        if ident != controls[0].id:
            test = Test(ident, "The recording cannot be read.")
            test.unclear("the recording cannot be read", about=why)
            controls.append(test.result())
    recorded = Recorded(name=os.path.basename(path), sha256=sha256, events=verdict.events, verdict=verdict.word,
                        verdict_detail=verdict.detail)  # fmt: skip
    return Review(recorded, tuple(controls))


def _review(path: Path, sha256: str, verdict: Verdict) -> Review:
    with Reader.open(path) as reader:
        facts = _facts(reader, verdict)
        controls = tuple(_controls(reader, verdict, facts))
        wanted = {seq for control in controls for one in control.exceptions for seq in one.rows}
        digests = {seq: digest for seq in sorted(wanted) if (digest := row_digest(reader, seq))}
        return Review(_recorded(path, sha256, reader, verdict, facts), controls, _findings(reader), digests)


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""  # whoever reads it next says why


def row_digest(reader: Reader, seq: int) -> str:
    """SHA-256 of an event row: its leaf (docs/format.md, section 6), computed anew; empty where there is none."""
    ask = reader.connection.execute
    columns = "seq, at_ns, kind, span, pid, subject, verdict, data"
    try:
        row: tuple[Any, ...] | None = ask(f"SELECT {columns} FROM event WHERE seq = ?", (seq,)).fetchone()
        if row is None:
            return ""
        parts: list[Part] = ask(_PARTS, (seq,)).fetchall()
        number, at_ns, kind, span, pid, subject, verdict, data = row
        return leaf_hash(envelope(number, at_ns, kind, span, pid, subject, verdict, data, parts)).hex()
    except (TypeError, ValueError, AttributeError, sqlite3.Error):
        return ""


def _facts(reader: Reader, verdict: Verdict) -> Facts:
    state = reader.state()
    holes, more = facts_.holes(reader.rows(kinds=("gap",)))
    started = facts_.started(reader.rows(kinds=("run.start",), limit=1))
    return Facts(
        verdict.word,
        state,
        UNSEEN_END.get(state, ""),
        started,
        told_policies(reader),
        facts_.statements(reader.rows(kinds=("coverage",))),
        holes,
        more,
    )


def _recorded(path: Path, sha256: str, reader: Reader, verdict: Verdict, facts: Facts) -> Recorded:
    meta = reader.meta
    started = meta.get("started_unix_ns", "")
    ended = 0
    for row in reader.rows(kinds=("run.end",)):
        ended = row.at_ns
    policy = facts.policies[0] if facts.policies else None
    return Recorded(
        name=os.path.basename(path),
        sha256=sha256,
        run=meta.get("run_id", ""),
        command=_command(reader),
        started_unix_ns=int(started) if started.isascii() and started.isdigit() and len(started) < 20 else 0,
        ended_ns=ended,
        events=verdict.events,
        verdict=verdict.word,
        verdict_detail=verdict.detail,
        tool_version=meta.get("tool_version", ""),
        policy=policy.name if policy else "",
        policy_sha256=policy.sha256 if policy else "",
        mode=facts.mode,
    )


def _command(reader: Reader) -> str:
    for row in reader.rows(kinds=("run.start",), limit=1):
        given = row.data.get("command")
        words = given if isinstance(given, list) else []
        return " ".join(text({"": one}, "") for one in words)
    return ""


def _bodies(source: Source, name: str) -> Callable[[Row], bytes | None]:
    """Bodies in the field `name` as they came; None where they were not kept so, or are too long."""

    def body(row: Row) -> bytes | None:
        told = row.data.get(name)
        if not isinstance(told, dict) or flag(told, "redacted") or told.get("omitted"):
            return None
        found: list[bytes] = []
        size = 0
        for piece in source.body(row.seq, name):
            size += len(piece or b"")
            if piece is None or size > _LONGEST_BODY:
                return None
            found.append(piece)
        whole = b"".join(found)
        return whole if len(whole) == told.get("size") else None

    return body


def _findings(source: Source) -> tuple[Finding, ...]:
    found: dict[str, list[int]] = {}
    counts: Counter[str] = Counter()
    for row in source.rows(kinds=("mcp.finding",)):
        what = word(row.data, "what")
        if what not in found and len(found) >= MOST_KEPT:
            continue  # we have a dozen words for it: somebody else wrote these
        if counts[what] < MOST_KEPT:
            found.setdefault(what, []).append(row.seq)
        counts[what] += 1
    return tuple(Finding(what, counts[what], tuple(rows)) for what, rows in sorted(found.items()))


def _controls(reader: Reader, verdict: Verdict, facts: Facts) -> list[Control]:
    readable = not any(one.unreadable for one in facts.policies)
    acting = principal(facts.layers, dict(facts.started.environment), readable=readable)
    tools = Tools(facts, _bodies(reader, "definition"))
    for row in reader.rows(kinds=(TOOL,)):
        tools.take(row)
    asked = asks(reader.rows(kinds=ASKS))
    attributed, results = Attribution(facts, acting, reader.span), Results(facts)
    approvals, decisions = Approvals(facts, asked), Decisions(facts)
    judge = Judge(facts, tools.listings)
    servers = {word(row.data, "session"): raw(row.data, "server") for row in reader.rows(kinds=("mcp.session",))}
    for story in stories(reader.grouped("call", CALLS), _bodies(reader, "body"), servers):
        attributed.take(story)
        tools.listed(story)
        again = judge.again(story)
        approvals.take(story, again)
        decisions.take(story, again)
        results.take(story)
    network = NetDecisions(facts, asked, decisions.test)
    for row in reader.rows(kinds=NETWORK):
        network.take(row)
    denials = reader.rows(kinds=(DECIDED,))
    followed = reader.grouped("connection", (DECIDED, *TRAFFIC))
    return [
        completeness(verdict, facts),
        attributed.result(),
        approvals.result(),
        separation(facts, asked, acting, _own_pids(reader, asked), _noticed(reader)),
        decisions.result(),
        tools.result(),
        results.result(),
        connections(facts, denials, followed),
        gaps(facts),
    ]


def _own_pids(source: Source, asked: Asks) -> frozenset[int]:
    """Of the approvers' processes, those that were of the run when they answered."""
    answers: dict[int, list[int]] = {}
    for ask, one in asked.approvals.items():
        if asked.granted_by(ask) is None:  # else nobody was asked again, and the process may be gone
            answers.setdefault(one.pid, []).append(one.at_ns)
    since: dict[int, int] = {}
    found: set[int] = set()
    for row in source.rows(kinds=("process.start", "process.exit")) if answers else ():
        if row.pid not in answers:
            continue
        begun = since.pop(row.pid, None)
        if row.kind == "process.start":
            since[row.pid] = row.at_ns
        elif begun is not None and any(begun <= at_ns <= row.at_ns for at_ns in answers[row.pid]):
            found.add(row.pid)
    return frozenset(found | {pid for pid, begun in since.items() if any(begun <= at for at in answers[pid])})


def _noticed(source: Source) -> dict[int, str]:
    """Rows in which the recorder told of a self-approval."""
    found: dict[int, str] = {}
    for row in source.rows(kinds=("mcp.finding",)):
        if word(row.data, "what") == "self-approval" and len(found) < MOST_KEPT:
            found[row.seq] = text(row.data, "detail")
    return found
