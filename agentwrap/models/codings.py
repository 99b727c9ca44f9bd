"""Bodies out of their content codings: gzip, deflate, br, zstd, one upon the other (RFC 9110, 8.4; RFC 8878; RFC 7932).

Knows compressed bytes. Refuses to know headers beyond the names of codings, and what the bytes say. What is broken,
ends early or is a bomb gives what came out of it until then, and a problem in words; nothing here raises.
"""

import sys
import zlib
from collections.abc import Callable, Iterable
from typing import Protocol

CODINGS_MAX = 4
_SLICE = 1024  # bytes given to a decompressor at once: what it made of these may be lost when they are broken
_REPLAYED_MAX = 1 << 16  # bytes of compressed data that are kept for that case

ENDS_EARLY = "the compressed body ends early"
TOO_MUCH = "the body inflates to more than is read"
NOT_KNOWN = "a content coding that is not known: the body is left as it came"
TOO_MANY = "too many content codings: the body is left as it came"
MORE_BEHIND = "there are bytes behind the end of the compressed body"
BROKEN = {
    "gzip": "the body is not the gzip data that it is said to be",
    "deflate": "the body is not the deflate data that it is said to be",
    "br": "the body is not the brotli data that it is said to be",
    "zstd": "the body is not the zstd data that it is said to be",
}
_NAMES = {b"gzip": "gzip", b"x-gzip": "gzip", b"deflate": "deflate", b"br": "br", b"zstd": "zstd"}


class _Stage(Protocol):
    """One coding. `problem`: why nothing more comes out, or empty."""

    problem: str

    def feed(self, data: bytes, room_bytes: int) -> bytes:
        """What comes out, at most `room_bytes`; more than that is a problem."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether its data may end here."""
        ...


class Decoding:
    """A body that comes in pieces. `problem`: the first, or empty; after one nothing more comes out.

    Output, also between two codings, is at most `limit_bytes`.
    """

    def __init__(self, encodings: bytes, limit_bytes: int) -> None:
        """`encodings`: the value of Content-Encoding; several fields joined with commas."""
        self.problem = ""
        self._begun = False
        self._limit_bytes = limit_bytes
        self._stages: list[_Stage] = []
        self._passed: list[int] = []
        self._as_it_came = False
        self._begin(encodings)

    def _begin(self, encodings: bytes) -> None:
        names = [name.strip().lower() for name in encodings.split(b",")]
        names = [name for name in names if name not in (b"", b"identity")]
        if len(names) > CODINGS_MAX:
            self.problem, names = TOO_MANY, []
            self._as_it_came = True
        for name in reversed(names):
            if name not in _NAMES:
                self.problem = NOT_KNOWN
                self._as_it_came = True
                break
            self._stages.append(_stage(_NAMES[name]))
        self._passed = [0] * (len(self._stages) + 1)

    def feed(self, data: bytes) -> bytes:
        """The next bytes; what comes out of them."""
        self._begun = self._begun or bool(data)
        if self.problem and not self._as_it_came:
            return b""
        for number, stage in enumerate(self._stages):
            if not data:
                break
            data = stage.feed(data, self._limit_bytes - self._passed[number])
            self._passed[number] += len(data)
            if stage.problem:
                self.problem, self._as_it_came = stage.problem, False
        if not self._stages and len(data) > self._limit_bytes - self._passed[-1]:
            data = data[: self._limit_bytes - self._passed[-1]]
            self.problem, self._as_it_came = TOO_MUCH, False
        self._passed[-1] += len(data)
        return data

    def end(self) -> None:
        """Nothing more comes: sets `problem` if something is missing."""
        if self._begun and (not self.problem or self._as_it_came) and not all(one.is_whole for one in self._stages):
            self.problem = ENDS_EARLY


def decode(data: bytes, encodings: bytes, limit_bytes: int) -> tuple[bytes, str]:
    """A whole body and the problem with it, or an empty text. At most `limit_bytes` come out."""
    decoding = Decoding(encodings, limit_bytes)
    decoded = decoding.feed(data)
    decoding.end()
    return decoded, decoding.problem


def decode_timed(
    data: bytes, times: Iterable[tuple[int, int]], encodings: bytes, limit_bytes: int
) -> tuple[bytes, list[tuple[int, int]], str]:
    """As `decode`, of a body whose pieces have times.

    `times`: (raw bytes, nanoseconds) of each piece. Those that come back are of decoded bytes; a piece of which nothing
    came out has none.
    """
    decoding = Decoding(encodings, limit_bytes)
    decoded: list[bytes] = []
    told: list[tuple[int, int]] = []
    position = 0
    for size, at_ns in times:
        out = decoding.feed(data[position : position + size])
        position += size
        if out:
            decoded.append(out)
            told.append((len(out), at_ns))
    decoding.end()
    return b"".join(decoded), told, decoding.problem


def _stage(name: str) -> _Stage:
    if name == "br":
        return _Brotli()
    return _Zstd() if name == "zstd" else _Zlib(name)


