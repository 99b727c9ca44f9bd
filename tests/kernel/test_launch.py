"""The wrapper is transparent: what the command gets and gives is its own: statuses, signals, stdio."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest
from wrapping import command, environment, events, wrap

MODES = [(), ("--debuggable",), ("--follow", "trace"), ("--follow", "calls")]

MARK = f"301.{os.getpid()}"  # seconds to sleep that no other run of these tests uses


@pytest.mark.parametrize("options", MODES)
@pytest.mark.parametrize("status", [0, 1, 3, 125, 255])
def test_the_exit_status_is_the_commands_own(tmp_path: Path, status: int, options: tuple[str, ...]) -> None:
    assert wrap(tmp_path, "sh", "-c", f"exit {status}", options=options).status == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGINT])
def test_a_death_by_signal_is_passed_on(tmp_path: Path, number: int) -> None:
    run = wrap(tmp_path, "sh", "-c", f"kill -{int(number)} $$")
    assert run.status == -number
    assert run.events("run.end")[0].data == {"reason": "signal", "signal": int(number)}


def test_stdio_is_the_commands_own(tmp_path: Path) -> None:
    run = wrap(tmp_path, "sh", "-c", "cat; echo err >&2", stdin=b"in\x00\xff")
    assert (run.stdout, run.stderr) == (b"in\x00\xff", b"err\n")


@pytest.mark.parametrize(
    ("words", "status"),
    [(["/nonexistent/x"], 127), (["no-such-command-here"], 127), (["/etc"], 126), (["/etc/passwd"], 126)],
)
def test_commands_that_cannot_run_are_told_before_anything_starts(
    tmp_path: Path, words: list[str], status: int
) -> None:
    run = wrap(tmp_path, *words)
    assert run.status == status
    assert run.stderr.startswith(b"error: ")
    assert b"hint: " in run.stderr
    assert not run.recording.exists()


def test_a_script_without_an_interpreter_line_runs_as_a_shell_would_run_it(tmp_path: Path) -> None:
    script = tmp_path / "plain"
    script.write_text("echo plain $1\n")
    script.chmod(0o755)
    assert wrap(tmp_path, str(script), "word").stdout == b"plain word\n"


def test_only_named_descriptors_are_inherited(tmp_path: Path) -> None:
    kept, dropped = os.pipe()
    try:
        for fd in (kept, dropped):
            os.set_inheritable(fd, True)
        run = wrap(tmp_path, "ls", "/proc/self/fd", options=["--keep-fd", str(kept)], pass_fds=(kept, dropped))
    finally:
        os.close(kept)
        os.close(dropped)
    shown = set(map(int, run.stdout.split()))
    # ls itself opens the directory, on the lowest free number.
    assert {0, 1, 2, kept} <= shown
    assert dropped not in shown
    assert len(shown) == 5


def test_signal_dispositions_are_those_we_were_given(tmp_path: Path) -> None:
    show = "grep -E '^Sig(Ign|Blk)' /proc/self/status"
    bare = subprocess.run(["sh", "-c", show], capture_output=True, check=True).stdout
    assert wrap(tmp_path, "sh", "-c", show).stdout == bare
    ignoring = ["sh", "-c", f'trap \'\' HUP USR1; exec "$@" sh -c "{show}"', "sh"]
    bare = subprocess.run([*ignoring, "env"], capture_output=True, check=True).stdout
    wrapped = subprocess.run(
        [*ignoring, *command(tmp_path / "second.agentlog")], capture_output=True, check=True, env=environment(tmp_path)
    ).stdout
    assert wrapped == bare


def test_the_environment_and_directory_options(tmp_path: Path) -> None:
    run = wrap(tmp_path, "sh", "-c", "echo $MARK $PWD; pwd", options=["-e", "MARK=x=y", "-C", "/usr"])
    assert run.stdout.splitlines()[0].startswith(b"x=y")
    assert run.stdout.splitlines()[1] == b"/usr"


def test_nothing_of_ours_is_in_the_agents_environment_but_what_it_may_use(tmp_path: Path) -> None:
    told = wrap(tmp_path, "env", options=("--no-intercept",)).stdout.splitlines()
    assert [line.partition(b"=")[0] for line in told if b"agentwrap" in line.lower()] == [b"AGENTWRAP_CLAIMS"]


def test_a_timeout_ends_the_tree_with_124(tmp_path: Path) -> None:
    run = wrap(tmp_path, "sh", "-c", f"sleep {MARK}1 & sleep {MARK}1", options=["--timeout", "0.3"])
    assert run.status == 124
    assert run.events("run.end")[0].data["reason"] == "timeout"
    assert not _alive(f"{MARK}1")


def _alive(mark: str) -> bool:
    """Whether any process has `mark` among its arguments (a test's own number of seconds to sleep)."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", mark.encode()]:
                return True
    return False


@pytest.mark.parametrize("options", MODES)
def test_what_outlives_the_command_is_ended_and_told(tmp_path: Path, options: tuple[str, ...]) -> None:
    run = wrap(tmp_path, "sh", "-c", f"(setsid sleep {MARK}2 >/dev/null 2>&1 &); echo done", options=options)
    assert run.status == 0
    assert run.stdout == b"done\n"
    ended = [e for e in run.events("process.exit") if e.data.get("ended_by") == "agentwrap"]
    assert len(ended) == 1
    assert run.events("run.end")[0].data["ended_daemons"] == 1
    assert not _alive(f"{MARK}2")


def test_a_daemon_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    run = wrap(tmp_path, "sh", "-c", "(trap '' TERM; setsid sleep 300 </dev/null >/dev/null 2>&1 &); exit 7")
    assert run.status == 7
    assert [e.data.get("signal") for e in run.events("process.exit") if e.data.get("ended_by")] == [9]


LINGERING = """
import sys
from msgspec.structs import replace
from agentwrap.cli.main import run
from agentwrap.session import following
made = following._settings
following._settings = lambda one: replace(made(one), linger_s=300)
sys.exit(run())
"""


def test_output_that_comes_after_the_main_command_is_not_cut(tmp_path: Path) -> None:
    """As long as it comes within the time that the run waits for it, which has no end here."""
    script = "exec > >(while read l; do echo got $l; done); echo a; echo b"
    words = command(tmp_path / "run.agentlog", "bash", "-c", script)
    words[1:3] = ["-c", LINGERING]
    done = subprocess.run(words, capture_output=True, env=environment(tmp_path), timeout=300)
    assert done.stdout == b"got a\ngot b\n", done.stderr


def _start(tmp_path: Path, *words: str, options: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        command(tmp_path / "run.agentlog", *words, options=options),
        stdout=subprocess.PIPE,
        env=environment(tmp_path),
        cwd=tmp_path,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_to_the_wrapper_reaches_the_command_once(tmp_path: Path, number: signal.Signals) -> None:
    script = f"trap 'echo got; exit 9' {number.name[3:]}; echo ready; while :; do sleep 0.05; done"
    process = _start(tmp_path, "bash", "-c", script)
    process.send_signal(number)
    out, _ = process.communicate(timeout=300)
    assert (process.returncode, out) == (9, b"got\n")


def _has_taken(pid: int, number: int) -> bool:
    """Whether a signal waits no more for a process: else a second one would be none (proc_pid_status(5), signal(7))."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return not any(int(line[7:], 16) >> number - 1 & 1 for line in lines if line.startswith(("SigPnd", "ShdPnd")))


def test_a_signal_to_the_whole_group_is_not_doubled_and_a_later_one_is_not_taken_for_it(tmp_path: Path) -> None:
    script = "trap 'echo got' USR1; trap 'exit 4' USR2; echo ready; while :; do sleep 0.05; done"
    process = subprocess.Popen(
        command(tmp_path / "run.agentlog", "bash", "-c", script),
        stdout=subprocess.PIPE,
        env=environment(tmp_path),
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    # bash itself must be told, not its sleep: the shell ignores what it cannot trap.
    os.killpg(process.pid, signal.SIGUSR1)
    assert process.stdout.readline() == b"got\n"
    while not _has_taken(process.pid, signal.SIGUSR1):
        pass
    process.send_signal(signal.SIGUSR1)
    assert select.select([process.stdout], [], [], 300)[0], "from the same sender, to the wrapper alone"
    assert process.stdout.readline() == b"got\n"
    os.killpg(process.pid, signal.SIGUSR2)
    out, _ = process.communicate(timeout=300)
    assert (process.returncode, out) == (4, b"")


def _two_sleepers(tmp_path: Path, options: tuple[str, ...]) -> tuple[subprocess.Popen[bytes], list[int]]:
    """A run with two processes that say nothing, one of them in a session of its own; pidfds of both."""
    one = "sh -c 'echo $$; exec sleep 300'"
    process = _start(tmp_path, "sh", "-c", f"echo ready; (setsid {one} &); {one} & wait", options=options)
    assert process.stdout is not None
    return process, [os.pidfd_open(int(process.stdout.readline())) for _ in range(2)]


def _all_end(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        assert select.select([descriptor], [], [], 300)[0], "a process of the tree lives on"
        os.close(descriptor)


@pytest.mark.parametrize("options", MODES)
def test_a_killed_supervisor_takes_the_tree_with_it(tmp_path: Path, options: tuple[str, ...]) -> None:
    process, watched = _two_sleepers(tmp_path, options)
    process.kill()
    process.communicate()
    _all_end(watched)


@pytest.mark.parametrize("options", MODES)
def test_so_does_one_that_is_killed_with_news_it_has_not_read(tmp_path: Path, options: tuple[str, ...]) -> None:
    """The tracer then learns of it by an error instead of an end of file (ECONNRESET)."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # The news is `true`; then there is time to send it, and nothing more to be told.
    script = f"exec 9<>{gate}; echo ready; read -u 9; /bin/true; read -t 0.3 -u 9; echo $$; read -u 9"
    process = _start(tmp_path, "bash", "-c", script, options=options)
    process.send_signal(signal.SIGSTOP)
    gate.write_text("go\n")
    assert process.stdout is not None
    watched = os.pidfd_open(int(process.stdout.readline()))
    process.kill()
    process.communicate()
    _all_end([watched])


@pytest.mark.parametrize("options", MODES)
def test_a_killed_tracer_takes_the_tree_with_it_and_the_file_says_so(tmp_path: Path, options: tuple[str, ...]) -> None:
    process, watched = _two_sleepers(tmp_path, options)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (tracer,) = (child for child in children if Path(f"/proc/{child}/comm").read_text() == "aw-tracer\n")
    os.kill(int(tracer), signal.SIGKILL)
    _all_end(watched)
    process.communicate(timeout=300)
    assert process.returncode == 125
    recording = tmp_path / "run.agentlog"
    assert "tracer-lost" in [e.data["cause"] for e in events(recording, "gap")]
    assert events(recording, "run.end")[0].data["reason"] == "lost"


def test_the_child_makes_no_call_before_it_is_watched(tmp_path: Path) -> None:
    """The very first system calls of the program are seen: a static binary that does one thing and leaves."""
    source = """
#include <unistd.h>
#include <sys/syscall.h>
void _start(void) {
  __asm__ volatile("syscall" :: "a"(SYS_mkdir), "D"("first"), "S"(0755) : "rcx", "r11", "memory");
  __asm__ volatile("syscall" :: "a"(SYS_exit_group), "D"(0) : "rcx", "r11");
}
"""
    (tmp_path / "first.c").write_text("#define _GNU_SOURCE\n" + source)
    binary = tmp_path / "first"
    subprocess.run(["cc", "-O1", "-nostdlib", "-static", "-o", binary, tmp_path / "first.c"], check=True)
    for turn in range(20):
        run = wrap(tmp_path, str(binary), name=f"run{turn}")
        assert run.status == 0
        kinds = [e.kind for e in run.events() if e.kind.startswith(("process", "file"))]
        assert kinds[:3] == ["process.start", "process.exec", "file.directory"], kinds
        (tmp_path / "work" / "first").rmdir()


class Terminal:
    """An interactive bash on a pseudo terminal, as a person would have it."""

    def __init__(self, tmp_path: Path) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(tmp_path)
            env = environment(tmp_path, PS1="$ ", TERM="dumb")
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], env)
        self.seen = b""

    def expect(self, text: bytes, timeout_s: float = 300) -> bytes:
        deadline = time.monotonic() + timeout_s
        while text not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0, f"waiting for {text!r}, the screen has {self.seen!r}"
            if select.select([self.fd], [], [], left)[0]:
                try:
                    self.seen += os.read(self.fd, 65536)
                except OSError:
                    raise AssertionError(f"the shell ended; the screen has {self.seen!r}") from None
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def close(self) -> None:
        os.kill(self.pid, signal.SIGHUP)
        os.close(self.fd)
        os.waitpid(self.pid, 0)


