"""The three commands around a file, as a person uses them: words, exit statuses, and errors with a hint."""

import json
import os
from pathlib import Path

import pytest
from recordings import make

from agentwrap.cli.main import run
from agentwrap.recording.places import key_paths

Capture = pytest.CaptureFixture[str]
SAMPLES = make.FOLDER
KEY = ["--key", str(SAMPLES / "samples.pub")]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "word", "status"),
    [("good", "intact", 0), ("tampered", "tampered at event 8", 1), ("torn", "torn", 4), ("shape-only", "intact", 0)],
)
def test_one_word_and_its_status(capsys: Capture, name: str, word: str, status: int) -> None:
    path = SAMPLES / f"{name}.agentlog"
    assert run(["verify", *KEY, str(path)]) == status
    assert capsys.readouterr().out.startswith(f"{word}  {path}\n")
    assert run(["verify", "--json", *KEY, str(path)]) == status
    document = json.loads(capsys.readouterr().out)
    assert (document["verdict"], document["events"]) == (word.split(maxsplit=1)[0], 12)
    assert {check["name"] for check in document["checks"]} >= {"structure", "events", "spans", "contents", "bytes"}


def test_truncated_and_unsigned_have_statuses_of_their_own(tmp_path: Path, capsys: Capture) -> None:
    cut = make.edit(make.closed(tmp_path / "cut.agentlog"), "DELETE FROM event WHERE seq > 9")
    assert run(["verify", *KEY, str(cut)]) == 5
    assert run(["verify", str(make.closed(tmp_path / "u.agentlog", signed=False))]) == 6
    assert "nobody has signed it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "the file is empty"), (b"x" * 200, "no SQLite header"), (None, "no such recording")]
)
def test_what_is_no_recording_is_two(tmp_path: Path, capsys: Capture, content: bytes | None, said: str) -> None:
    path = tmp_path / "x.agentlog"
    if content is not None:
        path.write_bytes(content)
    assert run(["verify", str(path)]) == 2
    assert said in capsys.readouterr().err
    assert run(["verify", str(SAMPLES / "from-the-future.agentlog")]) == 2
    assert "hint: upgrade agentwrap" in capsys.readouterr().err
    assert run(["verify", str(tmp_path)]) == 2
    assert "a directory" in capsys.readouterr().err


def test_a_head_kept_elsewhere_is_an_anchor(tmp_path: Path, capsys: Capture) -> None:
    good = SAMPLES / "good.agentlog"
    assert run(["verify", "--head", *KEY, str(good)]) == 0
    head = capsys.readouterr().out
    (tmp_path / "head").write_text(head)
    assert run(["verify", *KEY, "--anchor", str(tmp_path / "head"), str(good)]) == 0
    assert run(["verify", *KEY, "--anchor", head, str(good)]) == 0
    assert "consistent with the anchor at 12 events" in capsys.readouterr().out
    assert run(["verify", *KEY, "--anchor", str(tmp_path / "none"), str(good)]) == 2
    assert run(["verify", *KEY, "--anchor", "/dev/zero", str(good)]) == 2
    (tmp_path / "head").write_text("hello")
    assert run(["verify", *KEY, "--anchor", str(tmp_path / "head"), str(good)]) == 2


def test_the_own_key_is_the_default(tmp_path: Path, capsys: Capture) -> None:
    path = SAMPLES / "good.agentlog"
    assert run(["verify", str(path)]) == 6
    assert run(["keygen"]) == 0
    private, public = key_paths(os.environ)
    assert (private.stat().st_mode & 0o777, public.exists()) == (0o600, True)
    assert str(public) in capsys.readouterr().out
    assert run(["verify", str(path)]) == 6
    assert "signed by another key" in capsys.readouterr().out
    public.write_bytes((SAMPLES / "samples.pub").read_bytes())
    assert run(["verify", str(path)]) == 0
    assert run(["keygen"]) == 2
    assert "there is a signing key already" in capsys.readouterr().err


def test_keygen_for_programs(capsys: Capture) -> None:
    assert run(["keygen", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert Path(document["public_key"]).read_text().split()[-1] == document["public"]


def test_a_snapshot_verifies(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "copy.agentlog"
    assert run(["snapshot", str(SAMPLES / "good.agentlog"), str(out)]) == 0
    assert capsys.readouterr().out == f"12 events  {out}\n"
    assert run(["verify", *KEY, str(out)]) == 0
    assert run(["snapshot", str(SAMPLES / "good.agentlog"), str(out)]) == 2
    assert "already there" in capsys.readouterr().err
    assert run(["snapshot", "a", "b", "c"]) == 2
