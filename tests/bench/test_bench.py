"""The benchmarks run, and refuse to time a recording that does not hold what the workload did. No time is asserted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]
HERE = Path(__file__).resolve().parent


def bench(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, HERE / "run.py", "--quick", "--folder", folder, *arguments],
        capture_output=True,
        text=True,
        timeout=3600,
        env={name: value for name, value in os.environ.items() if name != "AGENTWRAP_LAB"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_quick_run_writes_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    parts = "true,python,files,agents,recorder,memory"
    bench(tmp_path, "--only", parts, "--ways", "native,agentwrap", "-o", str(page))
    text = page.read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert [row for row in rows if "3 Python start-ups" in row and "x" in row]
    assert [row for row in rows if "200 x create" in row and "x" in row]
    assert [row for row in rows if "claude" in row and "skipped" in row]
    assert [row for row in rows if "while 2" in row and "rows were made" in row]  # 200 files are 200 rows and a few


def test_the_recording_of_a_workload_holds_what_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    import measure
    import ways
    import workloads

    files = next(one for one in workloads.all_workloads() if one.name == "files")
    wrapped = next(way for way in ways.ways([sys.executable, "-m", "agentwrap"]) if way.records)
    _, found = measure.once(files, 30, wrapped, tmp_path)
    # Made and removed: one row each, and one more where a file was looked at in between.
    assert 30 <= found["file.edit"] <= 60
    with pytest.raises(measure.TooFewRowsError, match=r"file\.edit, at least 61"):
        measure.demand(files, 61, found)


@pytest.mark.skipif(os.geteuid() != 0, reason="the bench's networks and their wire take root to make")
def test_a_quick_run_of_the_confined_parts(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    bench(tmp_path, "--only", "gateway,starts-confined", "-o", str(page))
    traffic, starts = page.read_text().split("## Start-up, confined")
    for way in ("direct", "agentwrap wall", "agentwrap guard", "gateway alone"):
        assert "µs" in row(traffic, way)
    for way in ("agentwrap wall", "agentwrap guard"):
        assert row(starts, way).split("|")[2].strip() == "yes"
        assert row(starts, way).count(" ms") == 4
    for peer in ("pasta", "slirp4netns"):
        assert "µs" in row(traffic, peer) or "missing: " in row(traffic, peer)
    for peer in ("srt", "sandlock", "bwrap (no network)", "firejail (no network)"):
        assert " ms" in row(starts, peer) or "missing: " in row(starts, peer)


def row(text: str, first: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"| {first} |"))


def test_a_quick_run_of_the_relay(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    bench(tmp_path, "--only", "mcp", "-o", str(page))
    text = page.read_text()
    for way in ("agentwrap's relay alone", "agentwrap run", "agentwrap run, with rules"):
        assert row(text, way).count(" ms") == 3