@pytest.fixture
def terminal(tmp_path: Path):  # type: ignore[no-untyped-def]
    shell = Terminal(tmp_path)
    yield shell
    shell.close()


def _wrapped(tmp_path: Path, *words: str) -> str:
    import shlex

    return shlex.join(command(tmp_path / "run.agentlog", *words))


def test_ctrl_c_reaches_the_command_and_the_shell_sees_it(tmp_path: Path, terminal: Terminal) -> None:
    terminal.type(_wrapped(tmp_path, "sh", "-c", "echo be''gun; exec sleep 300") + "\n")
    terminal.expect(b"begun\r\n")
    terminal.type("\x03")
    terminal.expect(b"$ ")
    terminal.type("echo status=$?.\n")
    terminal.expect(b"status=130.")
    assert events(tmp_path / "run.agentlog", "run.end")[0].data["signal"] == signal.SIGINT


def test_ctrl_z_and_fg(tmp_path: Path, terminal: Terminal) -> None:
    terminal.type(_wrapped(tmp_path, "sh", "-c", "echo be''gun; read line; echo got $line; exit 5") + "\n")
    terminal.expect(b"begun\r\n")
    terminal.type("\x1a")
    terminal.expect(b"Stopped")
    terminal.type("jobs\n")
    terminal.expect(b"[1]+")
    terminal.expect(b"$ ")
    terminal.type("fg\n")
    terminal.type("hello\n")
    terminal.expect(b"got hello\r\n")
    terminal.expect(b"$ ")
    terminal.type("echo status=$?.\n")
    terminal.expect(b"status=5.")


