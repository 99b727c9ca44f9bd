"""Bytes from one socket to another, both ways, as if they were one connection: ends, resets and pressure included.

Raw non-blocking sockets under trio's readiness calls, a buffer that grows with the traffic. Knows nothing of what the
bytes mean and of who may send them.
"""

import fcntl
import socket
import struct
import termios
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import trio
from trio.lowlevel import checkpoint, notify_closing, wait_readable, wait_writable

if TYPE_CHECKING:
    from agentwrap.gateway.capture.tap import Tap

SMALL_BYTES, LARGE_BYTES = 1 << 16, 1 << 20
_POOL_SIZE = 64
_FULL_READS = 4  # so often a read fills the buffer before it grows
_SPINS = 16  # so many reads before others have a turn
_DRAIN_S, _DRAIN_STEP_S = 1.0, 0.005
_AFTER_RESET_S = 5.0
_RESET = struct.pack("ii", 1, 0)

_pool: list[bytearray] = []


def abort(sock: socket.socket) -> None:
    """Close with a reset instead of an end (SO_LINGER with zero seconds, socket(7)); whoever waits for it is woken."""
    if sock.fileno() < 0:
        return
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    except OSError:
        pass  # the peer was faster
    close(sock)


def close(sock: socket.socket) -> None:
    """Close in the ordinary way; whoever waits for it is woken (trio.ClosedResourceError)."""
    if sock.fileno() >= 0:
        notify_closing(sock)
        sock.close()


async def receive(sock: socket.socket, limit: int = SMALL_BYTES) -> bytes:
    """Some bytes, none at the end. Raises OSError, trio.ClosedResourceError."""
    while True:
        try:
            return sock.recv(limit)
        except BlockingIOError:
            await wait_readable(sock)


async def send(sock: socket.socket, data: bytes | bytearray | memoryview) -> None:
    """All of it. Raises OSError, trio.ClosedResourceError."""
    with memoryview(data) as view:
        position = 0
        while position < len(view):
            try:
                position += sock.send(view[position:])
            except BlockingIOError:
                await wait_writable(sock)


async def last_words(sock: socket.socket, data: bytes, linger_s: float = 1.0) -> None:
    """Send, end our side, and wait until the other has read it: with unread input a close would be a reset."""
    with trio.move_on_after(linger_s):
        try:
            await send(sock, data)
            sock.shutdown(socket.SHUT_WR)
            while await receive(sock):
                pass
        except (OSError, trio.ClosedResourceError):
            pass  # it is gone: nobody to tell
    close(sock)


