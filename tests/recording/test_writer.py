"""What goes into the file, and every reason why there may be no file: before anything runs, with one clear error."""

import hashlib
import os
import sqlite3
import subprocess
import sys
import time
import typing
from pathlib import Path

import msgspec
import pytest
from recordings import make

from agentwrap.errors import AgentwrapError
from agentwrap.events import AnyEvent, Body, Content, FileEdit, FileState, NetConnect, RunEnd
from agentwrap.recording.envelope import envelope, leaf_hash
from agentwrap.recording.foreign import to_bytes
from agentwrap.recording.layout import LAYOUTS, every_layout, layout_of
from agentwrap.recording.merkle import Tree
from agentwrap.recording.reader import Reader
from agentwrap.recording.redact import Redactor
from agentwrap.recording.writer import Recorder


def connect(number: int = 0) -> NetConnect:
    return NetConnect(at_ns=number, span="p1", pid=7, family="inet", host=b"192.0.2.1", port=443)


def edit(before: bytes | None, after: bytes | None) -> FileEdit:
    def state(data: bytes | None) -> FileState:
        return (
            FileState(type="absent") if data is None else FileState(raw=hashlib.sha256(data).digest(), size=len(data))
        )

    return FileEdit(at_ns=1, path=b"/x", change="modify", before=state(before), after=state(after))


def content(data: bytes, role: typing.Literal["before", "after"] = "after") -> Content:
    return Content(sha=hashlib.sha256(data).digest(), data=data, role=role)


def test_every_sample_event_comes_back_as_it_went_in(tmp_path: Path) -> None:
    path = make.closed(tmp_path / "r.agentlog")
    sent = [event for event in make.events() if not isinstance(event, Content)]
    with Reader.open(path) as reader:
        rows = list(reader.rows())
    assert [row.seq for row in rows] == list(range(1, len(sent) + 1))
    for row, event in zip(rows, sent, strict=True):
        assert (row.at_ns, row.span, row.pid) == (event.at_ns, event.span, event.pid)
        assert row.kind == type(event).__struct_config__.tag
        assert row.verdict == event.verdict
        assert row.subject == event.subject.decode(errors="backslashreplace")
        plan = LAYOUTS[type(event)]
        for name, default in plan.foreign:
            assert to_bytes(row.data[name]) if name in row.data else default == getattr(event, name)
        for name, default in plan.plain:
            assert row.data.get(name, default) == msgspec.to_builtins(getattr(event, name)) or (
                tuple(row.data.get(name, default)) == getattr(event, name)
            )


@pytest.mark.parametrize("event_class", list(every_layout()))
def test_compiled_layouts_do_what_their_lists_say(event_class: type) -> None:
    plan = layout_of(event_class)
    values: dict[str, object] = {"at_ns": 1}
    for name, _ in plan.plain:
        values[name] = "word"
    for name, _ in plan.foreign:
        values[name] = name.encode() + b"\xff"
    for name, _ in plan.many:
        values[name] = (name.encode(), b"\xfe")
    for name, _ in plan.pairs:
        values[name] = ((name.encode(), b"v"),)
    for name, _ in plan.states:
        values[name] = FileState(target=name.encode() + b"-target")
    for name, _ in plan.bodies:
        values[name] = Body(7, (name.encode(),))
    event = event_class(**values)
    fields, parts = plan.fields(event, state_to_json, body_to_json)
    told = [(name, 0, name.encode() + b"-target") for name, _ in plan.states]
    told += [(name, 3, name.encode()) for name, _ in plan.bodies]
    assert parts == sorted(told)
    assert set(fields) == set(values) - {"at_ns"}
    joined = plan.joined(event).split(b"\0")
    for name, _ in plan.foreign:
        assert to_bytes(fields[name]) == values[name]
        assert values[name] in joined
    for name, _ in plan.many:
        assert [to_bytes(item) for item in fields[name]] == list(values[name])  # type: ignore[call-overload]
        assert b"\xfe" in joined
    for name, _ in plan.states:
        assert name.encode() + b"-target" in joined
    # Defaults are left out.
    if all(default is not _required(plan) for group in (plan.plain, plan.foreign) for _, default in group):
        empty = plan.fields(event_class(at_ns=1), lambda _: ({}, b""), body_to_json)[0]
        assert empty.keys() <= {name for name, _ in plan.states}


