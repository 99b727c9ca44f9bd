import json
from pathlib import Path

import pytest
import sample_run

from agentwrap.cli.main import run

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("options", "status", "closing"),
    [
        ([], 3, "not covered: file-write could have held things that are not in the recording; 1 denial recorded"),
        (["--require", "exec"], 0, "covered: what was required could be seen from start to end"),
        (["--require", "exec", "--fail-on-deny"], 1, "violated: 1 denial recorded"),
        (["--require", "exec:wall"], 3, "not covered: exec could have held"),
        (["--require", "model"], 3, "not covered: model could have held"),
    ],
)
def test_the_verdict_has_three_values(
    tmp_path: Path, capsys: Capture, options: list[str], status: int, closing: str
) -> None:
    path = sample_run.record(tmp_path / "x.agentlog")
    assert run(["check", str(path), *options]) == status
    assert capsys.readouterr().out.splitlines()[-1].startswith(closing)
    assert run(["check", "--json", str(path), *options]) == status
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == {0: "covered", 1: "violated", 3: "not covered"}[status]


def test_a_torn_recording_covers_nothing(tmp_path: Path, capsys: Capture) -> None:
    path = sample_run.record(tmp_path / "x.agentlog", close=False)
    assert run(["check", str(path), "--require", "exec"]) == 3
    assert "the recording is torn: its end was not recorded" in capsys.readouterr().out


def test_without_denials_and_gaps_it_is_clean(tmp_path: Path, capsys: Capture) -> None:
    run_without = [item for item in sample_run.items() if type(item).__name__ not in ("Gap", "ProcessDenied")]
    path = sample_run.record(tmp_path / "x.agentlog", run_without)
    assert run(["check", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("clean and covered: ")


def test_a_requirement_that_cannot_be_read_marks_the_word(capsys: Capture) -> None:
    assert run(["check", "--require", "exec,fle"]) == 2
    assert "  exec,fle\n       ^^^ there is no kind" in capsys.readouterr().err
