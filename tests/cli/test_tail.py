import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import sample_run

from agentwrap.cli.main import run
from agentwrap.cli.tail import follow
from agentwrap.recording.reader import Reader
from agentwrap.recording.redact import Redactor
from agentwrap.recording.writer import Recorder

Capture = pytest.CaptureFixture[str]
# `agentwrap tail` that tells when it begins to wait, and waits for a word of ours.
FOLLOWER = """
import sys
from agentwrap.cli import tail
from agentwrap.cli.main import run

class Clock:
    def sleep(self, seconds):
        print("waits", file=sys.stderr, flush=True)
        sys.stdin.readline()

tail.time = Clock()
sys.exit(run(["tail", sys.argv[1]]))
"""


def begun(path: Path) -> Recorder:
    return Recorder.create(
        path, run_id="ab" * 8, meta=sample_run.meta(), redactor=Redactor(b"k" * 32), signer=None, now=lambda: 1
    )


def test_a_finished_recording_is_printed_and_left(tmp_path: Path, capsys: Capture) -> None:
    path = sample_run.record(tmp_path / "x.agentlog")
    assert run(["tail", str(path)]) == 0
    told = capsys.readouterr().out
    assert "  0.055 -- file   M billing/retry.py  +3 -1" in told
    assert " -- exit   pytest -x tests/billing " in told
    assert told.splitlines()[-1].startswith("1 gap: ")


def test_json_is_one_object_per_line_and_takes_a_filter(tmp_path: Path, capsys: Capture) -> None:
    path = sample_run.record(tmp_path / "x.agentlog")
    assert run(["tail", "--json", str(path), "kind:net"]) == 0
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["type"] for one in objects] == ["net.connect", "net.connect", "net.listen"]


def test_a_torn_recording_ends_with_saying_so(tmp_path: Path, capsys: Capture) -> None:
    path = sample_run.record(tmp_path / "x.agentlog", close=False)
    assert run(["tail", str(path)]) == 0
    assert "torn: the recorder ended without closing the file" in capsys.readouterr().out


def test_rows_come_while_the_file_is_written_and_it_ends_with_the_run(tmp_path: Path) -> None:
    path = tmp_path / "x.agentlog"
    recorder = begun(path)
    run_items = sample_run.items()
    sample_run.put(recorder, run_items[:10])
    recorder.commit()
    with Reader.open(path) as reader:
        rows = follow(reader)
        first = []
        while (row := next(rows)) is not None:
            first.append(row.seq)
        assert first == list(range(1, recorder.count + 1))
        sample_run.put(recorder, run_items[10:])
        recorder.commit()
        second = []
        while (row := next(rows)) is not None:
            second.append(row.seq)
        assert second == list(range(first[-1] + 1, recorder.count + 1))
        closing = threading.Thread(target=recorder.close)
        closing.start()
        assert [row for row in rows if row is not None] == []
        closing.join()
    with Reader.open(path) as reader:
        assert reader.state() == "closed"


def test_a_follower_in_another_process_does_not_keep_the_file_from_being_closed_as_one(tmp_path: Path) -> None:
    path = tmp_path / "x.agentlog"
    recorder = begun(path)
    run_items = sample_run.items()
    sample_run.put(recorder, run_items[:-2])
    recorder.commit()
    with subprocess.Popen(
        [sys.executable, "-c", FOLLOWER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == "waits\n"
        assert "agent -p" in process.stdout.readline()
        sample_run.put(recorder, run_items[-2:])
        recorder.close()
        rest, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert "the run is over: exit 0" in rest
    assert sorted(item.name for item in tmp_path.iterdir()) == ["x.agentlog"]
