"""Every event against its leaf, and the tree against every root that is known."""

from collections.abc import Iterator
from typing import Any

import msgspec

from agentwrap.evidence.parts_of_a_file import Findings
from agentwrap.evidence.rebuilt import RebuiltSpans
from agentwrap.recording.envelope import Part, envelope, leaf_hash
from agentwrap.recording.merkle import EMPTY_ROOT, Tree
from agentwrap.recording.reader import Reader
from agentwrap.recording.spans import SPAN_KINDS

_EVENTS = "SELECT seq, at_ns, kind, span, pid, subject, verdict, data, leaf FROM event ORDER BY seq"
_PARTS = "SELECT seq, role, ordinal, sha256 FROM part ORDER BY seq, role, ordinal"


class TreeCheck:
    """Recomputes the tree in one pass. Afterwards: `count`, `spans` as the events make them, `anchor_root`."""

    def __init__(self, reader: Reader, findings: Findings) -> None:
        self._reader = reader
        self._findings = findings
        self._tree = Tree()
        self._trusted = 0
        self.spans = RebuiltSpans()
        self.count = 0
        self.anchor_root: bytes | None = None

    def run(self, roots: dict[int, bytes], anchor_count: int | None) -> None:
        """Compare with the root known for each count: a wrong leaf names its event, a root the first it covers."""
        if anchor_count == 0:
            self.anchor_root = EMPTY_ROOT
        parts = _PartsInOrder(self._reader.connection.execute(_PARTS))
        for row in self._reader.connection.execute(_EVENTS):
            self._event(row, parts)
            if self.count in roots:
                self._root(roots[self.count])
            if self.count == anchor_count:
                self.anchor_root = self._tree.root()
        if parts.left():
            self._findings.add("tampered", None, "there is a content that belongs to no event")

    def _event(self, row: tuple[Any, ...], parts: "_PartsInOrder") -> None:
        seq, at_ns, kind, span, pid, subject, verdict, data, leaf = row
        if seq != self._tree.count + 1:
            self._findings.add("tampered", self._tree.count + 1, "this event is missing")
        try:
            computed = leaf_hash(envelope(seq, at_ns, kind, span, pid, subject, verdict, data, parts.of(seq)))
            if kind in SPAN_KINDS:
                self.spans.apply(at_ns, kind, span, pid, subject or "", msgspec.json.decode(data), seq)
        except (TypeError, ValueError, AttributeError, msgspec.DecodeError) as error:
            self._findings.add("tampered", seq, f"the event is malformed: {error}")
            computed = bytes(32)
        if computed != leaf:
            self._findings.add("tampered", seq, "the event is not what its leaf says")
        # The computed one: a root then tells a leaf that was made to fit.
        self._tree.add(computed)
        self.count = self._tree.count

    def _root(self, root: bytes) -> None:
        if self._tree.root() == root:
            self._trusted = self.count
            return
        self._findings.add(
            "tampered", self._trusted + 1, f"something from this event to event {self.count} is not what was recorded"
        )
        self._trusted = self.count


class _PartsInOrder:
    """The rows of `part`, handed out by event."""

    def __init__(self, rows: Iterator[tuple[int, str, int, bytes]]) -> None:
        self._rows = rows
        self._next = next(rows, None)

    def of(self, seq: int) -> list[Part]:
        """The parts of one event; asked in order of `seq`."""
        found: list[Part] = []
        while self._next is not None and self._next[0] == seq:
            found.append(self._next[1:])
            self._next = next(self._rows, None)
        return found

    def left(self) -> bool:
        """Whether a part was never asked for."""
        return self._next is not None
