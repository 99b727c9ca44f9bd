"""Is a recording whole and unchanged? One word for the answer, and what was looked at.

Recomputes everything that can be: the hash of the file's bytes, every leaf and root, the spans, the hashes of contents.
Believes a signature of the key it was given, and a head kept elsewhere; never a number that the file says of itself.
"""

import contextlib
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from agentwrap.errors import AgentwrapError
from agentwrap.evidence.parts_of_a_file import Findings, check_blobs, check_derived, check_schema
from agentwrap.evidence.tree import TreeCheck
from agentwrap.recording import note as notes
from agentwrap.recording import seal
from agentwrap.recording.envelope import meta_digest
from agentwrap.recording.header import read_header
from agentwrap.recording.reader import Reader

# What SQLite and the values of a damaged database raise: pages that lead nowhere, text that is no UTF-8, other types.
_UNREADABLE = (sqlite3.Error, ValueError, TypeError, AttributeError)

Word = Literal["intact", "torn", "truncated", "tampered", "unsigned"]
EXIT_STATUS: dict[Word, int] = {"intact": 0, "tampered": 1, "torn": 4, "truncated": 5, "unsigned": 6}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. `ok` None: it could not be asked of this file."""

    name: str
    ok: bool | None
    detail: str


@dataclass
class Verdict:
    """`seq`: the first event that is wrong or missing, where that is known. `head`: the last checkpoint note."""

    word: Word
    seq: int | None
    detail: str
    checks: list[Check] = field(default_factory=list)
    events: int = 0
    head: str = ""

    @property
    def exit_status(self) -> int:
        """The status `agentwrap verify` ends with."""
        return EXIT_STATUS[self.word]


def verify(path: Path, *, public_key: bytes | None = None, anchor: str | None = None) -> Verdict:
    """Judge the recording at `path`. `anchor`: a checkpoint note of the same run, kept elsewhere.

    Raises AgentwrapError: `not-found`, `not-a-recording`, `newer-format`; `usage` for an anchor that is none.
    """
    kept = _anchor(anchor)
    header = read_header(path)
    findings = Findings()
    # What is missing from the main file may lie in the -wal beside it, where there was no room to bring it over.
    beside = Path(f"{path}-wal")
    if header.size < header.declared_size and not (beside.exists() and beside.stat().st_size):
        missing = header.declared_size - header.size
        findings.add("truncated", None, f"the file ends {missing} bytes early")
    sealed = seal.read(path)
    try:
        with Reader.open(path) as reader:
            live = reader.state() == "live"  # what is read after this, it may have written meanwhile
            reader.connection.execute("BEGIN")
            return _Judge(reader, findings, public_key, live=live).judge(sealed, kept)
    except (AgentwrapError, *_UNREADABLE) as error:
        if isinstance(error, AgentwrapError) and error.kind != "damaged":
            raise
        # It says it is a recording and cannot be read as one: that is an answer, not a failure to give one.
        why = error.evidence if isinstance(error, AgentwrapError) else str(error)
        findings.add("tampered", None, f"the file cannot be read: {why}")
        word, seq, detail = findings.worst()
        return Verdict(word, seq, detail, [Check("structure", False, why)])


def _anchor(text: str | None) -> notes.Note | None:
    if text is None:
        return None
    try:
        return notes.parse(text.strip("\n") + "\n")
    except ValueError as error:
        raise AgentwrapError(
            "usage", "the anchor is no checkpoint note", evidence="one is, to the letter, what `verify --head` prints",
            hint="agentwrap verify --head FILE",
        ) from error  # fmt: skip


class _Judge:
    """The judgement of one open file."""

    def __init__(self, reader: Reader, findings: Findings, public_key: bytes | None, *, live: bool) -> None:
        self._reader, self._live = reader, live
        self._findings = findings
        self._public_key = public_key
        self._checks: list[Check] = []
        self._origin = f"agentwrap/{reader.meta.get('run_id', '')}"
        self._notes: list[notes.Note] = []
        self._head = ""

    def judge(self, sealed: tuple[bytes, bytes, bytes] | None, anchor: notes.Note | None) -> Verdict:
        """Look at everything, then say the worst of it in one word."""
        self._check("structure", check_schema(self._reader, self._findings))
        self._read_notes()
        tree = TreeCheck(self._reader, self._findings)
        wanted = {item.count: item.root for item in self._notes}
        with contextlib.closing(tree.spans):  # also of a file that turns out to be damaged
            tree.run(wanted, anchor.count if anchor is not None else None)
            self._check("events", f"{tree.count} events, every leaf and root recomputed")
            self._check("spans", check_derived(self._reader, self._findings, tree.spans))
        self._check("contents", check_blobs(self._reader, self._findings))
        closed = self._close_record(tree.count)
        signed = self._signatures()
        self._bytes(sealed, closed, signed)
        if anchor is not None:
            self._compare(anchor, tree)
        if not closed:
            why = "it is still being written" if self._live else "there is no close record: the recorder was ended"
            self._findings.add("torn", None, f"{why}; {tree.count} events are there")
        word, seq, detail = self._findings.worst()
        return Verdict(word, seq, detail or self._praise(tree.count), self._checks, tree.count, self._head)

    def _praise(self, count: int) -> str:
        return f"{count} events, closed and signed"

    def _check(self, name: str, detail: str) -> None:
        """Note a check with what was found since the last one."""
        said = self._findings.since_last()
        self._checks.append(Check(name, not said, "; ".join(said) or detail))

    def _read_notes(self) -> None:
        digest = meta_digest(self._reader.meta)
        for count, at_ns, root, text in self._reader.connection.execute(
            "SELECT count, at_ns, root, note FROM checkpoint ORDER BY count"
        ):
            try:
                parsed = notes.parse(text)
            except (ValueError, AttributeError, TypeError) as error:
                self._findings.add("tampered", None, f"checkpoint {count}: {error}")
                continue
            if (parsed.origin, parsed.count, parsed.at_ns, parsed.root) != (self._origin, count, at_ns, root):
                self._findings.add("tampered", None, f"checkpoint {count}: its note says something else")
            if parsed.meta != digest:
                self._findings.add("tampered", None, f"checkpoint {count}: the facts about the run are others")
            self._notes.append(parsed)
            self._head = text
        self._check("checkpoints", f"{len(self._notes)} checkpoints")

    def _close_record(self, count: int) -> bool:
        closing = [item for item in self._notes if item.close]
        last = self._notes[-1].count if self._notes else 0
        if count < last:
            self._findings.add("truncated", count + 1, f"{last - count} events at the end are missing")
        elif closing and (closing[0] is not self._notes[-1] or closing[0].count != count):
            self._findings.add("tampered", closing[0].count + 1, "there are events after the close record")
        self._check("close record", "there" if closing else "none")
        return bool(closing)

    def _signatures(self) -> bool:
        """Whether the key given has signed all of the file."""
        signatures = [item.signatures for item in self._notes]
        if not any(signatures):
            self._findings.add("unsigned", None, "nobody has signed it")
            self._unasked("none")
            return False
        if self._public_key is None:
            self._findings.add("unsigned", None, "it is signed, but there is no key to check the signature with")
            self._unasked("there is no key to check them with")
            return False
        hint = notes.key_id(self._origin, self._public_key)
        ours = [[given for name, given in item if name == self._origin and given[:4] == hint] for item in signatures]
        if not any(ours):
            self._findings.add("unsigned", None, "it is signed by another key than the one given")
            self._unasked("of another key")
            return False
        for item, given in zip(self._notes, ours, strict=True):
            if not given or not self._holds(given[0][4:], item.body().encode()):
                self._findings.add("tampered", None, f"checkpoint {item.count}: the signature does not hold")
        self._check("signatures", f"{len(self._notes)} signatures of the key given hold")
        return True

    def _unasked(self, why: str) -> None:
        self._findings.since_last()
        self._checks.append(Check("signatures", None, why))

    def _holds(self, signature: bytes, message: bytes) -> bool:
        from agentwrap.recording.keys import holds

        return self._public_key is not None and holds(self._public_key, signature, message)

    def _bytes(self, sealed: tuple[bytes, bytes, bytes] | None, closed: bool, signed: bool) -> None:
        row = self._reader.connection.execute("SELECT id, data FROM seal").fetchall()
        if sealed is None or row != [(1, seal.MAGIC + sealed[0] + sealed[1])]:
            self._findings.add("tampered", None, "the seal is not where it has to be")
        elif sealed[:2] == (bytes(32), bytes(64)):
            detail = "not sealed byte by byte (a snapshot, or not closed)" if closed else "not sealed: not closed"
            self._checks.append(Check("bytes", None, detail))
            return
        elif sealed[0] != sealed[2]:
            self._findings.add("tampered", None, "the bytes of the file are not those that were sealed")
        elif not closed:
            self._findings.add("tampered", None, "it was sealed, and its close record is gone")
        elif signed and not self._holds(sealed[1], seal.signed_message(self._reader.meta["run_id"], sealed[0])):
            self._findings.add("tampered", None, "the signature of the seal does not hold")
        elif not any(item.signatures for item in self._notes) and sealed[1] != bytes(64):
            self._findings.add("tampered", None, "the seal is signed, and nothing else is")
        self._check("bytes", "every byte is as it was sealed")

    def _compare(self, anchor: notes.Note, tree: TreeCheck) -> None:
        if anchor.origin != self._origin:
            self._findings.add("tampered", None, f"the anchor is of another run: {anchor.origin}")
        elif tree.count < anchor.count:
            self._findings.add("truncated", tree.count + 1, f"the anchor knows {anchor.count} events")
        elif tree.anchor_root != anchor.root:
            self._findings.add("tampered", None, f"up to event {anchor.count} it is not what the anchor says")
        elif anchor.close and tree.count != anchor.count:
            self._findings.add("tampered", anchor.count + 1, "the anchor is a close record, and there is more")
        self._check("anchor", f"consistent with the anchor at {anchor.count} events")
