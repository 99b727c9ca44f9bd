"""Every state a file can be in, and everything that is no recording: opened, or refused with one clear reason."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recordings import make

from agentwrap.errors import AgentwrapError
from agentwrap.events import NetConnect
from agentwrap.evidence.verify import verify
from agentwrap.recording import liveness
from agentwrap.recording.header import MAGIC, _parse
from agentwrap.recording.reader import Reader
from agentwrap.recording.snapshot import finalise, snapshot

TESTS = Path(__file__).parent.parent


def refused(path: Path) -> AgentwrapError:
    with pytest.raises(AgentwrapError) as caught:
        Reader.open(path)
    return caught.value


def live(path: Path):  # type: ignore[no-untyped-def]
    recorder = make.begin(path)
    make.feed(recorder)
    recorder.commit()
    return recorder


def test_a_live_file_shows_what_is_committed_and_says_when_there_is_more(tmp_path: Path) -> None:
    recorder = live(tmp_path / "r.agentlog")
    with Reader.open(recorder.path) as reader:
        assert (reader.state(), reader.count()) == ("live", 12)
        assert (reader.changed(), reader.changed()) == (True, False)
        recorder.add(NetConnect(at_ns=1, family="inet"))
        assert (reader.count(), reader.changed()) == (12, False)
        recorder.commit()
        assert reader.changed()
        assert [row.kind for row in reader.rows(after=12)] == ["net.connect"]
        recorder.close()
        assert reader.state() == "closed"


def test_a_file_that_is_closed_between_two_looks_is_not_torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = live(tmp_path / "r.agentlog")
    held = liveness.held

    def just_closed(descriptor: int) -> bool:
        recorder.close()
        return held(descriptor)

    with Reader.open(recorder.path) as reader:
        monkeypatch.setattr(liveness, "held", just_closed)
        assert reader.state() == "closed"


def test_an_empty_live_file_has_its_facts(tmp_path: Path) -> None:
    recorder = make.begin(tmp_path / "r.agentlog")
    with Reader.open(recorder.path) as reader:
        assert (reader.state(), reader.count(), list(reader.rows()), reader.spans()) == ("live", 0, [], {})
        assert reader.meta["run_id"] == "5a3b1e0c"
    recorder.close()


def test_rows_spans_and_contents_of_a_closed_file(tmp_path: Path) -> None:
    with Reader.open(make.closed(tmp_path / "r.agentlog")) as reader:
        assert reader.state() == "closed"
        edit = next(reader.rows(kinds={"file.edit", "gap"}))
        assert (edit.seq, edit.kind, edit.pid, edit.subject) == (6, "file.edit", 41, "/home/user/project/notes.txt")
        assert reader.blob(edit.data["after"]["sha256"]) == make.AFTER
        assert reader.blob("00" * 32) is None
        assert [row.seq for row in reader.rows(after=3, limit=2)] == [4, 5]
        rename = next(reader.rows(kinds=["file.rename"]))
        assert rename.subject.startswith("/home/user/")
        assert "\\xff" in rename.subject
        run, process = reader.spans().values()
        assert (run.id, run.parent, run.status, run.end_ns) == ("run", None, "exit 0", 9_000_000)
        assert (process.id, process.parent, process.name, process.status) == ("p1", "run", "sh", "exit 0")
        assert process.data["argv"] == ["sh", "-c", "echo fixed >> notes.txt"]
        assert reader.span("p1") == process
        assert reader.span("p2") is None
        assert not list(reader.rows(kinds=[]))


def test_a_torn_file_with_its_wal_and_without(tmp_path: Path) -> None:
    recorder = live(tmp_path / "r.agentlog")
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{recorder.path}{suffix}", tmp_path / f"copy.agentlog{suffix}")
    shutil.copyfile(recorder.path, tmp_path / "bare.agentlog")
    recorder.abandon()
    with Reader.open(tmp_path / "copy.agentlog") as reader:
        assert (reader.state(), reader.count()) == ("torn", 12)
    with Reader.open(tmp_path / "bare.agentlog") as reader:
        assert (reader.state(), reader.count(), reader.meta["cwd"]) == ("torn", 0, "/home/user/project")
    names = {path.name for path in tmp_path.iterdir()}
    assert not {"bare.agentlog-wal", "bare.agentlog-shm"} & names


def test_the_end_of_the_writer_is_seen_by_whoever_is_reading(tmp_path: Path) -> None:
    recorder = live(tmp_path / "r.agentlog")
    with Reader.open(recorder.path) as reader:
        assert reader.state() == "live"
        recorder.abandon()
        assert reader.state() == "torn"


READ_ONLY = """
set -e
mount --bind "$1" "$1"
mount -o remount,ro,bind "$1"
exec "$2" -c "$3" "$1/$4"
"""
COUNT = """
import sys
from pathlib import Path
from agentwrap.recording.reader import Reader
with Reader.open(Path(sys.argv[1])) as reader:
    sys.stdout.write(f"{reader.state()} {reader.count()}")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a read-only mount needs root; permissions do not stop root")
