"""Who connects to our proxy: accepted on loopback, and looked for in what the tracer and the kernel tell."""

import errno
import socket
from collections.abc import Awaitable, Callable

import trio

from agentwrap.gateway.callers import Caller
from agentwrap.gateway.proxying.front import Front
from agentwrap.gateway.relay import abort

_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_BROKEN = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK)
_NO_ROOM_S = 0.02
End = tuple[str, int]
Who = Callable[[End, End], Caller | None]


async def serve(
    front: Front, listener: socket.socket, who: Who, room: Callable[[], Awaitable[None]], nursery: trio.Nursery
) -> None:
    """For ever. `who` knows the process that has the socket with its own end and ours, and raises ForeignError."""
    listener.setblocking(False)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what it accepts inherits it (tcp(7))
    while True:
        await room()
        try:
            client, peer = listener.accept()
        except BlockingIOError:
            await trio.lowlevel.wait_readable(listener)
            continue
        except OSError as error:
            if error.errno in _BROKEN:
                raise
            await trio.sleep(_NO_ROOM_S if error.errno in _NO_ROOM else 0)
            continue
        client.setblocking(False)
        try:
            caller = who(peer[:2], client.getsockname()[:2])
        except OSError:  # another user, or gone already
            abort(client)
            continue
        front.begin(client, caller, nursery)
