"""What is timed: real programs on inputs made here, so that every machine runs the same.

A workload says how its folder is made, what is run in it, and how many rows of each kind the recording must at least
have: a bench that silently measured nothing would look splendid.
"""

import base64
import hashlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

LOOP = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
  char name[64];
  for (long i = 0, n = atol(argv[1]); i < n; i++) {
    snprintf(name, sizeof name, "f%ld", i);
    int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    if (fd < 0 || write(fd, "hello\n", 6) != 6 || close(fd) || unlink(name)) return 1;
  }
  return 0;
}
"""
SPIN = """
int main(void) {
  volatile unsigned long x = 0;
  for (unsigned long i = 0; i < %dUL; i++) x += i * i;
  return 0;
}
"""
SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "all.h"
struct item%(n)d { char name[32]; long value; struct item%(n)d *next; };
%(functions)s
int part%(n)d(int x) { return %(calls)s; }
"""
FUNCTION = """
static int f%(n)d_%(k)d(int x) {
  struct item%(n)d *head = 0;
  for (int i = 0; i < x %% 17; i++) {
    struct item%(n)d *it = malloc(sizeof *it);
    snprintf(it->name, sizeof it->name, "%%d-%%d", x, i);
    it->value = (long)strlen(it->name) * %(k)d; it->next = head; head = it;
  }
  int sum = 0;
  while (head) { struct item%(n)d *next = head->next; sum += (int)head->value ^ x; free(head); head = next; }
  switch (sum %% 7) { case 0: return sum + 1; case 3: return sum * x; case 5: return sum - %(k)d; default: return sum; }
}
"""
MAKEFILE = """
CC = gcc
CFLAGS = -O2 -Wall
OBJECTS = $(patsubst %.c,%.o,$(wildcard *.c))
app: $(OBJECTS)
\t$(CC) -o $@ $(OBJECTS)
%.o: %.c all.h
\t$(CC) $(CFLAGS) -c $< -o $@
"""
GIT = """set -e
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=b GIT_AUTHOR_EMAIL=b@example.invalid
export GIT_COMMITTER_NAME=b GIT_COMMITTER_EMAIL=b@example.invalid
git init -q -b main .
git add -A
git commit -q -m one
git checkout -q -b other
git rm -q -r d0
git commit -q -m two
git checkout -q main
git status --porcelain
"""
NODE = """
const fs = require('fs'), n = +process.argv[2]
for (let i = 0; i < 20; i++) fs.mkdirSync('d' + i)
for (let i = 0; i < n; i++) fs.writeFileSync('d' + i % 20 + '/f' + i + '.txt', 'line one of ' + i + '\\n'.repeat(20))
"""


def _nothing(folder: Path, size: int) -> None:
    pass


@dataclass(frozen=True)
class Workload:
    """`prepare(folder, size)` makes the input in an empty folder, before the clock starts.

    `rows(size)`: kind of event to the least number of rows. `needs`: programs without which it is skipped.
    """

    name: str
    title: str
    size: int
    quick_size: int
    command: Callable[[int], list[str]]
    rows: Callable[[int], Mapping[str, int]]
    prepare: Callable[[Path, int], None] = _nothing
    needs: tuple[str, ...] = ()
    target: float | None = None


def compiled(folder: Path, name: str, source: str) -> None:
    (folder / f"{name}.c").write_text(source)
    subprocess.run(["gcc", "-O1", "-o", folder / name, folder / f"{name}.c"], check=True)
    (folder / f"{name}.c").unlink()


def _c_project(folder: Path, size: int) -> None:
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "all.h").write_text("".join(f"int part{n}(int);\n" for n in range(size)))
    for n in range(size):
        functions = "".join(FUNCTION % {"n": n, "k": k} for k in range(6))
        calls = " + ".join(f"f{n}_{k}(x)" for k in range(6))
        (folder / f"part{n}.c").write_text(SOURCE % {"n": n, "functions": functions, "calls": calls})
    total = " + ".join(f"part{n}(c)" for n in range(size))
    main = f"int main(int c, char **v) {{ (void)v; return ({total}) == 42; }}"
    (folder / "main.c").write_text(f'#include "all.h"\n{main}\n')


def _text_files(folder: Path, size: int) -> None:
    for n in range(size):
        sub = folder / f"d{n % 20}"
        sub.mkdir(exist_ok=True)
        (sub / f"file{n}.txt").write_text("".join(f"line {k} of file {n}\n" for k in range(n % 40 + 1)))


