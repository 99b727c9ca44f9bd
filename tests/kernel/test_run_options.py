"""What `run` says and refuses: requirements, the two lines, the stream, signatures, secrets, the shape alone."""

import base64
import os
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest
from wrapping import AGENTWRAP, environment, wrap

SECRET = 'k3y-"Zx81/+qPvT&9w'


def _agentwrap(home: Path, *words: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run([*AGENTWRAP, *words], capture_output=True, env=environment(home), cwd=home)


def test_a_requirement_that_cannot_be_met_stops_the_run_before_it_begins(tmp_path: Path) -> None:
    run = wrap(tmp_path, "touch", "made", options=["--require", "exec,file-read"])
    assert run.status == 3
    assert b"error: required coverage is not to be had: file-read" in run.stderr
    assert not (tmp_path / "work" / "made").exists()
    assert not run.recording.exists()


def test_a_requirement_that_is_met_changes_nothing(tmp_path: Path) -> None:
    run = wrap(tmp_path, "true", options=["--reads", "--require", "process,exec,file-write,file-read,connect"])
    assert run.status == 0


def test_witness_is_no_wall(tmp_path: Path) -> None:
    run = wrap(tmp_path, "true", options=["--require", "connect:wall|guard"])
    assert run.status == 3


def test_best_effort_goes_on_and_the_file_tells_what_is_missing(tmp_path: Path) -> None:
    run = wrap(tmp_path, "true", options=["--best-effort", "--require", "file-read"])
    assert run.status == 0
    assert _agentwrap(tmp_path, "check", str(run.recording), "--require", "file-read").returncode == 3


def test_two_lines_on_stderr_or_none(tmp_path: Path) -> None:
    run = _agentwrap(tmp_path, "--", "sh", "-c", "echo out; echo err >&2")
    assert run.stdout == b"out\n"
    lines = run.stderr.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(b"agentwrap recording to ")
    assert lines[1] == b"err"
    assert lines[2].startswith(b"agentwrap 1 process")


def test_the_stream_tells_what_happens(tmp_path: Path) -> None:
    run = _agentwrap(tmp_path, "run", "--stream", "--", "sh", "-c", "echo x > made")
    assert run.returncode == 0
    assert any(b" file   A made" in line for line in run.stderr.splitlines()), run.stderr


def test_readers_take_the_latest_recording_wherever_it_is(tmp_path: Path) -> None:
    _agentwrap(tmp_path, "run", "-q", "-o", "elsewhere.agentlog", "--", "echo", "first-mark")
    assert b"first-mark" in _agentwrap(tmp_path, "show").stdout
    _agentwrap(tmp_path, "run", "-q", "--", "echo", "second-mark")
    assert b"second-mark" in _agentwrap(tmp_path, "show").stdout


def test_with_a_key_runs_are_signed(tmp_path: Path) -> None:
    unsigned = wrap(tmp_path, "true", name="unsigned")
    assert _agentwrap(tmp_path, "verify", str(unsigned.recording)).returncode == 6
    assert _agentwrap(tmp_path, "keygen").returncode == 0
    signed = wrap(tmp_path, "true", name="signed")
    told = _agentwrap(tmp_path, "verify", str(signed.recording))
    assert told.returncode == 0, told.stdout + told.stderr


def _forms(secret: str) -> list[bytes]:
    raw = secret.encode()
    inner = [base64.b64encode(b"x" * i + raw)[4 if i else 0 : -4] for i in range(3)]
    json_escaped = secret.replace("\\", "\\\\").replace('"', '\\"').encode()
    return [raw, json_escaped, quote(secret, safe="").encode(), *inner]


@pytest.mark.parametrize("options", [(), ("--shape-only",), ("--debuggable",)])
def test_a_planted_secret_is_nowhere_in_the_file(tmp_path: Path, options: tuple[str, ...]) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "old.txt").write_text(f"it was {SECRET}\n")
    encoded = base64.b64encode(SECRET.encode()).decode()
    script = f"""
printf '%s\\n' "$API_TOKEN" > plain.txt
printf '%s\\n' "$API_TOKEN" >> old.txt
printf '%s' '{encoded}' > base64.txt
printf '%s' '{quote(SECRET, safe="")}' > url.txt
printf '%s' "{{\\"a\\": \\"k3y-\\\\\\"Zx81/+qPvT&9w\\"}}" > json.txt
mkdir "dir-{encoded.replace("/", "_")}"
/bin/echo "$API_TOKEN" '{encoded}' >/dev/null
"""
    run = wrap(tmp_path, "sh", "-c", script, options=options, env={"API_TOKEN": SECRET})
    assert run.status == 0, run.stderr
    assert (work / "plain.txt").read_text() == SECRET + "\n"
    stored = run.recording.read_bytes()
    for form in _forms(SECRET):
        assert form not in stored, form
    if not options:
        assert len({event.subject for event in run.events("file.edit")}) == 5
        assert "«redacted:".encode() in stored


def test_the_shape_alone_has_no_names_and_no_content(tmp_path: Path) -> None:
    run = wrap(tmp_path, "sh", "-c", "echo zanzibar > quagga", options=["--shape-only"])
    stored = run.recording.read_bytes()
    for word in (b"zanzibar", b"quagga", os.fsencode(tmp_path)):
        assert word not in stored
    assert run.events("file.edit")[0].data["change"] == "create"
