"""The demo, in full, as a person starts it: as oneself, as a plain user, and where nothing can be confined."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import RunAs
from containers import Container

DEMO = [sys.executable, "-m", "agentwrap", "demo"]
TOLD = (
    "push         denied  mcp.deny `forge push` (policy.toml:13)",
    "merge        held, then allowed by dana",
    "merge        held, then allowed by alex",
    "intact  run.agentlog",
    "fail           4. Nobody approved their own agent",
    "whom the agent acts for gave it: alex",
    "fail           6. Tool definitions are unchanged without review",
    "it changed, and no policy pins what it is now: forge list_issues",
    "tampered at event",
    "fail           1. The recording is complete and unaltered",
)


def as_it_should_be(done: "subprocess.CompletedProcess[str]") -> None:
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    at = 0
    for one in TOLD:
        at = done.stdout.find(one, at)
        assert at >= 0, (one, done.stdout)


def test_the_demo_shows_what_it_says_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = subprocess.run(DEMO, capture_output=True, text=True, timeout=300)
    as_it_should_be(done)
    assert list(tmp_path.iterdir()) == []


def test_the_demo_is_for_anybody(plain_user: RunAs) -> None:
    as_it_should_be(plain_user(DEMO, timeout=300))


def test_what_is_kept_can_be_read_again(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    as_it_should_be(subprocess.run([*DEMO, "--keep", kept], capture_output=True, text=True, timeout=300))
    files = ("run.agentlog", "tampered.agentlog", "demo.pub", "policy.toml", "agent.py", "server.py", ".mcp.json")
    assert {path.name for path in kept.iterdir()} == set(files)
    argv = [sys.executable, "-m", "agentwrap", "report", "--fail-on", "fail", "--key", "demo.pub", "run.agentlog"]
    assert subprocess.run(argv, cwd=kept, capture_output=True, text=True, timeout=300).returncode == 1
    again = subprocess.run([*DEMO, "--keep", kept], capture_output=True, text=True, timeout=300)
    assert (again.returncode, "the folder is already there" in again.stderr) == (2, True)


@pytest.mark.container
@pytest.mark.parametrize("profile", ["docker", "no-ptrace", "drop-all"])
def test_the_demo_runs_in_containers(container: Callable[[str], Container], profile: str) -> None:
    as_it_should_be(container(profile).run(DEMO))
