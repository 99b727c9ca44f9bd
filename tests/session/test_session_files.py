import os
import sys
import time
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wrapping import wrap

from agentwrap.events import (
    Content,
    FileEdit,
    FileState,
    ModelRequest,
    ModelResponse,
    Secrets,
    SessionFile,
    ToolCall,
)
from agentwrap.recording.reader import Reader
from agentwrap.session import session_files
from agentwrap.session.session_files import OfTheRun, attach, joined, pieces

UUID = "6a07cb77-d965-4497-93d4-a3031ddb035a"
LINE = b'{"message":{"id":"msg_01234567","content":[{"type":"tool_use","id":"toolu_0123"}]}}\n'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for folder in (".claude/projects/-srv-project", ".codex/sessions/2026/11/30"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def claude(home: Path, name: str = f"{UUID}.jsonl") -> Path:
    return home / ".claude/projects/-srv-project" / name


def wrote(*paths: Path) -> OfTheRun:
    known = OfTheRun()
    gone = FileState(type="absent")
    known.see([FileEdit(at_ns=1, path=bytes(path), change="create", before=gone, after=FileState()) for path in paths])
    return known


def attached(home: Path, since_ns: int = 0, known: OfTheRun | None = None, **more: str) -> list[SessionFile]:
    environment = {b"HOME": bytes(home), **{name.encode(): value.encode() for name, value in more.items()}}
    held: dict[bytes, bytes] = {}
    found = []
    if known is None:
        known = wrote(*home.rglob("*.jsonl"))
    for item in attach(environment, since_ns, known, at_ns=7):
        if isinstance(item, Content):
            assert (item.role, item.sha) == ("body", sha256(item.data).digest())
            held[item.sha] = item.data
        else:
            assert isinstance(item, SessionFile)
            assert item.at_ns == 7
            if not item.content.omitted:
                assert sum(len(held[sha]) for sha in item.content.pieces) == item.content.size
            found.append(item)
    return found


def test_files_of_both_agents_are_read_whole(home: Path) -> None:
    claude(home).write_bytes(LINE * 3000)
    codex = home / f".codex/sessions/2026/11/30/rollout-2026-11-30T09-02-39-{UUID}.jsonl"
    codex.write_bytes(LINE)
    (codex.parent / "other.jsonl").write_bytes(LINE)
    first, second = attached(home)
    assert (first.agent, first.path, first.session) == ("claude-code", bytes(claude(home)), UUID.encode())
    assert (first.content.size, len(first.content.pieces)) == (len(LINE) * 3000, 4)
    assert (second.agent, second.path, second.session) == ("codex", bytes(codex), UUID.encode())


def test_ids_that_crossed_the_wire_are_joined(home: Path) -> None:
    known = OfTheRun()
    session = UUID.encode()
    known.see([
        ModelRequest(at_ns=1, call="m1", agent="a1", turn="t1", api="openai.chat", host=b"h", session=session),
        ModelResponse(at_ns=1, call="m1", agent="a1", turn="t1", ending="complete", response_id=b"msg_01234567"),
        ToolCall(at_ns=1, tool="x1", call="m1", agent="a1", turn="t1", id=b"toolu_0123", name=b"Bash"),
        Secrets(()),
    ])  # fmt: skip
    claude(home).write_bytes(LINE)
    (found,) = attached(home, known=known)
    assert found.joined == ((b"msg_01234567", b"m1"), (b"toolu_0123", b"x1"))
    assert known.ids[UUID.encode()] == "a1"


def test_files_of_another_run_at_the_same_time_are_left(home: Path) -> None:
    claude(home, "mine.jsonl").write_bytes(b"{}")
    claude(home, "other.jsonl").write_bytes(LINE)
    found = attached(home, known=wrote(Path("/elsewhere/-srv-project/mine.jsonl")))
    assert [one.path.rpartition(b"/")[2] for one in found] == [b"mine.jsonl"]
    assert attached(home, known=OfTheRun()) == []


def test_what_was_not_written_since_is_left(home: Path) -> None:
    claude(home).write_bytes(LINE)
    now = time.time_ns()
    os.utime(claude(home), ns=(now, now))
    assert len(attached(home, now)) == 1
    assert attached(home, now + 1) == []


def test_folders_may_be_named_by_the_environment(home: Path) -> None:
    (home / "conf/projects/x").mkdir(parents=True)
    (home / "conf/projects/x/s.jsonl").write_bytes(LINE)
    (home / "cx/sessions").mkdir(parents=True)
    (home / "cx/sessions/rollout-1.jsonl").write_bytes(LINE)
    claude(home).write_bytes(LINE)
    found = attached(home, CLAUDE_CONFIG_DIR=str(home / "conf"), CODEX_HOME=str(home / "cx"))
    assert [one.path for one in found] == [
        bytes(home / "conf/projects/x/s.jsonl"), bytes(home / "cx/sessions/rollout-1.jsonl")
    ]  # fmt: skip
    assert attached(home, CLAUDE_CONFIG_DIR="relative", CODEX_HOME=str(home / "none")) == []


def test_links_and_what_is_no_file_lead_nowhere(home: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.jsonl").write_bytes(LINE)
    projects = home / ".claude/projects"
    (projects / "linked").symlink_to(outside)
    claude(home, "link.jsonl").symlink_to(outside / "secret.jsonl")
    os.mkfifo(claude(home, "fifo.jsonl"))
    claude(home, "folder.jsonl").mkdir()
    assert attached(home) == []
    projects.rename(home / ".claude/real")
    projects.symlink_to(home / ".claude/real")
    claude(home).write_bytes(LINE)
    assert attached(home) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file to another user takes root")
def test_files_of_others_are_left(home: Path) -> None:
    claude(home).write_bytes(LINE)
    os.chown(claude(home), 12345, 12345)
    assert attached(home) == []


def test_what_is_too_large_is_named_without_its_content(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_files, "LARGEST_BYTES", 100)
    monkeypatch.setattr(session_files, "ALL_BYTES", 150)
    for name in ("a", "b", "c"):
        claude(home, f"{name}.jsonl").write_bytes(LINE)
    claude(home, "d.jsonl").write_bytes(LINE * 2)
    assert [one.content.omitted for one in attached(home)] == ["", "over-cap", "over-cap", "over-cap"]


def test_how_much_is_looked_at_is_bounded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in range(9):
        claude(home, f"{name}.jsonl").write_bytes(LINE)
    monkeypatch.setattr(session_files, "MOST_ENTRIES", 6)
    assert len(attached(home)) == 5
    monkeypatch.setattr(session_files, "MOST_FILES", 2)
    assert len(attached(home)) == 2
    deep = home / ".codex/sessions" / "/".join("d" * (session_files.DEEPEST + 1))
    deep.mkdir(parents=True)
    (deep / "rollout-1.jsonl").write_bytes(LINE)
    monkeypatch.setattr(session_files, "MOST_FILES", 200)
    assert not any(one.agent == "codex" for one in attached(home))


def test_no_descriptor_is_left_open(home: Path) -> None:
    claude(home).write_bytes(LINE)
    claude(home, "link.jsonl").symlink_to("/etc/passwd")
    attached(home)
    held = []
    for name in os.listdir("/proc/self/fd"):
        try:
            held.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue  # of the listing itself, or of a thread
    assert [path for path in held if path.startswith(str(home))] == []


@given(st.lists(st.binary(max_size=50).map(lambda part: part * 4000), max_size=6))
def test_pieces_are_the_whole_and_cut_at_ends_of_lines(parts: list[bytes]) -> None:
    data = b"\n".join(parts)
    cut = list(pieces(data))
    assert b"".join(cut) == data
    assert all(piece.endswith(b"\n") for piece in cut[:-1])
    assert all(len(piece) >= session_files.PIECE_BYTES for piece in cut[:-1])


@given(st.binary())
def test_ids_are_looked_for_in_any_bytes(data: bytes) -> None:
    assert joined(b'"abcdefgh"msg_01234567"', {b"msg_01234567": "m1"})
    assert joined(data + b'"msg_01234567"', {b"msg_01234567": "m1"}) == ((b"msg_01234567", b"m1"),)


WRITER = """
import os, pathlib
folder = pathlib.Path(os.environ["HOME"], ".claude/projects/-w")
folder.mkdir(parents=True)
(folder / "mine.jsonl").write_text('{"said": "' + os.environ["SERVICE_TOKEN"] + '"}' + chr(10))
"""


def test_a_run_keeps_the_session_file_that_it_wrote_without_its_secrets(tmp_path: Path) -> None:
    token = {"SERVICE_TOKEN": "tok-0123456789abcdef0123456789"}
    ran = wrap(tmp_path, sys.executable, "-c", WRITER, env=token)
    assert ran.status == 0, ran.stderr
    (row,) = ran.events("session.file")
    assert row.data["path"].endswith("/-w/mine.jsonl")
    with Reader.open(ran.recording) as source:
        content = b"".join(piece or b"" for piece in source.body(row.seq, "content"))
    assert content.startswith(b'{"said": "\xc2\xabredacted:')
    assert b"tok-0123456789" not in ran.recording.read_bytes()
    assert row.at_ns <= ran.events("run.end")[0].at_ns
