"""Whatever it is given: one clear error and the right status, the agent unharmed, nothing lost without a word."""

import os
import resource
import shlex
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from wrapping import AGENTWRAP, command, environment, events, is_root, wrap

from agentwrap.recording.reader import Reader

SAMPLES = Path(__file__).resolve().parents[1] / "recordings"
Done = subprocess.CompletedProcess[str]


def agentwrap(home: Path, *words: str | Path, **keywords: object) -> Done:
    settings = {"env": environment(home), "cwd": home, "stdin": subprocess.DEVNULL, "timeout": 300, **keywords}
    return subprocess.run(
        [*AGENTWRAP, *words], capture_output=True, encoding="utf-8", errors="surrogateescape", **settings
    )  # type: ignore[call-overload,no-any-return]


def is_one_error(text: str) -> bool:
    """`error:`, what was seen, at most one hint; no traceback, nothing that a terminal would obey."""
    lines = text.rstrip("\n").split("\n")
    return (
        lines[0].startswith("error: ")
        and sum(line.startswith("error: ") for line in lines) == 1
        and sum(line.startswith("hint: ") for line in lines) <= 1
        and "Traceback" not in text
        and "internal fault" not in text
        and all(character.isprintable() for line in lines for character in line)
    )


# --- the command line -------------------------------------------------------------------------------------------------

