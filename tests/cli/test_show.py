import json
import sqlite3
from pathlib import Path

import pytest
import sample_run

from agentwrap.cli.main import run
from agentwrap.cli.reading import rows_of
from agentwrap.recording import places
from agentwrap.recording.reader import Reader
from agentwrap.recording.redact import Redactor
from agentwrap.recording.writer import Recorder

Capture = pytest.CaptureFixture[str]
FORBIDDEN = ("\x1b", "\x07", "\u202e", "\udcff")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return sample_run.record(tmp_path / "good.agentlog")


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    return sample_run.record(tmp_path / "torn.agentlog", close=False)


def shown(capsys: Capture, *words: object, status: int = 0) -> str:
    assert run(["show", *map(str, words)]) == status
    captured = capsys.readouterr()
    assert captured.err == ""
    assert not any(bad in captured.out for bad in FORBIDDEN)
    return captured.out


def test_the_stream_is_the_picture(recording: Path, capsys: Capture) -> None:
    lines = shown(capsys, recording).splitlines()
    assert lines[0].startswith("agent -p 'fix the billing tests'  20")
    assert lines[0].endswith("  4.0s  exit 0  closed")
    assert "  0.055 -- file   M billing/retry.py  +3 -1                    bash(4121) → sed(4127)" in lines
    column = "exit 1  3.1s  bash(4121) → pytest(4130)"
    assert f"  0.071 -- exec   pytest -x tests/billing                      {column}" in lines
    assert any("deny  setuid  /usr/bin/sudo  no_new_privs is set" in line for line in lines)
    assert lines[-4:] == [
        "4 processes (2 failed), at least 3 files changed, 1 host connected to",
        "1 denial (`--denied`)",
        "hidden: caches (1), library sockets (1) (`--all` shows them)",
        "1 gap: file-write over-cap (`--gaps` tells more)",
    ]


def test_the_default_leaves_noise_out_and_all_does_not(recording: Path, capsys: Capture) -> None:
    assert "/.cache/" not in shown(capsys, recording)
    everything = shown(capsys, recording, "--all")
    assert "/.cache/" in everything
    assert "hidden" not in everything
    assert everything.count(" -- ") == 33


def test_a_filter_chooses_and_says_how_much(recording: Path, capsys: Capture) -> None:
    told = shown(capsys, recording, "kind:file", "-path:*.py")
    assert "retry.py" not in told.split("\n", 2)[2].rsplit("\n", 4)[0]
    assert "5 of 33 events match `kind:file -path:*.py` and are shown" in told
    assert "1 gap: file-write over-cap" in told


def test_a_filter_that_names_a_kind_shows_what_is_else_told_elsewhere(recording: Path, capsys: Capture) -> None:
    assert shown(capsys, recording, "kind:process.exit").count(" exit   ") == 4


def test_the_limit_stops(recording: Path, capsys: Capture) -> None:
    told = shown(capsys, recording, "-n", 2)
    assert told.count(" -- ") == 2
    assert "stopped after 2 events" in told


def test_the_tree_has_every_process_once(recording: Path, capsys: Capture) -> None:
    assert shown(capsys, recording, "--tree").splitlines()[2:6] == [
        "4100 agent -p 'fix the billing tests'  exit 0  4.0s",
        "└─ 4121 bash -lc \"sed -i 's/x/y/' billing/retry.py && pytest -x\"  exit 1  3.2s",
        "   ├─ 4127 sed -i s/x/y/ billing/retry.py  exit 0  10ms  1 file",
        "   └─ 4130 pytest -x tests/billing  exit 1  3.1s  5 files  3 sockets  1 gap  1 denied",
    ]


def test_files_are_summed_by_path(recording: Path, capsys: Capture) -> None:
    lines = shown(capsys, recording, "--files").splitlines()
    assert lines[2].split() == ["M", "billing/retry.py", "+3", "-1", "sed(4127)"]
    assert any(line.startswith("R a.txt -> b.txt") for line in lines)


def test_diffs_are_unified(recording: Path, capsys: Capture) -> None:
    told = shown(capsys, recording, "--diff", "path:retry.py")
    assert "--- a/billing/retry.py\n+++ b/billing/retry.py\n@@ -3,4 +3,6 @@\n" in told
    assert "\n+        # back off\n" in told
    assert "binary: absent -> 2.1KB sha256" in shown(capsys, recording, "--diff", "path:blob.bin")


def test_errors_and_denials(recording: Path, capsys: Capture) -> None:
    errors = shown(capsys, recording, "--errors")
    assert [line.split()[2] for line in errors.splitlines() if " -- " in line] == ["proc", "exit", "exit"]
    denied = shown(capsys, recording, "--denied")
    assert "deny  setuid /usr/bin/sudo\n        who     bash(4121) → pytest(4130)\n" in denied
    assert "        why     no_new_privs is set" in denied
    assert "no denial was recorded" in shown(capsys, recording, "--denied", "kind:net")


def test_gaps_come_with_the_coverage(recording: Path, capsys: Capture) -> None:
    told = shown(capsys, recording, "--gaps")
    assert "  file-read   none     not observed; --reads was not given" in told
    assert "  model       none     not observed; no observer" in told
    assert "      could hide: the content of a large file" in told
    assert run(["show", str(recording), "--gaps", "kind:gap"]) == 2


def test_utc_tells_the_time_of_day(recording: Path, capsys: Capture) -> None:
    told = shown(capsys, recording, "--utc")
    assert "2025-11-30T03:01:12Z" in told
    assert "03:01:12.157 -- file   M billing/retry.py" in told


