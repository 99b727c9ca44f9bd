"""Undo on real files: a run made by a tracee of our own, recorded, and then taken back."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tracees import Bench, Tracee

from agentwrap.cli.main import run
from agentwrap.events import Content, RunEnd, RunStart
from agentwrap.recording import places
from agentwrap.recording.redact import Redactor
from agentwrap.recording.writer import Recorder
from agentwrap.tracing.files import FileSettings
from agentwrap.tracing.noise import Classifier

SECRET = b"sk-ant-api03-" + b"Q7w9" * 22 + b"-AA"


class Session:
    """A project folder, and a run in it that will be recorded."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.project = base / "project"
        self.project.mkdir()
        self.log = base / "run.agentlog"
        self.bench = Bench(self.project, FileSettings(), Classifier(os.fsencode(self.project), b"/nohome"))
        self.before: dict[str, Any] = {}

    def file(self, name: str, content: bytes, mode: int = 0o644) -> Path:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
        os.utime(path, ns=(10**18, 10**18))
        return path

    def agent(self) -> Tracee:
        self.before = tree(self.project)
        return self.bench.process()

    def record(self, *, shape_only: bool = False, undo: bool = True) -> None:
        self.bench.tracker.finish()
        assert self.bench.gaps == []
        recorder = Recorder.create(
            self.log,
            run_id="r1",
            meta={"cwd": str(self.project), "command": "[]", "tool_version": "0", "started_unix_ns": "1"},
            redactor=Redactor(bytes(32)),
            signer=None,
            shape_only=shape_only,
            undo=places.undo_dir(os.environ, "r1") if undo else None,
            now=lambda: 1,
        )
        recorder.add(RunStart(at_ns=0, command=(b"x",), cwd=os.fsencode(self.project), uid=0, gid=0, mode="hybrid"))
        for item in self.bench.items:
            if isinstance(item, Content):
                recorder.content(item)
            else:
                recorder.add(item)  # type: ignore[arg-type]
        recorder.add(RunEnd(at_ns=1))
        recorder.close()

    def undo(self, *words: str) -> int:
        return run(["undo", str(self.log), *words])

    def put_back(self) -> bool:
        return tree(self.project) == self.before


