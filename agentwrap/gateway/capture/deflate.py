"""Compressed WebSocket messages: what was agreed on, and inflating within bounds (RFC 7692).

Knows permessage-deflate. Refuses to know frames.
"""

import re
import zlib

import msgspec

from agentwrap.events.exchange import Headers
from agentwrap.gateway.capture.framing import UnreadableError
from agentwrap.gateway.capture.heads import values

_TAIL = b"\x00\x00\xff\xff"  # RFC 7692, 7.2.2
_WINDOW = 1 << 15
_BITS = re.compile(rb'"?(8|9|1[0-5])"?')


class Agreed(msgspec.Struct, frozen=True):
    """Whether messages may be compressed, and whether each side's compressor keeps its window between them.

    The window's size needs no telling: what was made with a smaller one is inflated the same with the largest.
    """

    deflate: bool = False
    client_takeover: bool = True
    server_takeover: bool = True


def agreed(headers: Headers) -> Agreed:
    """What the answer's Sec-WebSocket-Extensions say (RFC 6455, 9.1). Raises UnreadableError."""
    stated = b",".join(values(headers, b"sec-websocket-extensions"))
    extensions = [one.strip() for one in stated.split(b",") if one.strip()]
    if not extensions:
        return Agreed()
    words = [word.strip() for word in extensions[0].split(b";")]
    if len(extensions) > 1 or words[0].lower() != b"permessage-deflate":
        raise UnreadableError(b"a WebSocket extension that is not known: " + stated.strip())
    takeover = {b"client": True, b"server": True}
    for word in words[1:]:
        name, _, value = (part.strip() for part in word.lower().partition(b"="))
        side, _, rest = name.partition(b"_")
        if side in takeover and rest == b"no_context_takeover" and not value:
            takeover[side] = False
        elif side not in takeover or rest != b"max_window_bits" or not _BITS.fullmatch(value):
            raise UnreadableError(b"a parameter of permessage-deflate that is not known: " + word)
    return Agreed(True, takeover[b"client"], takeover[b"server"])


class Inflater:
    """The compressed messages of one direction, one after the other."""

    def __init__(self, takeover: bool) -> None:
        self._takeover = takeover
        self._stream = zlib.decompressobj(-15)
        self._history = b""

    def feed(self, data: bytes, limit_bytes: int) -> bytes:
        """More of a message. Raises UnreadableError, also for more than `limit_bytes` of output."""
        whole = b""
        try:
            while True:
                # One byte more than allowed tells a bomb from a message that just fits.
                out = self._stream.decompress(data, limit_bytes - len(whole) + 1)
                whole = whole + out if whole else out
                if len(whole) > limit_bytes:
                    raise UnreadableError(b"a WebSocket message that inflates to too much")
                self._history = (self._history + out if len(out) < _WINDOW else out)[-_WINDOW:]
                if not self._stream.eof:
                    return whole
                # RFC 7692, 7.2.3.5: a last block may come inside of a message; the window goes on.
                data = self._stream.unused_data
                self._stream = zlib.decompressobj(-15, zdict=self._history)
        except zlib.error as error:
            raise UnreadableError(b"a WebSocket message that cannot be inflated") from error

    def finish(self, limit_bytes: int) -> bytes:
        """The rest of the message. Raises as `feed`."""
        out = self.feed(_TAIL, limit_bytes)
        if not self._takeover:
            self._stream, self._history = zlib.decompressobj(-15), b""
        return out