@pytest.mark.parametrize(
    ("kind", "expected"),
    [("closed", "closed 12"), ("torn", "torn 12"), ("torn without -shm", "torn 12"), ("left in WAL", "closed 12")],
)
def test_in_a_read_only_folder(tmp_path: Path, kind: str, expected: str) -> None:
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespaces here")
    folder = tmp_path / "ro"
    folder.mkdir()
    path = folder / "r.agentlog"
    if kind == "closed":
        make.closed(path)
    elif kind == "left in WAL":
        recorder = live(path)
        with Reader.open(path) as tail:
            assert tail.count() == 12
            recorder.close()
    else:
        recorder = live(tmp_path / "r.agentlog")
        for suffix in ("", "-wal") if kind.endswith("-shm") else ("", "-wal", "-shm"):
            shutil.copyfile(f"{recorder.path}{suffix}", f"{path}{suffix}")
        recorder.abandon()
    command = ["unshare", "-m", "sh", "-c", READ_ONLY, "sh", str(folder), sys.executable, COUNT, path.name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_a_folder_that_a_plain_user_cannot_write(tmp_path: Path) -> None:
    path = make.closed(tmp_path / "r.agentlog")
    tmp_path.chmod(0o500)
    try:
        with Reader.open(path) as reader:
            assert reader.count() == 12
    finally:
        tmp_path.chmod(0o700)


def test_what_is_not_there_or_no_recording(tmp_path: Path) -> None:
    assert refused(tmp_path / "none").kind == "not-found"
    assert refused(tmp_path).kind == "not-a-recording"
    (tmp_path / "empty").write_bytes(b"")
    assert refused(tmp_path / "empty").evidence.endswith("the file is empty")
    (tmp_path / "text").write_bytes(b"hello " * 100)
    assert refused(tmp_path / "text").kind == "not-a-recording"
    assert refused(Path("/dev/null")).kind == "not-a-recording"
    make.edit(tmp_path / "other.db", "CREATE TABLE t(x)")
    assert refused(tmp_path / "other.db").evidence.endswith("some other SQLite database")
    os.mkfifo(tmp_path / "fifo")
    assert refused(tmp_path / "fifo").kind == "not-a-recording"


def test_a_newer_version_is_named(tmp_path: Path) -> None:
    error = refused(make.FOLDER / "from-the-future.agentlog")
    assert error.kind == "newer-format"
    assert "format 2" in error.evidence
    assert error.hint


def test_damage_is_an_error_not_a_traceback(tmp_path: Path) -> None:
    path = make.closed(tmp_path / "r.agentlog")
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
    assert refused(path).kind == "damaged"
    path.write_bytes(whole[:100] + b"\xff" * 4000 + whole[4100:])
    assert refused(path).kind == "damaged"
    path.write_bytes(whole)
    make.edit(path, "UPDATE event SET data = '{' WHERE seq = 3")
    with Reader.open(path) as reader, pytest.raises(AgentwrapError) as caught:
        list(reader.rows())
    assert (caught.value.kind, "event 3" in caught.value.evidence) == ("damaged", True)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 45055), st.binary(min_size=1, max_size=40)), min_size=1, max_size=12))
