"""Programs that own a screen, wrapped, in a real terminal (tmux): a shell with job control, editors."""

import os
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from real.programs import last_contents, need, shown_edits, whole
from wrapping import Wrapped, command, environment, events

TIMEOUT_S = 300


class Screen:
    """A tmux server of our own with one window. `expect` waits for text among what the terminal was sent."""

    def __init__(self, folder: Path, short: Path) -> None:
        self.folder = folder
        self._socket = str(short / "tmux")
        self.work = folder / "work"
        self.work.mkdir()
        self.recording = folder / "run.agentlog"
        pipe = folder / "pipe"
        os.mkfifo(pipe)
        self.fd = os.open(pipe, os.O_RDWR)
        self.seen = b""
        self._pipe = pipe

    def begin(self) -> None:
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "sh")
        self._tmux("pipe-pane", f"exec cat > {shlex.quote(str(self._pipe))}")
        self.type("PS1='$ '; echo rea''dy")
        self.expect(b"ready\r\n$ ")

    def _tmux(self, *words: str) -> str:
        return subprocess.run(
            ["tmux", "-S", self._socket, *words],
            cwd=self.work, env=environment(self.folder, SHELL="/bin/sh"), capture_output=True, text=True, check=True,
            timeout=TIMEOUT_S,
        ).stdout  # fmt: skip

    def keys(self, *keys: str) -> None:
        """Keys by their names in tmux: `C-z`, `Escape`, `Enter`."""
        self._tmux("send-keys", *keys)

    def type(self, line: str) -> None:
        self._tmux("send-keys", "-l", line)
        self.keys("Enter")

    def run(self, *words: str) -> None:
        """Start a wrapped program from the window's shell."""
        self.type(shlex.join(command(self.recording, *words)))

    def expect(self, text: bytes) -> None:
        """Wait for text; what came before it is not looked at again."""
        end = time.monotonic() + TIMEOUT_S
        while text not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{text!r} did not come; the screen:\n{self.picture()}"
            self.seen += os.read(self.fd, 65536)
        self.seen = self.seen.partition(text)[2]

    def picture(self) -> str:
        return self._tmux("capture-pane", "-p")

    def close(self) -> None:
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True)
        os.close(self.fd)

    @property
    def finished(self) -> Wrapped:
        return Wrapped(0, b"", b"", self.recording)


@pytest.fixture
def screen(tmp_path: Path, short_path: Path) -> Iterator[Screen]:
    need("tmux")
    made = Screen(tmp_path, short_path)
    try:
        made.begin()
        yield made
    finally:
        made.close()


JOB = """
import os, signal
signal.signal(signal.SIGCONT, lambda *_: os.write(1, b"goes on\\n"))
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.write(1, b"runs\\n")
while True:
    signal.pause()
"""
"""It says when it is in the foreground: a key typed before bash has seen to that is for bash, which ignores it."""


def test_an_interactive_shell_with_job_control(screen: Screen) -> None:
    need("bash")
    (screen.work / "job.py").write_text(JOB)
    screen.run("bash", "--norc", "--noprofile", "-i")
    screen.type("PS1='in''ner> '")
    screen.expect(b"inner> ")
    screen.type(f"{sys.executable} -S job.py first")
    screen.expect(b"runs\r\n")
    screen.keys("C-z")
    screen.expect(b"Stopped")
    screen.type(f"{sys.executable} -S job.py second | cat &")
    screen.expect(b"runs\r\n")
    screen.type("jobs")
    screen.expect(b"[2]-")
    screen.type("fg 1")
    screen.expect(b"goes on\r\n")
    screen.keys("C-c")
    screen.expect(b"inner> ")
    screen.type("echo status=$?.; kill %2; wait; echo a''ll done > left; cat left")
    screen.expect(b"status=130.")
    screen.expect(b"all done")
    screen.type("exit 6")
    screen.expect(b"\n$ ")
    screen.type("echo status=$?.")
    screen.expect(b"status=6.")
    run = screen.finished
    jobs = {e.data["argv"][-1]: e.span for e in run.events("process.exec") if "job.py" in e.data["argv"]}
    ends = {e.span: e.data.get("signal") for e in run.events("process.exit")}
    assert {last: ends[span] for last, span in jobs.items()} == {"first": 2, "second": 15}
    assert last_contents(run, screen.work) == {"left": b"all done\n"}
    assert run.events("run.start")[0].data["tty"] is True
    whole(run)