WRONG = {
    "unknown option": (["run", "--nope", "--", "true"], 125, "no such option `--nope`"),
    "misspelt option": (["run", "--debugable", "--", "true"], 125, "did you mean `--debuggable`?"),
    "no command": (["run", "--"], 125, "no command to wrap"),
    "no such command": (["run", "--", "no-such-command-here"], 127, "no command `no-such-command-here`"),
    "not executable": (["run", "--", "./plain"], 126, "`./plain` is not executable"),
    "a directory": (["run", "--", "./folder"], 126, "`./folder` is a directory"),
    "no directory to run in": (["run", "-C", "nowhere", "--", "true"], 125, "the working directory is not there"),
    "a file to run in": (["run", "-C", "plain", "--", "true"], 125, "the working directory is no directory"),
    "no folder for the output": (["run", "-o", "nowhere/x", "--", "true"], 125, "the recording cannot be written"),
    "output there already": (["run", "-o", "plain", "--", "true"], 125, "the output is already there"),
    "output is a folder": (["run", "-o", "folder", "--", "true"], 125, "the output is already there"),
    "output is a broken link": (["run", "-o", "broken", "--", "true"], 125, "the output is already there"),
    "no time": (["run", "--timeout", "soon", "--", "true"], 125, "invalid value for '--timeout'"),
    "no size": (["run", "--max-content", "5q", "--", "true"], 125, "`5q` is no size"),
    "no expression": (["run", "--redact-pattern", "(", "--", "true"], 125, "`(` is no regular expression"),
    "no variable": (["run", "-e", "=x", "--", "true"], 125, "names no variable"),
    "unset variable": (["run", "-e", "NO_SUCH_VARIABLE", "--", "true"], 125, "no such variable here"),
    "closed descriptor": (["run", "--keep-fd", "77", "--", "true"], 125, "descriptor 77 is not open"),
    "unknown coverage": (["run", "--require", "bogus", "--", "true"], 125, "there is no kind of coverage `bogus`"),
    "unknown reading option": (["show", "--nope"], 2, "no such option `--nope`"),
    "unknown filter": (["show", "plain.agentlog", "verdict:"], 2, ""),
    "nothing recorded yet": (["show"], 2, "there is no recording yet"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_is_one_error_and_nothing_runs(tmp_path: Path, case: str) -> None:
    words, status, message = WRONG[case]
    (tmp_path / "plain").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "broken").symlink_to(tmp_path / "target")
    done = agentwrap(tmp_path, *words)
    assert (done.returncode, done.stdout) == (status, "")
    assert is_one_error(done.stderr), done.stderr
    assert message in done.stderr
    assert (tmp_path / "plain").read_text() == "mine"
    assert not (tmp_path / "target").exists()
    assert not list(tmp_path.rglob("*.agentlog"))


def test_what_is_given_is_shown_safely_in_errors(tmp_path: Path) -> None:
    odd = os.fsdecode(b"\x1b[31mred\xff\n\xe2\x80\xae")
    for words in (["run", "--", odd], ["run", "-o", f"{odd}/x", "--", "true"], ["show", f"{odd}.agentlog"], [odd]):
        done = agentwrap(tmp_path, *words)
        assert done.returncode in (2, 125, 127)
        assert is_one_error(done.stderr), repr(done.stderr)
        assert "\\x1b[31mred\\xff" in done.stderr


def test_the_output_may_lie_on_another_file_system(tmp_path: Path) -> None:
    there = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        if there.stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("/dev/shm is no other file system here")
        recording = there / "run.agentlog"
        done = agentwrap(tmp_path, "run", "-q", "-o", recording, "--", "sh", "-c", "echo x > made")
        assert (done.returncode, done.stderr) == (0, "")
        with Reader.open(recording) as reader:
            assert reader.state() == "closed"
        assert [event.data["path"] for event in events(recording, "file.edit")] == [f"{tmp_path}/made"]
    finally:
        shutil.rmtree(there)


def test_a_folder_that_may_not_be_written_is_told_before_anything_runs(tmp_path: Path, plain_user) -> None:  # type: ignore[no-untyped-def]
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    done = plain_user([*AGENTWRAP, "run", "-o", str(closed / "x.agentlog"), "--", "echo", "ran"])
    assert (done.returncode, done.stdout) == (125, "")
    assert is_one_error(done.stderr), done.stderr
    assert os.strerror(13) in done.stderr


def test_no_umask_takes_a_recording_from_its_owner(tmp_path: Path, plain_user) -> None:  # type: ignore[no-untyped-def]
    words = shlex.join([*AGENTWRAP, "run", "-q", "--no-undo", "-o", "x.agentlog", "--", "sh", "-c", "umask"])
    show = shlex.join([*AGENTWRAP, "show", "x.agentlog"])
    done = plain_user(["sh", "-c", f"umask 777; {words} && {show} >/dev/null && stat -c %a x.agentlog"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "0777\n600\n", "")


@pytest.mark.skipif(not is_root(), reason="taking /proc away needs root")
def test_without_proc_it_is_told_before_anything_runs(tmp_path: Path) -> None:
    script = f"mount -t tmpfs none /proc && exec {shlex.join(command(tmp_path / 'x.agentlog', 'echo', 'ran'))}"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], env=environment(tmp_path), capture_output=True, text=True, timeout=300
    )  # fmt: skip
    if "mount" in done.stderr and "error:" not in done.stderr:
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    assert (done.returncode, done.stdout) == (125, "")
    assert is_one_error(done.stderr), done.stderr
    assert "there is no /proc here" in done.stderr


# --- recordings that are none -----------------------------------------------------------------------------------------


def _sample(name: str) -> bytes:
    return (SAMPLES / f"{name}.agentlog").read_bytes()


def _database(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("create table something(x)")
    db.commit()
    db.close()


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 10 << 30)


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path is 108 bytes long at most, unix(7)
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(here)


