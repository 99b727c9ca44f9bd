"""The whole product in real containers: in full where the profile lets it, named and told as lost where it does not."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from containers import Container
from wrapping import AGENTWRAP, Wrapped, environment

pytestmark = pytest.mark.container

SCRIPT = """
echo one > kept; echo two >> kept; mkdir made; mv kept made/moved; chmod 600 made/moved
cp made/moved copy; sed -i s/one/1/ copy; ln -s copy link; rm link
(cd made; env true; sh -c 'exit 4'); python3 -c "$CONNECT"; cat made/moved copy; exit 5
"""
CONNECT = """
import socket
for family, address in ((socket.AF_INET, ("127.0.0.1", 9)), (socket.AF_UNIX, "/nowhere.socket")):
    try:
        socket.socket(family).connect(address)
    except OSError as error:
        print(type(error).__name__)
"""
OUTPUT = "ConnectionRefusedError\nFileNotFoundError\none\ntwo\n1\ntwo\n"
FULL = ("docker", "podman", "drop-all")


@dataclass(frozen=True)
class Ran:
    """`wrapped` as if it had run here, and how the run's other commands answered inside."""

    wrapped: Wrapped
    work: Path

    def rows(self) -> list[tuple[str, ...]]:
        """What happened, without what differs from machine to machine: ids, times and the folder.

        Edits come first: one is told when its file is at rest, which the next program may or may not wait for. And a
        file that `sed -i` makes, to move it over another, is told by its own name where it was looked at in between.
        """
        found = [
            (event.kind, event.subject.replace(str(self.work), "."), str(event.data.get("change", "")))
            for event in self.wrapped.events()
            if event.kind.partition(".")[0] in ("file", "net", "dns") or event.kind == "process.exec"
            if event.data.get("klass") not in ("cache", "system", "device")
            if not (event.kind == "file.edit" and event.subject.startswith(f"{self.work}/sed"))
        ]
        return sorted(found, key=lambda row: row[0] != "file.edit")


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that a container shares and its user, whoever that is, may write to."""
    made = Path(tempfile.mkdtemp(prefix="agentwrap-modes-", dir="/tmp"))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)


Place = Callable[[str], Container]


def _inside(container: Place, profile: str, folder: Path, name: str, *options: str) -> Ran:
    made = container(profile)
    made.keep.append(folder)
    work = folder / name
    work.mkdir()
    work.chmod(0o777)
    recording = folder / f"{name}.agentlog"
    words = [*AGENTWRAP, "run", "-q", "-o", str(recording), *options, "--", "sh", "-c", SCRIPT]
    done = made.run(words, cwd=work, env={**environment(folder), "CONNECT": CONNECT})
    return Ran(Wrapped(done.returncode, done.stdout.encode(), done.stderr.encode(), recording), work)


def _here(folder: Path, name: str, *options: str) -> Ran:
    work = folder / name
    work.mkdir()
    recording = folder / f"{name}.agentlog"
    done = subprocess.run(
        [*AGENTWRAP, "run", "-q", "-o", recording, *options, "--", "sh", "-c", SCRIPT],
        cwd=work, env={**environment(folder), "CONNECT": CONNECT}, capture_output=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return Ran(Wrapped(done.returncode, done.stdout, done.stderr, recording), work)


def _told(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "agentwrap", *words], env=environment(folder), capture_output=True, text=True
    )  # fmt: skip


@pytest.mark.parametrize("profile", FULL)
def test_ordinary_containers_are_witnessed_in_full(container: Place, folder: Path, profile: str) -> None:
    ours, theirs = _inside(container, profile, folder, "inside"), _here(folder, "host")
    assert (ours.wrapped.status, ours.wrapped.stdout.decode()) == (5, OUTPUT)
    assert ours.wrapped.stderr == b""
    assert ours.rows() == theirs.rows()
    assert len(ours.rows()) > 15
    assert ours.wrapped.events("run.start")[0].data["mode"] == "ptrace+notify"
    assert ours.wrapped.gaps() == []
    checked = _told(folder, "check", "--require", "exec,file-write,connect", str(ours.wrapped.recording))
    assert checked.returncode == 0, checked.stdout


def test_without_ptrace_the_mode_and_the_loss_are_named(container: Place, folder: Path) -> None:
    ours, theirs = _inside(container, "no-ptrace", folder, "inside"), _here(folder, "host", "--debuggable")
    assert (ours.wrapped.status, ours.wrapped.stdout.decode(), ours.wrapped.stderr) == (5, OUTPUT, b"")
    assert ours.wrapped.events("run.start")[0].data["mode"] == "notify"
    gaps = ours.wrapped.events("gap")
    assert [(gap.data["what"], gap.data["cause"], gap.subject) for gap in gaps] == [("process", "no-ptrace", "EPERM")]
    assert "exit statuses" in gaps[0].data["could_hide"]
    # What needs no ptrace is there all the same, as where the user gives it up.
    for kind in ("net.connect", "file.link"):
        assert [row for row in ours.rows() if row[0] == kind] == [row for row in theirs.rows() if row[0] == kind]
    contents = _last_contents(ours)
    assert (contents["kept"], contents["copy"]) == ("one\ntwo\n", "1\ntwo\n")
    programs = {os.path.basename(event.data["argv"][0]) for event in ours.wrapped.events("process.exec")}
    assert {"sh", "mkdir", "mv", "cp", "sed", "rm", "python3", "cat"} <= programs
    assert _told(folder, "check", str(ours.wrapped.recording)).returncode == 3


def _last_contents(ran: Ran) -> dict[str, str]:
    import sqlite3

    db = sqlite3.connect(f"file:{ran.wrapped.recording}?mode=ro", uri=True)
    try:
        rows = db.execute(
            "select f.path, b.data from file_edit f join blob b on hex(b.sha256) = upper(f.after_sha256) order by f.seq"
        ).fetchall()
    finally:
        db.close()
    return {path.removeprefix(f"{ran.work}/"): data.decode() for path, data in rows}


def test_where_nothing_can_be_seen_it_refuses_with_cause_and_fix(container: Place, folder: Path) -> None:
    ran = _inside(container, "gvisor-like", folder, "inside")
    assert ran.wrapped.status == 125
    assert ran.wrapped.stdout == b""
    assert list(ran.work.iterdir()) == []  # nothing ran
    assert not ran.wrapped.recording.exists()
    first, *_, last = [line for line in ran.wrapped.stderr.decode().splitlines() if line]
    assert first == "error: this machine does not let agentwrap see: exec, file-write, connect"
    assert b"seccomp notification: ENOSYS" in ran.wrapped.stderr
    assert b"ptrace: EPERM" in ran.wrapped.stderr
    assert last.startswith("hint: ")
    assert "--best-effort" in last


def test_best_effort_runs_and_the_file_says_what_was_not_observed(container: Place, folder: Path) -> None:
    ran = _inside(container, "gvisor-like", folder, "inside", "--best-effort")
    assert (ran.wrapped.status, ran.wrapped.stdout.decode(), ran.wrapped.stderr) == (5, OUTPUT, b"")
    assert ran.wrapped.events("run.start")[0].data["mode"] == "none"
    assert ran.wrapped.events("run.end")[0].data == {"status": 5}
    tiers = {event.data["what"]: event.data["tier"] for event in ran.wrapped.events("coverage")}
    assert tiers.pop("model") == "witness"  # clients are told of a proxy, whoever follows them
    assert set(tiers.values()) == {"none"}
    lost = {event.data["what"] for event in ran.wrapped.events("gap")}
    # Reads, which nobody asked for; servers, of which none is declared.
    assert lost == set(tiers) - {"file-read", "mcp-stdio", "mcp-http"}
    checked = _told(folder, "check", str(ran.wrapped.recording))
    assert checked.returncode == 3
    assert "not covered" in checked.stdout
    shown = _told(folder, "show", str(ran.wrapped.recording))
    assert shown.returncode == 0
    assert "no file change seen (not observed)" in shown.stdout
    assert "no connection seen (not observed)" in shown.stdout
