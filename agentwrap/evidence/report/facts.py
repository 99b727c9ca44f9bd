"""What every control needs to know of a recording: what was covered, what is missing, can it be believed. Pure."""

from collections.abc import Iterable

import msgspec

from agentwrap.evidence.report.controls import Test
from agentwrap.evidence.report.fields import number, text, word
from agentwrap.policy.coverage import Hole, Requirement, Statement, judge
from agentwrap.policy.layers import Layer
from agentwrap.rows import Row

_OBSERVED = frozenset({"wall", "guard", "witness"})
MCP = ("mcp-stdio", "mcp-http")
_MOST_HOLES = 10_000
_MOST_ROWS = 20


class Started(msgspec.Struct, frozen=True):
    """Of `run.start`: whose run it was."""

    uid: int = -1
    environment: tuple[tuple[str, str], ...] = ()
    cwd: str = ""


class Told(msgspec.Struct, frozen=True):
    """A `policy` row: its mode, the policies in it, and why there are none where its text cannot be read."""

    seq: int
    name: str
    mode: str
    sha256: str
    layers: tuple[Layer, ...] = ()
    unreadable: str = ""


class Facts(msgspec.Struct):
    """`word`: what `verify` says; `state`: `closed`, `live`, `torn`; `unseen_end`: why the end is missing, if it is."""

    word: str
    state: str = "closed"
    unseen_end: str = ""
    started: Started = Started()
    policies: tuple[Told, ...] = ()
    statements: tuple[Statement, ...] = ()
    holes: tuple[Hole, ...] = ()
    more_holes: int = 0

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The policies of the run; none where there is no text, or none that can be read."""
        return self.policies[0].layers if len(self.policies) == 1 else ()

    @property
    def mode(self) -> str:
        """Its mode."""
        return self.policies[0].mode if self.policies else "observe"

    def limits(self, test: Test, kinds: Iterable[str]) -> None:
        """Say what keeps a test about these kinds of coverage from being about everything."""
        if self.word in ("tampered", "truncated"):
            test.unclear(f"the recording is {self.word}: what is left of it proves nothing")
        wanted = [Requirement(kind, _OBSERVED) for kind in kinds]
        told: dict[tuple[tuple[str, ...], tuple[int, ...]], list[str]] = {}
        for one in judge(wanted, self.statements, self.holes, unseen_end=self.unseen_end):
            if not one.covered:
                rows = tuple(hole.seq for hole in one.holes[:_MOST_ROWS])
                told.setdefault((one.reasons, rows), []).append(one.kind)
        for (reasons, rows), uncovered in told.items():
            test.unclear(f"not covered in full: {', '.join(uncovered)}: {'; '.join(reasons)}", *rows)
        if self.more_holes:
            test.unclear(f"there are {self.more_holes:,} more gaps than were looked at")


def holes(rows: Iterable[Row]) -> tuple[tuple[Hole, ...], int]:
    """The gaps, and how many more there are than are kept."""
    found: list[Hole] = []
    more = 0
    for row in rows:
        if len(found) >= _MOST_HOLES:
            more += 1
            continue
        data = row.data
        told = text(data, "detail")
        found.append(Hole(word(data, "what"), word(data, "cause"), word(data, "could_hide"), told, row.seq))
    return tuple(found), more


def statements(rows: Iterable[Row]) -> tuple[Statement, ...]:
    """The coverage statements."""
    return tuple(Statement(*(word(row.data, key) for key in ("what", "tier", "mechanism", "note"))) for row in rows)


def started(rows: Iterable[Row]) -> Started:
    """Whose run it was."""
    for row in rows:
        given = row.data.get("environment")
        pairs = [pair for pair in given if isinstance(pair, list) and len(pair) == 2] if isinstance(given, list) else []
        environment = tuple((text({"": name}, ""), text({"": value}, "")) for name, value in pairs)
        return Started(number(row.data, "uid", -1), environment, text(row.data, "cwd"))
    return Started()
