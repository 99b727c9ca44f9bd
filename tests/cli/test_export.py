import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sample_run

from agentwrap.cli.main import run

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return sample_run.record(tmp_path / "x.agentlog")


def test_one_object_per_line(recording: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["export", "--jsonl", str(recording)]) == 0
    told = capfd.readouterr().out
    assert told.isascii()
    objects = [json.loads(line) for line in told.splitlines()]
    assert [one["seq"] for one in objects] == list(range(1, 34))
    assert {key for one in objects for key in one} == {
        "schema", "type", "seq", "ts", "mono_ns", "span", "pid", "subject", "verdict", "data",
    }  # fmt: skip


def test_a_filter_chooses(recording: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    assert run(["export", "--jsonl", str(recording), "kind:net", "-host:192.0.2.7", "-o", str(target)]) == 0
    assert [json.loads(line)["type"] for line in target.read_text().splitlines()] == ["net.connect", "net.listen"]
    assert target.stat().st_mode & 0o777 == 0o600


def test_an_existing_output_is_left_alone(recording: Path, tmp_path: Path, capsys: Capture) -> None:
    target = tmp_path / "out.jsonl"
    target.write_text("mine")
    assert run(["export", "--jsonl", str(recording), "-o", str(target)]) == 2
    assert capsys.readouterr().err.startswith("error: the output is already there")
    assert target.read_text() == "mine"
    assert run(["export", "--jsonl", str(recording), "-o", str(tmp_path / "no" / "out")]) == 2
    assert capsys.readouterr().err.startswith("error: cannot write the output")


def test_without_a_format_json_lines_are_meant(recording: Path, capsys: Capture) -> None:
    assert run(["export", str(recording)]) == 0
    unnamed = capsys.readouterr().out
    assert run(["export", "--jsonl", str(recording)]) == 0
    assert capsys.readouterr().out == unnamed != ""


def test_a_full_disk_is_one_clear_error(recording: Path) -> None:
    for command in (["export", "--jsonl"], ["show", "--all"], ["show", "--json"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "agentwrap", *command, recording], stdout=full, stderr=subprocess.PIPE, text=True
            )
        assert done.returncode == 2
        assert done.stderr == "error: cannot write the output\n\n  No space left on device\n"


def test_a_reader_that_went_away_is_no_fault(recording: Path) -> None:
    for command in (["export", "--jsonl"], ["show", "--all"], ["tail"]):
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "wb") as stdout:
            done = subprocess.run(
                [sys.executable, "-m", "agentwrap", *command, recording], stdout=stdout, stderr=subprocess.PIPE
            )
        assert (done.returncode, done.stderr) == (141, b"")
