"""Runs a program bare and wrapped in two equal folders, so that a test can compare what came out and what was left."""

import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from wrapping import Wrapped, environment, wrap

from agentwrap.recording.reader import Reader
from agentwrap.views import noise, passing


def need(*programs: str) -> None:
    """Skip, saying why, where a program is not installed."""
    for program in programs:
        if shutil.which(program, path=environment(Path("/"))["PATH"]) is None:
            pytest.skip(f"{program} is not installed")


def installed(folder: Path, install: Callable[[Path], list[str]], what: str) -> Path:
    """`folder`, filled by the command that `install` makes of a place: once, and whole or not at all.

    Skips where it cannot be had. Another run of the tests may be at it at the same time, or have been killed at it.
    """
    if not folder.is_dir():
        made = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
        done = subprocess.run(install(made), capture_output=True)
        if done.returncode:
            shutil.rmtree(made)
            pytest.skip(f"{what} cannot be installed: {done.stderr.decode().strip()[-200:]}")
        try:
            made.rename(folder)
        except OSError:
            shutil.rmtree(made)  # somebody else was first
    return folder


@dataclass(frozen=True)
class Pair:
    """The same command bare and wrapped, each in a folder `work` of its own below a folder of the same length."""

    bare: "subprocess.CompletedProcess[bytes]"
    bare_work: Path
    run: Wrapped
    work: Path

    def same(self, *, ignore: Sequence[str] = (), blur: str = "") -> None:
        """Status, output and the files left are the same; `blur` is a pattern of what differs from run to run.

        `ignore`: paths (below the folder) whose contents may differ, such as archives with dates.
        """
        for ours, theirs in ((self.run.stdout, self.bare.stdout), (self.run.stderr, self.bare.stderr)):
            assert _plain(ours, self.work, blur) == _plain(theirs, self.bare_work, blur)
        assert self.run.status == self.bare.returncode
        assert _files(self.work, ignore) == _files(self.bare_work, ignore)


def _plain(text: bytes, folder: Path, blur: str) -> list[str]:
    shown = text.decode("utf-8", "backslashreplace").replace(str(folder.parent), "FOLDER")
    return (re.sub(blur, "~", shown) if blur else shown).splitlines()


def _files(folder: Path, ignore: Sequence[str]) -> dict[str, tuple[int, bytes]]:
    found: dict[str, tuple[int, bytes]] = {}
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(where, name)
            inside = str(path.relative_to(folder))
            status = path.lstat()
            content = b""
            if path.is_file() and not path.is_symlink() and not any(re.search(one, inside) for one in ignore):
                content = path.read_bytes().replace(os.fsencode(folder.parent), b"FOLDER")
            if not any(re.fullmatch(one, inside) for one in ignore):
                found[inside] = (status.st_mode, content)
    return found


def pair(
    folder: Path,
    *argv: str,
    prepare: Callable[[Path], object] = lambda _: None,
    options: Sequence[str] = (),
    env: dict[str, str] | None = None,
    timeout_s: float = 300,
) -> Pair:
    """Prepare two folders alike and run the command in both: bare first, so that caches are warm for neither alone."""
    works = []
    for name in ("bare", "wrap"):
        work = folder / name / "work"
        work.mkdir(parents=True)
        prepare(work)
        works.append(work)
    surroundings = {**environment(folder / "bare"), **(env or {})}
    bare = subprocess.run(
        argv, cwd=works[0], env=surroundings, input=b"", capture_output=True, timeout=timeout_s
    )  # fmt: skip
    run = wrap(folder / "wrap", *argv, options=options, env=env, timeout_s=timeout_s)
    return Pair(bare, works[0], run, works[1])


def programs_run(run: Wrapped) -> list[str]:
    """The names of the programs, one for each exec, in order."""
    return [os.path.basename(event.data["argv"][0]) for event in run.events("process.exec")]


def shown_edits(run: Wrapped, below: Path) -> dict[str, list[str]]:
    """What the default view tells of files below a folder: path to changes, in order."""
    found: dict[str, list[str]] = {}
    with Reader.open(run.recording) as reader:
        gone = passing.passed(reader)
        for row in reader.rows(kinds=("file.edit",)):
            noisy = noise.hidden(row) or passing.of_a_passing_file(row, gone)
            if not noisy and row.subject.startswith(f"{below}/"):
                found.setdefault(row.subject.removeprefix(f"{below}/"), []).append(str(row.data["change"]))
    return found


def last_contents(run: Wrapped, below: Path) -> dict[str, bytes | None]:
    """The content after its last edit of every file that was edited below a folder; None where it was removed."""
    found: dict[str, bytes | None] = {}
    db = sqlite3.connect(f"file:{run.recording}?mode=ro", uri=True)
    try:
        rows = db.execute(
            "select f.path, f.change, b.data from file_edit f left join blob b on hex(b.sha256) = upper(f.after_sha256)"
            " order by f.seq"
        ).fetchall()
    finally:
        db.close()
    for path, change, data in rows:
        if path.startswith(f"{below}/"):
            found[path.removeprefix(f"{below}/")] = None if change in ("delete", "transient") else data
    return found


def whole(run: Wrapped) -> None:
    """The recording is closed, without a gap, and every process that started has ended in it."""
    with Reader.open(run.recording) as reader:
        assert reader.state() == "closed"
    assert [(gap.data["cause"], gap.data.get("detail"), gap.data["could_hide"]) for gap in run.events("gap")] == []
    started, ended = ({e.span for e in run.events(f"process.{kind}")} for kind in ("start", "exit"))
    assert started == ended
