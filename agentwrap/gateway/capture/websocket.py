"""WebSocket frames of one direction, put together to whole messages (RFC 6455, 5), and both directions of a connection.

Knows frames, masks and fragments. Refuses to answer: pings and closes are for the peers. What they would refuse is
UnreadableError, so is a message of more than MESSAGE_MAX_BYTES.
"""

import struct
from collections.abc import Callable

from agentwrap.events.exchange import Headers
from agentwrap.gateway.capture.deflate import Inflater, agreed
from agentwrap.gateway.capture.framing import UnreadableError
from agentwrap.gateway.capture.ledger import Exchange, Ledger

MESSAGE_MAX_BYTES = 64 << 20

_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_QUIET = (b"\x03\xe8", b"\x03\xe9", b"")  # 1000 and 1001: done, going away; no word about why


class Frames:
    """One direction. `masked`: the client's. `closing`: its close frame. Holds a message until it is whole."""

    def __init__(self, masked: bool, inflater: Inflater | None, tell: Callable[[bool, bytes], None]) -> None:
        self.closing: bytes | None = None
        self._masked = masked
        self._inflater = inflater
        self._tell = tell
        self._held = b""  # a header that is not whole, or a control frame
        self._left = 0  # bytes of the data frame
        self._fin = True
        self._mask = b""
        self._opcode = _CONTINUATION  # of the message that has begun
        self._compressed = False
        self._message = bytearray()

    @property
    def inside(self) -> bool:
        """Whether a message has begun that is not whole."""
        return bool(self._held) or self._opcode != _CONTINUATION

    def feed(self, data: bytes) -> None:
        """The next bytes. Raises UnreadableError."""
        if self._held:
            data, self._held = self._held + data, b""
        position = 0
        while position < len(data) and self.closing is None:
            if self._left:
                position = self._payload(data, position)
            else:
                end = self._header(data, position)
                if end < 0:
                    self._held = data[position:]
                    return
                position = end

    def _header(self, data: bytes, position: int) -> int:
        """Behind the header at `position` (a control frame: behind all of it), -1 if it is not whole."""
        if len(data) - position < 2:
            return -1
        first, second = data[position], data[position + 1]
        opcode = first & 0x0F
        self._check(first, opcode, second)
        length = second & 0x7F
        end = position + 2 + (length == 126) * 2 + (length == 127) * 8 + self._masked * 4
        if len(data) < end:
            return -1
        if length > 125:
            form = "!H" if length == 126 else "!Q"
            (length,) = struct.unpack_from(form, data, position + 2)
        mask = data[end - 4 : end] if self._masked else b""
        if opcode >= _CLOSE:
            if len(data) < end + length:
                return -1
            if opcode == _CLOSE:
                self.closing = _unmasked(data[end : end + length], mask)
            return end + length
        if length >> 63:
            raise UnreadableError(b"a WebSocket frame of an impossible length")
        if opcode != _CONTINUATION:
            self._opcode, self._compressed = opcode, bool(first & 0x40)
        self._left, self._mask, self._fin = length, mask, bool(first & 0x80)
        if not length and self._fin:
            self._whole()
        return end

    def _check(self, first: int, opcode: int, second: int) -> None:
        """RFC 6455, 5.2 to 5.5: what no peer accepts."""
        if first & 0x30 or (first & 0x40 and (self._inflater is None or opcode not in (_TEXT, _BINARY))):
            raise UnreadableError(b"a WebSocket frame with a bit that no agreed extension knows")
        if bool(second & 0x80) != self._masked:
            side = b"server's WebSocket frame that is masked"
            raise UnreadableError(b"a client's WebSocket frame without a mask" if self._masked else b"a " + side)
        if opcode in (_CLOSE, _PING, _PONG):
            if not first & 0x80 or second & 0x7F > 125:
                raise UnreadableError(b"a WebSocket control frame that is too long or in pieces")
        elif opcode not in (_CONTINUATION, _TEXT, _BINARY):
            raise UnreadableError(b"a WebSocket frame of an unknown kind")
        elif (opcode == _CONTINUATION) != (self._opcode != _CONTINUATION):
            raise UnreadableError(b"a WebSocket message inside of another, or the rest of none")

    def _payload(self, data: bytes, position: int) -> int:
        end = min(len(data), position + self._left)
        piece = _unmasked(data[position:end], self._mask)
        self._left -= end - position
        turn = len(piece) % 4
        self._mask = self._mask[turn:] + self._mask[:turn]
        self._add(piece)
        if not self._left and self._fin:
            self._whole()
        return end

    def _add(self, piece: bytes) -> None:
        room = MESSAGE_MAX_BYTES - len(self._message)
        if self._compressed and self._inflater is not None:
            piece = self._inflater.feed(piece, room)
        if len(piece) > room:
            raise UnreadableError(f"a WebSocket message of more than {MESSAGE_MAX_BYTES:,} bytes".encode())
        self._message += piece

    def _whole(self) -> None:
        if self._compressed and self._inflater is not None:
            self._message += self._inflater.finish(MESSAGE_MAX_BYTES - len(self._message))
        message, self._message = bytes(self._message), bytearray()
        text = self._opcode == _TEXT
        self._opcode = _CONTINUATION
        self._tell(text, message)


