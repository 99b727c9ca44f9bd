"""Programs of every day, each bare and wrapped: the same results, and a recording that tells what they did."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
from real.programs import last_contents, need, pair, programs_run, shown_edits, whole
from wrapping import command, events, is_root, program

FILES = 12
MAKEFILE = """
CFLAGS = -O1 -g0 -frandom-seed=1
OBJECTS = $(patsubst %.c,%.o,$(sort $(wildcard part*.c))) main.o
all: program libparts.a
version.h: Makefile
	echo '#define VERSION "1.2"' > version.h
$(OBJECTS): version.h
libparts.a: $(filter part%,$(OBJECTS))
	ar rcD $@ $^
program: main.o libparts.a
	$(CC) -o $@ main.o libparts.a
check: all
	./program > result.txt && grep -q 'version 1.2, sum 66' result.txt
"""


def _c_project(work: Path) -> None:
    (work / "Makefile").write_text(MAKEFILE)
    for number in range(FILES):
        (work / f"part{number:02}.c").write_text(f"int part{number}(void) {{ return {number}; }}\n")
    declared = "".join(f"int part{number}(void);\n" for number in range(FILES))
    total = " + ".join(f"part{number}()" for number in range(FILES))
    body = f'int main(void) {{ printf("version %s, sum %d\\n", VERSION, {total}); return 0; }}\n'
    (work / "main.c").write_text(f'#include <stdio.h>\n#include "version.h"\n{declared}{body}')


def test_make_builds_a_c_project(tmp_path: Path) -> None:
    need("make", "cc", "ar")
    both = pair(tmp_path, "make", "-j2", "--output-sync", "all", "check", prepare=_c_project)
    both.same(blur=r"cc .*|rm .*|echo .*|ar .*|ar: creating .*|\./program.*")  # two jobs end in any order
    run, ran = both.run, programs_run(both.run)
    assert run.status == 0
    assert ran.count("cc1") == FILES + 1
    assert ran.count("ld") == 1
    assert "program" in ran
    edited = shown_edits(run, both.work)
    made = {f"part{number:02}.o" for number in range(FILES)} | {"main.o", "version.h", "libparts.a", "program"}
    assert made | {"result.txt"} == set(edited)
    assert {name: last_contents(run, both.work)[name] for name in edited} == {
        name: (both.work / name).read_bytes() for name in edited
    }
    whole(run)


def _repository(work: Path) -> None:
    script = """
    git init -q -b main origin; cd origin
    for number in 1 2 3; do echo "line $number" >> file; mkdir -p d$number; echo $number > d$number/f; git add -A
      git commit -q -m "commit $number"; done
    git checkout -q -b side HEAD~1; echo side > other; git add -A; git commit -q -m side; git checkout -q main
    """
    subprocess.run(["bash", "-ec", script], cwd=work, env={**os.environ, **GIT}, check=True)


GIT = {
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.invalid", "GIT_AUTHOR_DATE": "2001-02-03T04:05:06Z",
    "GIT_COMMITTER_NAME": "C", "GIT_COMMITTER_EMAIL": "c@example.invalid",
    "GIT_COMMITTER_DATE": "2001-02-03T04:05:06Z", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
}  # fmt: skip


def test_git_clones_commits_rebases_and_collects(tmp_path: Path) -> None:
    need("git")
    script = """
    git clone -q --no-hardlinks origin copy; cd copy
    git checkout -q -b mine origin/side; echo more >> other; git commit -q -a -m more
    git rebase -q main; git log --format='%H %s'; git merge-base mine main
    git gc -q --prune=now; git fsck --strict; git status --short
    """
    both = pair(tmp_path, "bash", "-ec", script, prepare=_repository, env=GIT)
    # packs and the index hold times of files
    both.same(ignore=[r".*/\.git/index", r".*\.(pack|idx|rev|bitmap|graph)", r".*/logs/.*", r".*/ORIG_HEAD"])
    assert both.run.status == 0
    assert len(both.run.stdout.splitlines()) >= 6
    edited = shown_edits(both.run, both.work / "copy")
    # What the work tree holds in the end is told file by file; what git keeps for itself is not in the way.
    tree = {path for path in edited if not path.startswith(".git/")}
    assert tree == {"file", "other", "d1/f", "d2/f", "d3/f"}
    assert {path for path in edited if path.startswith(".git/")} <= {".git/config", *_hooks(edited)}
    contents = last_contents(both.run, both.work / "copy")
    assert {path: contents[path] for path in tree} == {path: (both.work / "copy" / path).read_bytes() for path in tree}
    whole(both.run)


def _hooks(paths: "dict[str, list[str]]") -> set[str]:
    return {path for path in paths if path.startswith(".git/hooks/")}


def _wheel(folder: Path) -> Path:
    """A wheel made by hand: what pip needs and no more (PEP 427)."""
    path = folder / "tiny_thing-1.0-py3-none-any.whl"
    info = "tiny_thing-1.0.dist-info"
    files = {
        "tiny_thing.py": "def main():\n    print('tiny')\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ntiny = tiny_thing:main\n",
    }
    record = "".join(f"{name},,\n" for name in files) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(zipfile.ZipInfo(name, (2001, 2, 3, 4, 5, 6)), text)
    return path


def test_pip_installs_a_wheel_into_a_virtual_environment(tmp_path: Path) -> None:
    python = os.path.realpath(sys.executable)
    if subprocess.run([python, "-c", "import ensurepip, venv"]).returncode:
        pytest.skip("this Python has no venv")
    script = f"""{shlex.quote(python)} -m venv env
    env/bin/pip --disable-pip-version-check install -q --no-index ./*.whl
    env/bin/tiny; env/bin/pip list --format=freeze
    """
    both = pair(tmp_path, "bash", "-ec", script, prepare=_wheel, env={"PYTHONDONTWRITEBYTECODE": "1"})
    both.same(ignore=[r".*\.pyc", r".*/RECORD", r".*/direct_url\.json", r"env/pyvenv\.cfg"])
    assert both.run.status == 0
    assert b"tiny\n" in both.run.stdout
    edited = shown_edits(both.run, both.work)
    assert not [path for path in edited if "site-packages" in path]  # hundreds of files, a cache for any reader
    contents = last_contents(both.run, both.work)
    assert edited["env/bin/tiny"][0] == "create"
    assert contents["env/bin/tiny"] == (both.work / "env/bin/tiny").read_bytes()
    # Everything that was installed is in the recording nevertheless.
    written = {path for path in both.run.paths("file.edit") if "/tiny_thing" in path}
    assert {os.path.basename(path) for path in written} >= {"tiny_thing.py", "METADATA", "entry_points.txt"}
    whole(both.run)


