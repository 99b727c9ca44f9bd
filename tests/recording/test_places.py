"""Where things are: XDG's rules, and the latest recording."""

import os
from pathlib import Path

from agentwrap.recording import places


def test_folders_follow_the_environment() -> None:
    env = {"HOME": "/home/u"}
    assert places.recordings_dir(env) == Path("/home/u/.local/state/agentwrap/recordings")
    assert places.undo_dir(env, "ab") == Path("/home/u/.local/state/agentwrap/undo/ab")
    assert places.key_paths(env)[0] == Path("/home/u/.config/agentwrap/signing.key")
    env |= {"XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c"}
    assert places.state_dir(env) == Path("/s/agentwrap")
    assert places.key_paths(env) == (Path("/c/agentwrap/signing.key"), Path("/c/agentwrap/signing.pub"))


def test_relative_and_empty_values_count_as_unset() -> None:
    for value in ("", "state", "./x"):
        assert places.state_dir({"HOME": "/h", "XDG_STATE_HOME": value}) == Path("/h/.local/state/agentwrap")


def test_names_of_recordings_are_plain() -> None:
    name = places.recording_name("/usr/bin/cla ude\n\x1b", "20260101-000000", "abcdef")
    assert name == "cla_ude__-20260101-000000-abcd.agentlog"
    assert places.recording_name("..", "20260101-000000", "abcdef").startswith("run-")
    assert len(places.recording_name("x" * 500, "20260101-000000", "abcdef")) < 100


def test_the_latest_recording_is_the_one_begun_last(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    assert places.latest_recording(env) is None
    folder = places.recordings_dir(env)
    folder.mkdir(parents=True)
    for name in ("a-b-20260102-000000-aaaa", "z-20260101-235959-bbbb", "other"):
        (folder / f"{name}.agentlog").write_bytes(b"")
    (folder / "notes.txt").write_bytes(b"")
    os.utime(folder / "z-20260101-235959-bbbb.agentlog", ns=(1 << 62, 1 << 62))
    assert places.latest_recording(env) == folder / "a-b-20260102-000000-aaaa.agentlog"
