"""docs/failure-modes.md, line by line: what breaks, what becomes of the agent, what the file says."""

import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from wrapping import AGENTWRAP, environment, events

BUSY = "sleep 300 & setsid sleep 300 & echo started; wait"


def agentwrap(home: Path, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*AGENTWRAP, *arguments], capture_output=True, text=True, env=environment(home), cwd=home)


def alive(session_of: Path) -> list[int]:
    """Processes that work in this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if entry.readlink() == session_of:
                found.append(int(entry.parent.name))
        except OSError:
            continue  # gone, or somebody else's
    return found


def until_nobody_is_left(folder: Path) -> None:
    """Wait for the kernel to have ended what it ends; ten seconds are for a machine under load."""
    deadline = time.monotonic() + 300
    while (left := alive(folder)) and time.monotonic() < deadline:
        os.sched_yield()
    assert left == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory that no other process is in."""
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def busy(tmp_path: Path, folder: Path) -> "Iterator[tuple[subprocess.Popen[str], Path]]":
    """A run that goes on, with a background process and one in a session of its own; and its recording."""
    recording = tmp_path / "run.agentlog"
    command = [*AGENTWRAP, "run", "-q", "-o", str(recording), "--", "sh", "-c", BUSY]
    run = subprocess.Popen(
        command, cwd=folder, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "started\n"
    yield run, recording
    run.kill()
    run.communicate()


def state_of(home: Path, recording: Path) -> str:
    return agentwrap(home, "verify", recording).stdout.split()[0]


# --- nothing can be written -------------------------------------------------------------------------------------------


@pytest.fixture
def impossible(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    match request.param:
        case "exists":
            path = tmp_path / "there.agentlog"
            path.write_text("mine")
        case "directory":
            path = tmp_path / "there"
            path.mkdir()
        case "no folder":
            path = tmp_path / "nowhere" / "x.agentlog"
        case "closed folder":
            path = Path("/proc/x.agentlog")
        case _:
            path = tmp_path / "file" / "x.agentlog"
            path.parent.write_text("")
    return path


@pytest.mark.parametrize(
    "impossible", ["exists", "directory", "no folder", "closed folder", "folder is a file"], indirect=True
)
def test_where_no_recording_can_be_made_the_command_is_not_started(tmp_path: Path, impossible: Path) -> None:
    before = impossible.read_text() if impossible.is_file() else None
    done = agentwrap(tmp_path, "run", "-o", impossible, "--", "touch", tmp_path / "ran")
    assert done.returncode == 125
    assert done.stderr.startswith("error: ")
    assert "\nhint: " in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "ran").exists()
    assert (impossible.read_text() if impossible.is_file() else None) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_on_a_full_disk_the_command_is_not_started(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], capture_output=True)
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        done = agentwrap(tmp_path, "run", "-o", small / "x.agentlog", "--", "touch", tmp_path / "ran")
        assert done.returncode == 125
        assert os.strerror(errno.ENOSPC) in done.stderr
        assert not (tmp_path / "ran").exists()
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", small], check=True)


# --- somebody dies ----------------------------------------------------------------------------------------------------


def test_without_its_supervisor_the_tree_ends_and_the_file_is_torn(
    tmp_path: Path, folder: Path, busy: "tuple[subprocess.Popen[str], Path]"
) -> None:
    run, recording = busy
    run.send_signal(signal.SIGKILL)
    run.wait()
    until_nobody_is_left(folder)
    assert state_of(tmp_path, recording) == "torn"
    assert [event.subject.split()[0] for event in events(recording, "run.start")] == ["sh"]
    shown = agentwrap(tmp_path, "show", recording)
    assert shown.returncode == 0
    assert "torn" in shown.stdout


def test_without_its_tracer_the_tree_ends_and_the_file_tells(
    folder: Path, busy: "tuple[subprocess.Popen[str], Path]"
) -> None:
    run, recording = busy
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    (tracer,) = (child for child in children if Path(f"/proc/{child}/comm").read_text() == "aw-tracer\n")
    os.kill(int(tracer), signal.SIGKILL)
    _, told = run.communicate()
    assert run.returncode == 125
    assert told.startswith("error: the recording is not complete")
    until_nobody_is_left(folder)
    assert [event.data["cause"] for event in events(recording, "gap")] == ["tracer-lost"]
    assert [event.data["reason"] for event in events(recording, "run.end")] == ["lost"]


def test_sigterm_is_the_commands_too_and_the_file_is_closed(
    tmp_path: Path, folder: Path, busy: "tuple[subprocess.Popen[str], Path]"
) -> None:
    run, recording = busy
    run.send_signal(signal.SIGTERM)
    run.communicate()
    assert run.returncode == -signal.SIGTERM
    until_nobody_is_left(folder)
    assert state_of(tmp_path, recording) == "unsigned"
    assert [event.data["signal"] for event in events(recording, "run.end")] == [signal.SIGTERM]


# --- a file that is not what it should be -----------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"not a recording", b"SQLite format 3\0" + bytes(4080)])
def test_what_is_no_recording_is_one_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.agentlog"
    path.write_bytes(content)
    for command in ("show", "verify", "check", "tail", "export"):
        done = agentwrap(tmp_path, command, path)
        assert (command, done.returncode) == (command, 2)
        assert done.stderr.startswith("error: ")
        assert "Traceback" not in done.stderr
        assert path.read_bytes() == content
