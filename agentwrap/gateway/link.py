"""The gateway's line to the supervisor: events out in frames, answers in as lines. Never blocks the event loop.

Frames as in `tracing.wire`. Lines: `A<n>` (all before `AckWanted(n)` is on disk), `Y<ask> <answer>`, `Q` (leave).
Knows nothing of connections; refuses nothing: when the supervisor is slow, whoever makes events waits in `room`.
"""

import socket
from collections import deque
from collections.abc import Callable

import msgspec
import trio

from agentwrap.events import ExchangeMessage, ExchangeReceived, ExchangeSent
from agentwrap.tracing.wire import HEADER, AckWanted, Message

_FRAME_ITEMS = 2_000
_CROWDED_ITEMS = 20_000
_FRAME_BYTES, _CROWDED_BYTES = 1 << 20, 4 << 20
_GATHER_S = 0.005
_LINE_BYTES = 4096
_WITH_BYTES = (ExchangeSent, ExchangeReceived, ExchangeMessage)


class Link:
    """One stream socket to the supervisor.

    `over` is set when it ends, or when the supervisor says `Q` (`leaving`); `answered` hears what humans answer,
    `because` before it why they deny.
    """

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        self._channel = channel
        self.answered: Callable[[str, str], None] = lambda _ask, _answer: None
        self.because: Callable[[str, bytes], None] = lambda _ask, _reason: None
        self._encode = msgspec.msgpack.Encoder().encode
        self._items: deque[Message] = deque()
        self._bytes = 0  # of bodies, among the items
        self._unsent = b""
        self._wake = trio.Event()
        self._urgent = trio.Event()
        self._less = trio.Condition()
        # Positions count items since the start: one ack serves all who wait for anything before it.
        self._put = self._taken = 0
        self._unasked: deque[tuple[int, trio.Event]] = deque()
        self._acks = 0
        self._asked: deque[tuple[int, list[trio.Event]]] = deque()
        self.over = trio.Event()
        self.leaving = False

    def put(self, item: Message) -> None:
        """Queue one item; it leaves within some milliseconds."""
        self._items.append(item)
        if isinstance(item, _WITH_BYTES):
            self._bytes += len(item.data)
        self._put += 1
        self._wake.set()

    async def on_disk(self) -> None:
        """Wait until everything that was put so far is on disk. Waits for ever once the supervisor is gone."""
        event = trio.Event()
        self._unasked.append((self._put, event))
        self._wake.set()
        self._urgent.set()
        await event.wait()

    async def room(self) -> None:
        """Wait while the supervisor is far behind, so that memory stays bounded."""
        if self._crowded():
            async with self._less:
                while self._crowded():
                    await self._less.wait()

    def _crowded(self) -> bool:
        return len(self._items) > _CROWDED_ITEMS or self._bytes > _CROWDED_BYTES

    async def run(self) -> None:
        """Send and hear until the supervisor is gone."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send)
            await self._hear()
            self.over.set()
            nursery.cancel_scope.cancel()

    async def leave(self) -> None:
        """Send what is left. How long that may take is the supervisor's to say, which waits for it."""
        try:
            while self._items or self._unsent:
                await self._send_frame()
        except OSError:
            pass  # it is gone: the recording tells that it is torn

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            if not self._urgent.is_set() and len(self._items) < _FRAME_ITEMS and self._bytes < _FRAME_BYTES:
                with trio.move_on_after(_GATHER_S):
                    await self._urgent.wait()
            self._urgent = trio.Event()
            try:
                await self._send_frame()
            except OSError:
                self.over.set()
                return
            if not self._items and not self._urgent.is_set():
                self._wake = trio.Event()
            async with self._less:
                self._less.notify_all()

    async def _send_frame(self) -> None:
        if not self._unsent:
            items = self._take()
            self._taken += len(items)
            covered: list[trio.Event] = []
            while self._unasked and self._unasked[0][0] <= self._taken:
                covered.append(self._unasked.popleft()[1])
            if covered:
                self._acks += 1
                items.append(AckWanted(self._acks))
                self._asked.append((self._acks, covered))
            if not items:
                return
            frame = self._encode(items)
            self._unsent = HEADER.pack(len(frame)) + frame
        # Kept in `_unsent` over every wait: a cancelled task must not leave half a frame behind.
        while self._unsent:
            try:
                sent = self._channel.send(self._unsent)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._channel)
                continue
            self._unsent = self._unsent[sent:]

    def _take(self) -> list[Message]:
        """The next items, as many as go into one frame."""
        items: list[Message] = []
        room = _FRAME_BYTES
        while self._items and room > 0 and len(items) < _FRAME_ITEMS:
            item = self._items.popleft()
            if isinstance(item, _WITH_BYTES):
                self._bytes -= len(item.data)
                room -= len(item.data)
            items.append(item)
        return items

    async def _hear(self) -> None:
        buffer = b""
        while True:
            await trio.lowlevel.wait_readable(self._channel)
            try:
                data = self._channel.recv(65536)
            except BlockingIOError:
                continue
            except OSError:
                return
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                self._line(line)
            if len(buffer) > _LINE_BYTES:
                return

    def _line(self, line: bytes) -> None:
        word, rest = line[:1], line[1:].decode("ascii", "replace")
        if word == b"A" and rest.isdigit():
            done = int(rest)
            while self._asked and self._asked[0][0] <= done:
                for event in self._asked.popleft()[1]:
                    event.set()
        elif line == b"Q":
            self.leaving = True
            self.over.set()
        elif word == b"W":
            whose, _, reason = line[1:].partition(b" ")
            self.because(whose.decode("ascii", "replace"), reason)
        elif word == b"Y":
            ask, _, answer = rest.partition(" ")
            self.answered(ask, answer)
