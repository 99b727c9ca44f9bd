"""The book of paths: bounded, and moved with their folders."""

from agentwrap.events import FileState
from agentwrap.tracing.files.known import Known, KnownPaths
from agentwrap.tracing.files.settings import Place


def known(path: bytes) -> Known:
    return Known(
        path, FileState(), (1, 2), (0, 0, 0), made=True, recorded=True, span="p1", pid=1, klass="work"
    )  # fmt: skip


def book(*paths: bytes, limit: int = 100) -> KnownPaths:
    found = KnownPaths(limit)
    for path in paths:
        found.put(path, known(path))
    return found


def place(path: bytes) -> Place:
    return Place(path, path)


def test_put_get_pop() -> None:
    paths = book(b"/a/b", b"/a/c", b"/d")
    assert len(paths) == 3
    assert paths.get(b"/a/b") is not None
    assert paths.get(b"/a/x") is None
    assert paths.get(b"/x/b") is None
    assert paths.pop(b"/a/b") is not None
    assert paths.pop(b"/a/b") is None
    assert len(paths) == 2
    assert {host for host, _ in paths.items()} == {b"/a/c", b"/d"}


def test_a_folder_moves_with_all_below_and_nothing_beside() -> None:
    paths = book(b"/a/b", b"/a/c/d", b"/ab/x")
    paths.move_tree(place(b"/a"), place(b"/z"))
    assert {host: entry.path for host, entry in paths.items()} == {
        b"/z/b": b"/z/b",
        b"/z/c/d": b"/z/c/d",
        b"/ab/x": b"/ab/x",
    }


def test_a_folder_moves_over_one_that_is_known() -> None:
    paths = book(b"/a/b", b"/z/b", b"/z/c")
    paths.move_tree(place(b"/a"), place(b"/z"))
    assert len(paths) == len(list(paths.items())) == 2


def test_the_oldest_is_forgotten_and_counted() -> None:
    paths = book(b"/a/1", b"/b/2", b"/a/3", limit=2)
    assert len(paths) == 2
    assert paths.forgotten == 1
    assert paths.get(b"/a/1") is None
    assert paths.get(b"/a/3") is not None
