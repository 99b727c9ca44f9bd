"""Ports of the agent's network that are shown on the machine's loopback (`-p`): connections from outside, let in.

The listener is the machine's; the socket that goes inside is made by the connector, in whose namespace it lives.
"""

import errno
import socket
import struct
from collections.abc import Callable, Sequence

import msgspec
import trio

from agentwrap.events import NetClosed, NetDecision
from agentwrap.gateway.relay import Passage, abort

Put = Callable[[NetDecision | NetClosed], None]


class Published(msgspec.Struct, frozen=True):
    """One published port. `listener` listens on the machine, `inner`: the port inside."""

    listener: socket.socket
    inner: int


class Inside:
    """Makes sockets in the agent's network. `connector`: its channel, None where that network is the machine's own."""

    def __init__(self, connector: socket.socket | None) -> None:
        self._connector = connector
        self._turn = trio.Lock()
        if connector is not None:
            connector.setblocking(False)

    async def socket(self) -> socket.socket:
        """A TCP socket inside. Raises OSError."""
        if self._connector is None:
            return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        async with self._turn:
            self._connector.send(struct.pack("=HH", socket.AF_INET, socket.SOCK_STREAM))
            await trio.lowlevel.wait_readable(self._connector)
            answer, descriptors, _flags, _address = socket.recv_fds(self._connector, 16, 1)
        if not descriptors:
            raise OSError(int(answer or errno.EPIPE), "the connector makes no socket")
        return socket.socket(fileno=descriptors[0])


async def serve(published: Sequence[Published], inside: Inside, put: Put, now: Callable[[], int]) -> None:
    """Until cancelled."""
    async with trio.open_nursery() as nursery:
        for one in published:
            nursery.start_soon(_accept, nursery, one, inside, put, now)


async def _accept(nursery: trio.Nursery, one: Published, inside: Inside, put: Put, now: Callable[[], int]) -> None:
    one.listener.setblocking(False)
    count = 0
    while True:
        await trio.lowlevel.wait_readable(one.listener)
        try:
            client, _address = one.listener.accept()
        except OSError:
            continue  # it was gone again
        count += 1
        nursery.start_soon(_let_in, client, one, f"p{one.inner}.{count}", inside, put, now)


async def _let_in(
    client: socket.socket, one: Published, name: str, inside: Inside, put: Put, now: Callable[[], int]
) -> None:
    client.setblocking(False)
    opened_ns = now()
    peer = client.getpeername()[0].encode()
    put(
        NetDecision(
            at_ns=opened_ns,
            connection=name,
            decision="allow",
            by="wall",
            host=b"127.0.0.1",
            port=one.inner,
            address=b"127.0.0.1",
            asked=peer,
            rule=b"--publish",
            why=b"a connection from outside to a published port",
        )
    )
    passage: Passage | None = None
    detail = b""
    try:
        server = await _dial(inside, one.inner)
    except OSError as error:
        detail = (error.strerror or str(error)).encode()
        abort(client)
    else:
        passage = Passage(client, server)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(passage.up)
            nursery.start_soon(passage.down)
    put(
        NetClosed(
            at_ns=now(),
            connection=name,
            host=b"127.0.0.1",
            port=one.inner,
            ending="refused" if passage is None else "reset" if passage.ending == "reset" else "closed",
            opened_ns=opened_ns,
            up_bytes=passage.up_bytes if passage else 0,
            down_bytes=passage.down_bytes if passage else 0,
            detail=passage.detail if passage else detail,
        )
    )


async def _dial(inside: Inside, port: int) -> socket.socket:
    sock = await inside.socket()
    sock.setblocking(False)
    number = sock.connect_ex(("127.0.0.1", port))
    if number == errno.EINPROGRESS:
        await trio.lowlevel.wait_writable(sock)
        number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if number:
        sock.close()
        raise OSError(number, f"port {port} inside")
    return sock
