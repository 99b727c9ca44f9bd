"""Files that came and went are not told as made."""

from fake_recording import FakeRecording

from agentwrap.events import FileEdit, FileState
from agentwrap.views import passing, summary

ABSENT = FileState(type="absent")
THERE = FileState(size=3)


def edit(path: bytes, change: str, temporary: bytes = b"") -> FileEdit:
    before = ABSENT if change == "create" else THERE
    after = ABSENT if change in ("delete", "transient") else THERE
    return FileEdit(at_ns=1, path=path, change=change, before=before, after=after, temporary=temporary)  # type: ignore[arg-type]


EDITS = [
    edit(b"/w/scratch", "create"),
    edit(b"/w/kept", "create"),
    edit(b"/w/old", "modify"),
    edit(b"/w/scratch", "transient"),
    edit(b"/w/part.tmp", "create"),
    edit(b"/w/target", "modify", b"/w/part.tmp"),
    edit(b"/w/theirs", "delete"),
    edit(b"/w/again", "create"),
    edit(b"/w/again", "transient"),
    edit(b"/w/again", "create"),
]


def test_what_was_removed_or_moved_over_another_has_passed() -> None:
    assert passing.passed(FakeRecording(EDITS)) == {"/w/scratch", "/w/part.tmp"}


def test_only_edits_of_such_files_are_meant() -> None:
    gone = passing.passed(FakeRecording(EDITS))
    told = [row.seq for row in FakeRecording(EDITS).rows() if passing.of_a_passing_file(row, gone)]
    assert told == [1, 4, 5]


def test_the_summary_counts_what_is_left() -> None:
    tally = summary.Tally()
    for row in FakeRecording(EDITS).rows():
        tally.add(row)
    assert tally.files == "5 files"  # kept, old, target, theirs, again
