"""Boots a stock Debian kernel under qemu, with a file system of this machine's own files, and runs one program in it.

Nothing is installed and no disk image is needed: the kernel's package is downloaded and unpacked beside (cached in
`~/.cache/agentwrap-kernels`), and the initial file system holds this Python, its packages, this checkout and a few
tools, under the paths that they have here. The guest has loopback and nothing else.

    python tests/kernels/boot.py [--kernel PACKAGE] -- COMMAND...     what the guest says comes out, its status too
    python tests/kernels/boot.py [--kernel PACKAGE] --tests kernel_tests root tests/kernel/test_wall.py -k quic
"""

import lzma
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from kernels import filesystem  # noqa: E402

QEMU = "qemu-system-x86_64"
# What a run may need of the kernel and a distribution builds as modules. Nothing loads them by itself in a guest.
MODULES = (
    "nf_tables nfnetlink nft_tproxy nft_socket nft_reject nft_reject_inet nft_log nfnetlink_log nft_limit nft_objref "
    "nft_counter nf_log_syslog overlay inet_diag tcp_diag udp_diag unix_diag"
).split()
MEMORY_MB = 2560


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


# Where unpacked kernels are kept. Read when this is loaded: tests have a cache folder of their own.
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentwrap-kernels"


def accelerators() -> list[str]:
    """How the guest's processor is made: by this one where it says that it can, else emulated."""
    found = ["-accel", "tcg,thread=multi"]
    flags = re.search(r"^flags\s*:(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    if flags is not None and {"vmx", "svm"} & set(flags[1].split()) and os.access("/dev/kvm", os.R_OK | os.W_OK):
        return ["-accel", "kvm", *found]  # the next one where the first does not work
    return found


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
    folder = _CACHE / package
    if folder.exists():
        return folder
    _CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE) as work:
        os.chmod(work, 0o755)
        done = subprocess.run(["apt-get", "download", package], cwd=work, capture_output=True, text=True, timeout=300)
        found = list(Path(work).glob("*.deb"))
        if not found:
            last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
            raise Unavailable(f"{package} cannot be downloaded: {last}")
        subprocess.run(["dpkg-deb", "-x", found[0], f"{work}/tree"], check=True)
        try:
            os.rename(f"{work}/tree", folder)
        except OSError:
            if not folder.exists():  # else somebody else has unpacked it meanwhile (rename(2), ENOTEMPTY)
                raise
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


# A sandbox changes its root, which it cannot where that is the kernel's first one (pivot_root(2), EINVAL): so the same
# files are mounted once more, over it.
INIT = """#!/bin/sh
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LANG=C.UTF-8 TERM=dumb
if [ "$1" != over ]; then mount --bind / /whole; cd /whole; mount --move . /; exec chroot . /init over; fi
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm; mount -t devpts pts /dev/pts; mount -t tmpfs shm /dev/shm
mount -t tmpfs -o mode=1777 tmp /tmp; mount -t tmpfs run /run; mount -t securityfs security /sys/kernel/security
ln -s /proc/self/fd /dev/fd; for n in 0:stdin 1:stdout 2:stderr; do ln -s /proc/self/fd/${{n%:*}} /dev/${{n#*:}}; done
cd {root}
exec {python} -B {guest} {words} </dev/null >/dev/console 2>&1
"""


# -- the machine


@dataclass(frozen=True)
class Booted:
    """What the guest left: the bytes on its second serial line, and its console, for when something went wrong."""

    said: str
    console: str
    ended: bool
    """Whether it switched itself off in time."""


def boot(package: str, words: list[str], *, timeout_s: float = 200) -> Booted:
    """Boot and run `guest.py WORDS`; what it says comes over the second serial line.

    Raises Unavailable.
    """
    kernel = unpacked(package)
    (image,) = (kernel / "boot").glob("vmlinuz-*")
    guest = Path(__file__).resolve().with_name("guest.py")
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    with tempfile.TemporaryDirectory(prefix="agentwrap-kernel-") as folder:
        work = Path(folder)
        init = INIT.format(root=ROOT, python=sys.executable, guest=guest, words=quoted)
        filesystem.write(work / "initrd", modules(kernel), init)
        command = [
            QEMU, *accelerators(), "-smp", "2", "-m", str(MEMORY_MB), "-display", "none",
            "-monitor", "none", "-nic", "none", "-no-reboot",
            "-serial", f"file:{work}/console", "-serial", f"file:{work}/said",
            "-kernel", image, "-initrd", work / "initrd",
            # The timer of an emulated machine that has to wait looks broken to a kernel that checks it.
            "-append", "console=ttyS0 quiet loglevel=3 rdinit=/init panic=-1 no_timer_check",
        ]  # fmt: skip
        ended = True
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            ended = False
        return Booted(_read(work / "said"), _read(work / "console"), ended)


def _read(path: Path) -> str:
    return path.read_text(errors="replace").replace("\r\n", "\n") if path.exists() else ""


def main(arguments: list[str]) -> int:
    package = ""
    if arguments[:1] == ["--kernel"]:
        package, arguments = arguments[1], arguments[2:]
    if why := missing():
        sys.stderr.write(f"{why}\n")
        return 125
    words = arguments[1:] if arguments[:1] == ["--tests"] else ["--run", *arguments[arguments[:1] == ["--"] :]]
    booted = boot(package or oldest_and_newest()[0], words, timeout_s=4 * 3600)
    sys.stdout.write(booted.said or booted.console)
    status = re.search(r"^status (\d+)$", booted.said, re.MULTILINE)
    return int(status[1]) if status else 125


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
