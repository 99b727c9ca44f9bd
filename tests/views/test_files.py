from typing import Any

import sample_run
from fake_recording import FakeRecording, FakeRow

from agentwrap import text
from agentwrap.views.context import Context
from agentwrap.views.files import CHANGES, collect, diff_lines, file_lines
from agentwrap.views.styled import plain

ABSENT = {"type": "absent"}


def rows(*changes: tuple[str, dict[str, Any]]) -> list[FakeRow]:
    return [FakeRow(seq, seq, kind, "p1", data=data) for seq, (kind, data) in enumerate(changes, 1)]


def listed(*changes: tuple[str, dict[str, Any]], columns: int | None = None) -> list[str]:
    context = Context(FakeRecording(), columns=columns)
    return [plain(line).rstrip() for line in file_lines(collect(iter(rows(*changes)), context), context)]


def edit(path: str, before: dict[str, Any], after: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "file.edit", {"path": path, "change": "modify", "before": before, "after": after}


def test_edits_of_a_path_are_one_line_between_its_first_and_last_state() -> None:
    one, two = {"size": 1, "omitted": "over-cap"}, {"size": 2, "omitted": "over-cap"}
    assert listed(edit("/srv/a", ABSENT, one), edit("/srv/a", one, two)) == [
        "A a  2B (content over the cap, not kept)  2 edits"
    ]
    assert listed(edit("/a", one, two))[0].startswith("M /a")
    assert listed(edit("/a", one, ABSENT)) == ["D /a"]
    assert listed(edit("/a", ABSENT, one), edit("/a", one, ABSENT))[0].startswith("T /a")


def test_a_rename_carries_the_history_along() -> None:
    one = {"size": 1, "omitted": "over-cap"}
    moved = ("file.rename", {"path": "/a", "target": "/b"})
    assert listed(edit("/a", one, one), moved)[0].startswith("R /a -> /b")
    assert listed(edit("/a", ABSENT, one), moved)[0].startswith("A /b")
    assert listed(moved, ("file.rename", {"path": "/b", "target": "/c"})) == ["R /a -> /c"]


def test_long_and_hostile_paths_fit_the_terminal() -> None:
    for path in ("/x" * 3000, "/" + "日本" * 300, "/a\x1b[2J\n\u202e"):
        (line,) = listed(edit(path, ABSENT, {"size": 1}), columns=80)
        assert text.width(line) <= 80
        assert line.isprintable()


def test_each_edit_has_a_heading_and_a_diff() -> None:
    import hashlib

    blobs = (sample_run.RETRY_BEFORE, sample_run.RETRY_AFTER)
    before, after = ({"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for data in blobs)
    recording = FakeRecording(blobs=blobs)
    context = Context(recording)
    made = iter(rows(edit("/srv/retry.py", before, after), ("file.mode", {"path": "/srv/x", "change": "mode"})))
    lines = [plain(line) for line in diff_lines(made, context, lambda row: row.kind in CHANGES)]
    assert lines[1:3] == ["--- a/retry.py", "+++ b/retry.py"]
    assert lines[0].startswith("0.000 M retry.py  +3 -1")
    assert lines[-1].startswith("0.000 P x  mode 0000 → 0000")


def transient(path: str, before: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "file.edit", {"path": path, "change": "transient", "before": before, "after": ABSENT}


def test_what_came_and_went_is_told_as_such_whether_its_coming_was_told_or_not() -> None:
    one = {"size": 1, "omitted": "over-cap"}
    assert listed(edit("/a", ABSENT, one), transient("/a", one))[0].startswith("T /a")
    assert listed(transient("/a", one))[0].startswith("T /a")


def test_a_file_moved_aside_and_made_anew_is_one_change_once_the_old_one_is_gone() -> None:
    one, two = {"size": 1, "omitted": "over-cap"}, {"size": 2, "omitted": "over-cap"}
    moved = ("file.rename", {"path": "/a", "target": "/a~"})
    assert [shown[:4] for shown in listed(moved, edit("/a", ABSENT, two), edit("/a~", one, ABSENT))] == ["M /a"]
    assert [shown[:4] for shown in listed(moved, edit("/a", ABSENT, two))] == ["R /a", "A /a"]
    assert [shown[:4] for shown in listed(moved, edit("/a~", one, ABSENT))] == ["D /a"]
    # The new file may be looked at last, or have gone again.
    assert [shown[:4] for shown in listed(moved, edit("/a~", one, ABSENT), edit("/a", ABSENT, two))] == ["M /a"]
    assert [shown[:4] for shown in listed(moved, edit("/a", ABSENT, two), edit("/a", two, ABSENT))] == ["R /a", "T /a"]
    gone = (moved, edit("/a", ABSENT, two), edit("/a~", one, ABSENT), edit("/a", two, ABSENT))
    assert [shown[:4] for shown in listed(*gone)] == ["D /a"]
    changed = (edit("/a", one, two), moved, edit("/a~", two, ABSENT), edit("/a", ABSENT, one))
    assert [shown[:4] for shown in listed(*changed)] == ["M /a"]


def test_a_temporary_file_that_becomes_another_is_that_other() -> None:
    one, two = {"size": 1, "omitted": "over-cap"}, {"size": 2, "omitted": "over-cap"}
    over = {"path": "/a", "change": "modify", "via": "rename", "temporary": "/t", "before": one, "after": two}
    assert [shown[:4] for shown in listed(edit("/t", ABSENT, two), ("file.edit", over))] == ["M /a"]