def state_to_json(state: FileState) -> tuple[dict[str, object], bytes]:
    return {"target": state.target.decode()}, state.target


def body_to_json(body: Body, role: str) -> tuple[dict[str, object], list[tuple[str, int, bytes]]]:
    return {"size": body.size}, [(role, 3, body.pieces[0])]


def _required(plan: object) -> object:
    from agentwrap.recording import layout

    return layout._REQUIRED


def test_leaves_and_roots_are_those_of_the_rows(tmp_path: Path) -> None:
    path = make.closed(tmp_path / "r.agentlog")
    file = sqlite3.connect(path)
    tree = Tree()
    for row in file.execute("SELECT seq, at_ns, kind, span, pid, subject, verdict, data, leaf FROM event ORDER BY seq"):
        parts = file.execute("SELECT role, ordinal, sha256 FROM part WHERE seq = ? ORDER BY 1, 2", row[:1]).fetchall()
        assert row[8] == leaf_hash(envelope(*row[:8], parts))
        tree.add(row[8])
    assert file.execute("SELECT root FROM checkpoint ORDER BY count DESC").fetchone() == (tree.root(),)
    file.close()


def test_contents_are_stored_once_and_named_by_every_event(tmp_path: Path) -> None:
    recorder = make.begin(tmp_path / "r.agentlog")
    recorder.content(content(b"one", "before"))
    recorder.content(content(b"two"))
    recorder.add(edit(b"one", b"two"))
    recorder.commit()
    recorder.content(content(b"two"))
    recorder.add(edit(b"two", b"one"))
    recorder.close()
    with Reader.open(recorder.path) as reader:
        first, second = reader.rows()
        assert first.data["before"]["sha256"] == second.data["after"]["sha256"] == hashlib.sha256(b"one").hexdigest()
        assert reader.blob(first.data["after"]["sha256"]) == b"two"
        assert reader.connection.execute("SELECT count(*) FROM blob").fetchone() == (2,)
        assert reader.connection.execute("SELECT seq, role FROM part").fetchall() == [
            (1, "after"), (1, "before"), (2, "after"), (2, "before"),
        ]  # fmt: skip


def test_a_content_that_never_came_is_told_by_its_hash(tmp_path: Path) -> None:
    recorder = make.begin(tmp_path / "r.agentlog")
    recorder.add(edit(b"never sent", None))
    recorder.close()
    with Reader.open(recorder.path) as reader:
        (row,) = reader.rows()
    assert row.data["before"] == {
        "size": 10, "omitted": "not-kept", "raw_sha256": hashlib.sha256(b"never sent").hexdigest(),
    }  # fmt: skip
    assert row.data["after"] == {"type": "absent"}


def test_contents_waiting_for_their_event_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentwrap.recording import contents

    monkeypatch.setattr(contents, "_WAITING_BYTES", 1000)
    recorder = make.begin(tmp_path / "r.agentlog")
    bodies = [b"%03d" % n * 200 for n in range(10)]
    for body in bodies:
        recorder.content(content(body))
    for body in bodies:
        recorder.add(edit(None, body))
    recorder.close()
    with Reader.open(recorder.path) as reader:
        states = [row.data["after"] for row in reader.rows()]
        assert [state for state in states if "sha256" in state]
        for state in states:
            assert ("sha256" in state and reader.blob(state["sha256"])) or state["omitted"] == "not-kept"


def test_a_failed_commit_loses_nothing(tmp_path: Path) -> None:
    recorder = make.begin(tmp_path / "r.agentlog")
    recorder.add(connect(1))
    other = sqlite3.connect(recorder.path, isolation_level=None, timeout=0)
    other.execute("BEGIN IMMEDIATE")
    recorder._db.execute("PRAGMA busy_timeout=0")
    with pytest.raises(sqlite3.OperationalError):
        recorder.commit()
    other.execute("ROLLBACK")
    other.close()
    recorder.add(connect(2))
    recorder.close()
    with Reader.open(recorder.path) as reader:
        assert [row.at_ns for row in reader.rows()] == [1, 2]


