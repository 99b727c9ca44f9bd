"""The raw contents kept for undo: filled, found again, aged out."""

import hashlib
import hmac
import os
import stat
import time
from pathlib import Path

import pytest

from agentwrap.recording.undo_store import Kept, UndoStore, age_out

KEY = bytes(range(32))


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def keyed(data: bytes) -> str:
    return hmac.digest(KEY, data, "sha256")[:16].hex()


def filled(folder: Path, *contents: bytes) -> Path:
    store = UndoStore(folder, KEY)
    for data in contents:
        store.keep(digest(data), data)
    return folder


def test_contents_are_for_the_owner_alone(tmp_path: Path) -> None:
    folder = filled(tmp_path / "r1", b"secret")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}
    assert modes == {"r1": 0o700, "content": 0o700, "key": 0o600, digest(b"secret"): 0o600}


def test_found_by_hash_and_by_keyed_hash(tmp_path: Path) -> None:
    kept = Kept(filled(tmp_path / "r1", b"one", b"two"))
    assert kept.find(3, digest(b"one"), "") == b"one"
    assert kept.find(3, "", keyed(b"two")) == b"two"
    assert kept.find(3, digest(b"six"), keyed(b"six")) is None
    assert kept.find(4, "", keyed(b"two")) is None
    assert kept.keyed(b"two") == keyed(b"two")


def test_a_damaged_content_is_not_used(tmp_path: Path) -> None:
    folder = filled(tmp_path / "r1", b"one")
    (folder / "content" / digest(b"one")).write_bytes(b"eno")
    assert Kept(folder).find(3, digest(b"one"), keyed(b"one")) is None


def test_no_store(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "missing")
    assert (kept.key, kept.keyed(b"x"), kept.find(1, digest(b"x"), keyed(b"x"))) == (b"", "", None)


def test_a_name_that_is_no_hash_leads_nowhere(tmp_path: Path) -> None:
    folder = filled(tmp_path / "r1")
    (tmp_path / "other").write_bytes(b"x")
    assert Kept(folder).find(1, "../../other", "") is None


def aged(folder: Path, days: float) -> None:
    when = time.time() - days * 86400
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (when, when))


def test_old_stores_go(tmp_path: Path) -> None:
    for name, days in (("new", 1.0), ("old", 31.0), ("kept", 99.0)):
        aged(filled(tmp_path / name, b"x"), days)
    assert age_out(tmp_path, keep="kept") == ["old"]
    assert sorted(os.listdir(tmp_path)) == ["kept", "new"]


def test_the_oldest_go_where_there_are_too_many_bytes(tmp_path: Path) -> None:
    for days, name in enumerate(("a", "b", "c", "d")):
        aged(filled(tmp_path / name, name.encode() * 50_000), days)
    assert age_out(tmp_path, max_bytes=130_000) == ["c", "d"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize("name", ["missing", "file"])
def test_nothing_to_age(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert age_out(tmp_path / name) == []
    assert (tmp_path / "file").exists()
