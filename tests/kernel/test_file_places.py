"""Files where names are hard: other roots and namespaces, long paths, foreign bytes; caps, crowds, no permission."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rows import MODES, TRACED, Rows, mode_name, raw
from wrapping import command, environment, is_root, program, wrap

LONG_AGO_NS = 10**18


def _file(path: Path, text: str | bytes = "old\n") -> Path:
    """A file that is older than the run by far."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))
    return path


def _rows(tmp_path: Path, *words: str, options: tuple[str, ...] = (), status: int = 0, **keywords: object) -> Rows:
    run = wrap(tmp_path, *words, options=options, **keywords)  # type: ignore[arg-type]
    assert run.status == status, run.stdout + run.stderr
    return Rows(run.recording, tmp_path / "work")


@pytest.fixture
def static(tmp_path: Path) -> Path:
    """A static program that rewrites the file it is given, following links, and makes `made` beside it."""
    source = r"""
    #include <fcntl.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        if (argc > 3 && (chroot(argv[3]) || chdir("/"))) return 3;
        int fd = open(argv[1], O_WRONLY | O_TRUNC);
        if (fd < 0 || write(fd, "new\n", 4) != 4) return 4;
        fd = open(argv[2], O_WRONLY | O_CREAT, 0644);
        return fd < 0 || write(fd, "made\n", 5) != 5 ? 5 : 0;
    }
    """
    (tmp_path / "w.c").write_text("#define _GNU_SOURCE\n" + source)
    subprocess.run(["cc", "-static", "-O1", "-w", "-o", tmp_path / "w", tmp_path / "w.c"], check=True)
    return tmp_path / "w"


@pytest.mark.skipif(not is_root(), reason="chroot needs root")
@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_links_in_a_chroot_lead_into_the_chroot(tmp_path: Path, static: Path, options: tuple[str, ...]) -> None:
    jail = tmp_path / "work/jail"
    _file(jail / "etc/f")
    _file(tmp_path / "work/etc/f", "outside\n")
    (jail / "abs").symlink_to("/etc")
    (jail / "up").symlink_to("../../../etc")
    rows = _rows(tmp_path, str(static), "/abs/f", "up/made", "jail", options=options)
    assert sorted(rows.files()) == ["create jail/etc/made 'made\\n'", "modify jail/etc/f 'old\\n' -> 'new\\n'"]
    assert [e.data["call"] for e in rows.of("process.isolation")] == ["chroot"]


def _has_user_namespaces() -> bool:
    return subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not _has_user_namespaces(), reason="user namespaces are not allowed here")
@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_a_file_in_a_mount_of_ones_own(tmp_path: Path, options: tuple[str, ...]) -> None:
    """A tmpfs that only the process sees: its path is told as the process sees it, its content is kept."""
    script = "mount -t tmpfs none hidden && echo one > hidden/a && mkdir hidden/d && echo two > hidden/d/b"
    (tmp_path / "work/hidden").mkdir(parents=True)
    rows = _rows(tmp_path, "unshare", "-Urm", "sh", "-c", script, options=options)
    assert sorted(word for word in rows.files() if "hidden" in word) == [
        "create hidden/a 'one\\n'",
        "create hidden/d/b 'two\\n'",
        "mkdir hidden/d",
    ]
    assert not (tmp_path / "work/hidden/a").exists()
    calls = [event.data["call"] for event in rows.of("process.isolation")]
    assert {"unshare", "mount"} <= set(calls)


@pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_a_sandboxed_edit_is_one_edit_under_the_projects_own_path(tmp_path: Path, options: tuple[str, ...]) -> None:
    work = tmp_path / "work"
    _file(work / "hello.py", "print('hi')\n")
    sandbox = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--unshare-pid"]
    sandbox += ["--bind", str(work), str(work), "--chdir", str(work)]
    probe = subprocess.run([*sandbox, "true"], capture_output=True)
    if probe.returncode:
        pytest.skip(f"bubblewrap does not work here: {probe.stderr!r}")
    script = "sed -i s/hi/ho/ hello.py && echo x > /proc/self/cwd/made && cat /proc/self/status > /dev/null"
    rows = _rows(tmp_path, *sandbox, "sh", "-c", script, options=options)
    told = [word for word in rows.files() if word.startswith(("modify", "create", "delete"))]
    # What sed makes to move it over the file is told by its own name, too, where it was looked at in between.
    assert [word for word in told if not word.startswith("create sed")] == [
        "modify hello.py \"print('hi')\\n\" -> \"print('ho')\\n\"",
        "create made 'x\\n'",
    ]
    assert [gap.data["cause"] for gap in rows.of("gap") if gap.data["cause"] != "no-ptrace"] == []


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_a_path_longer_than_can_be_opened_at_once(tmp_path: Path, options: tuple[str, ...]) -> None:
    script = (
        "import os\n"
        "for _ in range(42):\n"
        "    os.mkdir('d' * 100); os.chdir('d' * 100)\n"
        "open('deep', 'w').write('deep')\n"
        "os.rename('deep', 'deeper')\n"
    )
    rows = _rows(tmp_path, sys.executable, "-c", script, options=options)
    made = [raw(event.data["path"]) for event in rows.of("file.directory")]
    # The kernel tells no working directory whose path is past PATH_MAX: up to there everything, from there a gap.
    assert made == [rows.base + b"/".join([b"d" * 100] * (i + 1)) for i in range(len(made))]
    assert len(made) < 42
    assert len(made[-1]) > 4096 - 100
    assert [gap.data["cause"] for gap in rows.of("gap") if gap.data["cause"] != "no-ptrace"] == ["path-too-long"]
    shutil.rmtree(tmp_path / "work", ignore_errors=True)


NAMES = {
    "latin": b"caf\xe9",
    "newline": b"two\nlines",
    "escape": b"\x1b[31mred\x1b[0m\x07",
    "bidi": "\u202egnp.exe\u2066".encode(),
    "surrogate": b"\xed\xa0\x80",
    "space": b" leading and trailing ",
    "dashes": b"--option",
    "longest": b"n" * 255,
}


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_names_of_any_bytes_are_kept_exactly_and_shown_safely(tmp_path: Path, options: tuple[str, ...]) -> None:
    script = (
        "import os, sys\n"
        "for name in map(os.fsencode, sys.argv[1:]):\n"
        "    open(name, 'w').close(); os.mkdir(name + b'.d') if len(name) < 250 else None\n"
    )
    work = tmp_path / "work"
    work.mkdir()
    # Python's own command line: bytes that are no UTF-8 become lone surrogates and back.
    rows = _rows(tmp_path, sys.executable, "-c", script, *map(os.fsdecode, NAMES.values()), options=options)
    paths = {raw(event.data["path"]).removeprefix(rows.base) for event in rows.of("file.edit", "file.directory")}
    assert paths == {*NAMES.values(), *(name + b".d" for name in NAMES.values() if len(name) < 250)}
    argv = next(argv for span in rows.spans().values() for argv in span["argv"])
    assert argv[3:] == tuple(NAMES.values())
    shown = subprocess.run(
        [sys.executable, "-m", "agentwrap", "show", "--files", str(tmp_path / "run.agentlog")],
        capture_output=True,
        env=environment(tmp_path),
    )
    assert shown.returncode == 0, shown.stderr
    assert b"\x1b" not in shown.stdout
    assert b"\x07" not in shown.stdout
    assert "\u202e" not in shown.stdout.decode()


