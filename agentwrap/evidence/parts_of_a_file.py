"""What `verify` looks at beside the tree: SQLite's own structure, the schema, what is derived, the contents."""

import contextlib
import sqlite3
from hashlib import sha256
from itertools import zip_longest
from typing import Literal

from agentwrap.evidence.rebuilt import RebuiltSpans
from agentwrap.recording.former_views import is_former
from agentwrap.recording.lists import hashes_in, name_and_depth
from agentwrap.recording.output import schema_text
from agentwrap.recording.reader import Reader

Word = Literal["intact", "torn", "truncated", "tampered", "unsigned"]


class Findings:
    """What is wrong, in the order in which it was found."""

    def __init__(self) -> None:
        self._found: list[tuple[Word, int | None, str]] = []
        self._told = 0

    def add(self, word: Word, seq: int | None, detail: str) -> None:
        """Note one thing. `seq`: the event it is about."""
        self._found.append((word, seq, detail))

    def since_last(self) -> list[str]:
        """Details noted since this was last asked."""
        new = [f"{detail} (event {seq})" if seq else detail for _, seq, detail in self._found[self._told :]]
        self._told = len(self._found)
        return new

    def worst(self) -> tuple[Word, int | None, str]:
        """The verdict. A changed event says more than a missing end, and that more than bytes that do not fit."""
        order = (("tampered", True), ("truncated", None), ("tampered", None), ("torn", None), ("unsigned", None))
        for word, placed in order:
            for found in self._found:
                if found[0] == word and (placed is None or found[1] is not None):
                    return found
        return "intact", None, ""


def check_schema(reader: Reader, findings: Findings) -> str:
    """SQLite's integrity check, and the schema text against ours: no table, view or trigger more or less.

    Views may be missing, or former ones: an earlier version had fewer or others, and nothing is read through them.
    """
    said = reader.connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if said != "ok":
        findings.add("tampered", None, f"SQLite: {said}")
    with contextlib.closing(sqlite3.connect(":memory:")) as fresh:
        fresh.executescript(schema_text())
        ask = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
        found, expected = set(reader.connection.execute(ask)), set(fresh.execute(ask))
        strange = {one for one in found - expected if one[0] != "view" or not is_former(one[1], one[3] or "")}
        if strange or any(kind != "view" for kind, *_ in expected - found):
            findings.add("tampered", None, "the tables and views are not those of the format")
    return "SQLite finds nothing wrong; the schema is the format's"


def check_derived(reader: Reader, findings: Findings, rebuilt: RebuiltSpans) -> str:
    """The `span` table against the one rebuilt from the events."""
    count = 0
    stored = reader.connection.execute("SELECT * FROM span ORDER BY id")
    for ours, theirs in zip_longest(rebuilt.rows(), stored):
        if ours != theirs:
            span_id = min((row[0] for row in (ours, theirs) if row is not None), key=str)
            findings.add("tampered", None, f"span {span_id} is not what the events say")
            break
        count += 1
    else:
        if rebuilt.odd:
            findings.add("tampered", None, f"span {rebuilt.odd} is not what the events say")
    rebuilt.close()
    return f"{count} spans, as the events say"


def check_blobs(reader: Reader, findings: Findings) -> str:
    """Every stored content against its hash, and contents and parts against each other."""
    ask = reader.connection.execute
    kept = gone = 0
    for digest, size, data in ask("SELECT sha256, size, data FROM blob"):
        kept, gone = kept + (data is not None), gone + (data is None)
        if data is not None and (sha256(data).digest() != digest or len(data) != size):
            findings.add("tampered", None, f"content {bytes(digest).hex()} is not what its hash says")
    listed = _Listed(reader, findings)
    for (digest,) in ask("SELECT sha256 FROM blob WHERE sha256 NOT IN (SELECT sha256 FROM part)"):
        if digest not in listed.named:
            findings.add("tampered", None, f"content {bytes(digest).hex()} belongs to no event")
            break
    missing = ask("SELECT seq, role FROM part WHERE sha256 NOT IN (SELECT sha256 FROM blob) LIMIT 1").fetchone()
    if missing:
        findings.add("tampered", missing[0], f"the content {missing[1]} is gone")
    return f"{kept} contents are what their hashes say" + (f", {gone} were not kept" if gone else "")


class _Listed:
    """Follows the lists that parts name. `named`: every hash in them."""

    def __init__(self, reader: Reader, findings: Findings) -> None:
        self.named: set[bytes] = set()
        self._ask = reader.connection.execute
        self._findings = findings
        self._followed: set[tuple[bytes, int]] = set()
        for seq, role, digest in self._ask("SELECT seq, role, sha256 FROM part WHERE role LIKE '%/%' ORDER BY seq"):
            try:
                _, depth = name_and_depth(role)
                self._follow(digest, depth)
            except ValueError as error:
                findings.add("tampered", seq, f"the content {role}: {error}")

    def _follow(self, digest: bytes, depth: int) -> None:
        if (digest, depth) in self._followed:
            return
        self._followed.add((digest, depth))
        row = self._ask("SELECT data FROM blob WHERE sha256 = ?", (digest,)).fetchone()
        if row is None or row[0] is None:
            raise ValueError("its list is gone")
        for one in hashes_in(row[0]):
            if depth == 1 and one not in self.named and not self._there(one):
                raise ValueError("one of its pieces is gone")
            self.named.add(one)
            if depth > 1:
                self._follow(one, depth - 1)

    def _there(self, digest: bytes) -> bool:
        return self._ask("SELECT 1 FROM blob WHERE sha256 = ?", (digest,)).fetchone() is not None
