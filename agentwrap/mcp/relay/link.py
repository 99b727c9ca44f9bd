"""The relay's line to the supervisor: news out in frames, orders in as lines. Never blocks, but for `send_all`.

Frames as in `tracing.wire`. Lines: `Y<ask> <answer>`, `Q` (leave). Refuses nothing: while `crowded` holds, whoever
makes news has to stop making them.
"""

import select
import socket
import time
from collections import deque

import msgspec

from agentwrap.events import McpBytes, McpSaid
from agentwrap.tracing.wire import HEADER, Message

_FRAME_ITEMS = 2_000
_FRAME_BYTES = 1 << 20
_CROWDED_ITEMS, _CROWDED_BYTES = 20_000, 4 << 20
_EAGER_ITEMS, _EAGER_BYTES = 1_000, 1 << 18
_GATHER_S = 0.005
_LINE_BYTES = 1 << 20


class Link:
    """One stream socket to the supervisor. `over`: it is gone."""

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        self._channel = channel
        self.fd = channel.fileno()
        self._encode = msgspec.msgpack.Encoder().encode
        self._items: deque[Message] = deque()
        self._bytes = 0  # of messages, among the items
        self._unsent = memoryview(b"")
        self._since = 0.0
        self._lines = b""
        self.over = False

    def put(self, item: Message) -> None:
        """Queue one item; it is to leave when `due_s` says so."""
        if not self._items:
            self._since = time.monotonic()
        self._items.append(item)
        if isinstance(item, McpBytes | McpSaid):
            self._bytes += len(item.data)

    @property
    def crowded(self) -> bool:
        """Whether the supervisor is far behind."""
        return len(self._items) > _CROWDED_ITEMS or self._bytes > _CROWDED_BYTES

    @property
    def blocked(self) -> bool:
        """Whether a frame waits for the socket to take more."""
        return bool(self._unsent)

    def due_s(self) -> float | None:
        """After how many seconds `send` is to be called; None: there is nothing to send, or it waits for the socket."""
        if not self._items or self._unsent:
            return None
        if len(self._items) > _EAGER_ITEMS or self._bytes > _EAGER_BYTES:
            return 0.0
        return max(0.0, self._since + _GATHER_S - time.monotonic())

    def send(self) -> None:
        """Send what the socket takes."""
        while not self.over and (self._unsent or self._items):
            if not self._unsent:
                self._unsent = self._frame()
            try:
                self._unsent = self._unsent[self._channel.send(self._unsent) :]
            except BlockingIOError:
                return
            except OSError:
                self.over = True

    def send_all(self) -> None:
        """Send everything, however long the supervisor takes."""
        waiting = select.poll()
        waiting.register(self.fd, select.POLLOUT)
        self.send()
        while not self.over and self._unsent:
            waiting.poll()
            self.send()

    def receive(self) -> list[bytes]:
        """The lines that have come, without their ends."""
        try:
            data = self._channel.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        *lines, self._lines = (self._lines + data).split(b"\n")
        if not data or len(self._lines) > _LINE_BYTES:
            self.over = True
        return lines

    def _frame(self) -> memoryview:
        items: list[Message] = []
        room = _FRAME_BYTES
        while self._items and room > 0 and len(items) < _FRAME_ITEMS:
            item = self._items.popleft()
            if isinstance(item, McpBytes | McpSaid):
                self._bytes -= len(item.data)
                room -= len(item.data)
            items.append(item)
        self._since = time.monotonic()
        frame = self._encode(items)
        return memoryview(HEADER.pack(len(frame)) + frame)
