"""Boots a stock Debian kernel under qemu, with a file system of this machine's own files, and runs one program in it.

Nothing is installed and no disk image is needed: the kernel's package is downloaded and unpacked beside (cached in
`~/.cache/agentwrap-kernels`), and the initial file system holds this Python, its packages, this checkout and a few
tools, under the paths that they have here. The guest has loopback and nothing else.

    python tests/kernels/boot.py [--kernel PACKAGE] -- COMMAND...     what the guest says comes out, its status too
"""

import lzma
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parent.parent.parent
QEMU = "qemu-system-x86_64"
# What a run may need of the kernel and a distribution builds as modules.
MODULES = (
    "nf_tables nfnetlink nft_tproxy nft_socket nft_reject nft_reject_inet nft_log nfnetlink_log nft_limit nft_objref "
    "nft_counter nf_log_syslog overlay"
).split()
TOOLS = (
    "sh bash env true false cat echo ls mkdir rmdir mv cp rm ln sleep touch chmod sed grep id setsid setpriv mount "
    "umount ip curl git getent ldd"
).split()
# Large, and needed by nothing that runs in a guest.
LEFT_OUT = re.compile(
    r"mypy|ruff|pip|setuptools|pkg_resources|grpc|aiohttp|pygments|hypothesis|pyroute2|mypyc|textual|test|idlelib|lib2to3"
    r"|tkinter|ensurepip|pydoc_data|turtledemo"
)
OTHERS = re.compile(LEFT_OUT.pattern + "|site-packages|dist-packages")  # of the Python below an environment
MEMORY_MB = 1536


class Unavailable(Exception):  # noqa: N818 -- it is an answer
    """Why no kernel can be booted here, in words for a skip."""


def missing() -> str:
    """What this machine lacks to boot anything; empty if nothing."""
    if platform.machine() != "x86_64":
        return "only x86-64 kernels are booted"
    for program, package in ((QEMU, "qemu-system-x86"), ("dpkg-deb", "dpkg"), ("apt-get", "apt"), ("ldd", "libc-bin")):
        if not shutil.which(program):
            return f"{program} is not here ({package})"
    return ""


def cache() -> Path:
    """Where unpacked kernels are kept."""
    base = os.environ.get("AGENTWRAP_KERNELS") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(base) / "agentwrap-kernels"


# -- kernels


def packages() -> list[str]:
    """The kernels of Debian's small flavour that the package lists of this machine know, oldest first."""
    done = subprocess.run(
        ["apt-cache", "search", "--names-only", r"^linux-image-[0-9].*-cloud-amd64$"], capture_output=True, text=True
    )
    names = [line.split(" ")[0] for line in done.stdout.splitlines()]
    return sorted(names, key=_version)


def _version(name: str) -> list[int]:
    return [int(word) for word in re.findall(r"\d+", name.removesuffix("-cloud-amd64"))]


def oldest_and_newest() -> list[str]:
    """The newest build of the oldest line, and the newest of all: one name where there is one line alone."""
    known = packages()
    if not known:
        raise Unavailable("the package lists know no linux-image-*-cloud-amd64 (Debian, after apt-get update)")
    first = _version(known[0])[:2]
    old = [name for name in known if _version(name)[:2] == first][-1]
    return list(dict.fromkeys((old, known[-1])))


def unpacked(package: str) -> Path:
    """The folder of an unpacked kernel package, downloaded if need be. Raises Unavailable."""
    folder = cache() / package
    if folder.exists():
        return folder
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache()) as work:
        os.chmod(work, 0o755)
        done = subprocess.run(["apt-get", "download", package], cwd=work, capture_output=True, text=True, timeout=300)
        found = list(Path(work).glob("*.deb"))
        if not found:
            last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
            raise Unavailable(f"{package} cannot be downloaded: {last}")
        subprocess.run(["dpkg-deb", "-x", found[0], f"{work}/tree"], check=True)
        os.rename(f"{work}/tree", folder)
    return folder


def modules(kernel: Path) -> list[tuple[str, bytes]]:
    """Wanted modules and what they depend on, in the order to load them; what is built in, or absent, is left out."""
    files = {_plain(path.name): path for path in (kernel / "lib/modules").rglob("*.ko*")}
    order: dict[str, bytes] = {}

    def add(name: str) -> None:
        path = files.get(name)
        if path is None or name in order:
            return
        data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        depends = re.search(rb"\0depends=([^\0]*)\0", data)
        for other in (depends[1].decode() if depends else "").split(","):
            add(_plain(other))
        order[name] = data

    for name in MODULES:
        add(name)
    return list(order.items())


