"""The bench's own internet: two network namespaces with a wire between them, and nothing else.

Programs run in one. It has a whole network on its own loopback, for traffic, and a default route, which leads to the
other one: there is a web server with two names (some tools let nothing reach a machine's own addresses).
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Self

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

from internet import Internet  # noqa: E402

NEAR = IPv4Network("198.18.0.0/15")  # for benchmarks (RFC 2544)
HOST, DENIED_HOST, WEB_PORT = "bench.example", "denied.example", 8000
FAR = {HOST: "198.51.100.1", DENIED_HOST: "198.51.100.3"}
NOBODY = 65534
_WIRE = f"""
ip link add bench0 type veth peer name bench1 && ip link set bench1 netns PID && ip link set bench0 up &&
ip addr add 198.51.100.2/24 dev bench0 && ip route add default via {FAR[HOST]} dev bench0
"""
_FAR_END = "ip link set lo up && ip link set bench1 up && " + " && ".join(
    f"ip addr add {address}/24 dev bench1" for address in FAR.values()
)
_WEB = f"""
import os, socket, subprocess, sys
print(os.getpid(), flush=True)
sys.stdin.readline()
subprocess.run({_FAR_END!r}, shell=True, check=True)
listener = socket.create_server(("0.0.0.0", {WEB_PORT}), backlog=64)
print("ready", flush=True)
while True:
    client, _ = listener.accept()
    with client:
        try:
            client.recv(65536)
            client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\nConnection: close\\r\\n\\r\\nhello")
        except OSError:
            pass
"""


class Place:
    """`folder`: everybody may read it. `plain_home`: of the plain user. `has_way_out`: there is a default route."""

    def __init__(self) -> None:
        with ExitStack() as undo:
            self.folder = Path(tempfile.mkdtemp(prefix="agentwrap-bench-", dir="/tmp"))
            undo.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.folder.chmod(0o755)
            self.home, self.plain_home = self.folder / "home", self.folder / "plain"
            for home in (self.home, self.plain_home):
                home.mkdir()
            self.net = undo.enter_context(Internet(self.folder, {}))
            with (self.folder / "hosts").open("a") as hosts:
                hosts.writelines(f"{address} {name}\n" for name, address in FAR.items())
            self._sh(f"ip route add local {NEAR} dev lo")
            self.has_way_out = self._wire(undo)
            if os.geteuid() == 0:
                os.chown(self.plain_home, NOBODY, NOBODY)
                tun = self.folder / "tun"
                os.mknod(tun, 0o20666, os.makedev(10, 200))
                tun.chmod(0o666)
                self._sh(f"mount --bind {tun} /dev/net/tun")
            self._undo = undo.pop_all()

    def _wire(self, undo: ExitStack) -> bool:
        far = self.net.popen(
            ["unshare", "-n", sys.executable, "-c", _WEB], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        undo.callback(far.wait)
        undo.callback(far.kill)
        assert far.stdin
        assert far.stdout
        pid = far.stdout.readline().decode().strip()
        if not self._sh(_WIRE.replace("PID", pid or "0")):
            return False
        far.stdin.write(b"\n")
        return far.stdout.readline() == b"ready\n"

    def _sh(self, script: str) -> bool:
        return self.net.run(["sh", "-c", script], capture_output=True).returncode == 0

    def environment(self, *, plain: bool = False) -> dict[str, str]:
        """Nothing of the user's, and no proxy."""
        places = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
        home = self.plain_home if plain else self.home
        return {"PATH": ":".join(places), "HOME": str(home), "LANG": "C.UTF-8", "NO_COLOR": "1"}

    def run(self, argv: Sequence[str], *, plain: bool = False, **more: Any) -> "subprocess.CompletedProcess[bytes]":
        """Run a program in there."""
        if plain:
            argv = [*as_plain(), *argv]
        options = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": 900, **more}
        home = self.plain_home if plain else self.home
        return self.net.run(argv, env=self.environment(plain=plain), cwd=home, **options)

    def close(self) -> None:
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def as_plain() -> list[str]:
    """What makes a command a plain user's, put before it by root."""
    return ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--"]


def plain_cannot(place: Place, program: Sequence[str]) -> str:
    """Why a plain user cannot run `program` (with --version); empty if it can."""
    if os.geteuid():
        return "the other rows are a plain user's"
    if not shutil.which("setpriv"):
        return "setpriv is not installed"
    try:
        done = place.run([*program, "--version"], plain=True)
    except OSError as error:
        return f"a plain user cannot run {program[0]}: {error.strerror}"
    return "" if done.returncode == 0 else f"a plain user cannot run {program[0]}"
