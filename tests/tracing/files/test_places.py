"""Where a final link leads, inside the process's own root, and paths that stay openable."""

import os
import signal
from pathlib import Path

import pytest

from agentwrap.tracing.files.places import MAX_LINKS, Anchors, follow, is_there, lstat, open_directory
from agentwrap.tracing.files.settings import Place


def at(path: Path) -> Place:
    return Place(os.fsencode(path), os.fsencode(path))


def test_no_link_leads_to_itself(tmp_path: Path) -> None:
    assert follow(at(tmp_path / "missing"), os.getpid()) == at(tmp_path / "missing")


def test_chains_with_relative_and_absolute_targets(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "one").symlink_to("d/two")
    (tmp_path / "d" / "two").symlink_to(tmp_path / "three")
    (tmp_path / "three").symlink_to("./d/../end")
    assert follow(at(tmp_path / "one"), os.getpid()) == at(tmp_path / "end")


def test_a_loop_and_a_folder_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("a")
    (tmp_path / "b").symlink_to("d/..")
    assert follow(at(tmp_path / "a"), os.getpid()) is None
    assert follow(at(tmp_path / "b"), os.getpid()) is None


def test_too_many_links(tmp_path: Path) -> None:
    for number in range(MAX_LINKS + 1):
        (tmp_path / f"{number}").symlink_to(f"{number + 1}")
    assert follow(at(tmp_path / "0"), os.getpid()) is None
    assert follow(at(tmp_path / "2"), os.getpid()) == at(tmp_path / f"{MAX_LINKS + 1}")


def test_an_absolute_target_stays_inside_another_root(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path)
    (tmp_path / "etc").mkdir()
    (tmp_path / "way").symlink_to("/etc")
    (tmp_path / "name").symlink_to("/way/../../../etc/file")
    found = follow(Place(b"/name", root + b"/name"), os.getpid())
    assert found == Place(b"/etc/file", root + b"/etc/file")


def test_looks(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("missing")
    assert is_there(os.fsencode(tmp_path / "dangling"))
    assert not is_there(os.fsencode(tmp_path / "missing"))
    assert lstat(os.fsencode(tmp_path / "missing" / "x")) is None
    with pytest.raises(OSError, match="too long"):
        lstat(b"/" + b"x" * 300)


def test_anchors_use_our_own_name_where_it_is_the_same_folder(tmp_path: Path) -> None:
    anchors = Anchors()
    path = os.fsencode(tmp_path / "a")
    assert anchors.steady(Place(path, b"/proc/self/root" + path)) == Place(path, path)
    anchors.close()


def test_anchors_hold_on_to_a_folder(tmp_path: Path) -> None:
    anchors = Anchors()
    (tmp_path / "d").mkdir()
    one = anchors.steady(Place(b"/nowhere/a", os.fsencode(tmp_path / "d" / "a")))
    two = anchors.steady(Place(b"/nowhere/b", os.fsencode(tmp_path / "d" / "b")))
    assert one.path == b"/nowhere/a"
    assert os.path.dirname(one.host) == os.path.dirname(two.host)
    (tmp_path / "d").rename(tmp_path / "e")
    Path(os.fsdecode(one.host)).write_bytes(b"x")
    assert (tmp_path / "e" / "a").read_bytes() == b"x"
    anchors.close()
    assert not os.path.exists(one.host)
    with pytest.raises(FileNotFoundError):
        anchors.steady(Place(b"/nowhere/a", os.fsencode(tmp_path / "missing" / "a")))


def test_a_folder_with_a_very_long_path(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path)
    here = os.open(path, os.O_RDONLY)
    for _ in range(30):
        os.mkdir(b"n" * 200, dir_fd=here)
        deeper = os.open(b"n" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
        path += b"/" + b"n" * 200
    found = open_directory(path)
    assert os.path.sameopenfile(found, here)
    os.close(found)
    os.close(here)
    with pytest.raises(FileNotFoundError):
        open_directory(path + b"/missing")


def test_a_link_beside_proc_self_is_the_threads_own() -> None:
    """/proc/mounts is `self/mounts`: relative, and another one for whoever asks."""
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        found = follow(Place(b"/proc/mounts", b"/proc/mounts"), child)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert found is not None
    assert found.path == b"/proc/%d/mounts" % child