NONE: dict[str, tuple[Callable[[Path], object], str]] = {
    "absent": (lambda _: None, "no such recording"),
    "empty": (lambda path: path.touch(), "the file is empty"),
    "a directory": (lambda path: path.mkdir(), "a directory"),
    "text": (lambda path: path.write_text("text\n" * 100), "no SQLite header"),
    "another database": (_database, "some other SQLite database"),
    "10 GB of nothing": (_sparse, "no SQLite header"),
    "a fifo": (os.mkfifo, "not a regular file"),
    "a socket": (_socket, "not a regular file"),
    "from the future": (lambda path: path.write_bytes(_sample("from-the-future")), "written by a newer agentwrap"),
    "the first page only": (lambda path: path.write_bytes(_sample("good")[:100]), "the recording is damaged"),
    "half": (lambda path: path.write_bytes(_sample("good")[: len(_sample("good")) // 2]), "the recording is damaged"),
    "noise behind the header": (
        lambda path: path.write_bytes(_sample("good")[:100] + bytes(range(256)) * 180), "the recording is damaged"
    ),
}  # fmt: skip
READERS = (
    ["show"], ["show", "--tree"], ["show", "--json"], ["tail"], ["check"], ["export", "--jsonl"], ["undo"],
)  # fmt: skip


@pytest.mark.parametrize("kind", NONE)
def test_a_file_that_is_no_recording_is_one_error_for_every_reader(tmp_path: Path, kind: str) -> None:
    make, message = NONE[kind]
    path = tmp_path / "x.agentlog"
    make(path)
    before = sorted(tmp_path.iterdir())
    for words in READERS:
        done = agentwrap(tmp_path, *words, path)
        told = done.stdout if "--json" in words else done.stderr
        assert done.returncode == 2, (words, done)
        assert message in told
        assert is_one_error(done.stderr) or "--json" in words, (words, done.stderr)
    # verify may answer that it is truncated or tampered with: it never says that it is well, and never stumbles.
    done = agentwrap(tmp_path, "verify", path)
    assert done.returncode in (1, 2, 5)
    assert "Traceback" not in done.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["torn", "tampered"])
def test_a_recording_that_is_torn_or_changed_can_be_read_and_is_told(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.agentlog"
    path.write_bytes(_sample(name))
    shown = agentwrap(tmp_path, "show", path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "notes.txt" in shown.stdout
    judged = agentwrap(tmp_path, "verify", path)
    assert judged.stdout.startswith(name)
    assert judged.returncode == {"torn": 4, "tampered": 1}[name]
    assert path.read_bytes() == _sample(name)


def test_what_follows_the_end_of_a_recording_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.agentlog"
    path.write_bytes(_sample("good") + b"more")
    assert agentwrap(tmp_path, "verify", path).returncode == 1
    assert "notes.txt" in agentwrap(tmp_path, "show", path).stdout


def test_a_recording_is_read_while_it_is_written(tmp_path: Path) -> None:
    recording = tmp_path / "x.agentlog"
    script = "echo 1 > one; echo begun; read line; echo 2 > two"
    run = subprocess.Popen(
        command(recording, "sh", "-c", script),
        cwd=tmp_path, env=environment(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert run.stdin is not None
    assert run.stdout is not None
    try:
        assert run.stdout.readline() == "begun\n"
        for words in (["show"], ["show", "--tree"], ["check"], ["export", "--jsonl"]):
            done = agentwrap(tmp_path, *words, recording)
            assert (done.returncode, done.stderr) == (3 if words == ["check"] else 0, ""), words
        assert "live" in agentwrap(tmp_path, "show", recording).stdout
        assert agentwrap(tmp_path, "verify", recording).returncode == 4
        again = agentwrap(tmp_path, "run", "-o", recording, "--", "true")
        assert again.returncode == 125
        assert "the output is already there" in again.stderr
    finally:
        run.communicate("go\n")
    assert run.returncode == 0
    assert [event.subject for event in events(recording, "file.edit")] == [f"{tmp_path}/one", f"{tmp_path}/two"]


# --- closed descriptors, places that are not there --------------------------------------------------------------------


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&-", "0<&- 1>&- 2>&-"])
def test_closed_descriptors_stay_closed_and_nothing_is_lost(tmp_path: Path, closed: str) -> None:
    # The script finds out what is open for itself, in a file: the descriptors are what is tried here.
    script = "for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && echo $n; done > open; exit 3"
    recording = tmp_path / "x.agentlog"
    words = shlex.join(command(recording, "sh", "-c", script))
    done = subprocess.run(["sh", "-c", f"exec {words} {closed}"], cwd=tmp_path, env=environment(tmp_path), timeout=300)
    wrapped = (tmp_path / "open").read_text()
    bare = subprocess.run(["sh", "-c", f"exec sh -c {shlex.quote(script)} {closed}"], cwd=tmp_path)
    assert wrapped == (tmp_path / "open").read_text()
    assert done.returncode == bare.returncode == 3
    assert [event.subject for event in events(recording, "file.edit")] == [f"{tmp_path}/open"]
    with Reader.open(recording) as reader:
        assert reader.state() == "closed"
    # The reading commands, with the same taken from them.
    shown = subprocess.run(
        ["sh", "-c", f"exec {shlex.join([*AGENTWRAP, 'show', str(recording)])} {closed}"],
        cwd=tmp_path, env=environment(tmp_path), timeout=300,
    )  # fmt: skip
    assert shown.returncode == 0
    with Reader.open(recording) as reader:
        assert reader.state() == "closed"


def test_output_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    run = wrap(tmp_path, "true")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*AGENTWRAP, "show", run.recording], stdout=full, stderr=subprocess.PIPE, text=True,
            env=environment(tmp_path),
        )  # fmt: skip
    assert done.returncode != 0
    assert is_one_error(done.stderr), done.stderr
    # What the wrapper itself has to say may be lost; the command's status may not.
    with open("/dev/full", "w") as full:
        words = [word for word in command(tmp_path / "y.agentlog", "sh", "-c", "exit 4") if word != "-q"]
        assert subprocess.run(words, stderr=full, env=environment(tmp_path)).returncode == 4


def test_a_working_directory_that_was_removed(tmp_path: Path) -> None:
    recording = tmp_path / "x.agentlog"
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"rmdir {gone}; exec {shlex.join(command(recording, 'sh', '-c', 'echo ok; echo x > new; exit 3'))}"
    done = subprocess.run(
        ["sh", "-c", script], cwd=gone, env=environment(tmp_path), capture_output=True, text=True, timeout=300
    )  # fmt: skip
    assert done.stdout == "ok\n"
    assert "agentwrap" not in done.stderr
    assert done.returncode == 3
    assert events(recording, "run.start")[0].data["cwd"] == f"{gone} (deleted)"
    assert events(recording, "file.edit", "gap") == []


HOMES = {"unset": None, "empty": "", "relative": "here", "not writable": "/proc/nowhere"}


@pytest.mark.parametrize("case", HOMES)
def test_without_a_home(tmp_path: Path, plain_user, case: str) -> None:  # type: ignore[no-untyped-def]
    home = HOMES[case]
    words = ["env", "-u", "HOME", *AGENTWRAP] if home is None else list(AGENTWRAP)
    more = {} if home is None else {"HOME": home}
    folder = Path(tempfile.mkdtemp(prefix="agentwrap-home-", dir="/tmp"))
    try:
        if is_root():
            os.chown(folder, 65534, 65534)
        recording = folder / "x.agentlog"
        # With a place of its own, and no contents kept for undo, a home is not needed.
        kept = plain_user(
            [*words, "run", "-q", "--no-undo", "-o", str(recording), "--", "echo", "ran"], cwd=folder, env=more
        )
        assert (kept.returncode, kept.stdout, kept.stderr) == (0, "ran\n", "")
        # Without, it is made or the reason is told, before anything runs.
        done = plain_user([*words, "run", "--", "echo", "ran"], cwd=folder, env=more)
        assert (done.returncode, done.stdout) in ((0, "ran\n"), (125, ""))
        if done.returncode:
            assert is_one_error(done.stderr), done.stderr
            assert "the folder for recordings cannot be made" in done.stderr
            told = plain_user([*words, "run", "-o", f"{folder}/y.agentlog", "--", "echo", "ran"], cwd=folder, env=more)
            assert (told.returncode, told.stdout) == (125, "")
            assert "what `agentwrap undo` needs cannot be kept" in told.stderr
            assert "--no-undo" in told.stderr
            assert not (folder / "y.agentlog").exists()
        assert [path.name for path in folder.iterdir()] == ["x.agentlog"]
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}])
def test_a_locale_that_knows_ascii_only(tmp_path: Path, locale: dict[str, str]) -> None:
    run = wrap(tmp_path, "sh", "-c", "echo é > ünïcode; printf '\\377é'", env={"LANG": "C", **locale})
    assert (run.status, run.stdout, run.stderr) == (0, b"\xff\xc3\xa9", b"")
    assert run.paths("file.edit") == [str(tmp_path / "work" / "ünïcode")]
    shown = agentwrap(tmp_path, "show", run.recording, env={**environment(tmp_path), "LANG": "C", **locale})
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "code" in shown.stdout


# --- foreign bytes and large things -----------------------------------------------------------------------------------

ODD = b"\xff\xfe \x1b]0;title\x07 line\nbreak \xe2\x80\xae\xe2\x80\x8b \xed\xa0\x80 \r\t\xc2\x9b"


def test_odd_arguments_paths_and_contents_are_kept_as_they_are_and_shown_safely(tmp_path: Path) -> None:
    script = b'import sys, os\nname = os.fsencode(sys.argv[1]).replace(b"/", b"_")\nopen(name, "wb").write(name * 2)\n'
    run = wrap(tmp_path, sys.executable, "-c", script.decode(), os.fsdecode(ODD))
    assert (run.status, run.stderr) == (0, b"")
    assert (tmp_path / "work" / os.fsdecode(ODD)).read_bytes() == ODD * 2
    from rows import raw

    (edit,) = (e for e in run.events("file.edit"))
    assert raw(edit.data["path"]) == os.path.join(os.fsencode(tmp_path / "work"), ODD)
    assert raw(run.events("process.exec")[0].data["argv"][-1]) == ODD
    with Reader.open(run.recording) as reader:
        assert reader.blob(edit.data["after"]["sha256"]) == ODD * 2
    for words in (
        ["show"],
        ["show", "--tree"],
        ["show", "--files"],
        ["show", "--diff"],
        ["tail"],
        ["export", "--jsonl"],
    ):
        done = agentwrap(tmp_path, *words, run.recording)
        assert done.returncode == 0
        assert all(c.isprintable() or c in "\n\t" for c in done.stdout), words
        assert "\u202e" not in done.stdout


def test_a_megabyte_of_arguments_and_of_environment(tmp_path: Path) -> None:
    words = ["x" * 131_000] * 8
    large = {f"LARGE_{number}": "y" * 131_000 for number in range(8)}
    script = 'printf "%s %s\\n" "$#" "$(env | wc -c)"'
    run = wrap(tmp_path, "sh", "-c", script, "sh", *words, env=large)
    assert (run.status, run.stderr) == (0, b"")
    count, size = map(int, run.stdout.split())
    assert count == 8
    assert size > 8 * 131_000
    first = run.events("process.exec")[0]
    kept = sum(map(len, first.data["argv"]))
    assert first.data["argv_omitted_bytes"] + kept >= 8 * 131_000
    # What is not kept is told.
    assert "over-cap" in run.gaps()
    assert agentwrap(tmp_path, "show", run.recording).returncode == 0


@pytest.mark.parametrize("limit", [8, 16, 24, 48])
def test_few_descriptors_are_enough_or_it_is_told(tmp_path: Path, limit: int) -> None:
    script = "for n in 1 2 3 4 5 6; do cat /dev/null > f$n & done; wait; ls | wc -l; exit 3"

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    folder = tmp_path / "bare"
    folder.mkdir()
    bare = subprocess.run(
        ["sh", "-c", script], cwd=folder, capture_output=True, preexec_fn=limited, env=environment(tmp_path)
    )  # fmt: skip
    run = wrap(tmp_path, "sh", "-c", script, preexec_fn=limited)
    if run.status == 125:
        assert is_one_error(run.stderr.decode()), run.stderr
        assert not run.recording.exists()
        assert list((tmp_path / "work").iterdir()) == []
        assert limit < 24
        return
    assert (run.status, run.stdout, run.stderr) == (bare.returncode, bare.stdout, bare.stderr)
    with Reader.open(run.recording) as reader:
        assert reader.state() == "closed"
    made = {os.path.basename(path) for path in run.paths("file.edit")}
    assert made == {f"f{number}" for number in range(1, 7)} or run.gaps()


@pytest.mark.parametrize("options", [[], ["--debuggable"]])
def test_more_processes_than_descriptors(tmp_path: Path, options: list[str]) -> None:
    # The soft limit is the command's; 150 processes at once are more than it.
    # Each waits for a line of its own, in a fifo that never is without a writer: whoever comes late finds one, too.
    script = """ulimit -n; exec 9<> wait
    for n in $(seq 150); do (read line < wait; echo $n > f$n) & done
    for n in $(seq 150); do echo; done >&9; wait"""
    (tmp_path / "work").mkdir()
    os.mkfifo(tmp_path / "work" / "wait")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < 1000:
        pytest.skip("few descriptors are allowed here")
    run = wrap(
        tmp_path, "sh", "-c", script, options=options,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (60, hard)),
    )  # fmt: skip
    assert run.stdout == b"60\n"
    made = {os.path.basename(path) for path in run.paths("file.edit")}
    assert made == {f"f{number}" for number in range(1, 151)}
    assert set(run.gaps()) <= {"no-ptrace"}