def test_any_damage_gives_rows_or_one_error(tmp_path: Path, damage: list[tuple[int, bytes]]) -> None:
    whole = bytearray((make.FOLDER / "good.agentlog").read_bytes())
    for offset, data in damage:
        whole[offset : offset + len(data)] = data
    path = tmp_path / "damaged.agentlog"
    path.write_bytes(whole)
    assert kind_of_refusal(lambda: read_everything(path)) in ("", "damaged", "not-a-recording", "newer-format")
    words: list[str] = []
    refusal = kind_of_refusal(lambda: words.append(verify(path, public_key=make.public_key()).word))
    assert refusal in ("", "not-a-recording", "newer-format")
    if bytes(whole) != (make.FOLDER / "good.agentlog").read_bytes():
        assert "intact" not in words


def kind_of_refusal(action: Callable[[], object]) -> str:
    try:
        action()
    except AgentwrapError as error:
        return error.kind
    return ""


def read_everything(path: Path) -> None:
    with Reader.open(path) as reader:
        for row in reader.rows():
            assert isinstance(row.data, dict)
        reader.spans()
        reader.state()
        assert isinstance(reader.meta, dict)
        reader.count()
        reader.blob("00" * 32)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_header_or_refused(data: bytes) -> None:
    for head in (data, MAGIC + data, MAGIC + data[:52] + b"AWLG" + data[52:]):
        refusal = kind_of_refusal(lambda head=head: _parse(Path("x"), head, len(head)))  # type: ignore[misc]
        assert refusal in ("", "not-a-recording", "newer-format")


def test_a_huge_file_is_opened_without_being_read(tmp_path: Path) -> None:
    """10 GB, most of it a hole: opening it and reading one row touches a few pages."""
    path = make.closed(tmp_path / "r.agentlog")
    os.truncate(path, 10 << 30)
    with Reader.open(path) as reader:
        assert next(reader.rows()).kind == "run.start"
        assert reader.count() == 12


def test_a_name_that_means_something_in_a_uri(tmp_path: Path) -> None:
    path = make.closed(tmp_path / "a?b#c%20 d.agentlog")
    with Reader.open(path) as reader:
        assert reader.count() == 12


def test_a_snapshot_of_a_live_file_is_one_file(tmp_path: Path) -> None:
    recorder = live(tmp_path / "r.agentlog")
    (tmp_path / "out").mkdir()
    copy = tmp_path / "out" / "copy.agentlog"
    assert snapshot(recorder.path, copy) == 12
    recorder.close()
    assert [path.name for path in copy.parent.iterdir()] == ["copy.agentlog"]
    assert copy.stat().st_mode & 0o777 == 0o600
    with Reader.open(copy) as reader:
        assert (reader.state(), reader.count()) == ("torn", 12)
    for target, kind in ((copy, "exists"), (tmp_path / "no" / "x", "output")):
        with pytest.raises(AgentwrapError) as caught:
            snapshot(recorder.path, target)
        assert caught.value.kind == kind


def test_a_live_file_is_not_finalised(tmp_path: Path) -> None:
    recorder = live(tmp_path / "r.agentlog")
    with pytest.raises(AgentwrapError) as caught:
        finalise(recorder.path)
    assert caught.value.kind == "busy"
    recorder.close()
    assert not finalise(recorder.path)


def test_readers_cannot_write(tmp_path: Path) -> None:
    with Reader.open(make.closed(tmp_path / "r.agentlog")) as reader, pytest.raises(sqlite3.OperationalError):
        reader.connection.execute("DELETE FROM event")
