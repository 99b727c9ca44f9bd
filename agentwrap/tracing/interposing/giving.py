"""The same swap by the notify listener: a process that waits in a reported call is given other descriptors.

SECCOMP_IOCTL_NOTIF_ADDFD with SETFD (seccomp_unotify(2)), from Linux 5.9. The call is one of ours in a program that has
not begun, or, where nothing is traced, the execve itself. That may fail yet: then the process has the new ones, and
whatever it tries next inherits them.
"""

import fcntl
import os
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from agentwrap.mcp.handover import Ends
from agentwrap.tracing.interposing import descriptors
from agentwrap.tracing.interposing.descriptors import Held, Kind
from agentwrap.tracing.interposing.swap import Standard, taken

_ADDFD, _SETFD = 0xC0182103, 1  # linux/seccomp.h
_pack = struct.Struct("=QIIII").pack


class _Place(NamedTuple):
    """A descriptor of the process, ours for it, and ours of what was there."""

    one: Held
    new: int
    former: int


def give(
    listener: int, request: int, pid: int, standard: Standard, hand_over: Callable[[Ends], None]
) -> tuple[int, int]:
    """Do it to the process whose call waits as `request`: the identity of its new standard input.

    `hand_over` gets the relay's ends, which are closed here afterwards. Raises OSError, and all is as it was.
    """
    with ExitStack() as ours:

        def keep(descriptor: int) -> int:
            ours.callback(os.close, descriptor)
            return descriptor

        client_in, client_out = map(keep, taken(pid, standard))
        for one, client in zip(standard, (client_in, client_out), strict=True):
            if one.kind is Kind.SOCKET and not descriptors.is_stream(client):
                raise OSError("a socket that is no stream of this machine")
        owner = os.stat(f"/proc/{pid}")
        for_input, server_in = map(keep, _pair(standard.input, client_in, server_reads=True))
        for_output, server_out = for_input, server_in
        if standard.is_one:
            server_out = keep(os.dup(server_in))
        else:
            for_output, server_out = map(keep, _pair(standard.output, client_out, server_reads=False))
        for descriptor in (for_input, for_output):
            _give_to(owner, descriptor)
        new = {standard.input: (for_input, client_in), standard.output: (for_output, client_out)}
        # What closes at the exec need not be changed.
        same = [(place, one) for place, one in descriptors.others(pid, standard) if not place.closes]
        places = [_Place(place, *new[one]) for place, one in (*zip(standard, standard, strict=True), *same)]
        _put(listener, request, places, lambda: hand_over(Ends(client_in, client_out, server_in, server_out)))
        status = os.fstat(for_input)
        return status.st_dev, status.st_ino


def _pair(like: Held, client: int, *, server_reads: bool) -> tuple[int, int]:
    """What is like the client's: the server's end, and the relay's."""
    if like.kind is Kind.SOCKET:
        theirs, ours = (one.detach() for one in socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM))
    else:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        theirs, ours = (reading, writing) if server_reads else (writing, reading)
        descriptors.size_as(theirs, client)
    fcntl.fcntl(theirs, fcntl.F_SETFL, fcntl.fcntl(theirs, fcntl.F_GETFL) | like.status_flags)
    return theirs, ours


def _give_to(owner: os.stat_result, descriptor: int) -> None:
    """A pipe belongs to who made it, and only its owner may open it once more (/dev/stdin)."""
    if owner.st_uid != os.geteuid():
        try:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        except OSError:
            pass  # we may not give anything away


def _put(listener: int, request: int, places: list[_Place], then: Callable[[], None]) -> None:
    done: list[_Place] = []
    try:
        for place in places:
            _add(listener, request, place.new, place.one)
            done.append(place)
        then()
    except OSError:
        for place in done:
            _add(listener, request, place.former, place.one)
        raise


def _add(listener: int, request: int, descriptor: int, one: Held) -> None:
    """Raises OSError: ENOENT for a process that was killed, EINVAL before Linux 5.9."""
    fcntl.ioctl(listener, _ADDFD, _pack(request, _SETFD, descriptor, one.number, one.flags & os.O_CLOEXEC))