# --- no room ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    if not is_root():
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


FILL = (
    "head -c 6000000 /dev/urandom > {small}/ballast; for n in 1 2 3 4 5 6; do head -c 400000 /dev/urandom > f$n; done"
)
FILLED = {f"f{number}" for number in range(1, 7)}


def _filled(tmp_path: Path, small: Path, script: str) -> "tuple[Done, Path]":
    """Run a script that fills the disk its recording is on."""
    work = tmp_path / "work"
    work.mkdir()
    script = FILL.format(small=small) + "; " + script
    # Of the ballast no content is kept: it would fill the disk a second time.
    words = command(small / "x.agentlog", "sh", "-c", script, options=["--max-content", "500k"])
    done = subprocess.run(words, cwd=work, env=environment(tmp_path), capture_output=True, text=True, timeout=300)
    return done, small / "x.agentlog"


def test_a_disk_that_was_full_for_a_while_costs_nothing_or_is_a_gap(tmp_path: Path, small: Path) -> None:
    done, recording = _filled(tmp_path, small, f"sleep 0.5; rm {small}/ballast; sleep 0.5; echo > last; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
    assert {path.name for path in (tmp_path / "work").iterdir()} == {*FILLED, "last"}
    with Reader.open(recording) as reader:
        assert reader.state() == "closed"
    recorded = {os.path.basename(event.subject) for event in events(recording, "file.edit")}
    assert recorded >= {*FILLED, "last"} or events(recording, "gap")


def test_a_disk_that_stays_full_does_not_hurt_the_agent_and_is_told(tmp_path: Path, small: Path) -> None:
    done, recording = _filled(tmp_path, small, "echo > last; exit 3")
    assert {path.name for path in (tmp_path / "work").iterdir()} == {*FILLED, "last"}
    assert done.stderr.startswith("error: the recording is not complete")
    assert is_one_error(done.stderr), done.stderr
    assert done.returncode in (3, 125)
    shown = agentwrap(tmp_path, "show", recording)
    assert (shown.returncode, shown.stderr) == (0, "")
    # It is closed, with what was lost as a gap, or torn; and never said to be whole.
    assert "disk-full" in shown.stdout or "torn" in shown.stdout
    assert agentwrap(tmp_path, "check", "--require", "file-write", recording).returncode == 3
    assert agentwrap(tmp_path, "verify", recording).stdout.split()[0] in ("torn", "unsigned")
