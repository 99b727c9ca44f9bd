"""What a review came to, as values: the recording, its controls, what else was found. Pure."""

import msgspec

from agentwrap.evidence.report.controls import OUTCOMES, Control, Outcome

SCHEMA = "agentwrap.report/1"


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The recording. `name`: of the file; `sha256`: of its bytes, hex; `command`, `policy`: foreign text.

    `ended_ns`: since the start, 0 where no end is recorded; `verdict`: as `agentwrap verify` says it.
    """

    name: str
    sha256: str
    events: int
    verdict: str
    verdict_detail: str
    run: str = ""
    command: str = ""
    started_unix_ns: int = 0
    ended_ns: int = 0
    tool_version: str = ""
    policy: str = ""
    policy_sha256: str = ""
    mode: str = ""


class Finding(msgspec.Struct, frozen=True):
    """What the recorder found worth a look about MCP sessions, by kind: how often, and the first rows of it."""

    what: str
    count: int
    rows: tuple[int, ...]


class Review(msgspec.Struct, frozen=True):
    """Everything. `digests`: SHA-256, hex, of each event row that an exception names, by its number."""

    recorded: Recorded
    controls: tuple[Control, ...]
    findings: tuple[Finding, ...] = ()
    digests: dict[int, str] = {}

    def count(self, outcome: Outcome) -> int:
        """How many controls came out so."""
        return sum(control.outcome == outcome for control in self.controls)

    @property
    def counts(self) -> dict[str, int]:
        """How many controls for each outcome."""
        return {outcome: self.count(outcome) for outcome in OUTCOMES}