def _node_script(folder: Path, _size: int) -> None:
    (folder / "write.cjs").write_text(NODE)


def _wheel(folder: Path, size: int) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    files = {f"many/m{n}.py": f"VALUE = {n}\n" * 20 for n in range(size)} | {"many/__init__.py": ""}
    info = "many-1.0.dist-info"
    files[f"{info}/METADATA"] = "Metadata-Version: 2.1\nName: many\nVersion: 1.0\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    lines = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(text)}\n")
    with zipfile.ZipFile(folder / "many-1.0-py3-none-any.whl", "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "".join(lines) + f"{info}/RECORD,,\n")


def _npm_packages(folder: Path, size: int) -> None:
    packages = max(1, size // 20)
    for n in range(packages):
        with tarfile.open(folder / f"p{n}.tgz", "w:gz") as archive:
            files = {f"package/lib/m{k}.js": f"exports.value = {k}\n" * 20 for k in range(20)}
            files["package/package.json"] = f'{{"name": "bench-p{n}", "version": "1.0.0"}}'
            for name, text in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text)
                archive.addfile(entry, BytesIO(text.encode()))
    wanted = ", ".join(f'"bench-p{n}": "file:./p{n}.tgz"' for n in range(packages))
    (folder / "package.json").write_text(f'{{"name": "app", "version": "1.0.0", "dependencies": {{{wanted}}}}}')


def _sh(text: str) -> Callable[[int], list[str]]:
    return lambda size: ["/bin/sh", "-c", text.replace("SIZE", str(size))]


def all_workloads() -> list[Workload]:
    """In the order of the table."""
    python = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
    starts = f"i=0; while [ $i -lt SIZE ]; do {python} -c 'import json, subprocess'; i=$((i+1)); done"
    npm = "npm install --offline --no-audit --no-fund --silent --cache ./cache"
    pip = f"{sys.executable} -m pip --python env/bin/python install -q --no-index --no-deps --no-compile "
    pip += "--disable-pip-version-check --root-user-action=ignore many-1.0-py3-none-any.whl"
    return [
        Workload("true", "`true`", 1, 1, lambda _: ["true"], lambda _: {"process.exec": 1}),
        Workload("python", "{size} Python start-ups", 50, 3, _sh(starts), lambda n: {"process.exec": n + 1},
                 target=1.06),
        Workload(
            "c-build", "C build, make -j2, {size} files", 60, 3, lambda _: ["make", "-s", "-j2"],
            lambda n: {"process.exec": 3 * n, "file.edit": n + 1}, _c_project, ("gcc", "make"), target=1.06,
        ),
        Workload(
            "git", "git: init, add, commit, checkout, status of {size} files", 2000, 40, _sh(GIT),
            lambda n: {"process.exec": 9, "file.edit": n}, _text_files, ("git",), target=1.35,
        ),
        Workload(
            "node", "Node writes {size} files (sync)", 5000, 50, lambda n: ["node", "write.cjs", str(n)],
            lambda n: {"file.edit": n, "file.directory": 20}, _node_script, ("node",),
        ),
        Workload(
            "npm", "npm install, offline, {size} files", 600, 20, _sh(npm), lambda n: {"file.edit": n}, _npm_packages,
            ("npm",), target=1.06,
        ),
        Workload(
            "pip", "pip install of a wheel of {size} files", 600, 5, _sh(pip), lambda n: {"file.edit": n}, _wheel,
            target=1.06,
        ),
        Workload(
            "cpu", "CPU loop", 800_000_000, 1_000_000, lambda _: ["./spin"], lambda _: {"process.exec": 1},
            lambda folder, n: compiled(folder, "spin", SPIN % n), ("gcc",),
        ),
        Workload(
            "files", "{size} x create, write, unlink (C)", 100_000, 200, lambda n: ["./loop", str(n)],
            lambda n: {"file.edit": n}, lambda folder, _: compiled(folder, "loop", LOOP), ("gcc",), target=3.5,
        ),
        Workload(
            "find", "find over /usr", 1, 0, lambda n: ["find", "/usr" if n else "/usr/include", "-newer", "/usr"],
            lambda _: {"process.exec": 1},
        ),
    ]  # fmt: skip
