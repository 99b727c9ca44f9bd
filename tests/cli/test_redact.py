"""`agentwrap redact` as a person uses it: values from where nobody reads them, a copy that verifies, clear refusals."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from recordings import make

from agentwrap.cli.main import run
from agentwrap.recording import keys
from agentwrap.recording.places import key_paths
from agentwrap.recording.reader import Reader

Capture = pytest.CaptureFixture[str]
GOOD = make.FOLDER / "good.agentlog"
MODEL = make.FOLDER / "model.agentlog"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))


@pytest.fixture
def signing() -> Path:
    private, public = key_paths(os.environ)
    keys.generate(private, public)
    return public


def test_a_value_from_a_variable_is_gone_and_the_copy_is_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, signing: Path
) -> None:
    out = str(tmp_path / "out.agentlog")
    monkeypatch.setenv("OLD_NAME", "notes.txt")
    assert b"notes.txt" in GOOD.read_bytes()
    assert run(["redact", str(GOOD), out, "--value-env", "OLD_NAME"]) == 0
    assert capsys.readouterr().out == f"12 events, 3 of them and 0 contents are others now  {out}\n"
    assert b"notes.txt" not in Path(out).read_bytes()
    assert run(["verify", "--key", str(signing), out]) == 0
    assert "intact" in capsys.readouterr().out
    assert run(["show", out]) == 0
    with Reader.open(Path(out)) as reader:
        assert json.loads(reader.meta["redacted_rules"])["values"] == 1
        assert reader.meta["redacted_from_run_id"] == "5a3b1e0c"
        assert reader.meta["redacted_from_verdict"] == "unsigned"


def test_values_from_standard_input(tmp_path: Path) -> None:
    out = tmp_path / "out.agentlog"
    command = [sys.executable, "-m", "agentwrap", "redact", str(MODEL), str(out), "--values", "-", "--json"]
    done = subprocess.run(command, input=b"missing test\r\n\ncareful\n", capture_output=True, timeout=300, check=True)
    told = json.loads(done.stdout)
    assert (told["schema"], told["events"], told["file"]) == ("agentwrap.redact/1", 23, str(out))
    assert told["changed_contents"] == 2
    data = out.read_bytes()
    assert b"careful" in MODEL.read_bytes()
    assert b"careful" not in data
    assert b"missing test" not in data
    assert run(["verify", str(out)]) == 6


def test_patterns_keys_and_names(tmp_path: Path) -> None:
    out = tmp_path / "out.agentlog"
    words = ["--pattern", r"request-id|toolu_\d", "--json-key", "max_tokens", "--name", "content_type"]
    assert run(["redact", str(MODEL), str(out), *words]) == 0
    data = out.read_bytes()
    for gone in (b"toolu_1", b'"max_tokens":1000', b"text/event-stream"):
        assert gone in MODEL.read_bytes()
        assert gone not in data


def test_bodies_can_go(tmp_path: Path) -> None:
    out = tmp_path / "out.agentlog"
    assert run(["redact", str(MODEL), str(out), "--drop-bodies"]) == 0
    assert b"message_start" not in out.read_bytes()
    assert run(["rebuild", "m1", str(out)]) == 2
    assert run(["verify", str(out)]) == 6


@pytest.mark.parametrize("value", ["", "abc"])
def test_a_value_that_is_too_short_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, value: str
) -> None:
    monkeypatch.setenv("SHORT", value)
    assert run(["redact", str(GOOD), str(tmp_path / "o"), "--value-env", "SHORT"]) == 2
    assert "fewer than 4 bytes" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--value-env", "NOT_SET_ANYWHERE"], "no such variable"),
        (["--values", "/nonexistent/file"], "cannot be read"),
        (["--pattern", "a("], "not a regular expression"),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, capsys: Capture, words: list[str], said: str) -> None:
    assert run(["redact", str(GOOD), str(tmp_path / "o"), *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_a_changed_recording_is_not_washed_clean(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "o"
    assert run(["redact", str(make.FOLDER / "tampered.agentlog"), str(out)]) == 2
    cut = make.edit(make.closed(tmp_path / "cut.agentlog"), "DELETE FROM event WHERE seq > 9")
    assert run(["redact", str(cut), str(out)]) == 2
    assert capsys.readouterr().err.count("error: the recording is") == 2
    assert not out.exists()


def test_a_torn_one_is_said_to_be(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "o"
    assert run(["redact", str(make.FOLDER / "torn.agentlog"), str(out)]) == 0
    assert "torn" in capsys.readouterr().err
    with Reader.open(out) as reader:
        assert (reader.meta["redacted_from_state"], reader.meta["redacted_from_verdict"]) == ("torn", "torn")
    assert run(["redact", str(GOOD), str(out)]) == 2
    assert "already there" in capsys.readouterr().err
