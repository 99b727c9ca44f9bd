"""A recording sent by the command line, and a run that is sent while it goes on."""

import os
import subprocess
import threading
from pathlib import Path

import model_run
import pytest
import sample_run
from otlp_receiver import Receiver, partial, receiver
from patient_sender import PATIENT
from wrapping import AGENTWRAP

from agentwrap.cli.main import run
from agentwrap.delivery.otlp_http import Sender

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver on a slow machine has not failed: what it has is not sent again."""
    monkeypatch.setitem(Sender.__init__.__kwdefaults__, "timeout_s", 300.0)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return sample_run.record(tmp_path / "x.agentlog", model_run.items())


def test_a_recording_is_sent(recording: Path, capsys: Capture) -> None:
    with receiver() as there:
        assert run(["export", str(recording), "--otlp", "--to", there.url, "--header", "x-key=k"]) == 0
    assert there.heads[0][1]["x-key"] == "k"
    assert "chat claude-sonnet-4-5" in there.trace().names
    assert capsys.readouterr().err == f"agentwrap sent 1 request to {there.url}/v1/traces\n"


def test_what_is_sent_is_what_is_written(recording: Path, tmp_path: Path) -> None:
    for options in ([], ["--no-content"], ["kind:process"]):
        target = tmp_path / f"out{len(options)}{options[:1]}"
        with receiver() as there:
            assert run(["export", str(recording), "--to", there.url, *options]) == 0
        assert run(["export", str(recording), "--otlp", "-o", str(target), *options]) == 0
        assert b"".join(there.bodies) == target.read_bytes() != b""


def test_rejected_spans_are_a_finding(recording: Path, capsys: Capture) -> None:
    with receiver(partial(2, "too \x1b[31mold")) as there:
        assert run(["export", str(recording), "--to", there.url]) == 1
    said = capsys.readouterr().err
    assert "the server rejected 2 spans: too " in said
    assert "\x1b" not in said


def test_a_refusal_is_an_error(recording: Path, capsys: Capture) -> None:
    with receiver((401, {}, b"who are you")) as there:
        assert run(["export", str(recording), "--to", there.url]) == 2
    assert "401 who are you" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--jsonl", "--to", "http://x"], ["--to", "http://x", "-o", "f"], ["--header", "a=b"], ["--no-content"],
              ["--to", "x"]],
)  # fmt: skip
def test_what_cannot_be_is_said(recording: Path, words: list[str], capsys: Capture) -> None:
    assert run(["export", str(recording), *words]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def wrapped(
    tmp_path: Path, url: str, *command: str, options: tuple[str, ...] = (), agentwrap: tuple[str, ...] = PATIENT
) -> subprocess.Popen[bytes]:
    words = [*agentwrap, "run", "-o", str(tmp_path / "run.agentlog"), "--otlp", url, *options, "--", *command]
    return subprocess.Popen(words, stderr=subprocess.PIPE, env={**os.environ, "HOME": str(tmp_path)})


def finished(there: Receiver, name: str) -> bool:
    return any(span.name == name for span in there.trace().spans)


def test_spans_arrive_while_the_run_goes_on(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    with receiver() as there:
        process = wrapped(tmp_path, there.url, "sh", "-c", f"/bin/true; cat {tmp_path}/go")
        assert there.wait_for(lambda: finished(there, "process true"))
        assert process.poll() is None
        assert not finished(there, "process cat")
        (tmp_path / "go").write_text("")
        _, said = process.communicate(timeout=300)
    assert process.returncode == 0
    assert b"not every span" not in said
    trace = there.trace()
    assert len(trace.by_id) == len(trace.spans)
    assert trace.above(trace.one("process cat")) == ["process sh", "run sh"]
    target = tmp_path / "later.pb"
    assert run(["export", str(tmp_path / "run.agentlog"), "--otlp", "-o", str(target)]) == 0
    there.bodies = [target.read_bytes()]
    assert there.trace().by_id.keys() == trace.by_id.keys()


def test_a_server_that_is_not_there_costs_a_line(tmp_path: Path) -> None:
    process = wrapped(tmp_path, "http://127.0.0.1:1", "sh", "-c", "exit 3")
    _, said = process.communicate(timeout=300)
    assert process.returncode == 3
    told = [line for line in said.decode().splitlines() if "not every span was delivered" in line]
    assert len(told) == 1
    assert "Connection refused" in told[0]
    assert "agentwrap export --otlp --to http://127.0.0.1:1/v1/traces" in told[0]


def test_a_server_that_hangs_holds_nothing_up(tmp_path: Path) -> None:
    with receiver() as there:
        there.held = threading.Event()
        process = wrapped(tmp_path, there.url, "sh", "-c", "exit 4", options=("-q",), agentwrap=AGENTWRAP)
        _, said = process.communicate(timeout=300)
        there.held.set()
    assert process.returncode == 4
    assert said == b""


def test_a_wrong_address_is_told_before_the_run(tmp_path: Path) -> None:
    process = wrapped(tmp_path, "ftp://x", "touch", str(tmp_path / "made"))
    _, said = process.communicate(timeout=300)
    assert process.returncode == 125
    assert said.startswith(b"error: `ftp://x` is no address")
    assert not (tmp_path / "made").exists()
