"""Certificates and EC keys in DER (X.690; RFC 5280, RFC 5915): just the few forms that an authority of a run needs.

Written by hand because what the library has for every form there is takes longer to load than all the rest of a
command's start. Knows bytes and numbers; refuses to know keys, hosts and times of its own.
"""

import base64
import datetime as dt
from collections.abc import Callable, Sequence
from hashlib import sha1
from ipaddress import IPv4Address, IPv6Address

Sign = Callable[[bytes], bytes]
"""ECDSA with SHA-256 over these bytes, in DER."""

COORDINATE_BYTES = 32  # of P-256

_BOOLEAN, _INTEGER, _BITS, _OCTETS, _OBJECT, _UTF8, _SEQUENCE, _SET = 1, 2, 3, 4, 6, 12, 0x30, 0x31
_TIME, _LONG_TIME = 23, 24
_LAST_SHORT_YEAR = 2049  # RFC 5280, 4.1.2.5
_LONG = 0x80  # lengths from here on, and all but the last of an object identifier's bytes
_IN, _HELD = 0xA0, 0x80  # context-specific tags: of something that holds, and of plain bytes

_ECDSA_SHA256 = "1.2.840.10045.4.3.2"
_EC, _P256 = "1.2.840.10045.2.1", "1.2.840.10045.3.1.7"
_ORGANIZATION, _COMMON_NAME = "2.5.4.10", "2.5.4.3"
_SERVER = "1.3.6.1.5.5.7.3.1"


def _of(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    if size < _LONG:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, _LONG | len(length))) + length + content


def integer(value: int) -> bytes:
    """An INTEGER, not negative."""
    return _of(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def object_identifier(dotted: str) -> bytes:
    """An OBJECT IDENTIFIER."""
    first, second, *rest = (int(number) for number in dotted.split("."))
    content = b""
    for number in (first * 40 + second, *rest):
        septets = [number & 0x7F]
        while number := number >> 7:
            septets.append(number & 0x7F | _LONG)
        content += bytes(reversed(septets))
    return _of(_OBJECT, content)


def time(moment: dt.datetime) -> bytes:
    """A UTCTime, or from 2050 on a GeneralizedTime; `moment` is in UTC, without fractions."""
    if moment.year > _LAST_SHORT_YEAR:
        return _of(_LONG_TIME, moment.strftime("%Y%m%d%H%M%SZ").encode())
    return _of(_TIME, moment.strftime("%y%m%d%H%M%SZ").encode())


def name(*, organization: str = "", common_name: str = "") -> bytes:
    """A Name; empty strings are left out."""
    parts = ((_ORGANIZATION, organization), (_COMMON_NAME, common_name))
    pairs = (_of(_SEQUENCE, object_identifier(of), _of(_UTF8, value.encode())) for of, value in parts if value)
    return _of(_SEQUENCE, *(_of(_SET, pair) for pair in pairs))


def point(x: int, y: int) -> bytes:
    """A public key of P-256, not compressed (SEC 1, 2.3.3)."""
    return b"\x04" + x.to_bytes(COORDINATE_BYTES, "big") + y.to_bytes(COORDINATE_BYTES, "big")


def identifier(public: bytes) -> bytes:
    """The identifier of a key by its point (RFC 5280, 4.2.1.2)."""
    return sha1(public, usedforsecurity=False).digest()


def _extension(dotted: str, content: bytes, *, critical: bool = False) -> bytes:
    flag = _of(_BOOLEAN, b"\xff") if critical else b""
    return _of(_SEQUENCE, object_identifier(dotted), flag, _of(_OCTETS, content))


def basic_constraints(*, authority: bool) -> bytes:
    """Whether it is an authority; one is for no further authorities."""
    content = _of(_BOOLEAN, b"\xff") + integer(0) if authority else b""
    return _extension("2.5.29.19", _of(_SEQUENCE, content), critical=True)


def key_usage(*, authority: bool) -> bytes:
    """An authority signs certificates and lists of revoked ones, others sign what is said in a handshake."""
    return _extension("2.5.29.15", _of(_BITS, b"\x01\x06" if authority else b"\x07\x80"), critical=True)


def for_servers() -> bytes:
    """The extended key usage of a server of TLS."""
    return _extension("2.5.29.37", _of(_SEQUENCE, object_identifier(_SERVER)))


def alternative_name(host: str | IPv4Address | IPv6Address, *, critical: bool) -> bytes:
    """The one name or address. Raises ValueError where it is not ASCII."""
    tag, held = (_HELD | 2, host.encode("ascii")) if isinstance(host, str) else (_HELD | 7, host.packed)
    return _extension("2.5.29.17", _of(_SEQUENCE, _of(tag, held)), critical=critical)


def subject_key(held: bytes) -> bytes:
    """`held`: the identifier of the certificate's own key."""
    return _extension("2.5.29.14", _of(_OCTETS, held))


def authority_key(held: bytes) -> bytes:
    """`held`: the identifier of the key that signed it."""
    return _extension("2.5.29.35", _of(_SEQUENCE, _of(_HELD, held)))


def certificate(
    subject: bytes,
    issuer: bytes,
    *,
    serial: int,
    valid: tuple[dt.datetime, dt.datetime],
    public: bytes,
    extensions: Sequence[bytes],
    sign: Sign,
) -> bytes:
    """A signed certificate in DER. `subject`, `issuer`: of `name`; `public`: of `point`."""
    algorithm = _of(_SEQUENCE, object_identifier(_ECDSA_SHA256))
    key = _of(_SEQUENCE, _of(_SEQUENCE, object_identifier(_EC), object_identifier(_P256)), _bits(public))
    signed = _of(
        _SEQUENCE,
        _of(_IN, integer(2)),  # version 3
        integer(serial),
        algorithm,
        issuer,
        _of(_SEQUENCE, *(time(moment) for moment in valid)),
        subject,
        key,
        _of(_IN | 3, _of(_SEQUENCE, *extensions)),
    )
    return _of(_SEQUENCE, signed, algorithm, _bits(sign(signed)))


def _bits(content: bytes) -> bytes:
    return _of(_BITS, b"\0", content)


def private_key(secret: int, public: bytes) -> bytes:
    """A private key of P-256 in DER (RFC 5915)."""
    return _of(
        _SEQUENCE,
        integer(1),
        _of(_OCTETS, secret.to_bytes(COORDINATE_BYTES, "big")),
        _of(_IN, object_identifier(_P256)),
        _of(_IN | 1, _bits(public)),
    )


def pem(label: str, der: bytes) -> bytes:
    """As text (RFC 7468)."""
    text = base64.b64encode(der)
    lines = b"\n".join(text[start : start + 64] for start in range(0, len(text), 64))
    return b"-----BEGIN %b-----\n%b\n-----END %b-----\n" % (label.encode(), lines, label.encode())
