"""What tracer and supervisor say to each other over one stream socket.

Tracer to supervisor: frames, each a length (u32, network order) and a msgpack list of `Item` and `Status`. Supervisor
to tracer: commands of one line. The socket's end means that the other side is dead.
"""

import struct
import threading
from collections import deque
from collections.abc import Iterator
from socket import socket
from typing import TypeGuard

import msgspec

from agentwrap.events import EXCHANGE_NEWS, MCP_NEWS, Content, ExchangeNews, Item, McpNews

HEADER = struct.Struct("!I")
MAX_FRAME_BYTES = 512 << 20
_EAGER_BYTES = 1 << 20


class Standing(msgspec.Struct, frozen=True, tag="standing", tag_field="kind"):
    """The child stands before its exec; how it can be followed. `*_errno`: what was refused, 0 for nothing.

    `takes_errno`: taking the child's sockets, where the guard would have to (`tracing.performing`).
    """

    pid: int
    mode: str
    attach_errno: int
    notify_errno: int
    filter_errno: int
    memory_errno: int
    in_place_wake: bool
    no_new_privs: bool
    takes_errno: int = 0


class Failed(msgspec.Struct, frozen=True, tag="failed", tag_field="kind"):
    """The child could not become the command, or the tracer could not go on. `errno` of the step named `step`."""

    step: str
    errno: int
    detail: bytes = b""


class Stopped(msgspec.Struct, frozen=True, tag="stopped", tag_field="kind"):
    """The main command is in a group stop (Ctrl-Z): the supervisor must stop itself, for the shell to see it."""

    signal: int


class MainEnded(msgspec.Struct, frozen=True, tag="main-ended", tag_field="kind"):
    """The main command is over with this wait status; descendants may live on for a moment."""

    status: int


class AllEnded(msgspec.Struct, frozen=True, tag="all-ended", tag_field="kind"):
    """Nothing of the tree is left; `ended` processes were ended by us."""

    ended: int


class AckWanted(msgspec.Struct, frozen=True, tag="ack-wanted", tag_field="kind"):
    """Everything sent before this must be on disk; then the supervisor answers `A<number>`."""

    number: int


class Ready(msgspec.Struct, frozen=True, tag="ready", tag_field="kind"):
    """The gateway listens. In the guard tier: on these ports of the loopback that the agent shares with us.

    `ca_pem`: the certificate of its authority, empty if it has none.
    """

    tcp_port: int = 0
    dns_port: int = 0
    ca_pem: bytes = b""


Status = Standing | Failed | Stopped | MainEnded | AllEnded | AckWanted | Ready
STATUS = (Standing, Failed, Stopped, MainEnded, AllEnded, AckWanted, Ready)
Message = Item | Status | ExchangeNews | McpNews


def is_item(message: object) -> TypeGuard[Item]:
    """Whether a message is for the recorder as it is."""
    return not isinstance(message, (*STATUS, *EXCHANGE_NEWS, *MCP_NEWS))


class Sender:
    """Collects items of several threads and sends them in batches.

    Blocks when the supervisor is slow: nothing is lost.
    """

    def __init__(self, channel: socket) -> None:
        self._channel = channel
        self._encode = msgspec.msgpack.Encoder().encode
        self._items: deque[Message] = deque()
        self._eager_bytes = 0
        self._sending = threading.Lock()
        self.waiting = threading.Event()

    def put(self, item: Message) -> None:
        """Queue one item; it leaves within the next flush (about 10 ms), or now if contents pile up."""
        if type(item) is Content:
            self._eager_bytes += len(item.data)
        self._items.append(item)
        if not self.waiting.is_set():
            self.waiting.set()
        if self._eager_bytes > _EAGER_BYTES or len(self._items) > 2000:
            self.flush()

    def flush(self) -> None:
        """Send what is queued. Raises OSError when the supervisor is gone."""
        with self._sending:
            self.waiting.clear()
            # Other threads append meanwhile: take what is there now, one by one, so that none is lost in a swap.
            items = [self._items.popleft() for _ in range(len(self._items))]
            self._eager_bytes = 0
            if not items:
                return
            frame = self._encode(items)
            self._channel.sendall(HEADER.pack(len(frame)) + frame if len(frame) < 65536 else HEADER.pack(len(frame)))
            if len(frame) >= 65536:
                self._channel.sendall(frame)


def tell_fault(channel: socket, step: str, error: BaseException) -> None:
    """The last words of a process beside the agent that cannot go on: `Failed`, with its traceback as the detail.

    Says nothing where the supervisor is gone as well.
    """
    import traceback

    text = "".join(traceback.format_exception(error))
    sender = Sender(channel)
    sender.put(Failed(step=step, errno=0, detail=text.encode("utf-8", "backslashreplace")))
    try:
        channel.setblocking(True)  # none of them is put off by a supervisor that is slow
        sender.flush()
    except OSError:
        pass


class FrameReader:
    """Frames out of a byte stream. Pure: feed bytes, get lists of messages. Raises ValueError on a broken stream."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._decode = msgspec.msgpack.Decoder(list[Message]).decode

    def feed(self, data: bytes) -> Iterator[list[Message]]:
        """Add bytes; yields every frame that is complete now."""
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            (size,) = HEADER.unpack_from(self._buffer)
            if size > MAX_FRAME_BYTES:
                raise ValueError(f"frame of {size} bytes")
            if len(self._buffer) < HEADER.size + size:
                return
            frame = bytes(self._buffer[HEADER.size : HEADER.size + size])
            del self._buffer[: HEADER.size + size]
            yield self._decode(frame)
