"""Whose connection it is, where no tracer tells: the user, and the process that holds the socket (proc_pid_fd(5))."""

import os

from agentwrap.gateway.callers import Caller
from agentwrap.gateway.netlink.diag import Diag, End


class ForeignError(PermissionError):
    """A connection of another user's."""


def owner(diag: Diag | None, local: End, remote: End) -> Caller | None:
    """The process whose socket has these ends, `local` being its own; None where nobody tells.

    Raises ForeignError for a socket of another user's.
    """
    try:
        found = diag.lookup("tcp", local, remote) if diag is not None else None
    except (OSError, ValueError):
        return None
    if found is None:
        return None
    uid, inode = found
    if uid != os.geteuid():
        raise ForeignError(f"user {uid}")
    pid = _holder(f"socket:[{inode}]")
    return Caller(inode, 0, pid, "run", "tcp", *remote) if pid else None


def _holder(link: str) -> int:
    own = os.getpid()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != own and link in _links(f"/proc/{name}/fd"):
            return int(name)
    return 0


def _links(folder: str) -> set[str]:
    found = set()
    try:
        for name in os.listdir(folder):
            try:
                found.add(os.readlink(f"{folder}/{name}"))
            except OSError:
                continue  # closed meanwhile
    except OSError:
        pass  # another user's, or gone
    return found