def _plain(name: str) -> str:
    return name.partition(".ko")[0].replace("-", "_")


# -- the file system


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
            mode = 0o755 if os.access(real, os.X_OK) else 0o644
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


def file_system(target: Path, kernel: Path, init: str) -> None:
    """Write the archive: this machine's Python, packages, checkout and tools, the kernel's modules, and `init`."""
    python = _python()
    tools = {Path(found) for name in TOOLS if (found := shutil.which(name))}
    binaries = {Path(sys.executable).resolve(), *tools, *(path for path in python if ".so" in path.suffixes)}
    loaded = _libraries(binaries) | {Path(one) for one in ("/lib64/ld-linux-x86-64.so.2",) if Path(one).exists()}
    names = {f"/lib/x86_64-linux-gnu/libnss_{name}.so.2" for name in ("files", "dns")}
    with Archive(target) as archive:
        for place in ("proc", "sys", "dev", "tmp", "run", "var/tmp"):
            archive.folder(place, 0o1777 if place.endswith("tmp") else 0o755)
        archive.device("dev/console", 5, 1)
        archive.device("dev/null", 1, 3)
        for path in (*python, *tools, *loaded, *(Path(one) for one in names)):
            archive.copy(path)
        for path in _tree(ROOT):
            if not path.is_relative_to(ROOT / "tests/recordings") and ".venv" not in path.parts:
                archive.copy(path)
        for name in ("passwd", "group", "nsswitch.conf", "hosts", "protocols", "services", "ld.so.cache"):
            archive.copy(Path("/etc") / name)
        archive.data("etc/resolv.conf", b"")
        for number, (name, data) in enumerate(modules(kernel)):
            archive.data(f"modules/{number:02}-{name}.ko", data)
        archive.data("init", init.encode(), 0o755)


INIT = """#!/bin/sh
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LANG=C.UTF-8 TERM=dumb
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm; mount -t devpts pts /dev/pts; mount -t tmpfs shm /dev/shm
mount -t tmpfs -o mode=1777 tmp /tmp; mount -t tmpfs run /run; mount -t securityfs security /sys/kernel/security
ln -sf /proc/self/fd /dev/fd
cd {root}
exec {python} -B {guest} {words} </dev/null >/dev/console 2>&1
"""


# -- the machine


@dataclass(frozen=True)
class Booted:
    """What the guest left: the bytes on its second serial line, and its console, for when something went wrong."""

    said: str
    console: str


def boot(package: str, words: list[str], *, timeout_s: float = 200) -> Booted:
    """Boot and run `guest.py WORDS`; what it says comes over the second serial line.

    Raises Unavailable, subprocess.TimeoutExpired.
    """
    kernel = unpacked(package)
    (image,) = (kernel / "boot").glob("vmlinuz-*")
    guest = Path(__file__).resolve().with_name("guest.py")
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    with tempfile.TemporaryDirectory(prefix="agentwrap-kernel-") as folder:
        work = Path(folder)
        init = INIT.format(root=ROOT, python=sys.executable, guest=guest, words=quoted)
        file_system(work / "initrd", kernel, init)
        command = [
            QEMU, "-accel", "tcg,thread=multi", "-smp", "2", "-m", str(MEMORY_MB), "-display", "none",
            "-monitor", "none", "-nic", "none", "-no-reboot",
            "-serial", f"file:{work}/console", "-serial", f"file:{work}/said",
            "-kernel", image, "-initrd", work / "initrd",
            "-append", "console=ttyS0 quiet loglevel=3 rdinit=/init panic=-1",
        ]  # fmt: skip
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False)
        finally:
            console = _read(work / "console")
            said = _read(work / "said")
    return Booted(said, console)


def _read(path: Path) -> str:
    return path.read_text(errors="replace").replace("\r\n", "\n") if path.exists() else ""


def main(arguments: list[str]) -> int:
    package = ""
    if arguments[:1] == ["--kernel"]:
        package, arguments = arguments[1], arguments[2:]
    if why := missing():
        sys.stderr.write(f"{why}\n")
        return 125
    booted = boot(package or oldest_and_newest()[0], ["--run", *arguments[arguments[:1] == ["--"] :]], timeout_s=900)
    sys.stdout.write(booted.said or booted.console)
    status = re.search(r"^status (\d+)$", booted.said, re.MULTILINE)
    return int(status[1]) if status else 125


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
