"""`agentwrap report`: which form, where to, and with which exit status."""

import hashlib
import json
from pathlib import Path

import pytest
from mcp_story import Story
from recordings import make

from agentwrap.cli.main import run
from agentwrap.evidence.report.review import row_digest
from agentwrap.export.reports import FORMATS
from agentwrap.recording.reader import Reader

Capture = pytest.CaptureFixture[str]
KEY = ["--key", str(make.FOLDER / "samples.pub")]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    story = Story()
    story.fine()
    story.denied()
    return story.write(tmp_path / "good.agentlog")


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    story = Story()
    story.decide(story.begin("push"), "deny", "push")
    return story.write(tmp_path / "bad.agentlog")


def test_lines_on_a_terminal_tell_each_control_and_its_exceptions(bad: Path, capsys: Capture) -> None:
    assert run(["report", *KEY, str(bad)]) == 0
    out = capsys.readouterr().out
    assert "pass           1. The recording is complete and unaltered" in out
    assert "broken       it was denied, and it went on: github push  event" in out
    assert "evidence for" not in out
    assert run(["report", *KEY, "--full", str(bad)]) == 0
    assert "evidence for NIST SP 800-53 rev. 5: AU-9" in capsys.readouterr().out


def test_exceptions_that_are_alike_are_told_three_times_and_counted(tmp_path: Path, capsys: Capture) -> None:
    story = Story()
    for _ in range(9):
        story.decide(story.begin("push"), "deny", "push")
    path = story.write(tmp_path / "r.agentlog")
    assert run(["report", *KEY, str(path)]) == 0
    out = capsys.readouterr().out
    assert (out.count("it was denied, and it went on"), out.count("and 6 more like it")) == (3, 2)
    assert run(["report", *KEY, "--full", str(path)]) == 0
    assert capsys.readouterr().out.count("it was denied, and it went on") == 9


def test_json_has_the_hash_of_the_file_and_of_each_row_that_an_exception_names(bad: Path, capsys: Capture) -> None:
    assert run(["report", *KEY, "--json", str(bad)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["recording"]["sha256"] == hashlib.sha256(bad.read_bytes()).hexdigest()
    (control,) = [one for one in document["controls"] if one["id"] == "decided"]
    assert (control["outcome"], control["population"], control["broken"]) == ("fail", 1, 1)
    events = control["exceptions"][0]["events"]
    with Reader.open(bad) as reader:
        leaves = dict(reader.connection.execute("SELECT seq, leaf FROM event"))
        assert row_digest(reader, 10_000) == ""
    assert events
    assert [one["sha256"] for one in events] == [leaves[one["seq"]].hex() for one in events]
    assert "nist-sp-800-53" in control["evidence_for"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_form_goes_to_standard_output_and_into_a_new_file(
    good: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], name: str
) -> None:
    assert run(["report", *KEY, "--format", name, str(good)]) == 0
    printed = capsysbinary.readouterr().out
    target = tmp_path / "report"
    assert run(["report", *KEY, "--format", name, "-o", str(target), str(good)]) == 0
    assert target.read_bytes() == printed != b""
    assert target.stat().st_mode & 0o077 == 0
    assert run(["report", *KEY, "--format", name, "-o", str(target), str(good)]) == 2


@pytest.mark.parametrize(
    ("asked", "of_good", "of_bad", "of_unsigned"),
    [((), 0, 0, 0), (("fail",), 0, 1, 0), (("cannot-tell",), 0, 0, 3), (("fail", "cannot-tell"), 0, 1, 3)],
)
def test_the_exit_status_is_what_was_asked_to_fail_on(
    good: Path, bad: Path, tmp_path: Path, asked: tuple[str, ...], of_good: int, of_bad: int, of_unsigned: int
) -> None:
    options = [word for one in asked for word in ("--fail-on", one)]
    assert run(["report", *KEY, *options, str(good)]) == of_good
    assert run(["report", *KEY, *options, str(bad)]) == of_bad
    story = Story()
    story.fine()
    unsigned = story.write(tmp_path / "unsigned.agentlog", signed=False)
    assert run(["report", *KEY, *options, str(unsigned)]) == of_unsigned


def test_what_is_no_recording_is_an_error(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "x.agentlog").write_bytes(b"no")
    assert run(["report", str(tmp_path / "x.agentlog")]) == 2
    assert run(["report", str(tmp_path / "none.agentlog")]) == 2
    assert run(["report", "--full", "--format", "md", str(tmp_path / "x.agentlog")]) == 2
