"""How the tracer hands a server's standard input and output to the relay: one packet with four descriptors.

One SEQPACKET socket, tracer to relay. Its end means that the tracer is gone: no session begins any more.
"""

import array
import errno
import os
import socket

import msgspec

from agentwrap.events.mcp import McpHow

_FDS = 4
_MAX_BYTES = 256 << 10


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A server that begins. Fields as in `McpOpened`."""

    at_ns: int
    span: str
    pid: int
    server: bytes
    how: McpHow
    config: bytes = b""
    command: tuple[bytes, ...] = ()


class Ends(msgspec.Struct, frozen=True):
    """Descriptors that the relay owns from then on.

    `client_in`: the server's former standard input (what the client writes is read here), `client_out`: its former
    standard output; `server_in`: what is written here is the server's standard input now, `server_out`: its output.
    Ends may be one socket; then they are two descriptors of it.
    """

    client_in: int
    client_out: int
    server_in: int
    server_out: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Taken).decode


def hand_over(channel: socket.socket, taken: Taken, ends: Ends) -> None:
    """Send it; the descriptors stay open here and are the caller's to close. Raises OSError."""
    fds = array.array("i", [ends.client_in, ends.client_out, ends.server_in, ends.server_out])
    channel.sendmsg([_encode(taken)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])


def take_over(channel: socket.socket) -> tuple[Taken, Ends] | None:
    """The next one; None at the end.

    Raises OSError: BlockingIOError where the channel does not block, EMFILE where there was no room for its descriptors
    (unix(7): what does not fit is dropped, and the server is cut off from its client).
    """
    room = socket.CMSG_SPACE(_FDS * 4)
    data, ancillary, _flags, _address = channel.recvmsg(_MAX_BYTES, room, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    if not data:
        return None
    if len(fds) != _FDS:
        for descriptor in fds:
            os.close(descriptor)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return _decode(data), Ends(*fds)
