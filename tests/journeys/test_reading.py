"""Every reading command on every committed sample, as a user starts it: one clear answer, no fault, nothing unsafe."""

import json
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

SAMPLES = Path(__file__).resolve().parent.parent / "recordings"
READABLE = ("good", "torn", "tampered", "shape-only")
VIEWS = (
    *("", "--all", "--tree", "--files", "--diff", "--errors", "--denied", "--gaps", "--json", "--utc"),
    *("-n 1", "kind:file"),
)


def agentwrap(*words: object, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "agentwrap", *map(str, words)], capture_output=True, text=True, timeout=300, cwd=cwd
    )


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """The samples, copied: a reader must not be able to change the committed ones."""
    shutil.copytree(SAMPLES, tmp_path / "samples", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    return tmp_path / "samples"


@pytest.mark.parametrize("name", READABLE)
def test_show_answers_in_every_view(sample: Path, name: str) -> None:
    for view in VIEWS:
        done = agentwrap("show", sample / f"{name}.agentlog", *view.split())
        assert (done.returncode, done.stderr) == (0, ""), view
        assert done.stdout
        assert not any(unicodedata.category(c) in ("Cf", "Cs", "Zl", "Zp") for c in done.stdout)
        assert not any(unicodedata.category(c) == "Cc" and c not in "\n\t" for c in done.stdout)
        if view == "--json":
            assert json.loads(done.stdout)["schema"] == 1


@pytest.mark.parametrize("name", READABLE)
def test_tail_export_and_check_answer(sample: Path, name: str) -> None:
    path = sample / f"{name}.agentlog"
    assert agentwrap("tail", path).returncode == 0
    lines = agentwrap("export", "--jsonl", path).stdout.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert agentwrap("tail", "--json", path).stdout.splitlines() == lines
    checked = agentwrap("check", "--json", path, "--require", "exec")
    assert checked.returncode == (3 if name == "torn" else 0)
    assert json.loads(checked.stdout)["coverage"][0]["what"] == "exec"


def test_a_file_from_the_future_is_refused_by_all(sample: Path) -> None:
    for command in ("show", "tail", "export --jsonl", "check"):
        done = agentwrap(*command.split(), sample / "from-the-future.agentlog")
        assert done.returncode == 2
        assert done.stderr.startswith("error: written by a newer agentwrap\n\n")


def test_reading_changes_nothing(sample: Path) -> None:
    def contents() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sample.iterdir() if not path.name.endswith("-shm")}

    before = contents()
    for name in READABLE:
        for command in ("show --all", "tail", "export --jsonl", "check"):
            agentwrap(*command.split(), sample / f"{name}.agentlog")
    assert contents() == before


def test_a_reading_command_loads_only_what_it_needs(sample: Path) -> None:
    code = (
        "import sys; from agentwrap.cli.main import run; status = run(sys.argv[1:])\n"
        "heavy = {'trio', 'pyroute2', 'cryptography', 'psutil', 'ptrace', 'asyncio', 'subprocess', 'email', 'http'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "assert status in (0, 3), status"
    )
    for command in ("show", "show --tree", "show --gaps", "tail", "export --jsonl", "check"):
        done = subprocess.run(
            [sys.executable, "-c", code, *command.split(), sample / "good.agentlog"], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, ""), command
