"""What a human was asked in a run, and what was answered: the rows `ask.waiting` and `ask.answered`. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from agentwrap.evidence.report.fields import number, raw, text, word
from agentwrap.rows import Row

KINDS = ("ask.waiting", "ask.answered")
APPROVING = frozenset({"once", "run", "always"})
_LASTING = frozenset({"run", "always"})
_FOR_THE_RUN = "allowed for the run as "  # what the desk says where nobody was asked again
_MOST, _MOST_AGAIN = 200_000, 20


class Asked(msgspec.Struct, frozen=True):
    """A question. `server`, `tool`, `digest`: the call that it is bound to; empty for a connection."""

    seq: int
    at_ns: int
    until_ns: int
    server: bytes
    tool: str
    digest: str
    agent: str
    on_behalf_of: str
    pid: int
    question: str = ""


class Answered(msgspec.Struct, frozen=True):
    """An answer. `approver`: as they said; `uid`, `pid`: as the kernel said."""

    seq: int
    at_ns: int
    answer: str
    approver: str
    uid: int
    pid: int
    reason: str = ""


class Asks(msgspec.Struct):
    """All questions and answers by their id. `again`: the first rows of ids that were there already."""

    asked: dict[str, Asked] = {}
    answered: dict[str, Answered] = {}
    again: list[tuple[str, int]] = []
    more: bool = False

    def granted_by(self, ask: str) -> Answered | None:
        """The answer for the whole run that this one follows from, to a question about the very same call."""
        answered, asked = self.answered.get(ask), self.asked.get(ask)
        if answered is None or asked is None or not answered.reason.startswith(_FOR_THE_RUN):
            return None
        first = answered.reason.removeprefix(_FOR_THE_RUN).partition(":")[0]
        given, about = self.answered.get(first), self.asked.get(first)
        if given is None or about is None or given.answer not in _LASTING or given.seq >= answered.seq:
            return None
        same = (given.approver, given.uid, given.pid, about.server, about.tool, about.digest)
        mine = (answered.approver, answered.uid, answered.pid, asked.server, asked.tool, asked.digest)
        return given if same == mine else None

    @property
    def approvals(self) -> Mapping[str, Answered]:
        """The answers that let something go on."""
        return {ask: one for ask, one in self.answered.items() if one.answer in APPROVING}


def asks(rows: Iterable[Row]) -> Asks:
    """Out of rows of KINDS, in order."""
    found = Asks()
    for row in rows:
        data = row.data
        ask = word(data, "ask")
        known = found.asked if row.kind == "ask.waiting" else found.answered
        if ask in known:
            found.again += [(ask, row.seq)] if len(found.again) < _MOST_AGAIN else []
        elif len(known) >= _MOST:
            found.more = True
        elif row.kind == "ask.waiting":
            found.asked[ask] = Asked(
                row.seq, row.at_ns, number(data, "until_ns"), raw(data, "server"), text(data, "tool"),
                word(data, "digest"), text(data, "agent"), text(data, "on_behalf_of"), row.pid,
                text(data, "question"),
            )  # fmt: skip
        else:
            found.answered[ask] = Answered(
                row.seq, row.at_ns, word(data, "answer"), text(data, "approver"), number(data, "uid", -1),
                number(data, "approver_pid"), text(data, "reason"),
            )  # fmt: skip
    return found
