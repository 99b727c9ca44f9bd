"""One exchange while it passes: what has come of both bodies, with times, within a cap. Pure state, no meaning."""

import msgspec

from agentwrap.events.exchange import ExchangeBegan, ExchangeResponded

BODY_MAX_BYTES = 64 << 20
_PIECE_BYTES = 256  # of objects around it: its bytes, its time, its places in two lists


class Side(msgspec.Struct):
    """A body as it comes. `size` counts all of it; `over`: it is not kept, and neither are its times.

    `held_bytes`: what it costs, a piece of one byte included.
    """

    pieces: list[bytes] = msgspec.field(default_factory=list)
    times: list[tuple[int, int]] = msgspec.field(default_factory=list)
    size: int = 0
    over: bool = False
    held_bytes: int = 0

    def add(self, data: bytes, at_ns: int) -> None:
        """The next bytes."""
        self.size += len(data)
        if self.size > BODY_MAX_BYTES:
            self.drop()
        if not self.over:
            self.times.append((len(data), at_ns))
            self.pieces.append(data)
            self.held_bytes += len(data) + _PIECE_BYTES

    def drop(self) -> None:
        """There is no room for it."""
        self.over = True
        self.pieces, self.times, self.held_bytes = [], [], 0

    def joined(self) -> bytes:
        """All that was kept."""
        if len(self.pieces) > 1:
            self.pieces[:] = [b"".join(self.pieces)]
        return self.pieces[0] if self.pieces else b""

    def clear(self) -> None:
        """Begin anew."""
        self.pieces, self.times, self.size, self.over, self.held_bytes = [], [], 0, False, 0


class Passing(msgspec.Struct):
    """An exchange. `told`: its request has become an event."""

    began: ExchangeBegan
    up: Side = msgspec.field(default_factory=Side)
    down: Side = msgspec.field(default_factory=Side)
    responded: ExchangeResponded | None = None
    told: bool = False
    is_socket: bool = False

    def header(self, name: bytes, *, of_response: bool = False) -> bytes:
        """The value of a header, several joined with commas; empty if there is none."""
        responded = self.responded.headers if self.responded is not None else ()
        headers = responded if of_response else self.began.headers
        return b", ".join(value for key, value in headers if key.lower() == name)

    @property
    def held_bytes(self) -> int:
        """What both bodies cost."""
        return self.up.held_bytes + self.down.held_bytes

    @property
    def path(self) -> bytes:
        """The path without query and, of a target in absolute form (RFC 9112, 3.2.2), without authority."""
        target = self.began.target
        if b"://" in target[:8]:
            target = b"/" + target.partition(b"://")[2].partition(b"/")[2]
        return target.partition(b"?")[0]

    def request_is_whole(self) -> bool:
        """Whether what has come is as long as was announced."""
        length = self.header(b"content-length")
        return length.isdigit() and self.up.size >= int(length[:20])
