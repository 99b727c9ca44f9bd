import os
import socket
from pathlib import Path

from agentwrap.launching.disk import MachineDisk


def test_what_is_there_is_told_by_its_kind(short_path: Path) -> None:
    (short_path / "folder").mkdir()
    (short_path / "file").write_text("x")
    (short_path / "link").symlink_to("folder")
    os.mkfifo(short_path / "pipe")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(short_path / "socket"))
    disk = MachineDisk()
    kinds = {"file": "file", "folder": "folder", "link": "link", "pipe": "other", "socket": "socket"}
    assert dict(disk.entries(str(short_path))) == kinds
    assert {name: disk.kind(str(short_path / name)) for name in kinds} == kinds
    assert disk.real(str(short_path / "link" / "new")) == str(short_path / "folder" / "new")


def test_what_is_not_there_is_told_as_nothing(tmp_path: Path) -> None:
    disk = MachineDisk()
    (tmp_path / "loop").symlink_to("loop")
    for path in (str(tmp_path / "gone"), str(tmp_path) + "/\0", "/" + "x" * 5000):
        assert disk.kind(path) == ""
        assert disk.entries(path) == ()
        assert disk.real(path)
    assert disk.kind(str(tmp_path / "loop")) == "link"
    assert disk.real(str(tmp_path / "loop"))