def test_contents_over_the_caps_are_gaps_with_size_and_hash(tmp_path: Path) -> None:
    _file(tmp_path / "work/f", b"o" * 2000)
    rows = _rows(
        tmp_path,
        "sh",
        "-c",
        "head -c 3000 /dev/zero > f; head -c 9000 /dev/zero > g; echo small > h",
        options=("--max-content", "1k", "--max-hash", "8k"),
    )
    edits = {raw(e.data["path"]).removeprefix(rows.base): e.data for e in rows.of("file.edit")}
    before, after = edits[b"f"]["before"], edits[b"f"]["after"]
    assert (before["size"], before["omitted"], after["size"], after["omitted"]) == (2000, "over-cap", 3000, "over-cap")
    assert before["raw_sha256"] != after["raw_sha256"]
    assert (edits[b"g"]["after"]["size"], edits[b"g"]["after"].get("raw_sha256")) == (9000, None)
    assert "omitted" not in edits[b"h"]["after"]
    assert {raw(gap.data["detail"]).removeprefix(rows.base) for gap in rows.of("gap")} == {b"f", b"g"}
    assert {gap.data["cause"] for gap in rows.of("gap")} == {"over-cap"}


def test_very_many_files_in_one_folder(tmp_path: Path) -> None:
    """20,000 here: enough to be past every bound of ours, quick enough for every run of the tests."""
    script = "import os\nfor i in range(20_000):\n    os.close(os.open(f'f{i}', os.O_CREAT | os.O_WRONLY))\n"
    rows = _rows(tmp_path, sys.executable, "-c", script)
    created = [event for event in rows.of("file.edit") if event.data["change"] == "create"]
    assert len(created) == len({event.subject for event in created}) == 20_000
    assert rows.of("gap") == []
    shutil.rmtree(tmp_path / "work")


@pytest.mark.parametrize("options", TRACED, ids=mode_name)
def test_reads_are_counted_per_process_and_path(tmp_path: Path, options: tuple[str, ...]) -> None:
    _file(tmp_path / "work/r")
    _file(tmp_path / "work/s")
    script = "cat r r r s > out; cat r; cat absent 2>/dev/null; true"
    rows = _rows(tmp_path, "sh", "-c", script, options=("--reads", *options))
    own = [event for event in rows.of("file.read") if raw(event.data["path"]).startswith(rows.base)]
    reads = [(rows.word(event), event.span) for event in own]
    assert [word for word, _ in reads] == ["read r 3", "read s 1", "read r 1"]
    assert len({span for _, span in reads}) == 2
    assert rows.files("out") == ["create out 'old\\nold\\nold\\nold\\n'"]


def test_no_read_is_recorded_unless_asked_for(tmp_path: Path) -> None:
    assert _rows(tmp_path, "cat", "/etc/passwd").of("file.read") == []


def test_stdout_redirected_by_the_caller_is_an_edit_of_that_file(tmp_path: Path) -> None:
    target = _file(tmp_path / "out.txt")
    with target.open("ab") as out:
        done = subprocess.run(
            command(tmp_path / "run.agentlog", "sh", "-c", "echo one; echo two"), stdout=out, env=environment(tmp_path)
        )
    assert done.returncode == 0
    rows = Rows(tmp_path / "run.agentlog", tmp_path)
    assert rows.files() == ["modify out.txt 'old\\n' -> 'old\\none\\ntwo\\n'"]


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_what_a_plain_user_may_not_do_leaves_no_row(tmp_path: Path, plain_user, options: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
    binary = program(tmp_path, "routes", (Path(__file__).parent / "routes.c").read_text())
    prepare = (
        "mkdir -p forbidden/locked; echo old > forbidden/f; echo old > forbidden/locked/f; chmod 500 forbidden/locked"
    )
    made = plain_user(["sh", "-c", f"{prepare}; chmod 400 forbidden/locked/f; pwd"])
    home = Path(made.stdout.strip())
    shutil.copy(binary, home / "routes")
    (home / "routes").chmod(0o755)
    done = plain_user(command(home / "run.agentlog", "./routes", "forbidden", options=options))
    assert (done.returncode, done.stdout) == (0, "forbidden ok\n"), done.stderr
    rows = Rows(home / "run.agentlog", home)
    assert rows.files() == []
    assert [gap.data["cause"] for gap in rows.of("gap") if gap.data["cause"] != "no-ptrace"] == []
