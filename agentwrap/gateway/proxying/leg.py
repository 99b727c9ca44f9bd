"""One connection of our proxy's to a server, and what comes back of it to the client, with a tap beside both ways.

Bytes are carried as they come; ends, resets and pressure go through. Knows nothing of who may ask for what.
"""

import socket
from collections.abc import Awaitable, Callable

import trio

from agentwrap.events.egress import Ending, NetClosed, Protocol
from agentwrap.gateway.capture.tap import Tap
from agentwrap.gateway.proxying.requests import Server
from agentwrap.gateway.proxying.sides import BareSide, Side
from agentwrap.gateway.relay import Gate, abort, close


class _ClientGoneError(Exception):
    """The client takes no more: it has reset its connection."""


class Leg:
    """`server`: whom it leads to; `side`: the way there. `observe` sees what the server says, after the client has it.

    `gate` makes of what the server says what the client is given. `over` is set when nothing comes back any more.
    `room` is waited for after each piece that the tap has.
    """

    def __init__(
        self,
        server: Server,
        side: Side,
        client: BareSide,
        tap: Tap,
        room: Callable[[], Awaitable[None]],
        observe: Callable[[bytes], None],
    ) -> None:
        self.server = server
        self.over = trio.Event()
        self.gate: Gate | None = None
        self._saying = trio.Lock()
        self.up_bytes = self.down_bytes = 0
        self.ending: Ending = "closed"
        self.detail = b""
        self._side, self._client, self.tap, self._room, self._observe = side, client, tap, room, observe
        self._scope = trio.CancelScope()
        self._left = False

    async def send(self, data: bytes) -> bool:
        """To the server. False: it takes no more; what it said before reaches the client."""
        await self.copied_up(data)
        return await self.forward(data)

    async def copied_up(self, data: bytes) -> None:
        """The tap hears what the client said."""
        if self.tap.active:
            self.tap.up(data)
            await self._room()

    async def say(self, data: bytes) -> None:
        """To the client, in the server's place, a whole word at a time. Raises OSError, trio.ClosedResourceError."""
        async with self._saying:
            await self._client.send([data])

    async def forward(self, data: bytes) -> bool:
        """As `send`, of what the tap has heard already."""
        try:
            await self._side.send([data])
        except (OSError, trio.ClosedResourceError):
            await self.over.wait()
            return False
        self.up_bytes += len(data)
        return True

    async def carry_back(self) -> None:
        """Server to client, until the server ends; then the client is told so, unless `leave` came first."""
        try:
            with self._scope:
                await self._carry_back()
        finally:  # also where everything ends, and this with it: `leave` waits for it
            self.over.set()
            self._observe(b"")

    async def _carry_back(self) -> None:
        try:
            while pieces := await self._side.read():
                for data in pieces:
                    await self._give(await self.gate.take(data) if self.gate is not None else data)
                    self.down_bytes += len(data)
                    if self.tap.active:
                        self.tap.down(data)
                        await self._room()
                    self._observe(data)
            if self.gate is not None:
                await self._give(await self.gate.end())
            self.tap.down_ended()
            if self._side.cut_short:
                self.detail = b"the server ended TLS without a word"
            await self._client.end()
        except _ClientGoneError:
            self._cut(b"by the client")
        except (OSError, trio.ClosedResourceError):
            self._cut(b"by the server")

    async def _give(self, data: bytes) -> None:
        if not data:
            return
        try:
            await self.say(data)
        except OSError as error:
            raise _ClientGoneError from error

    def _cut(self, by: bytes) -> None:
        if self.ending == "closed":  # else what the other task meets is of our own making
            self.ending, self.detail = "reset", by
        self.tap.cut("server" if by == b"by the server" else "client")
        abort(self._side.sock)
        abort(self._client.sock)

    async def end(self) -> None:
        """The client says nothing more; what the server still says goes on."""
        self.tap.up_ended()
        try:
            await self._side.end()
        except (OSError, trio.ClosedResourceError):
            pass  # it was faster
        await self.over.wait()

    def client_cut(self) -> None:
        """The client reset its connection."""
        self._scope.cancel()
        self._cut(b"by the client")

    async def leave(self) -> None:
        """The client turns to another server, or nobody wants this one any more."""
        self._scope.cancel()
        await self.over.wait()
        self.tap.down_ended()
        close(self._side.sock)

    def closed(self, at_ns: int, opened_ns: int, connection: str, span: str, pid: int) -> NetClosed:
        """The event about its end."""
        protocol: Protocol = "tls" if self.server.scheme == "https" else "http"
        return NetClosed(
            at_ns=at_ns, span=span, pid=pid, connection=connection, host=self.server.host.encode(),
            port=self.server.port, ending=self.ending, opened_ns=opened_ns, up_bytes=self.up_bytes,
            down_bytes=self.down_bytes, protocol=protocol, detail=self.detail,
        )  # fmt: skip


def ready(sock: socket.socket) -> socket.socket:
    """A fresh connection, as it is used here."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return sock