def test_require_is_exit_3_where_it_is_not_covered(recording: Path, capsys: Capture) -> None:
    assert "  covered     exec" in shown(capsys, recording, "--require", "exec")
    assert "  not covered file-write" in shown(capsys, recording, "--require", "exec,file-write", status=3)
    assert run(["show", str(recording), "--require", "nope"]) == 2


def test_json_is_one_document(recording: Path, capsys: Capture) -> None:
    document = json.loads(shown(capsys, recording, "--json"))
    assert document["schema"] == 1
    assert document["state"] == "closed"
    assert [event["seq"] for event in document["events"]] == list(range(1, 34))
    assert document["events"][12]["ts"] == "2025-11-30T03:01:12.157345678Z"
    assert [gap["cause"] for gap in document["gaps"]] == ["over-cap"]
    assert {span["id"] for span in document["spans"]} == {"run", "p1", "p2", "p3", "p4"}
    denied = json.loads(shown(capsys, recording, "--json", "--denied", "--require", "file-write", status=3))
    assert [event["type"] for event in denied["events"]] == ["process.denied"]
    assert denied["check"]["verdict"] == "not covered"


def test_a_torn_file_says_so(torn: Path, capsys: Capture) -> None:
    told = shown(capsys, torn)
    assert "torn: the recorder ended without closing the file" in told
    assert "end not seen" in told


def test_without_a_file_the_latest_is_meant(own_places: Path, capsys: Capture) -> None:
    assert run(["show"]) == 2
    assert "there is no recording yet" in capsys.readouterr().err
    folder = places.recordings_dir({"XDG_STATE_HOME": str(own_places / "state")})
    folder.mkdir(parents=True)
    sample_run.record(folder / "agent-20260101-000000-0000.agentlog")
    assert "billing" in shown(capsys)
    assert "billing" in shown(capsys, "kind:file")
    assert "billing" in shown(capsys, "billing")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.mkdir(), "not a recording"),
        (lambda path: path.write_bytes(b""), "not a recording"),
        (lambda path: path.write_bytes(b"x" * 5000), "not a recording"),
        (lambda path: sqlite3.connect(path).execute("create table t(x)").connection.close(), "not a recording"),
        (lambda _path: None, "no such recording"),
    ],
)
@pytest.mark.parametrize("command", ["show", "tail", "check", "export --jsonl"])
def test_what_is_no_recording_is_one_clear_error(
    tmp_path: Path, capsys: Capture, make: object, message: str, command: str
) -> None:
    path = tmp_path / "x.agentlog"
    make(path)  # type: ignore[operator]
    assert run([*command.split(), str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: {message}")


def test_a_recording_from_the_future_is_refused_politely(recording: Path, capsys: Capture) -> None:
    with recording.open("r+b") as file:
        file.seek(60)
        file.write((99).to_bytes(4, "big"))
    assert run(["show", str(recording)]) == 2
    assert "newer" in capsys.readouterr().err


def test_shape_only_shows_no_content(tmp_path: Path, capsys: Capture) -> None:
    path = sample_run.record(tmp_path / "shape.agentlog", shape_only=True)
    for view in ("--all", "--tree", "--files", "--diff", "--errors", "--gaps"):
        told = shown(capsys, path, view)
        assert "billing" not in told
        assert "back off" not in told


@pytest.mark.parametrize(
    "change",
    [
        "update event set at_ns = 'soon' where seq = 9",
        "update event set data = '[]' where seq = 9",
        "update event set data = x'ff' where seq = 9",
        "update event set data = '{' where seq = 9",
        "update event set subject = x'ff00' where seq = 9",
        "update event set kind = x'ff' where seq = 9",
        "update span set name = x'ff' where id = 'p1'",
        "update span set data = '3' where id = 'p1'",
        "drop table span",
        "drop table event",
    ],
)
@pytest.mark.parametrize("command", ["show --all", "tail --all"])
def test_a_file_changed_by_hand_is_one_clear_error(recording: Path, capsys: Capture, change: str, command: str) -> None:
    connection = sqlite3.connect(recording)
    connection.execute(change)
    connection.commit()
    connection.close()
    assert run([*command.split(), str(recording)]) == 2
    assert capsys.readouterr().err.startswith("error: the recording is damaged")


@pytest.mark.parametrize("where", [3, 40, 150, 4096, 8192 + 8, 20_000])
def test_bytes_changed_by_hand_never_end_in_a_fault(recording: Path, capsys: Capture, where: int) -> None:
    content = bytearray(recording.read_bytes())
    for offset in range(where, min(where + 600, len(content)), 7):
        content[offset] ^= 0x5A
    recording.write_bytes(content)
    for view in ("--all", "--tree", "--files", "--diff", "--gaps", "--json"):
        assert run(["show", str(recording), view]) in (0, 2)
        assert "internal fault" not in capsys.readouterr().err


def test_a_reader_that_waits_for_its_pager_does_not_keep_the_file_from_being_closed(tmp_path: Path) -> None:
    path = tmp_path / "x.agentlog"
    recorder = Recorder.create(
        path, run_id="ab" * 8, meta=sample_run.meta(), redactor=Redactor(b"k" * 32), signer=None, now=lambda: 1
    )
    sample_run.put(recorder, sample_run.items() * 300)
    recorder.commit()
    with Reader.open(path) as waiting:
        rows = rows_of(waiting)
        next(rows)
        recorder.close()
        wal = tmp_path / "x.agentlog-wal"
        assert not wal.exists() or wal.stat().st_size == 0
        assert sum(1 for _ in rows) == recorder.count - 1