def _package(work: Path) -> None:
    package = work / "pack" / "package"
    package.mkdir(parents=True)
    about = {"name": "tiny-thing", "version": "1.0.0", "main": "index.js", "bin": {"tiny": "index.js"}}
    about["scripts"] = {"postinstall": "node index.js > installed.txt"}
    (package / "package.json").write_text(json.dumps(about))
    (package / "index.js").write_text("#!/usr/bin/env node\nconsole.log('tiny')\n")
    subprocess.run(["tar", "czf", work / "tiny.tgz", "-C", work / "pack", "package"], check=True)
    (work / "package.json").write_text('{"name": "app", "version": "1.0.0", "private": true}\n')


def test_npm_installs_a_tarball(tmp_path: Path) -> None:
    need("npm", "node", "tar")
    words = ["npm", "install", "--offline", "--no-audit", "--no-fund", "--foreground-scripts", "./tiny.tgz"]
    both = pair(tmp_path, *words, prepare=_package, env={"npm_config_update_notifier": "false"})
    both.same(ignore=[r".*\.tgz", r".*package-lock\.json"], blur=r"in \d+(ms|s|m)|\d+m?s")
    assert both.run.status == 0
    edited = shown_edits(both.run, both.work)
    assert set(edited) == {"package.json", "package-lock.json"}
    assert last_contents(both.run, both.work)["package.json"] == (both.work / "package.json").read_bytes()
    installed = [path for path in both.run.paths("file.edit") if path.endswith("tiny-thing/index.js")]
    assert installed
    assert [e for e in both.run.events("process.exec") if e.data["argv"][-1] == "node index.js > installed.txt"]
    whole(both.run)