def test_a_reader_that_stays_does_not_keep_a_file_from_being_closed(tmp_path: Path) -> None:
    recorder = make.begin(tmp_path / "r.agentlog")
    make.feed(recorder)
    recorder.commit()
    with Reader.open(recorder.path) as tail:
        assert tail.count() == 12
        recorder.close()
        assert tail.count() == 12
        assert tail.state() == "closed"
    assert [path.name for path in tmp_path.iterdir()] == ["r.agentlog"]
    from agentwrap.evidence.verify import verify

    assert verify(recorder.path, public_key=make.public_key()).word == "intact"


def begin_error(path: Path) -> AgentwrapError:
    with pytest.raises(AgentwrapError) as caught:
        make.begin(path)
    assert caught.value.evidence.startswith(str(path))
    return caught.value


def test_an_existing_output_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "r.agentlog"
    path.write_bytes(b"mine")
    assert begin_error(path).kind == "exists"
    assert path.read_bytes() == b"mine"
    dangling = tmp_path / "link.agentlog"
    dangling.symlink_to(tmp_path / "nowhere")
    assert begin_error(dangling).kind == "exists"
    assert begin_error(tmp_path).kind == "exists"


def test_no_folder_or_a_file_in_its_place(tmp_path: Path) -> None:
    assert begin_error(tmp_path / "no" / "r.agentlog").kind == "output"
    (tmp_path / "file").write_bytes(b"")
    assert begin_error(tmp_path / "file" / "r.agentlog").kind == "output"
    assert begin_error(tmp_path / ("x" * 300)).kind == "output"


def test_an_unwritable_folder() -> None:
    # /proc refuses new files to everybody, root too.
    assert begin_error(Path("/proc/r.agentlog")).kind == "output"


def test_a_full_disk_before_the_start_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(tmp_path)

    def full(_path: object) -> os.statvfs_result:
        return os.statvfs_result((*real[:4], 0, *real[5:]))

    monkeypatch.setattr(os, "statvfs", full)
    error = begin_error(tmp_path / "r.agentlog")
    assert (error.kind, "No space left" in error.evidence) == ("output", True)
    assert list(tmp_path.iterdir()) == []


def test_an_undo_store_that_cannot_be_made_is_an_error_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(AgentwrapError) as caught:
        Recorder.create(
            tmp_path / "r.agentlog", run_id="x", meta={}, redactor=Redactor(bytes(32)), signer=None,
            undo=tmp_path / "file" / "undo", now=make.Ticks(),
        )  # fmt: skip
    assert caught.value.kind == "output"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    recorder = make.begin(tmp_path / "r.agentlog")
    recorder.add(RunEnd(at_ns=1))
    recorder.commit()
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    recorder.close()


SPEED = """
import sys, time
sys.path.insert(0, {tests!r})
from pathlib import Path
from recordings import make
from agentwrap.events import NetConnect
recorder = make.begin(Path(sys.argv[1]))
same = {{"span": "p1", "pid": 7, "family": "inet", "port": 443}}
events = [NetConnect(at_ns=n, host=b"192.0.2.%d" % (n % 250), **same) for n in range(20000)]
best = 0.0
for part in range(4):
    begun = time.process_time()
    for start in range(part * 5000, part * 5000 + 5000, 250):
        for event in events[start:start + 250]:
            recorder.add(event)
        recorder.commit()
    best = max(best, 5000 / (time.process_time() - begun))
recorder.close()
sys.stdout.write(str(int(best)))
"""


def test_the_recorder_takes_tens_of_thousands_of_events_a_second(tmp_path: Path) -> None:
    """Processor time, best of four; half of what it has to reach on a machine of its own."""
    code = SPEED.format(tests=str(Path(__file__).parent.parent))
    command = [sys.executable, "-c", code, str(tmp_path / "r.agentlog")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert int(done.stdout) > 25_000


def test_nothing_of_an_event_depends_on_the_clock(tmp_path: Path) -> None:
    begun = time.monotonic_ns()
    leaves = []
    for name in ("a", "b"):
        with Reader.open(make.closed(tmp_path / f"{name}.agentlog")) as reader:
            leaves.append(reader.connection.execute("SELECT leaf FROM event").fetchall())
    assert leaves[0] == leaves[1]
    assert time.monotonic_ns() > begun


def test_all_kinds_have_a_layout() -> None:
    assert set(every_layout()) == set(typing.get_args(AnyEvent))