def test_a_stopped_run_does_not_outlive_its_terminal(tmp_path: Path) -> None:
    shell = Terminal(tmp_path)
    shell.type(_wrapped(tmp_path, "sh", "-c", "echo be''gun; exec sleep 300") + "\n")
    shell.expect(b"begun\r\n")
    shell.type("\x1a")
    shell.expect(b"Stopped")
    (supervisor,) = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()
    watched = os.pidfd_open(int(supervisor))
    shell.close()
    _all_end([watched])


def test_an_interactive_shell_inside_has_job_control(tmp_path: Path, terminal: Terminal) -> None:
    terminal.type(_wrapped(tmp_path, "bash", "--norc", "--noprofile", "-i") + "\n")
    terminal.expect(b"$ ")
    terminal.type("PS1='inner> '\n")
    terminal.expect(b"inner> ")
    terminal.type("sh -c 'echo st\"\"arted; exec sleep 300'\n")
    terminal.expect(b"started\r\n")
    terminal.type("\x1a")
    terminal.expect(b"Stopped")
    terminal.type("bg; kill %1; wait; echo in''ner-done\n")
    terminal.expect(b"inner-done")
    terminal.type("exit 6\n")
    terminal.expect(b"$ ")
    terminal.type("echo status=$?.\n")
    terminal.expect(b"status=6.")


def test_window_size_changes_are_told_to_the_command(tmp_path: Path, terminal: Terminal) -> None:
    script = "trap 'stty size; exit' WINCH; echo be''gun; while :; do sleep 0.05; done"
    terminal.type(_wrapped(tmp_path, "bash", "-c", script) + "\n")
    terminal.expect(b"begun\r\n")
    fcntl.ioctl(terminal.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    terminal.expect(b"33 77")