class Socket:
    """Both directions after the change. Of an exchange whose bodies nobody wants, bytes are counted only."""

    def __init__(self, ledger: Ledger, exchange: Exchange, headers: Headers) -> None:
        """Raises UnreadableError: an extension that is not known."""
        self._ledger = ledger
        self._exchange = exchange
        self._client_over = False
        self._frames: tuple[Frames, Frames] | None = None
        if exchange.wanted:
            found = agreed(headers)
            up = Inflater(found.client_takeover) if found.deflate else None
            down = Inflater(found.server_takeover) if found.deflate else None
            self._frames = (
                Frames(True, up, lambda text, data: ledger.message(exchange, True, text, data)),
                Frames(False, down, lambda text, data: ledger.message(exchange, False, text, data)),
            )

    def up(self, data: bytes) -> None:
        """Bytes from the client. Raises UnreadableError."""
        self._exchange.sent_bytes += len(data)
        if self._frames is not None:
            self._frames[0].feed(data)
            self._if_closed(self._frames)

    def down(self, data: bytes) -> None:
        """Bytes from the server. Raises UnreadableError."""
        self._exchange.received_bytes += len(data)
        if self._frames is not None:
            self._frames[1].feed(data)
            self._if_closed(self._frames)

    def end_up(self) -> None:
        """The client says nothing more."""
        self._client_over = True

    def end_down(self) -> None:
        """The server says nothing more: that is the end."""
        if self._frames is None:
            self._ledger.end(self._exchange, "complete")
        else:
            self.cut(by_client=self._client_over)

    def cut(self, *, by_client: bool) -> None:
        """The connection was reset, or ended without both closes (RFC 6455, 7.1.4: one is enough to know why)."""
        frames = self._frames
        if frames is not None and (frames[0].closing is not None or frames[1].closing is not None):
            self._ledger.end(self._exchange, "complete", _why(frames))
            return
        inside = frames is not None and (frames[0].inside or frames[1].inside)
        where = b"inside of a WebSocket message" if inside else b"without a WebSocket close"
        self._ledger.end(self._exchange, "cut-by-client" if by_client else "cut-by-server", where)

    def _if_closed(self, frames: tuple[Frames, Frames]) -> None:
        if frames[0].closing is not None and frames[1].closing is not None:
            self._ledger.end(self._exchange, "complete", _why(frames))


def _why(frames: tuple[Frames, Frames]) -> bytes:
    """Code and words of a close that was no ordinary one."""
    for frame, side in zip(frames, (b"client", b"server"), strict=True):
        closing = frame.closing or b""
        if closing[:2] not in _QUIET and len(closing) > 1:
            return b"closed by the %s: %d %s" % (side, int.from_bytes(closing[:2], "big"), closing[2:])
    return b""


def _unmasked(data: bytes, mask: bytes) -> bytes:
    """RFC 6455, 5.3, all bytes at once."""
    if not mask or not data:
        return data
    pad = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "little") ^ int.from_bytes(pad, "little")).to_bytes(len(data), "little")
