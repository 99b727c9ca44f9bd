"""An internet with a wall in it: programs behind the wall, servers outside, and what the gateway told."""

import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import far_side
from internet import Internet

from agentwrap.gateway import service
from agentwrap.tracing.wire import FrameReader

ROOT = Path(__file__).resolve().parent
NAMES: Mapping[str, Sequence[str]] = {
    "a.example": ["203.0.113.1", "2001:db8:1::1"],
    "b.example": ["203.0.113.2"],
    "shared.example": ["203.0.113.3"],
    "shared-too.example": ["203.0.113.3"],
    "denied.example": ["203.0.113.4"],
    "rebound.example": ["10.9.8.7"],
    "two.example": ["203.0.113.5", "203.0.113.6"],
}
_Event = TypeVar("_Event")


@dataclass(frozen=True)
class Told:
    """What a program behind the wall did and what the gateway said about it."""

    status: int
    stdout: str
    stderr: str
    events: tuple[Any, ...]

    def of(self, kind: type[_Event]) -> list[_Event]:
        return [event for event in self.events if isinstance(event, kind)]


class World:
    """Servers are made with `listen` and the functions of `far_side`; then `run` programs behind the wall.

    `names`: the name server of this internet.
    """

    def __init__(self, folder: Path, names: Mapping[str, Sequence[str]] = NAMES) -> None:
        folder.chmod(0o755)
        self.folder = folder
        self.internet = Internet(folder, names)
        # Names are asked of a name server: what stands in the hosts file is known to everybody from the start.
        (folder / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
        (folder / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:30 attempts:5\n")
        self.names = far_side.Names(self.internet.datagrams("127.0.0.1", 53), names)
        self._listening: list[socket.socket] = []

    def listen(self, host: str, port: int) -> socket.socket:
        """A listening socket in this internet, for a server that ends with it."""
        self._listening.append(self.internet.listen(host, port))
        return self._listening[-1]

    def run(self, policy: str, argv: Sequence[str], *options: str, mode: str = "enforce", timeout: float = 300) -> Told:
        """Run a program behind the wall under `[network]` of a policy."""
        head = f'version = 1\nname = "t"\nmode = "{mode}"\n'
        (self.folder / "policy.toml").write_text(head + policy)
        command = [sys.executable, str(ROOT / "walled_run.py"), str(self.folder), *options, "--", *argv]
        done = self.internet.run(command, capture_output=True, timeout=timeout)
        events: list[Any] = []
        try:
            for items in FrameReader().feed((self.folder / "events").read_bytes()):
                events += items
        except FileNotFoundError:
            pass
        return Told(done.returncode, done.stdout.decode(), done.stderr.decode(), tuple(events))

    def python(self, policy: str, code: str, *options: str, **more: Any) -> Told:
        """The same for a piece of Python."""
        return self.run(policy, [sys.executable, "-c", code], *options, **more)

    def close(self) -> None:
        for listener in self._listening:
            far_side.shut(listener)
        self.names.close()
        self.internet.close()


def are_few(rows: Sequence[Any]) -> bool:
    """The first at once, then one for each time that repeats are told, however long all of this takes."""
    return len(rows) <= 3 + (rows[-1].at_ns - rows[0].at_ns) / 1e9 / service._TELL_S


def allow(*hosts: str, deny: Sequence[str] = (), default: str = "deny") -> str:
    """A `[network]` section."""
    lists = f"allow = {list(hosts)!r}\n" if hosts else ""
    return f'[network]\ndefault = "{default}"\n{lists}' + (f"deny = {list(deny)!r}\n" if deny else "")
