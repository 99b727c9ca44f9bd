"""The canonical bytes of one event row, and its leaf hash. Pure.

An envelope is netstrings (`len:bytes,`), so no value can pretend to be two; NULL is the single byte `~`. What foreign
bytes an event quotes is never re-canonicalised: `data` is hashed as the text that is stored.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import sha256

Part = tuple[str, int, bytes]
"""(role, ordinal, SHA-256 of the stored bytes)."""


def _net(value: str | int | None) -> bytes:
    if value is None:
        return b"~"
    raw = value.encode() if isinstance(value, str) else b"%d" % value
    return b"%d:%b," % (len(raw), raw)


@lru_cache(maxsize=4096)
def _word(value: str | int | None) -> bytes:
    """The netstring of one of the few values that return in row after row (kinds, spans, verdicts, processes)."""
    return _net(value)


def envelope(
    seq: int,
    at_ns: int,
    kind: str,
    span: str | None,
    pid: int | None,
    subject: str | None,
    verdict: str | None,
    data: str | bytes,
    parts: Iterable[Part] = (),
) -> bytes:
    """The bytes that a leaf covers, in the order of the columns, then every part in the order of its key."""
    body = data.encode() if isinstance(data, str) else data
    number, clock = b"%d" % seq, b"%d" % at_ns
    head = b"%d:%b,%d:%b,%b%b%b%b%b%d:%b," % (
        len(number),
        number,
        len(clock),
        clock,
        _word(kind),
        _word(span),
        _word(pid),
        _net(subject),
        _word(verdict),
        len(body),
        body,
    )
    for role, ordinal, digest in parts:
        head += b"%b%b%d:%b," % (_word(role), _word(ordinal), len(digest) * 2, digest.hex().encode())
    return head


def leaf_hash(body: bytes) -> bytes:
    """RFC 6962 section 2.1: MTH({d(0)}) = SHA-256(0x00 || d(0))."""
    return sha256(b"\x00" + body).digest()


def meta_digest(meta: Mapping[str, str]) -> bytes:
    """SHA-256 over the netstrings of key and value, sorted by the bytes of the key: what checkpoints say of `meta`."""
    ordered = sorted(meta.items(), key=lambda item: item[0].encode())
    return sha256(b"".join(_net(key) + _net(value) for key, value in ordered)).digest()
