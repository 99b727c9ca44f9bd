"""What a run did to files, from its rows alone."""

from typing import Any

from fake_recording import row_of
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.events import Event, FileDirectory, FileEdit, FileLink, FileMode, FileRename, FileState
from agentwrap.evidence.undo import State, Trail, replay

ABSENT = FileState(type="absent")


def content(data: bytes, **more: Any) -> FileState:
    return FileState(raw=data.ljust(32, b"0"), size=len(data), **more)


def edit(path: bytes, before: FileState, after: FileState, **more: Any) -> FileEdit:
    change = "create" if before is ABSENT else "delete" if after is ABSENT else "modify"
    return FileEdit(at_ns=1, path=path, before=before, after=after, **{"change": change, **more})


def rename(old: bytes, new: bytes, **more: Any) -> FileRename:
    return FileRename(at_ns=1, path=old, target=new, **more)


def folder(path: bytes, change: str) -> FileDirectory:
    return FileDirectory(at_ns=1, path=path, change=change, mode=0o755)  # type: ignore[arg-type]


def trails(*events: Event) -> list[Trail]:
    return replay(row_of(seq, event) for seq, event in enumerate(events, 1))


def places(*events: Event) -> list[tuple[bytes | None, bytes | None]]:
    return [(trail.was, trail.now) for trail in trails(*events)]


A, B, C = content(b"a"), content(b"b"), content(b"c")


def test_the_first_state_before_and_the_last_after_count() -> None:
    (trail,) = trails(edit(b"/x", A, B), edit(b"/x", B, C))
    assert trail.first is not None
    assert trail.last is not None
    assert (trail.first.sha256, trail.last.sha256) == (A.raw.hex(), C.raw.hex())


def test_changed_and_changed_back() -> None:
    assert trails(edit(b"/x", A, B), edit(b"/x", B, A)) == []


def test_made_and_gone() -> None:
    assert trails(edit(b"/x", ABSENT, A), edit(b"/x", A, ABSENT, change="transient")) == []
    assert trails(edit(b"/x", A, ABSENT, change="transient")) == []
    assert trails(folder(b"/d", "create"), folder(b"/d", "remove")) == []


def test_made_moved_and_gone() -> None:
    assert trails(edit(b"/x", ABSENT, A), rename(b"/x", b"/y"), edit(b"/y", A, ABSENT, change="transient")) == []


def test_moved_there_and_back() -> None:
    assert trails(rename(b"/x", b"/y"), rename(b"/y", b"/x")) == []


def test_a_temporary_that_was_told_of_is_used_up_by_its_rename() -> None:
    events = [edit(b"/t", ABSENT, B), edit(b"/x", A, B, via="rename", temporary=b"/t")]
    assert places(*events) == [(b"/x", b"/x")]


def test_an_older_file_moved_over_another() -> None:
    events = [edit(b"/x", A, B, via="rename", temporary=b"/t"), edit(b"/t", B, ABSENT, via="rename")]
    assert places(*events) == [(b"/x", b"/x"), (b"/t", None)]


def test_a_file_in_a_moved_folder_came_from_the_old_one() -> None:
    events = [rename(b"/d", b"/e", type="directory"), edit(b"/e/x", A, B), rename(b"/e/y", b"/z")]
    assert places(*events) == [(b"/d", b"/e"), (b"/d/x", b"/e/x"), (b"/d/y", b"/z")]


def test_a_file_known_before_its_folder_moved() -> None:
    events = [edit(b"/d/x", A, B), rename(b"/d", b"/e", type="directory")]
    assert places(*events) == [(b"/d/x", b"/e/x"), (b"/d", b"/e")]


def test_an_unknown_file_in_a_folder_of_the_run_was_made_by_it() -> None:
    events = [folder(b"/d", "create"), rename(b"/d/x", b"/d/y")]
    assert places(*events) == [(None, b"/d"), (None, b"/d/y")]


def test_exchange() -> None:
    assert places(rename(b"/x", b"/y", exchange=True)) == [(b"/x", b"/y"), (b"/y", b"/x")]


def test_a_path_that_was_freed_and_taken() -> None:
    events = [rename(b"/x", b"/y"), edit(b"/x", ABSENT, B)]
    assert places(*events) == [(b"/x", b"/y"), (None, b"/x")]


def test_modes_remember_the_first() -> None:
    def mode(before: int, after: int) -> FileMode:
        return FileMode(at_ns=1, path=b"/x", change="mode", before=before, after=after)

    (trail,) = trails(mode(0o644, 0o600), mode(0o600, 0o755))
    assert (trail.mode_first, trail.mode_last) == (0o644, 0o755)
    assert trails(mode(0o644, 0o600), mode(0o600, 0o644)) == []
    (trail,) = trails(mode(0o644, 0o600), edit(b"/x", content(b"a", mode=0o600), B))
    assert trail.first is not None
    assert trail.first.mode == 0o644


def test_links() -> None:
    symbolic = FileLink(at_ns=1, path=b"/s", target=b"x", link="symbolic")
    hard = FileLink(at_ns=1, path=b"/h", target=b"/x", link="hard")
    one, two = trails(symbolic, hard)
    assert one.last == State(type="symlink", target=b"x")
    assert two.twin is not None
    assert two.twin.now == b"/x"


@given(
    st.lists(
        st.fixed_dictionaries(
            {"path": st.sampled_from(["/a", "/a/b", "/c", 7, None, {"b64": "/w=="}, {"b64": 3}])},
            optional={
                "target": st.sampled_from(["/a", "/c", None]),
                "change": st.sampled_from(["create", "modify", "delete", "transient", "remove", "mode", "owner", "?"]),
                "before": st.sampled_from([{"type": "absent"}, {}, {"mode": "x"}, 3, None]),
                "after": st.sampled_from([{"type": "absent"}, {"sha256": "00"}, []]),
                "temporary": st.sampled_from(["/a", "/t", 9]),
                "exchange": st.booleans(),
                "type": st.sampled_from(["directory", "file"]),
                "link": st.sampled_from(["hard", "symbolic"]),
                "before_owner": st.sampled_from([[1, 2], [1], "x"]),
            },
        ),
        max_size=12,
    ),
    st.lists(
        st.sampled_from(["file.edit", "file.rename", "file.directory", "file.mode", "file.link", "file.special"]),
        min_size=12,
        max_size=12,
    ),
)
def test_rows_of_a_foreign_hand_never_break_it(data: list[dict[str, Any]], kinds: list[str]) -> None:
    class Row:
        def __init__(self, kind: str, fields: dict[str, Any]) -> None:
            self.kind = kind
            self.data = fields

    for trail in replay(Row(kind, fields) for kind, fields in zip(kinds, data, strict=False)):
        assert not trail.passed