def _ends_well(screen: Screen) -> None:
    screen.expect(b"\x1b[?1049l")  # the screen of before is back: nothing more is read by the editor
    screen.type("echo status=$?.")
    screen.expect(b"status=0.")


BEFORE = "first line\nsecond line\nthird line\n"
AFTER = "first line\nsecond, changed line\nthird line\n"


def _one_edit(screen: Screen) -> None:
    run = screen.finished
    assert (screen.work / "note.txt").read_text() == AFTER
    assert shown_edits(run, screen.work) == {"note.txt": ["modify"]}
    assert last_contents(run, screen.work)["note.txt"] == AFTER.encode()
    shown = subprocess.run(
        [*command(screen.recording)[:3], "show", "--diff", str(screen.recording)],
        env=environment(screen.folder), capture_output=True, text=True, timeout=TIMEOUT_S,
    ).stdout  # fmt: skip
    assert "-second line\n" in shown
    assert "+second, changed line\n" in shown
    whole(run)


def _one_change(screen: Screen) -> None:
    """Moved aside, made anew, removed: three facts, each of them told, and by path one file that was changed."""
    run = screen.finished
    assert (screen.work / "note.txt").read_text() == AFTER
    shown = subprocess.run(
        [*command(screen.recording)[:3], "show", "--files", str(screen.recording)],
        env=environment(screen.folder), capture_output=True, text=True, timeout=TIMEOUT_S,
    ).stdout  # fmt: skip
    _title, *lines = [one.split() for one in shown.splitlines() if "note.txt" in one]
    assert [one[:4] for one in lines] == [["M", "note.txt", "+1", "-1"]]
    whole(run)


@pytest.mark.parametrize("options", ["", "backupcopy=yes", "backupcopy=no backup"])
def test_vim_edits_a_file(screen: Screen, options: str) -> None:
    need("vim")
    (screen.work / "note.txt").write_text(BEFORE)
    screen.run("vim", "-N", "-u", "NONE", "-c", f"set backupskip= {options}", "note.txt")
    screen.expect(b"third line")
    screen.type("/second")
    screen.keys("e", "a")
    screen._tmux("send-keys", "-l", ", changed")
    screen.keys("Escape")
    screen.expect(b"changed")
    screen.type(":w")
    screen.expect(b"written")
    screen.type(":q")
    _ends_well(screen)
    if not options:
        _one_change(screen)
        return
    if "backup" not in options.split():
        _one_edit(screen)
        return
    # With a backup kept, the old file is moved aside and a new one written: that is what is told.
    assert (screen.work / "note.txt~").read_text() == BEFORE
    contents = last_contents(screen.finished, screen.work)
    assert contents["note.txt"] == AFTER.encode()
    renamed = [e.subject for e in events(screen.recording, "file.rename")]
    assert renamed == [f"{screen.work}/note.txt -> {screen.work}/note.txt~"]
    whole(screen.finished)


def test_nano_edits_a_file(screen: Screen) -> None:
    need("nano")
    (screen.work / "note.txt").write_text(BEFORE)
    screen.run("nano", "-I", "note.txt")
    screen.expect(b"third line")
    screen.keys("Down", *["Right"] * len("second"))
    screen._tmux("send-keys", "-l", ", changed")
    screen.keys("C-o", "Enter")
    screen.expect(b"Wrote")
    screen.keys("C-x")
    _ends_well(screen)
    _one_edit(screen)


def test_what_is_told_at_the_end_stands_on_lines_of_its_own(screen: Screen) -> None:
    words = list(command(screen.recording, "sh", "-c", "printf in-raw; stty raw -echo; stty sane; echo"))
    words.remove("-q")
    screen.type(shlex.join(words))
    screen.expect(b"in-raw")
    screen.expect(b"agentwrap ")
    screen.expect(b"\n$ ")
    screen.type("echo status=$?.")
    screen.expect(b"status=0.")
    assert any(line.startswith("agentwrap ") for line in screen.picture().splitlines())
