"""Every change of a file is told, each by its word: through its bytes, through SQLite, and by an attacker who knows how
the hashes are made but has no key.
"""

import hashlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recordings import make

from agentwrap.errors import AgentwrapError
from agentwrap.evidence.tree import TreeCheck
from agentwrap.evidence.verify import Verdict, verify
from agentwrap.recording import keys, note, seal
from agentwrap.recording.envelope import envelope, leaf_hash
from agentwrap.recording.merkle import Tree
from agentwrap.recording.snapshot import snapshot

KEY = make.public_key()


def word(path: Path, **options: object) -> tuple[str, int | None]:
    verdict = verify(path, **{"public_key": KEY, **options})  # type: ignore[arg-type]
    return verdict.word, verdict.seq


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return make.closed(tmp_path / "good.agentlog")


def test_a_closed_and_signed_file_is_intact(good: Path) -> None:
    verdict = verify(good, public_key=KEY)
    assert (verdict.word, verdict.exit_status, verdict.events) == ("intact", 0, 12)
    assert all(check.ok for check in verdict.checks)


@pytest.mark.parametrize(
    ("name", "expected", "status"),
    [("good", "intact", 0), ("torn", "torn", 4), ("tampered", "tampered", 1), ("shape-only", "intact", 0)],
)
def test_the_samples_have_their_words(name: str, expected: str, status: int) -> None:
    verdict = verify(make.FOLDER / f"{name}.agentlog", public_key=keys.load_public(make.FOLDER / "samples.pub"))
    assert (verdict.word, verdict.exit_status) == (expected, status)


def test_a_file_from_the_future_is_refused() -> None:
    with pytest.raises(AgentwrapError) as caught:
        verify(make.FOLDER / "from-the-future.agentlog", public_key=KEY)
    assert caught.value.kind == "newer-format"


def told(path: Path) -> bool:
    """Whether something other than `intact` is said: a word, or a refusal to call it a recording."""
    try:
        return verify(path, public_key=KEY).word != "intact"
    except AgentwrapError as error:
        return error.kind in ("not-a-recording", "newer-format")


def sealed_bytes_told(path: Path) -> bool:
    """The check that needs no SQLite: the seal does not hold (what `verify` calls tampered)."""
    read = seal.read(path)
    if read is None or read[0] != read[2]:
        return True
    return not keys.holds(KEY, read[1], seal.signed_message("5a3b1e0c", read[0]))


def test_every_changed_byte_breaks_the_seal(good: Path) -> None:
    """All offsets. `verify` on each would take minutes; that a broken seal is told is tried on a spread of them."""
    whole = bytearray(good.read_bytes())
    with good.open("r+b", buffering=0) as file:
        for offset, byte in enumerate(whole):
            os.pwrite(file.fileno(), bytes([byte ^ (1 << offset % 8)]), offset)
            assert sealed_bytes_told(good), offset
            if offset % 211 == 0 or offset < 100:
                assert told(good), offset
            os.pwrite(file.fileno(), bytes([byte]), offset)
    assert verify(good, public_key=KEY).word == "intact"


def test_every_changed_byte_of_the_seal_itself_is_told(good: Path) -> None:
    with good.open("r+b", buffering=0) as file:
        at = seal.locate(file)
        assert at is not None
        for offset in range(at, at + seal.SIZE):
            byte = os.pread(file.fileno(), 1, offset)[0]
            os.pwrite(file.fileno(), bytes([byte ^ 0x10]), offset)
            assert verify(good, public_key=KEY).word == "tampered"
            os.pwrite(file.fileno(), bytes([byte]), offset)


def test_appended_bytes_are_told(good: Path) -> None:
    with good.open("ab") as file:
        file.write(b"\0")
    assert word(good) == ("tampered", None)