SUITE = """
import multiprocessing, pathlib, queue, tempfile, threading, unittest
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

def square(number):
    pathlib.Path(f"square-{number}.txt").write_text(str(number * number))
    return number * number

class Suite(unittest.TestCase):
    def test_threads(self):
        with ThreadPoolExecutor(8) as pool:
            self.assertEqual(sum(pool.map(lambda n: n, range(100))), 4950)

    def test_thread_per_task(self):
        results = queue.Queue()
        threads = [threading.Thread(target=results.put, args=(n,)) for n in range(50)]
        for one in threads: one.start()
        for one in threads: one.join()
        self.assertEqual(results.qsize(), 50)

    def test_processes(self):
        for method in ("fork", "spawn", "forkserver"):
            context = multiprocessing.get_context(method)
            with ProcessPoolExecutor(2, mp_context=context) as pool:
                self.assertEqual(list(pool.map(square, range(4))), [0, 1, 4, 9])

    def test_lock_and_queue(self):
        lock, out = multiprocessing.Lock(), multiprocessing.Queue()
        def work():
            with lock: out.put(1)
        started = [multiprocessing.Process(target=work) for _ in range(3)]
        for one in started: one.start()
        self.assertEqual([out.get(timeout=300) for _ in started], [1, 1, 1])
        for one in started: one.join()

    @unittest.skip("to be told")
    def test_skipped(self):
        pass

if __name__ == "__main__":
    unittest.main()
"""


def test_a_python_test_suite_with_threads_and_processes(tmp_path: Path) -> None:
    python = os.path.realpath(sys.executable)
    words = [python, "-W", "ignore", "suite.py", "-v"]
    both = pair(tmp_path, *words, prepare=lambda work: (work / "suite.py").write_text(SUITE))
    both.same(blur=r"in [0-9.]+s", ignore=[r".*\.pyc"])
    run = both.run
    assert run.status == 0, run.stderr
    squares = {f"square-{number}.txt" for number in range(4)}
    assert set(shown_edits(run, both.work)) == squares
    assert {name: last_contents(run, both.work)[name] for name in squares} == {
        f"square-{number}.txt": str(number * number).encode() for number in range(4)
    }
    # The pools' workers are processes, the threads are not; no thread is taken for a process.
    assert 3 * 2 + 3 <= len(run.events("process.start")) <= 25
    whole(run)


def test_a_set_id_program_gains_nothing_and_is_told(tmp_path: Path, plain_user) -> None:  # type: ignore[no-untyped-def]
    if not is_root():
        pytest.skip("making a set-id program needs root")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        os.chmod(made, 0o777)
        path = program(Path(made), "whoami", '#include <stdio.h>\n#include <unistd.h>\nint main(void)'
                       ' { printf("%d\\n", geteuid()); return 0; }')  # fmt: skip
        os.chmod(path, 0o4755)
        if plain_user([path]).stdout != "0\n":
            pytest.skip("set-id programs have no effect here")
        recording = Path(made) / "run.agentlog"
        done = plain_user(command(recording, "sh", "-c", path))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "65534\n"
        execs = [event for event in events(recording, "process.exec") if event.data["argv"][0] == path]
        assert [event.data["setuid"] for event in execs] == [True]
        assert [event.data["what"] for event in events(recording, "process.denied")] == ["setuid"]
        assert events(recording, "gap") == []


def test_sudo_fails_with_its_own_words(tmp_path: Path, plain_user) -> None:  # type: ignore[no-untyped-def]
    need("sudo")
    recording = tmp_path / "run.agentlog"
    if is_root():
        folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
        folder.chmod(0o777)
        recording = folder / "run.agentlog"
    bare = plain_user(["sudo", "-n", "true"])
    done = plain_user(command(recording, "sudo", "-n", "true"))
    assert bare.returncode == 1
    assert done.returncode == 1
    assert done.stderr.startswith("sudo: ")
    assert [event.data["what"] for event in events(recording, "process.denied")] == ["setuid"]