def tree(folder: Path) -> dict[str, Any]:
    """Everything below a folder: type, mode, content or target, and the time of a file."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        name = str(path.relative_to(folder))
        mode = stat.filemode(status.st_mode)
        if path.is_symlink():
            found[name] = (mode, os.readlink(path))
        elif path.is_file():
            found[name] = (mode, path.read_bytes(), status.st_mtime_ns)
        else:
            found[name] = (mode,)
    return found


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Session(tmp_path)


Agent = Callable[[Session, Tracee], None]


def edit(_: Session, agent: Tracee) -> None:
    agent.write("a.py", b"new\n")
    agent.end()
    agent.write("a.py", b"newer\n")


def edit_by_rename(_: Session, agent: Tracee) -> None:
    agent.write("a.py.tmp", b"new\n")
    agent.rename("a.py.tmp", "a.py")


def settled_temporary(_: Session, agent: Tracee) -> None:
    agent.write("a.py.tmp", b"new\n")
    agent.end()
    agent.rename("a.py.tmp", "a.py")


def delete(_: Session, agent: Tracee) -> None:
    agent.unlink("a.py")


def edit_then_delete(_: Session, agent: Tracee) -> None:
    agent.write("a.py", b"new\n")
    agent.unlink("a.py")


def delete_folder(_: Session, agent: Tracee) -> None:
    agent.unlink("d/e/x")
    agent.unlink("d/y")
    agent.rmdir("d/e")
    agent.rmdir("d")


def create(_: Session, agent: Tracee) -> None:
    agent.mkdir("new")
    agent.mkdir("new/deep")
    agent.write("new/deep/file", b"1")
    agent.write("other", b"2")
    agent.symlink("a.py", "link")
    agent.link("a.py", "hard")


def come_and_go(_: Session, agent: Tracee) -> None:
    agent.mkdir("t")
    agent.write("t/x", b"1")
    agent.end()
    agent.rename("t/x", "t/z")
    agent.unlink("t/z")
    agent.rmdir("t")


def move(_: Session, agent: Tracee) -> None:
    agent.rename("a.py", "b.py")


def move_and_edit(_: Session, agent: Tracee) -> None:
    agent.rename("a.py", "b.py")
    agent.write("b.py", b"new\n")


def edit_and_move(_: Session, agent: Tracee) -> None:
    agent.write("a.py", b"new\n")
    agent.rename("a.py", "d/b.py")


def move_over_another(_: Session, agent: Tracee) -> None:
    agent.rename("a.py", "d/y")


def move_folder(_: Session, agent: Tracee) -> None:
    agent.rename("d", "z")
    agent.write("z/y", b"new\n")
    agent.rename("z/e/x", "z/e/w")
    agent.write("z/made", b"1")


def move_folder_into_a_new_one(_: Session, agent: Tracee) -> None:
    agent.mkdir("new")
    agent.rename("d", "new/d")
    agent.write("d", b"a file in its place")


def swap(_: Session, agent: Tracee) -> None:
    agent.rename("a.py", "t")
    agent.rename("d/y", "a.py")
    agent.rename("t", "d/y")


def backup_as_vim_does(_: Session, agent: Tracee) -> None:
    agent.rename("a.py", "a.py~")
    agent.write("a.py", b"new\n")
    agent.end()
    agent.unlink("a.py~")


def delete_and_make_anew(_: Session, agent: Tracee) -> None:
    agent.unlink("a.py")
    agent.write("a.py", b"quite different")


def modes(_: Session, agent: Tracee) -> None:
    agent.chmod("a.py", 0o755)
    agent.chmod("d", 0o700)


def mode_and_content(_: Session, agent: Tracee) -> None:
    agent.chmod("a.py", 0o600)
    agent.write("a.py", b"new\n")


def symlink_replaced(session: Session, agent: Tracee) -> None:
    agent.unlink("s")
    agent.write("s", b"a file now")


def new_repository(_: Session, agent: Tracee) -> None:
    agent.mkdir(".git")
    agent.mkdir(".git/hooks")
    agent.write(".git/HEAD", b"ref: x")
    agent.write(".git/hooks/pre-commit", b"#!/bin/sh")
    agent.mkdir("d/__pycache__")
    agent.write("d/__pycache__/y.pyc", b"\0" * (2 << 20))


def file_becomes_folder(_: Session, agent: Tracee) -> None:
    agent.unlink("a.py")
    agent.mkdir("a.py")
    agent.write("a.py/x", b"1")


def secrets(_: Session, agent: Tracee) -> None:
    agent.write("secret", b"KEY=other\n")


AGENTS: list[Agent] = [
    edit, edit_by_rename, settled_temporary, delete, edit_then_delete, delete_folder, create, come_and_go, move,
    move_and_edit, edit_and_move, move_over_another, move_folder, move_folder_into_a_new_one, swap, secrets,
    backup_as_vim_does, delete_and_make_anew, modes, mode_and_content, symlink_replaced, new_repository,
    file_becomes_folder,
]  # fmt: skip


def populate(session: Session) -> None:
    session.file("a.py", b"old\n", 0o640)
    session.file("d/e/x", b"deep")
    session.file("d/y", b"why\n")
    session.file("secret", b"KEY=" + SECRET + b"\n")
    (session.project / "d").chmod(0o750)
    (session.project / "s").symlink_to("a.py")


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.__name__)
def test_the_folder_is_as_it_was(session: Session, agent: Agent) -> None:
    populate(session)
    tracee = session.agent()
    agent(session, tracee)
    tracee.end()
    session.record()
    changed = tree(session.project)

    assert session.undo() == 0
    assert tree(session.project) == changed, "a dry run changed something"
    assert session.undo("--apply") == 0
    assert session.put_back()
    if agent is not swap:  # two files that changed places look alike either way: no content of them is recorded
        assert session.undo("--apply") == 0, "the second time there is nothing to do"
        assert session.put_back()


@pytest.mark.parametrize("agent", [one for one in AGENTS if one is not secrets], ids=lambda agent: agent.__name__)
def test_the_recording_alone_is_enough_without_secrets(session: Session, agent: Agent) -> None:
    populate(session)
    tracee = session.agent()
    agent(session, tracee)
    tracee.end()
    session.record(undo=False)
    assert session.undo("--apply") == 0
    assert session.put_back()


def test_what_was_redacted_is_refused_without_the_store(session: Session, capsys: Any) -> None:
    populate(session)
    agent = session.agent()
    secrets(session, agent)
    agent.end()
    session.record(undo=False)
    assert session.undo("--apply") == 1
    assert "only the undo store keeps" in capsys.readouterr().out
    assert (session.project / "secret").read_bytes() == b"KEY=other\n"


def test_a_secret_written_by_the_agent_is_known_again_by_its_keyed_hash(session: Session) -> None:
    session.file("a", b"plain")
    agent = session.agent()
    agent.write("a", b"KEY=" + SECRET)
    agent.end()
    session.record()
    assert session.undo("--apply") == 0
    assert session.put_back()


def test_a_secret_that_cannot_be_compared_is_refused(session: Session, capsys: Any) -> None:
    session.file("a", b"plain")
    agent = session.agent()
    agent.write("a", b"KEY=" + SECRET)
    agent.end()
    session.record(undo=False)
    assert session.undo("--apply") == 1
    assert "cannot be told" in capsys.readouterr().out


def test_changed_since_is_refused_and_the_rest_is_done(session: Session, capsys: Any) -> None:
    session.file("a", b"1")
    session.file("b", b"1")
    agent = session.agent()
    for name in ("a", "b", "made"):
        agent.write(name, b"2")
    agent.end()
    session.record()
    (session.project / "a").write_bytes(b"mine")
    (session.project / "made").write_bytes(b"mine")
    assert session.undo() == 1
    assert session.undo("--apply") == 1
    shown = capsys.readouterr().out
    assert shown.count("it was changed since the recording") == 4
    assert (session.project / "a").read_bytes() == b"mine"
    assert (session.project / "made").read_bytes() == b"mine"
    assert (session.project / "b").read_bytes() == b"1"


def test_a_folder_with_foreign_files_stays(session: Session, capsys: Any) -> None:
    agent = session.agent()
    agent.mkdir("new")
    agent.write("new/a", b"1")
    agent.end()
    session.record()
    (session.project / "new" / "mine").write_bytes(b"1")
    assert session.undo() == 1
    assert session.undo("--apply") == 1
    assert "not empty" in capsys.readouterr().out
    assert sorted(os.listdir(session.project / "new")) == ["mine"]


def test_only_named_paths(session: Session) -> None:
    session.file("a", b"1")
    session.file("d/b", b"1")
    agent = session.agent()
    agent.write("a", b"2")
    agent.write("d/b", b"2")
    agent.end()
    session.record()
    assert session.undo(str(session.project / "d"), "--apply") == 0
    assert (session.project / "a").read_bytes() == b"2"
    assert (session.project / "d" / "b").read_bytes() == b"1"


def test_outside_the_folder_of_the_run_only_when_asked(session: Session, capsys: Any) -> None:
    outside = session.base / "outside"
    outside.write_bytes(b"1")
    agent = session.agent()
    agent.write(str(outside), b"2")
    agent.end()
    session.record()
    assert session.undo("--apply") == 0
    assert outside.read_bytes() == b"2"
    assert "1 path elsewhere" in capsys.readouterr().out
    assert session.undo(str(outside), "--apply") == 0
    assert outside.read_bytes() == b"1"


def test_a_folder_that_became_a_link_is_not_followed(session: Session, capsys: Any) -> None:
    session.file("d/a", b"1")
    elsewhere = session.base / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a").write_bytes(b"2")
    agent = session.agent()
    agent.write("d/a", b"2")
    agent.end()
    session.record()
    (session.project / "d").rename(session.project / "d2")
    (session.project / "d").symlink_to(elsewhere)
    assert session.undo("--apply") == 1
    assert "symbolic link" in capsys.readouterr().out
    assert (elsewhere / "a").read_bytes() == b"2"


def test_a_file_that_became_a_link_is_not_followed(session: Session) -> None:
    path = session.file("a", b"1")
    victim = session.base / "victim"
    victim.write_bytes(b"2")
    agent = session.agent()
    agent.write("a", b"2")
    agent.end()
    session.record()
    path.unlink()
    path.symlink_to(victim)
    assert session.undo("--apply") == 1
    assert victim.read_bytes() == b"2"
    assert path.is_symlink()


def test_json(session: Session, capsys: Any) -> None:
    session.file("a", b"1")
    agent = session.agent()
    agent.write("a", b"2")
    agent.end()
    session.record()
    assert session.undo("--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "schema": 1,
        "applied": False,
        "steps": [{"action": "restore", "path": str(session.project / "a")}],
        "left_alone": 0,
    }


def test_odd_names_are_shown_safely(session: Session, capsys: Any) -> None:
    agent = session.agent()
    agent.write(b"a\x1b[31m\xff\n", b"2")
    agent.end()
    session.record()
    assert session.undo() == 0
    assert "\x1b" not in capsys.readouterr().out
    assert session.undo("--apply") == 0
    assert os.listdir(session.project) == []


def test_shape_only_and_unfinished_recordings_are_refused(session: Session, capsys: Any) -> None:
    agent = session.agent()
    agent.write("a", b"2")
    agent.end()
    session.record(shape_only=True)
    assert session.undo() == 2
    assert "shape-only" in capsys.readouterr().err


def test_nothing_to_undo(session: Session, capsys: Any) -> None:
    session.agent().end()
    session.record()
    assert session.undo() == 0
    assert capsys.readouterr().out == "nothing to undo\n"


def test_a_tampered_recording_changes_nothing(session: Session, capsys: Any) -> None:
    import sqlite3

    session.file("a", b"1")
    agent = session.agent()
    agent.write("a", b"2")
    agent.end()
    session.record()
    with sqlite3.connect(session.log) as db:
        db.execute("UPDATE event SET data = replace(data, 'modify', 'delete')")
    db.close()
    assert session.undo("--apply") == 2
    assert "changed after it was made" in capsys.readouterr().err
    assert (session.project / "a").read_bytes() == b"2"


def test_a_run_that_goes_on_is_refused(session: Session, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session.agent().end()
    session.record()
    monkeypatch.setattr("agentwrap.recording.reader.Reader.state", lambda _: "live")
    assert session.undo("--json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "busy"


def test_caches_and_version_control_are_left_alone(session: Session, capsys: Any) -> None:
    session.file(".git/index", b"1")
    session.file("node_modules/a.js", b"1")
    agent = session.agent()
    agent.write(".git/index", b"2")
    agent.write(".git/new", b"2")
    agent.write("node_modules/a.js", b"2")
    agent.end()
    session.record()
    assert session.undo("--apply") == 0
    assert capsys.readouterr().out.splitlines() == [
        "nothing to undo",
        "3 paths elsewhere or not work: name them, or `--all`",
    ]
    assert session.undo("--all", "--apply") == 1
    assert "was not kept" in capsys.readouterr().out
    assert not (session.project / ".git" / "new").exists()