class _Zlib:
    """gzip with all of its members (RFC 1952, 2.2); deflate with and without zlib's head (RFC 1950)."""

    def __init__(self, name: str) -> None:
        self.problem = ""
        self._name = name
        self._stream = zlib.decompressobj(31) if name == "gzip" else None
        self._held = b""  # before it is known what it is

    @property
    def is_whole(self) -> bool:
        return not self._held and (self._stream is None or self._stream.eof)

    def feed(self, data: bytes, room_bytes: int) -> bytes:
        data, self._held = self._held + data, b""
        if self._stream is None:
            if len(data) < 2:
                self._held = data
                return b""
            # RFC 9110, 8.4.1.2: some send the data without the head that belongs to it.
            has_head = data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0
            self._stream = zlib.decompressobj(15 if has_head else -15)
        whole = bytearray()
        position = 0
        while position < len(data) and not self.problem:
            if self._stream.eof and not self._next_member(data, position):
                break
            piece = data[position : position + _SLICE]
            whole += self._inflated(self._stream, piece, room_bytes - len(whole) + 1)
            if len(whole) > room_bytes:
                self.problem = TOO_MUCH
            position += len(piece) - len(self._stream.unused_data)
        return bytes(whole[:room_bytes])

    def _inflated(self, stream: "zlib._Decompress", data: bytes, room_bytes: int) -> bytes:
        """What comes out. Of broken data zlib gives nothing, not even what was good: that is read byte by byte."""
        before = stream.copy()
        try:
            return stream.decompress(data, room_bytes)
        except zlib.error:
            self.problem = BROKEN[self._name]
        out = b""
        try:
            for position in range(len(data)):
                out += before.decompress(data[position : position + 1], room_bytes)
        except zlib.error:
            pass
        return out

    def _next_member(self, data: bytes, position: int) -> bool:
        """Whether another begins here. One byte cannot say it, and zeros may fill up the rest, as gzip(1) has it."""
        if self._name == "gzip" and data.startswith(b"\x1f\x8b", position):
            self._stream = zlib.decompressobj(31)
            return True
        if self._name == "gzip" and data[position:] == b"\x1f":
            self._held = b"\x1f"
        elif data[position:].strip(b"\0"):
            self.problem = MORE_BEHIND
        return False


class _Replaying:
    """A decompressor that loses what was good in a piece that has something broken, and cannot be copied.

    The input is kept as long as it is small, to be read once more byte by byte. `new`: what decompresses
    `(data, room_bytes)`, with `error`.
    """

    def __init__(self, new: Callable[[], Callable[[bytes, int], bytes]], error: type[Exception]) -> None:
        self._new = new
        self._error = error
        self.begin()

    def begin(self) -> None:
        """Begin anew."""
        self._decompress = self._new()
        self._kept: bytearray | None = bytearray()
        self._out_bytes = 0

    def feed(self, data: bytes, room_bytes: int) -> tuple[bytes, bool]:
        """What comes out (it may be more than asked for), and whether something is broken."""
        if self._kept is not None:
            self._kept += data
            if len(self._kept) > _REPLAYED_MAX:
                self._kept = None
        try:
            out = self._decompress(data, room_bytes)
        except self._error:
            return self._again(room_bytes), True
        self._out_bytes += len(out)
        return out, False

    def _again(self, room_bytes: int) -> bytes:
        out = bytearray()
        decompress = self._new()
        try:
            for byte in self._kept or b"":
                out += decompress(bytes((byte,)), self._out_bytes + room_bytes - len(out))
                if len(out) >= self._out_bytes + room_bytes:
                    break
        except self._error:
            pass
        return bytes(out[self._out_bytes :])


class _Brotli:
    def __init__(self) -> None:
        import brotli  # for bodies that are coded so

        self.problem = ""
        self.is_whole = False
        self._made = brotli.Decompressor
        self._replaying = _Replaying(self._begun, brotli.error)

    def _begun(self) -> Callable[[bytes, int], bytes]:
        stream = self._made()
        self.is_whole = False

        def decompress(data: bytes, room_bytes: int) -> bytes:
            out: bytes = stream.process(data, output_buffer_limit=room_bytes)
            self.is_whole = bool(stream.is_finished())
            return out

        return decompress

    def feed(self, data: bytes, room_bytes: int) -> bytes:
        whole = bytearray()
        for position in range(0, len(data), _SLICE):
            if self.is_whole:
                self.problem = MORE_BEHIND
            if self.problem:
                break
            out, broken = self._replaying.feed(data[position : position + _SLICE], room_bytes - len(whole) + 1)
            whole += out
            if broken:
                self.problem = MORE_BEHIND if self.is_whole else BROKEN["br"]
            elif len(whole) > room_bytes:
                self.problem = TOO_MUCH
        return bytes(whole[:room_bytes])


class _Zstd:
    """Frames one after the other, some of which hold nothing (RFC 8878, 3.1)."""

    def __init__(self) -> None:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd

        self.problem = ""
        self._made = zstd.ZstdDecompressor
        self._stream = self._made()
        self._replaying = _Replaying(self._begun, zstd.ZstdError)
        self._fresh = True

    def _begun(self) -> Callable[[bytes, int], bytes]:
        self._stream = self._made()
        return self._stream.decompress

    @property
    def is_whole(self) -> bool:
        return self._fresh or self._stream.eof

    def feed(self, data: bytes, room_bytes: int) -> bytes:
        whole = bytearray()
        position = 0
        while position < len(data) and not self.problem:
            if self._stream.eof:
                self._replaying.begin()
            self._fresh = False
            piece = data[position : position + _SLICE]
            out, broken = self._replaying.feed(piece, room_bytes - len(whole) + 1)
            whole += out
            if broken:
                self.problem = BROKEN["zstd"]
            elif len(whole) > room_bytes:
                self.problem = TOO_MUCH
            position += len(piece) - len(self._stream.unused_data)
        return bytes(whole[:room_bytes])
