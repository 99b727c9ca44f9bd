"""Whether whoever connected may speak for a human: their user, and that they are no part of any run.

An agent must not answer its own question, and not another agent's either. The kernel tells who connected (unix(7),
SO_PEERCRED); what it told is true for as long as that process lives, which is made sure of, too.
"""

import os
import select
import socket
from collections.abc import Callable
from pathlib import Path

from agentwrap.approvals import ancestry, folder

_SO_PEERPIDFD = 77  # Linux 6.5, include/uapi/asm-generic/socket.h


class Peer:
    """The other end of one connection, as it was when it was accepted."""

    def __init__(self, connection: socket.socket) -> None:
        self.pid, self.uid = folder.peer(connection)
        self._accepted_ns = ancestry.now_boottime_ns()
        try:
            self._pidfd = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        except OSError:
            self._pidfd = -1  # an older kernel, or the process is gone

    def close(self) -> None:
        """Let go of it."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def is_gone(self) -> bool:
        """Whether the process that connected has ended, so that its number may be another's by now."""
        if self._pidfd >= 0:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            return bool(poll.poll(0))
        return ancestry.started_after(self.pid, self._accepted_ns)


def refusal(peer: Peer, is_descendant: Callable[[int], bool]) -> str:
    """Why this peer may not speak for a human; empty if it may."""
    if peer.uid not in (0, os.geteuid()):
        return "it belongs to another user"
    try:
        if is_descendant(peer.pid):
            return "a process of the run may not answer for a human"
        ancestry.chain(peer.pid)  # of what cannot be seen nobody knows whether it descends from the run
        if peer.is_gone():
            return "it is gone"
    except ancestry.OutOfSight as error:
        return f"its origin cannot be told: {error}"
    return ""


def part_of_another_run(peer: Peer, path: Path) -> bool:
    """Whether it descends from a run whose socket lies beside ours: that is no human either. Raises OutOfSight."""
    others = folder.supervisors(path.parent, but=path)
    return bool(others) and ancestry.descends(peer.pid, others)
