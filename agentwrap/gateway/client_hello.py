"""The first message of a TLS client (RFC 8446, 4.1.2; RFC 5246, 7.4.1.2): the name it asks for, and how.

Knows records, the ClientHello and the four extensions that say whom the client means. Refuses to know about keys and
certificates: nothing is decrypted. Whatever two servers could read differently is refused.
"""

import struct
from typing import Final

import msgspec

HELLO_MAX = 0x10000  # bytes of handshake message; post-quantum hellos have about 1,800
ACCESS_DENIED = 49  # RFC 8446, 6.2: "a valid certificate or PSK was received, but access was denied"

_HANDSHAKE, _CLIENT_HELLO = 22, 1
_RECORD_MAX = 1 << 14  # RFC 8446, 5.1
_SERVER_NAME, _ALPN, _SUPPORTED_VERSIONS, _ECH = 0, 16, 43, 0xFE0D


class TlsError(ValueError):
    """Bytes that are no ClientHello; the text says why."""


class NeedMore(msgspec.Struct, frozen=True):
    """Nothing can be said yet."""


NEED_MORE: Final = NeedMore()


class Hello(msgspec.Struct, frozen=True):
    r"""What a client says in the open.

    `sni`: the name as sent (not normalised; a byte that is not ASCII is shown as `\xff`), None without one. `alpn`:
    protocols in its order. `ech`: an encrypted hello goes with it, or pretends to (browsers always send something in
    its place, RFC 9849, 6.2). `versions`: protocol versions offered (0x0304 is TLS 1.3), without GREASE.
    """

    sni: str | None = None
    alpn: tuple[bytes, ...] = ()
    ech: bool = False
    versions: tuple[int, ...] = ()


class HelloReader:
    """Takes the bytes of a client as they come, whatever the pieces, and gives its hello.

    Holds at most HELLO_MAX, one record and the last piece.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._message = bytearray()

    def feed(self, data: bytes) -> Hello | NeedMore:
        """More bytes. Raises TlsError. What follows the hello is not looked at."""
        self._rest += data
        while True:
            record = self._record()
            if record is None:
                return NEED_MORE
            self._message += record
            if self._message[0] != _CLIENT_HELLO:
                raise TlsError(f"a handshake message of type {self._message[0]}, not a ClientHello")
            if len(self._message) < 4:
                continue
            length = int.from_bytes(self._message[1:4], "big")
            if length > HELLO_MAX:
                raise TlsError(f"a ClientHello of {length:,} bytes")
            if len(self._message) > 4 + length:
                raise TlsError("something follows the ClientHello in its record")
            if len(self._message) == 4 + length:
                return _hello(bytes(self._message[4:]))

    def _record(self) -> bytes | None:
        """The content of the next record, None if it is not complete."""
        head = self._rest[:5]
        if head[:1] and head[0] != _HANDSHAKE:
            raise TlsError(f"a record of type {head[0]}, not a handshake")
        if len(head) > 1 and head[1] != 3:
            raise TlsError(f"record version {head[1]}")
        if len(head) < 5:
            return None
        length = int.from_bytes(head[3:5], "big")
        if not 0 < length <= _RECORD_MAX:  # RFC 8446, 5.1: no empty handshake records
            raise TlsError(f"a handshake record of {length:,} bytes")
        if len(self._rest) < 5 + length:
            return None
        content = bytes(self._rest[5 : 5 + length])
        del self._rest[: 5 + length]
        return content


def parse(buffer: bytes) -> Hello | NeedMore:
    """The hello at the start of `buffer`. Raises TlsError."""
    return HelloReader().feed(buffer)


class _Reader:
    """Bytes with length-prefixed vectors (RFC 8446, 3.4)."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, length: int) -> bytes:
        taken = self.data[self.position : self.position + length]
        if len(taken) < length:
            raise TlsError("the ClientHello ends early")
        self.position += length
        return taken

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def vector(self, width: int) -> "_Reader":
        return _Reader(self.take(self.number(width)))

    @property
    def left(self) -> int:
        return len(self.data) - self.position


def _hello(body: bytes) -> Hello:
    reader = _Reader(body)
    version = reader.number(2)
    reader.take(32)
    if reader.vector(1).left > 32:
        raise TlsError("a session id of more than 32 bytes")
    suites = reader.vector(2).left
    if not suites or suites % 2:
        raise TlsError("a broken list of cipher suites")
    if not reader.vector(1).left:
        raise TlsError("no compression method")
    extensions = _extensions(reader)
    versions: tuple[int, ...] = (version,)
    if _SUPPORTED_VERSIONS in extensions:
        versions = _versions(extensions[_SUPPORTED_VERSIONS])
    return Hello(
        sni=_server_name(extensions[_SERVER_NAME]) if _SERVER_NAME in extensions else None,
        alpn=_alpn(extensions[_ALPN]) if _ALPN in extensions else (),
        ech=_ECH in extensions,
        versions=versions,
    )


def _extensions(reader: _Reader) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    if not reader.left:
        return found
    listed = reader.vector(2)
    if reader.left:
        raise TlsError("bytes after the extensions")
    while listed.left:
        kind = listed.number(2)
        if kind in found:
            raise TlsError(f"extension {kind} twice")
        found[kind] = listed.vector(2).data
    return found


def _whole(data: bytes, width: int, what: str) -> _Reader:
    """The one vector that fills an extension."""
    outer = _Reader(data)
    inner = outer.vector(width)
    if outer.left or not inner.left:
        raise TlsError(f"a broken {what} extension")
    return inner


def _server_name(data: bytes) -> str:
    """RFC 6066, 3: a list that in practice holds exactly one host name."""
    listed = _whole(data, 2, "server_name")
    kind = listed.number(1)
    name = listed.vector(2).data
    if kind != 0 or listed.left:
        raise TlsError("a server_name that is not exactly one host name")
    if not name or b"\0" in name:
        raise TlsError("a server_name that is empty or has a NUL byte")
    return name.decode("ascii", "backslashreplace")


def _alpn(data: bytes) -> tuple[bytes, ...]:
    listed = _whole(data, 2, "ALPN")
    protocols = []
    while listed.left:
        protocol = listed.vector(1).data
        if not protocol:
            raise TlsError("an empty protocol name")
        protocols.append(protocol)
    return tuple(protocols)


def _versions(data: bytes) -> tuple[int, ...]:
    listed = _whole(data, 1, "supported_versions")
    if listed.left % 2:
        raise TlsError("a broken supported_versions extension")
    every = struct.unpack(f"!{listed.left // 2}H", listed.data)
    return tuple(one for one in every if not _grease(one))


def _grease(value: int) -> bool:
    """RFC 8701: 0x0a0a, 0x1a1a, ... 0xfafa."""
    return value & 0x0F0F == 0x0A0A and value >> 8 == value & 0xFF


def alert_access_denied() -> bytes:
    """A fatal `access_denied` in a record, for a client that has had no answer yet."""
    return bytes((21, 3, 3, 0, 2, 2, ACCESS_DENIED))