class Passage:
    """Two sockets and what went between them. `client` is ours, `server` is where it wanted to go.

    `up_bytes` and `down_bytes` count what was handed to the other side. `observe` sees what the server sent, after the
    client has it, and nothing at the server's end. `tap`: is given copies of both directions, as long as it is active;
    `room` is waited for after each. `gate`: makes of what the server sent what the client is given. `ending`: `closed`,
    or `reset` with `detail` saying by whom. `writing`: the client is in the middle of being sent something. `over`:
    both directions have ended.
    """

    __slots__ = (
        *("client", "server", "up_bytes", "down_bytes", "ending", "detail", "observe", "tap", "room", "writing"),
        *("gate", "_saying", "over", "_left", "_down_over", "_down_scope", "_down_parked", "_unanswered"),
    )

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.up_bytes = self.down_bytes = 0
        self.ending = "closed"
        self.detail = b""
        self.observe: Callable[[bytes], None] | None = None
        self.tap: Tap | None = None
        self.gate: Gate | None = None
        self._saying = trio.Lock()
        self.room: Callable[[], Awaitable[None]] = checkpoint
        self.writing = False
        self.over = trio.Event()
        self._left = 2
        self._down_over = trio.Event()
        self._down_scope: trio.CancelScope | None = None
        self._down_parked = trio.Event()
        self._unanswered = 0

    async def up(self) -> None:
        """Client to server until the client ends; then the server is told so."""
        try:
            await self.carry_up()
        finally:
            self.up_ended()

    async def carry_up(self) -> None:
        """The same for whoever said something before: `up_ended` is theirs to call."""
        try:
            await self._pump(up=True)
        except SourceError:
            self.cut(b"by the client")
        except SinkError:
            await self._server_takes_no_more()
        except trio.ClosedResourceError:
            pass  # the other direction has ended it

    def start_down(self, nursery: trio.Nursery, *, takeable: bool) -> None:
        """Carry what the server says, in a task of `nursery`. `takeable`: somebody may want to `take` the server."""
        if takeable:
            self._down_scope = trio.CancelScope()
            nursery.start_soon(self._down_until_taken, self._down_scope)
        else:
            nursery.start_soon(self.down)

    async def _down_until_taken(self, scope: trio.CancelScope) -> None:
        with scope:
            await self.down()

    async def take(self) -> bool:
        """Nothing is carried to the client any more: both sockets are the caller's.

        False: the server has said something already; `resume` then goes on if it was stopped.
        """
        before = self._unanswered
        if self._down_scope is None or self.down_bytes > before or self.writing or self._down_over.is_set():
            return False
        self._down_scope.cancel()
        await self._down_parked.wait()
        return not (self.down_bytes > before or self._down_over.is_set())

    def begin_anew(self) -> None:
        """What the server has said so far is over and done with: what follows is a conversation of its own."""
        self._unanswered = self.down_bytes

    def resume(self, nursery: trio.Nursery) -> None:
        """Go on after `take`, if it stopped anything."""
        if self._down_parked.is_set() and not self._down_over.is_set():
            nursery.start_soon(self.down)

    def replace_server(self, sock: socket.socket) -> None:
        """After `take`: another connection to the server, in the first one's place."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.server = sock

    def give_up(self, detail: bytes) -> None:
        """After `take`: cut it, nobody carries anything back any more."""
        self.cut(detail)
        self._down_over.set()
        self._one_less()

    async def down(self) -> None:
        """Server to client until the server ends; then the client is told so."""
        parked = False
        try:
            await self._pump(up=False)
            if self.ending == "reset":
                raise SourceError
        except SourceError:
            await self._settled()
            self.cut(b"by the server")
        except SinkError:
            self.cut(b"by the client")
        except trio.ClosedResourceError:
            pass  # the other direction has ended it
        except trio.Cancelled:
            parked = self._down_scope is not None and self._down_scope.cancel_called
            raise
        finally:
            if not parked:
                if self.observe is not None:
                    self.observe(b"")
                if self.tap is not None:
                    self.tap.down_ended()
                self._down_over.set()
                self._one_less()
            self._down_parked.set()

    async def receive_up(self) -> bytes:
        """What the client says next, nothing at its end. Raises OSError, trio.ClosedResourceError."""
        return await receive(self.client)

    async def send_up(self, data: bytes | bytearray) -> bool:
        """Hand bytes to the server. False: it takes no more, the passage is over for this direction."""
        await self._copied(data, up=True)
        return await self.forward(data)

    async def copied_up(self, data: bytes) -> None:
        """What the client said, and what has not gone on (yet): the tap has its copy."""
        await self._copied(data, up=True)

    async def say(self, data: bytes) -> None:
        """To the client, in the server's place, a whole word at a time. Raises OSError, trio.ClosedResourceError."""
        async with self._saying:
            await self._send_to_client(data)

    async def _send_to_client(self, data: bytes) -> None:
        await send(self.client, data)

    async def forward(self, data: bytes | bytearray) -> bool:
        """As `send_up`, of what the tap has had already."""
        try:
            await self._send_to_server(data)
        except OSError:
            await self._server_takes_no_more()
            return False
        except trio.ClosedResourceError:
            return False
        self.up_bytes += len(data)
        return True

    async def _send_to_server(self, data: bytes | bytearray) -> None:
        await send(self.server, data)

    async def end_up(self) -> None:
        """The client ended: half of the connection to the server ends, too."""
        await self._end(up=True)

    async def refuse(self, words: bytes) -> None:
        """The server hears a reset; the client hears why, unless something of the server's is under way to it."""
        if self.writing or not words:
            self.cut(b"denied")
            return
        abort(self.server)
        await self._say_last(words)

    async def _say_last(self, words: bytes) -> None:
        await last_words(self.client, words)

    def up_ended(self) -> None:
        """The direction to the server is over; to be called once by whoever carries it."""
        if self.tap is not None:
            self.tap.up_ended()
        self._one_less()

    def cut(self, detail: bytes) -> None:
        """Reset both sides; `detail`: by whom it came."""
        if self.ending == "closed":
            self.ending, self.detail = "reset", detail
        if self.tap is not None:
            self.tap.cut("server" if detail == b"by the server" else "client")
        abort(self.client)
        abort(self.server)

    def _one_less(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.over.set()
            if self.ending == "reset":
                abort(self.client)
                abort(self.server)
            else:
                close(self.client)
                close(self.server)

    async def _server_takes_no_more(self) -> None:
        """What the server said before it went must still reach the client; the other direction carries it there."""
        self.ending, self.detail = "reset", b"by the server"
        with trio.move_on_after(_AFTER_RESET_S):
            await self._down_over.wait()
        self.cut(b"by the server")

    async def _end(self, *, up: bool) -> None:
        """One direction has ended: tell the other side, unless both sockets are closed next."""
        if self._left == 1:
            return
        try:
            (self.server if up else self.client).shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it was faster

    async def _ended(self, *, up: bool) -> None:
        """Who speaks in this direction is at its end; a reset that the other direction met first reads as one, too."""
        if not up and self.gate is not None and self.gate.active:
            await self._give(await self._made(self.gate.end()))
        if self.ending != "reset":
            await self._end(up=up)

    async def _copied(self, data: bytes | bytearray | memoryview, *, up: bool) -> None:
        """The tap has its copy, and whoever hears of it has room for more."""
        if self.tap is not None and self.tap.active:
            (self.tap.up if up else self.tap.down)(bytes(data))
            await self.room()

    async def _given(self, data: bytes | memoryview) -> None:
        """The client has it: who looks at what the server says may see it."""
        data = bytes(data)
        if self.observe is not None:
            self.observe(data)
        await self._copied(data, up=False)

    async def _went(self, data: memoryview, *, up: bool) -> None:
        if up:
            self.up_bytes += len(data)
            return
        self.down_bytes += len(data)
        if self.observe is not None or self.tap is not None:
            await self._given(data)

    async def _through_gate(self, data: bytes) -> None:
        """What the server sent, as far as the client is to have it now."""
        if self.gate is not None:
            await self._give(await self._made(self.gate.take(data)))
        self.down_bytes += len(data)
        await self._given(data)

    @staticmethod
    async def _made(given: Awaitable[bytes]) -> bytes:
        try:
            return await given
        except OSError as error:
            raise SourceError from error

    async def _give(self, data: bytes) -> None:
        if not data:
            return
        self.writing = True
        try:
            await self.say(data)
        except OSError as error:
            raise SinkError from error
        self.writing = False

    async def _settled(self) -> None:
        """Let the client's kernel have what was sent: a reset drops the rest (TCP_CLOSE purges the send queue)."""
        with trio.move_on_after(_DRAIN_S):
            while self.client.fileno() >= 0 and _unsent(self.client):  # noqa: ASYNC110 - no event tells it
                await trio.sleep(_DRAIN_STEP_S)

    async def _pump(self, *, up: bool) -> None:
        source, sink = (self.client, self.server) if up else (self.server, self.client)
        buffer = _pool.pop() if _pool else bytearray(SMALL_BYTES)
        view = memoryview(buffer)
        full = spins = 0
        try:
            while True:
                try:
                    count = source.recv_into(buffer)
                except BlockingIOError:
                    await wait_readable(source)
                    spins = 0
                    continue
                except OSError as error:
                    raise SourceError from error
                if not count:
                    await self._ended(up=up)
                    return
                if not up and self.gate is not None and self.gate.active:
                    await self._through_gate(bytes(view[:count]))
                    continue
                if up and self.tap is not None:
                    await self._copied(view[:count], up=True)
                position = 0
                while position < count:
                    try:
                        position += sink.send(view[position:count])
                    except BlockingIOError:
                        self.writing = not up
                        await wait_writable(sink)
                        self.writing = False
                        spins = 0
                    except OSError as error:
                        raise SinkError from error
                await self._went(view[:count], up=up)
                full += count == len(buffer) < LARGE_BYTES
                if full == _FULL_READS:
                    view.release()
                    buffer = bytearray(len(buffer) * 4)
                    view, full = memoryview(buffer), 0
                spins += 1
                if spins >= _SPINS:
                    spins = 0
                    await checkpoint()
        finally:
            view.release()
            if len(buffer) == SMALL_BYTES and len(_pool) < _POOL_SIZE:
                _pool.append(buffer)


class Gate(Protocol):
    """What is made of a server's bytes on their way to the client. `active`: anything at all."""

    active: bool

    async def take(self, data: bytes) -> bytes:
        """The next bytes; what the client is given now. Raises OSError where it must not have any more."""
        ...

    async def end(self) -> bytes:
        """The server says nothing more; what the client is given of what is left."""
        ...


class SourceError(Exception):
    """Who spoke broke off."""


class SinkError(Exception):
    """Who listened broke off."""


def _unsent(sock: socket.socket) -> int:
    """Bytes that the peer's kernel has not acknowledged (SIOCOUTQ, tcp(7))."""
    return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), "little")
