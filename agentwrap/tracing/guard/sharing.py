"""Calls that are let go although another thread could put something else under them. Told as a gap, once a process.

A connect of a unix socket shows the peer the program's credentials, a message may carry descriptors: these the kernel
makes itself. Between our look and the kernel's, whoever shares the descriptors can put an internet socket there and an
internet address into the memory. The loopback device holds what is slipped so, but for a message: its control data may
name another device (IP_PKTINFO, net/ipv4/ip_sockglue.c).
"""

import os

from agentwrap.tracing.guard.sockets import Sockets
from agentwrap.tracing.guard.told import Told
from agentwrap.tracing.processes import Process
from agentwrap.tracing.syscalls.watched import CLONE_FILES

_CLONE_THREAD = 0x10000  # sched.h
CAUSE = "shared-descriptors"
_SHARES = "guard shares descriptors"
_LINKS_OF_ONE = 3  # a folder's own two, and one for each thread (fs/proc/base.c)
_MESSAGES = ("sendmsg", "sendmmsg")
_NEAR = "to services of this machine's own loopback, which another thread slips under a call"
RACY = ("connect", "sendto", *_MESSAGES)
"""Calls that name an address or may."""


class Sharing:
    """Who shares descriptors, and what was told of it. `landlock`: the kernel itself refuses TCP connections."""

    def __init__(self, told: Told, sockets: Sockets, *, landlock: bool) -> None:
        self._told = told
        self._sockets = sockets
        self._landlock = landlock
        self._early: dict[tuple[str, str], Process] = {}

    def cloned(self, process: Process, flags: int) -> None:
        """clone(2): a child that shares the descriptors without being a thread is marked, and all below with it."""
        if flags & CLONE_FILES and not flags & _CLONE_THREAD:
            process.once(_SHARES)

    def shares(self, process: Process) -> bool:
        """Whether anybody else could change the descriptors of a thread of `process` that stands in a call."""
        try:
            if os.stat(f"/proc/{process.pid}/task").st_nlink > _LINKS_OF_ONE:
                return True
        except OSError:
            return False  # it is gone
        above: Process | None = process
        while above is not None:
            if _SHARES in above.reported:
                return True
            above = above.parent
        return False

    def group(self, process: Process) -> int:
        """The same number for all who may share descriptors with each other."""
        top, above = process, process.parent
        while above is not None:
            if _SHARES in above.reported:
                top = above
            above = above.parent
        return top.pid

    def let_go(self, process: Process, call: str, *, in_memory: bool = False) -> None:
        """A call of `RACY` is left to the kernel. `in_memory`: even which socket it is about may change, by anybody."""
        kind = "message" if call in _MESSAGES or in_memory else call
        if f"guard shared {kind}" in process.reported or not (in_memory or self.shares(process)):
            return
        if self._sockets.any_datagrams:
            self._tell(process, kind)
        else:
            self._early[process.span, kind] = process
        if call == "connect" and not self._landlock and process.once("guard shared connect, too"):
            detail = "connect; Landlock does not hold ports here"
            self._told.gap(process, "connect", CAUSE, f"connections {_NEAR}", detail)

    def settle(self) -> None:
        """There are sockets now that could be slipped under a call: those who could have done so are told."""
        if self._early and self._sockets.any_datagrams:
            for (_span, kind), process in self._early.items():
                self._tell(process, kind)
            self._early.clear()

    def _tell(self, process: Process, kind: str) -> None:
        process.once(f"guard shared {kind}")
        if kind == "message" and process.once("guard shared far"):
            could_hide = "datagrams to any host, which another thread slips under a message"
            self._told.gap(process, "udp", CAUSE, could_hide, "sendmsg")
        elif process.once("guard shared near"):
            could_hide = f"datagrams {_NEAR}"
            self._told.gap(process, "udp", CAUSE, could_hide, kind)
