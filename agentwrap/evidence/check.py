"""The three-valued verdict: clean and covered, violated, or clean but not covered. Reads a recording, changes nothing.

Knows which rows are statements, gaps and denials. Never says that something did not happen: only that nothing of it was
recorded, and whether it would have been. Whether the file is unchanged is `evidence.verify`'s question.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from agentwrap.errors import EXIT_FINDING, EXIT_NOT_COVERED
from agentwrap.evidence.judged import Judged
from agentwrap.policy.coverage import Hole, Judgement, Requirement, Statement, judge
from agentwrap.rows import Row, Rows, number

UNSEEN_END = {
    "live": "the run is not over",
    "torn": "the recording is torn: its end was not recorded",
}
_SHOWN_DENIALS = 20
_DENIABLE = (
    "process.denied", "process.exec", "file.edit", "file.rename", "file.read", "net.connect", "net.bind", "net.listen",
    "net.send", "dns.server", "net.decision", "dns.query", "net.refused", "act.denied",
)  # fmt: skip


_REPEATED = ("net.decision", "dns.query", "net.refused", "act.denied")


class Recording(Rows, Protocol):
    """What is asked of a recording."""

    def state(self) -> str:
        """`closed`, `live` or `torn`."""
        ...


class Denial(msgspec.Struct, frozen=True):
    """Something that was refused. `rule`: foreign text; `count`: how often, where repeats are told in one row."""

    seq: int
    kind: str
    subject: str
    why: str
    rule: str = ""
    count: int = 1


class Report(msgspec.Struct, frozen=True):
    """What `check` found. `status` is its exit status, `word` its verdict."""

    word: str
    status: int
    state: str
    judgements: tuple[Judgement, ...]
    denials: int
    shown_denials: tuple[Denial, ...]
    gaps: int
    judged: Judged | None = None

    def document(self) -> dict[str, Any]:
        """The JSON form; names are stable."""
        judged = {} if self.judged is None else {"policy": self.judged.document()}
        return {
            "schema": 1,
            "verdict": self.word,
            "state": self.state,
            "coverage": [
                {
                    "what": one.kind,
                    "tier": one.tier,
                    "mechanism": one.mechanism,
                    "covered": one.covered,
                    "reasons": list(one.reasons),
                    "gaps": [hole.seq for hole in one.holes],
                }
                for one in self.judgements
            ],
            "denials": self.denials,
            "denied": [msgspec.structs.asdict(denial) for denial in self.shown_denials],
            "gaps": self.gaps,
            **judged,
        }


def statements(recording: Recording) -> list[Statement]:
    """The coverage statements of a recording."""
    found = []
    for row in recording.rows(kinds=("coverage",)):
        data = row.data
        words = (str(data.get(key, "")) for key in ("what", "tier", "mechanism", "note"))
        found.append(Statement(*words))
    return found


def holes(recording: Recording) -> list[Hole]:
    """The gaps of a recording."""
    return [hole_of(row) for row in recording.rows(kinds=("gap",))]


def hole_of(row: Row) -> Hole:
    """A gap row as a value."""
    data: Mapping[str, Any] = row.data
    detail = row.subject if "detail" in data else ""
    return Hole(str(data.get("what", "")), str(data.get("cause", "")), str(data.get("could_hide", "")), detail, row.seq)


def denial_of(row: Row) -> Denial:
    """A row that refuses something as a value."""
    data: Mapping[str, Any] = row.data
    rule = data.get("rule", "")
    count = number(data.get("count"), 1) if row.kind in _REPEATED else 1
    return Denial(row.seq, row.kind, row.subject, str(data.get("why", "")), rule if isinstance(rule, str) else "",
                  count)  # fmt: skip


def check(
    recording: Recording,
    requirements: Sequence[Requirement],
    *,
    fail_on_deny: bool = False,
    judged: Judged | None = None,
) -> Report:
    """Judge a recording against what is required of its coverage, and by what a policy said to it (`judged`)."""
    state = recording.state()
    gaps = holes(recording)
    judgements = judge(requirements, statements(recording), gaps, unseen_end=UNSEEN_END.get(state, ""))
    denials = 0
    shown: list[Denial] = []
    for row in recording.rows(kinds=_DENIABLE):
        if row.verdict == "deny":
            one = denial_of(row)
            denials += one.count
            if len(shown) < _SHOWN_DENIALS:
                shown.append(one)
    word, status = "covered", 0
    if (fail_on_deny and denials) or (judged is not None and judged.violated):
        word, status = "violated", EXIT_FINDING
    elif not all(one.covered for one in judgements) or (judged is not None and judged.cannot_tell):
        word, status = "not covered", EXIT_NOT_COVERED
    return Report(word, status, state, judgements, denials, tuple(shown), len(gaps), judged)
