"""Doors through which effects leave our sight: each use of one is a gap, told once a process and door.

Knows which sockets, devices and calls act where we cannot look. Asks the system of sockets alone: whether one is there,
and of what family.
"""

import os
import re
import socket
import stat
from collections.abc import Callable
from typing import NamedTuple

from agentwrap.events import CoverageKind, Gap, ProcessReach, Sink
from agentwrap.tracing.gaps import gap_of
from agentwrap.tracing.processes import Process
from agentwrap.tracing.syscalls.addresses import Address

# Services that do anything they are asked to, as somebody else: containers, units, sessions.
_ACTS_FOR_OTHERS = re.compile(
    rb"(^|/)(docker|podman|containerd|crio|buildkitd|lxd|libvirt-sock|firecracker)[^/]*\.?sock"
    rb"|/podman/|/containerd/|/systemd/private$|/dbus/system_bus_socket$|/run/user/\d+/bus$|^@/tmp/dbus-"
    rb"|/tmux-\d+/|/screens?/|/emacs\d*/|/pipe/.*\.sock$"
)
# Services that only answer questions or take log lines.
_ONLY_ANSWERS = re.compile(
    rb"^(/var)?/run/nscd/socket$|^/dev/log$|^/run/systemd/journal/|^/run/systemd/resolve/|^(/var)?/run/avahi-daemon/"
    rb"|^/run/systemd/userdb/|^(/var)?/run/setrans/"
)
_DESCRIPTOR = re.compile(rb"/proc/(\d+)/(?:task/\d+/)?fd/\d+")
_LINKS_MAX = 40  # path_resolution(7)
_OTHERS_MEMORY = re.compile(rb"^/proc/(\d+)/(?:task/\d+/)?mem$")
_WORLD: tuple[CoverageKind, ...] = ("exec", "file-write", "connect")


class RefusedError(Exception):
    """A call that names a door which is closed to its process: fails with `number`."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Door(NamedTuple):
    """What one use of a door leaves unseen."""

    what: CoverageKind
    cause: str
    could_hide: str


def doors_of_socket(path: bytes) -> list[Door]:
    """The gaps that a connection to a service outside the tree opens, by the socket's path (`@`: abstract)."""
    if _ONLY_ANSWERS.search(path):
        return []
    out = [Door("unix", "outside-service", "what this service does for the process, and descriptors it hands over")]
    if _ACTS_FOR_OTHERS.search(path):
        out += [Door(what, "outside-service", "what this service does on the process's behalf") for what in _WORLD]
    return out


def inherited_socket(process: Process, at_ns: int, descriptor: int) -> Gap | None:
    """The gap that a connection of before the run opens: what goes over it needs no call that would be seen."""
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        if sock.family not in (socket.AF_INET, socket.AF_INET6, socket.AF_VSOCK):
            return None  # a service of the machine's, or whoever started us
    could_hide = "what any process of the run says over a connection that it began with"
    return gap_of(process, at_ns, "connect", "inherited-socket", could_hide, f"descriptor {descriptor}")


class BlindSpots:
    """Tells gaps about doors. `there(path)`: whether a socket of that name exists (a connect to none does nothing)."""

    def __init__(self, sink: Sink, now: Callable[[], int], there: Callable[[bytes], bool]) -> None:
        self._sink = sink
        self._now = now
        self._there = there
        self._own: set[bytes] = set()
        self.pipe: Callable[[Process, tuple[int, int]], int] = lambda _process, _identity: 0
        """Asked about a pipe (device, inode) that is opened by its name in /proc: an errno, or 0."""

    def bound(self, address: Address) -> None:
        """The tree itself serves this unix address."""
        if address.path and len(self._own) < 10_000:
            self._own.add(address.path)

    def connecting(self, process: Process, address: Address, shown: bytes) -> None:
        """A process connects to a unix socket; `shown` is its absolute path."""
        if address.path in self._own or shown in self._own:
            return
        doors = doors_of_socket(shown)
        if doors and (shown.startswith(b"@") or self._there(shown)) and process.once("door " + shown.hex()):
            for door in doors:
                self._gap(process, door, shown)

    def raw_device(self, process: Process, path: bytes) -> None:
        """A block device is opened for writing: whatever file system lies on it changes unseen."""
        if process.once("device " + path.hex()):
            self._gap(process, Door("file-write", "raw-device", "changes to the file system on this device"), path)

    def opened_by_handle(self, process: Process) -> None:
        """open_by_handle_at names no path."""
        if process.once("handle"):
            door = Door("file-write", "opened-by-handle", "files opened by handle instead of by path")
            self._gap(process, door, b"")

    def memory_of_another(self, process: Process, path: bytes) -> bool:
        """Tell when /proc/PID/mem of another process is opened for writing; true if it was that."""
        match = _OTHERS_MEMORY.match(path)
        if match is None or int(match[1]) == process.pid:
            return False
        target = int(match[1])
        if process.once(f"memory {target}"):
            self._sink(
                ProcessReach(
                    at_ns=self._now(), span=process.span, pid=process.pid, call="open /proc/PID/mem", target=target
                )
            )
        return True

    def pipe_by_link(self, process: Process, tid: int, host: bytes) -> int:
        """As `descriptor`, by links of somebody's making, as /dev/stdin is one."""
        for _ in range(_LINKS_MAX):
            target = os.path.join(os.path.dirname(host), os.readlink(host))
            folder = os.path.realpath(os.path.dirname(target))
            # /proc/self is ours here, and the program's for it.
            folder = re.sub(rb"^/proc/%d(?=/)" % os.getpid(), b"/proc/%d" % tid, folder)
            host = folder + b"/" + os.path.basename(target)
            found = _DESCRIPTOR.fullmatch(host)
            if found is not None:
                return self.descriptor(process, int(found[1]), host)
            if not os.path.islink(host):
                break
        return 0

    def descriptor(self, process: Process, tid: int, host: bytes) -> int:
        """A descriptor without a path is opened by its name in /proc, `host`. An errno, 0 where it may be.

        Tell where it is another process's: a pipe is one's own from then on (proc_pid_fd(5)).
        """
        try:
            status = os.stat(host)
        except OSError:
            return 0  # nothing is there, or nobody may look
        if not stat.S_ISFIFO(status.st_mode):
            return 0
        if not os.path.exists(f"/proc/{process.pid}/task/{tid}") and process.once(f"descriptor {tid}"):
            self._sink(
                ProcessReach(
                    at_ns=self._now(), span=process.span, pid=process.pid, call="open /proc/PID/fd", target=tid
                )
            )
        return self.pipe(process, (status.st_dev, status.st_ino))

    def _gap(self, process: Process, door: Door, detail: bytes) -> None:
        self._sink(gap_of(process, self._now(), door.what, door.cause, door.could_hide, detail))
