"""ClientHellos: of Python's own TLS, and made by hand where no client would send them so."""

import ssl
import struct


def client(
    name: str | None = "api.example.com", alpn: tuple[str, ...] = (), newest: ssl.TLSVersion | None = None
) -> bytes:
    """What Python's ssl module sends first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # What a distribution builds in as the oldest version differs.
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if newest is not None:
        context.maximum_version = newest
    outgoing = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    try:
        connection.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake with nobody")


def vector(width: int, data: bytes) -> bytes:
    return len(data).to_bytes(width, "big") + data


def extension(kind: int, data: bytes) -> bytes:
    return struct.pack("!H", kind) + vector(2, data)


def name_extension(*names: bytes, kind: int = 0) -> bytes:
    return extension(0, vector(2, b"".join(bytes([kind]) + vector(2, name) for name in names)))


def message(
    *extensions: bytes,
    version: bytes = b"\3\3",
    session: bytes = b"s" * 32,
    suites: bytes = b"\x13\x01",
    compression: bytes = b"\0",
    after: bytes = b"",
    without_extensions: bool = False,
) -> bytes:
    body = version + b"r" * 32 + vector(1, session) + vector(2, suites) + vector(1, compression)
    body += (b"" if without_extensions else vector(2, b"".join(extensions))) + after
    return b"\1" + vector(3, body)


def records(handshake: bytes, size: int = 1 << 14) -> bytes:
    """A handshake message in records of at most `size` bytes."""
    pieces = [handshake[start : start + size] for start in range(0, len(handshake), size)]
    return b"".join(b"\x16\3\1" + vector(2, piece) for piece in pieces)
