"""Putting single files back: never through a link, never half."""

import os
import stat
from pathlib import Path

import pytest

from agentwrap.recording import restore
from agentwrap.recording.restore import RestoreError


def fine() -> None:
    """Nothing speaks against it."""


def never() -> None:
    raise ValueError("changed")


def at(path: Path) -> bytes:
    return os.fsencode(path)


def put(path: Path, data: bytes, **changes: object) -> None:
    options = {"mode": 0o640, "owner": (os.getuid(), os.getgid()), "mtime_ns": 10**18, "unless": fine, **changes}
    restore.put_file(at(path), data, **options)  # type: ignore[arg-type]


def test_a_file_is_put_there_whole(tmp_path: Path) -> None:
    put(tmp_path / "a", b"data")
    status = (tmp_path / "a").stat()
    assert (tmp_path / "a").read_bytes() == b"data"
    assert (stat.S_IMODE(status.st_mode), status.st_mtime_ns) == (0o640, 10**18)
    assert os.listdir(tmp_path) == ["a"]


def test_a_veto_at_the_last_moment_leaves_everything(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"mine")
    for act in (
        lambda: put(tmp_path / "a", b"data", unless=never),
        lambda: restore.put_symlink(at(tmp_path / "a"), b"x", unless=never),
        lambda: restore.remove(at(tmp_path / "a"), unless=never),
    ):
        with pytest.raises(ValueError, match="changed"):
            act()
    assert (tmp_path / "a").read_bytes() == b"mine"
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_in_the_place_of_a_file_is_replaced_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / "a").symlink_to(victim)
    put(tmp_path / "a", b"data")
    assert victim.read_bytes() == b"mine"
    assert not (tmp_path / "a").is_symlink()


def test_a_file_with_two_names_keeps_both(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"mine, and longer")
    os.link(tmp_path / "a", tmp_path / "b")
    put(tmp_path / "a", b"data", keep_names=True)
    assert (tmp_path / "b").read_bytes() == b"data"
    assert (tmp_path / "a").samefile(tmp_path / "b")
    put(tmp_path / "a", b"other")
    assert (tmp_path / "b").read_bytes() == b"data"


def test_links_on_the_way_are_refused_by_every_step(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_bytes(b"mine")
    (tmp_path / "way").symlink_to("real")
    path = at(tmp_path / "way" / "a")
    other = at(tmp_path / "b")
    for act in (
        lambda: restore.look(path),
        lambda: restore.read(path),
        lambda: put(tmp_path / "way" / "a", b"data"),
        lambda: restore.remove(path, unless=fine),
        lambda: restore.move(path, other),
        lambda: restore.make_folder(at(tmp_path / "way" / "new"), 0o755),
        lambda: restore.set_mode(path, 0o600),
    ):
        with pytest.raises(RestoreError, match="symbolic link"):
            act()
    assert (tmp_path / "real" / "a").read_bytes() == b"mine"
    assert os.listdir(tmp_path / "real") == ["a"]


@pytest.mark.parametrize("path", [b"relative", b"/", b"/tmp/../etc/passwd", b""])
def test_only_plain_absolute_paths(path: bytes) -> None:
    with pytest.raises(RestoreError, match="absolute"):
        restore.read(path)


def test_a_move_never_replaces(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")
    with pytest.raises(RestoreError, match="something else"):
        restore.move(at(tmp_path / "a"), at(tmp_path / "b"))
    restore.move(at(tmp_path / "a"), at(tmp_path / "c"))
    assert sorted(os.listdir(tmp_path)) == ["b", "c"]


def test_folders(tmp_path: Path) -> None:
    path = at(tmp_path / "d")
    restore.make_folder(path, 0o2750)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o2750
    (tmp_path / "d" / "x").write_bytes(b"")
    assert restore.names(path) == [b"x"]
    with pytest.raises(RestoreError, match="not empty"):
        restore.remove_folder(path)
    (tmp_path / "d" / "x").unlink()
    restore.remove_folder(path)
    assert restore.look(path) is None


def test_looks(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"123")
    (tmp_path / "s").symlink_to("a")
    os.mkfifo(tmp_path / "p")
    kinds = {name: restore.look(at(tmp_path / name)) for name in ("a", "s", "p", "", "missing")}
    assert {name: found.type if found else None for name, found in kinds.items()} == {
        "a": "file", "s": "symlink", "p": "other", "": "directory", "missing": None,
    }  # fmt: skip
    assert kinds["a"] is not None
    assert kinds["a"].size == 3
    assert kinds["s"] is not None
    assert kinds["s"].target == b"a"
    assert restore.look(at(tmp_path / "no" / "such")) is None
    with pytest.raises(RestoreError, match="regular"):
        restore.read(at(tmp_path / "p"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_owners_are_restored(tmp_path: Path) -> None:
    put(tmp_path / "a", b"", owner=(1, 2), mode=0o4755)
    status = (tmp_path / "a").stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (1, 2, 0o4755)


@pytest.mark.skipif(os.getuid() == 0, reason="root may give files away")
def test_a_set_id_bit_is_not_given_to_the_wrong_owner(tmp_path: Path) -> None:
    put(tmp_path / "a", b"", owner=(0, 0), mode=0o4755)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755