def test_strace_inside_fails_clearly_or_works_with_debuggable(tmp_path: Path) -> None:
    need("strace")
    words = ["strace", "-f", "-o", "trace.txt", "-e", "trace=execve", "sh", "-c", "echo out; exit 3"]
    both = pair(tmp_path / "with", *words, options=["--debuggable"])
    both.same(ignore=["trace.txt"])
    assert (both.run.status, both.run.stdout) == (3, b"out\n")
    traced = (both.work / "trace.txt").read_text()
    assert "execve(" in traced
    assert "exited with 3" in traced
    assert set(programs_run(both.run)) == {"strace", "sh"}
    assert both.run.gaps() == ["no-ptrace"]
    without = pair(tmp_path / "without", *words).run
    assert without.status != 0
    assert b"PTRACE" in without.stderr
    assert {event.data["what"] for event in without.events("process.denied")} == {"ptrace"}


def test_gdb_inside_works_with_debuggable(tmp_path: Path) -> None:
    need("gdb", "cc")
    source = "int deep(int n) { return n ? deep(n - 1) : *(volatile int *)0; }\nint main(void) { return deep(3); }"

    def prepare(work: Path) -> None:
        (work / "crash.c").write_text(source)
        subprocess.run(["cc", "-g", "-O0", "-o", "crash", "crash.c"], cwd=work, check=True)

    words = ["gdb", "-nx", "-batch", "-ex", "run", "-ex", "bt", "./crash"]
    both = pair(tmp_path, *words, prepare=prepare, options=["--debuggable"])
    both.same(blur=r"0x[0-9a-f]+", ignore=["crash"])
    assert b"#3" in both.run.stdout
    assert b"SIGSEGV" in both.run.stdout
    assert "crash" in programs_run(both.run)


def test_the_docker_client_without_an_engine(tmp_path: Path) -> None:
    need("docker")
    if os.path.exists("/var/run/docker.sock"):
        pytest.skip("an engine runs here")
    both = pair(tmp_path, "docker", "ps")
    both.same()
    assert both.run.status != 0
    asked = [event.data.get("path") for event in both.run.events("net.connect")]
    assert "/var/run/docker.sock" in asked
    whole(both.run)


def test_what_a_sandbox_makes_to_mount_on_is_no_edit(tmp_path: Path) -> None:
    need("bwrap")
    inside = "cp data copy; echo changed > data; ls -a > listing"
    script = f"""bwrap --ro-bind / / --bind $PWD $PWD --dev /dev --tmpfs $PWD/.hidden --ro-bind /dev/null $PWD/.config \
      --chdir $PWD sh -c {shlex.quote(inside)} && rm .config && rmdir .hidden"""
    both = pair(tmp_path, "bash", "-ec", script, prepare=lambda work: (work / "data").write_text("before\n"))
    if both.bare.returncode:
        pytest.skip(f"bwrap does not work here: {both.bare.stderr.decode()[-80:]}")
    both.same()
    assert shown_edits(both.run, both.work) == {"copy": ["create"], "data": ["modify"], "listing": ["create"]}
    assert not [e for e in both.run.events("file.edit") if e.data["change"] == "delete"]
    whole(both.run)


def test_chromium_takes_a_screenshot(tmp_path: Path) -> None:
    need("chromium", "unshare")
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
        " --disable-component-update --disable-sync --hide-scrollbars --window-size=200,100 --user-data-dir=profile"
        " --screenshot=picture.png"
    )
    page = "data:text/html,<body style='margin:0;background:rgb(0,128,0)'></body>"
    # In a network namespace with nothing in it: a browser asks its maker's hosts at every start.
    words = ["unshare", "-rn", "chromium", *flags.split(), page]

    def prepare(work: Path) -> None:
        (work / "profile").mkdir()

    both = pair(tmp_path, *words, prepare=prepare)
    if both.bare.returncode:
        pytest.skip(f"chromium does not work here: {both.bare.stderr.decode()[-200:]}")
    assert both.run.status == 0, both.run.stderr
    picture = (both.work / "picture.png").read_bytes()
    assert picture == (both.bare_work / "picture.png").read_bytes()
    assert last_contents(both.run, both.work)["picture.png"] == picture
    types = [word for e in both.run.events("process.exec") for word in e.data["argv"] if word.startswith("--type=")]
    assert {"--type=renderer", "--type=zygote"} <= set(types) or "--type=zygote" in types
    whole(both.run)