def test_a_file_cut_short_is_truncated(good: Path) -> None:
    whole = good.read_bytes()
    for size in (len(whole) - 1, len(whole) - 4096, len(whole) // 2, 8192, 4096):
        good.write_bytes(whole[:size])
        assert verify(good, public_key=KEY).word in ("truncated", "tampered")
    good.write_bytes(whole[:-4096])
    assert word(good)[0] == "truncated"


FORMER_VIEW = """CREATE VIEW decision AS
  SELECT seq, at_ns, span, pid, kind, subject, verdict, data ->> 'why' AS why
  FROM event WHERE verdict IS NOT NULL"""
EDITS: list[tuple[str, list[str], tuple[str, int | None]]] = [
    ("subject", ["UPDATE event SET subject = 'x' WHERE seq = 7"], ("tampered", 7)),
    ("time", ["UPDATE event SET at_ns = at_ns + 1 WHERE seq = 3"], ("tampered", 3)),
    ("kind", ["UPDATE event SET kind = 'file.read' WHERE seq = 6"], ("tampered", 6)),
    ("null", ["UPDATE event SET pid = NULL WHERE seq = 6"], ("tampered", 6)),
    ("data", ["UPDATE event SET data = replace(data, 'notes', 'votes') WHERE seq = 6"], ("tampered", 6)),
    ("type", ["UPDATE event SET at_ns = 'soon' WHERE seq = 6"], ("tampered", 6)),
    ("leaf", ["UPDATE event SET leaf = zeroblob(32) WHERE seq = 9"], ("tampered", 9)),
    ("removed", ["DELETE FROM event WHERE seq = 4"], ("tampered", 4)),
    ("removed first", ["DELETE FROM event WHERE seq = 1"], ("tampered", 1)),
    ("closed up", ["DELETE FROM event WHERE seq = 8", "UPDATE event SET seq = seq - 1 WHERE seq > 8"], ("tampered", 8)),
    (
        "swapped",
        [
            "UPDATE event SET seq = 100 WHERE seq = 7",
            "UPDATE event SET seq = 7 WHERE seq = 8",
            "UPDATE event SET seq = 8 WHERE seq = 100",
        ],
        ("tampered", 7),
    ),
    ("end removed", ["DELETE FROM event WHERE seq > 9"], ("truncated", 10)),
    ("all removed", ["DELETE FROM event"], ("truncated", 1)),
    (
        "end and its checkpoint removed",
        ["DELETE FROM event WHERE seq > 6", "DELETE FROM checkpoint WHERE count > 6"],
        ("tampered", None),
    ),
    ("checkpoint removed", ["DELETE FROM checkpoint WHERE count = 6"], ("tampered", None)),
    ("checkpoints removed", ["DELETE FROM checkpoint"], ("tampered", None)),
    ("root", ["UPDATE checkpoint SET root = zeroblob(32) WHERE count = 6"], ("tampered", None)),
    ("note", ["UPDATE checkpoint SET note = replace(note, 'close', 'cloze')"], ("tampered", None)),
    ("checkpoint time", ["UPDATE checkpoint SET at_ns = at_ns + 1"], ("tampered", None)),
    ("event added", ["CREATE TEMP TABLE t AS SELECT * FROM event WHERE seq = 12", "UPDATE t SET seq = 13",
                     "INSERT INTO event SELECT * FROM t"], ("tampered", 13)),
    ("meta", ["UPDATE meta SET value = '/elsewhere' WHERE key = 'cwd'"], ("tampered", None)),
    ("meta added", ["INSERT INTO meta VALUES ('x', 'y')"], ("tampered", None)),
    ("span", ["UPDATE span SET status = 'exit 1' WHERE id = 'p1'"], ("tampered", None)),
    ("span removed", ["DELETE FROM span WHERE id = 'p1'"], ("tampered", None)),
    ("span added", ["INSERT INTO span(id, kind) VALUES ('p9', 'process')"], ("tampered", None)),
    ("content", ["UPDATE blob SET data = CAST('two lines' AS BLOB) WHERE size = 9"], ("tampered", None)),
    ("content size", ["UPDATE blob SET size = size + 1"], ("tampered", None)),
    ("content removed", ["DELETE FROM blob WHERE size = 9"], ("tampered", 6)),
    ("content added", ["INSERT INTO blob VALUES (zeroblob(32), 0, NULL, NULL)"], ("tampered", None)),
    ("part", ["UPDATE part SET sha256 = zeroblob(32) WHERE role = 'after'"], ("tampered", 6)),
    ("part removed", ["DELETE FROM part WHERE role = 'after'"], ("tampered", 6)),
    ("part added", ["INSERT INTO part VALUES (7, 'after', 0, (SELECT sha256 FROM blob LIMIT 1))"], ("tampered", 7)),
    ("part of nothing", ["INSERT INTO part VALUES (99, 'after', 0, (SELECT sha256 FROM blob LIMIT 1))"],
     ("tampered", None)),
    ("view", ["DROP VIEW gap", "CREATE VIEW gap AS SELECT 1 AS seq WHERE 0"], ("tampered", None)),
    ("view removed", ["DROP VIEW gap"], ("tampered", None)),
    ("former view", ["DROP VIEW decision", FORMER_VIEW], ("tampered", None)),
    ("former view of another name", ["DROP VIEW decision", "DROP VIEW gap",
                                     FORMER_VIEW.replace("VIEW decision", "VIEW gap")], ("tampered", None)),
    ("table added", ["CREATE TABLE extra(x)"], ("tampered", None)),
    ("trigger", ["CREATE TRIGGER t AFTER INSERT ON event BEGIN SELECT 1; END"], ("tampered", None)),
    ("index", ["DROP INDEX event_kind"], ("tampered", None)),
    ("seal", ["UPDATE seal SET data = zeroblob(112)"], ("tampered", None)),
    ("seal removed", ["DELETE FROM seal"], ("tampered", None)),
    ("nothing but a new layout", ["VACUUM"], ("tampered", None)),
]  # fmt: skip


# With the byte seal blanked the file claims to be a snapshot; the signed tree alone has to tell. What it cannot know:
BLANKED: dict[str, tuple[str, int | None]] = {
    "checkpoint removed": ("intact", None),  # one fewer weakens nothing that the later ones cover
    "checkpoints removed": ("torn", None),  # without its close record it is no closed file any more
    "seal": ("intact", None),
    "view removed": ("intact", None),  # as in a file of an earlier version, which had fewer
    "former view": ("intact", None),  # or others
    "nothing but a new layout": ("intact", None),  # which is what a snapshot is
}


@pytest.mark.parametrize("name", [name for name, _, _ in EDITS])
def test_edits_through_sqlite_are_told(good: Path, name: str) -> None:
    statements, expected = next((edit[1], edit[2]) for edit in EDITS if edit[0] == name)
    make.edit(good, *statements)
    assert word(good) == expected
    blank_seal(good)
    assert word(good) == BLANKED.get(name, expected)


def blank_seal(path: Path) -> None:
    make.edit(path, f"UPDATE seal SET data = x'{seal.BLANK.hex()}'")


def forge(path: Path, sign: Callable[[str, bytes], tuple[tuple[str, bytes], ...]]) -> None:
    """What an attacker does after an edit: all leaves, roots, notes and the seal computed anew."""
    database = sqlite3.connect(path, isolation_level=None)
    tree = Tree()
    roots = {}
    for row in database.execute("SELECT seq, at_ns, kind, span, pid, subject, verdict, data FROM event ORDER BY seq"):
        parts = database.execute(
            "SELECT role, ordinal, sha256 FROM part WHERE seq = ? ORDER BY role", row[:1]
        ).fetchall()
        leaf = leaf_hash(envelope(*row, parts))
        database.execute("UPDATE event SET leaf = ? WHERE seq = ?", (leaf, row[0]))
        tree.add(leaf)
        roots[tree.count] = tree.root()
    for count, text in database.execute("SELECT count, note FROM checkpoint").fetchall():
        old = note.parse(text)
        new = note.Note(
            old.origin, min(count, tree.count), roots[min(count, tree.count)], old.at_ns, old.meta, old.close
        )
        new = note.Note(*(getattr(new, f) for f in ("origin", "count", "root", "at_ns", "meta", "close")),
                        sign(old.origin, new.body().encode()) or ())  # fmt: skip
        database.execute("DELETE FROM checkpoint WHERE count = ?", (count,))
        database.execute("INSERT INTO checkpoint VALUES (?,?,?,?)", (new.count, new.at_ns, new.root, new.text()))
    database.close()
    blank_seal(path)
    with path.open("r+b") as file:
        offset = seal.locate(file)
        assert offset is not None
        digest = seal.digest(file, offset)
        file.seek(offset + len(seal.MAGIC))
        signature = sign("seal", seal.signed_message("5a3b1e0c", digest))
        file.write(digest + (signature[0][1][4:] if signature else bytes(64)))


CHANGE = "UPDATE event SET subject = '/etc/passwd' WHERE seq = 6"


def test_recomputing_everything_without_the_key_leaves_a_file_that_is_not_signed(good: Path) -> None:
    make.edit(good, CHANGE)
    forge(good, lambda *_: ())
    assert word(good) == ("unsigned", None)


def test_recomputing_and_signing_with_another_key_is_told(good: Path) -> None:
    other = keys.Signer(hashlib.sha256(b"mallory").digest())
    make.edit(good, CHANGE)

    def sign(name: str, body: bytes) -> tuple[tuple[str, bytes], ...]:
        return ((name, note.key_id(name, other.public) + other.sign(body)),)

    forge(good, sign)
    assert word(good) == ("unsigned", None)
    # ... and pretending to be the right key, by its hint, is a signature that does not hold.
    make.edit(good, CHANGE)
    forge(good, lambda name, body: ((name, note.key_id(name, KEY) + other.sign(body)),))
    assert word(good) == ("tampered", None)


def test_recomputing_leaves_but_keeping_the_signed_notes_is_told_with_a_place(good: Path) -> None:
    before = make.edit(good).read_bytes()
    database = sqlite3.connect(good)
    kept = database.execute("SELECT * FROM checkpoint").fetchall()
    database.close()
    make.edit(good, "UPDATE event SET subject = '/etc/passwd' WHERE seq = 8")
    forge(good, lambda *_: ())
    database = sqlite3.connect(good, isolation_level=None)
    database.execute("DELETE FROM checkpoint")
    database.executemany("INSERT INTO checkpoint VALUES (?,?,?,?)", kept)
    database.close()
    blank_seal(good)
    assert good.read_bytes() != before
    # The checkpoint after event 6 still holds: what is wrong comes after it.
    assert word(good) == ("tampered", 7)


def test_without_a_signature_or_without_a_key_nothing_is_called_intact(tmp_path: Path, good: Path) -> None:
    assert word(make.closed(tmp_path / "u.agentlog", signed=False)) == ("unsigned", None)
    assert word(good, public_key=None) == ("unsigned", None)
    assert word(good, public_key=keys.Signer(bytes(32)).public) == ("unsigned", None)


def test_an_unsigned_file_still_tells_changes(tmp_path: Path) -> None:
    path = make.closed(tmp_path / "u.agentlog", signed=False)
    make.edit(path, CHANGE)
    assert word(path) == ("tampered", 6)


def test_torn_is_told_and_tampering_with_a_torn_file_too(tmp_path: Path) -> None:
    path = make.torn(tmp_path / "t.agentlog")
    assert word(path) == ("torn", None)
    make.edit(path, CHANGE)
    assert word(path) == ("tampered", 6)


def test_a_live_file_is_torn_so_far(tmp_path: Path) -> None:
    recorder = make.begin(tmp_path / "live.agentlog")
    make.feed(recorder)
    recorder.commit()
    verdict = verify(recorder.path, public_key=KEY)
    assert (verdict.word, verdict.events) == ("torn", 12)
    assert "still being written" in verdict.detail
    recorder.close()


def test_a_snapshot_is_intact_and_says_that_its_bytes_are_not_sealed(good: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.agentlog"
    assert snapshot(good, copy) == 12
    verdict = verify(copy, public_key=KEY)
    assert verdict.word == "intact"
    assert [check.ok for check in verdict.checks if check.name == "bytes"] == [None]


def test_bytes_of_a_removed_content_do_not_matter_to_the_rest(good: Path) -> None:
    make.edit(good, "UPDATE blob SET data = NULL")
    blank_seal(good)
    assert word(good) == ("intact", None)


def head(path: Path) -> str:
    return verify(path, public_key=KEY).head


def test_an_anchor_catches_what_a_forger_with_the_key_could_do(good: Path, tmp_path: Path) -> None:
    anchor = head(good)
    assert word(good, anchor=anchor) == ("intact", None)
    other = keys.Signer(make.SEED)
    make.edit(good, CHANGE)
    forge(good, lambda name, body: ((name, note.key_id(name, KEY) + other.sign(body)),))
    assert word(good) == ("intact", None)
    assert word(good, anchor=anchor) == ("tampered", None)


def test_an_anchor_from_the_middle_of_the_run(tmp_path: Path, good: Path) -> None:
    recorder = make.begin(tmp_path / "live.agentlog")
    make.feed(recorder)
    recorder.commit()
    middle = head(recorder.path)
    assert note.parse(middle).count == 6
    recorder.close()
    assert word(recorder.path, anchor=middle) == ("intact", None)


def test_an_anchor_knows_of_events_that_are_gone(good: Path, tmp_path: Path) -> None:
    anchor = head(good)
    short = make.torn(tmp_path / "t.agentlog")
    make.edit(short, "DELETE FROM event WHERE seq > 8")
    assert word(short, anchor=anchor) == ("truncated", 9)


def test_an_anchor_of_another_run_or_no_anchor_at_all(good: Path, tmp_path: Path) -> None:
    other = make.begin(tmp_path / "o.agentlog", run_id="ffff")
    make.feed(other)
    other.close()
    assert word(good, anchor=head(other.path)) == ("tampered", None)
    with pytest.raises(AgentwrapError) as caught:
        verify(good, public_key=KEY, anchor="hello")
    assert caught.value.kind == "usage"


def test_verdict_words_have_their_own_statuses() -> None:
    words = ("intact", "tampered", "torn", "truncated", "unsigned")
    assert [Verdict(w, None, "").exit_status for w in words] == [0, 1, 4, 5, 6]  # type: ignore[arg-type]


def test_a_file_that_is_closed_while_it_is_read_was_still_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = make.begin(tmp_path / "t.agentlog")
    make.feed(recorder)
    recorder.commit()
    run = TreeCheck.run

    def looked(self: TreeCheck, *asked: Any) -> None:
        run(self, *asked)
        recorder.close()

    monkeypatch.setattr(TreeCheck, "run", looked)
    verdict = verify(tmp_path / "t.agentlog", public_key=KEY)
    assert (verdict.word, verdict.events) == ("torn", 12)
    assert "still being written" in verdict.detail
