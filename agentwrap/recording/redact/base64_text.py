"""Base64 in both alphabets, with or without padding, cut out of a longer text. Pure (RFC 4648 sections 4 and 5)."""

import base64

_URLSAFE = bytes.maketrans(b"+/", b"-_")
_STANDARD = bytes.maketrans(b"-_", b"+/")


def cores(value: bytes) -> set[bytes]:
    """The letters that `value` is sure to leave in base64 text: three places in a group of three, two alphabets."""
    found: set[bytes] = set()
    for before in range(3):
        text = base64.b64encode(bytes(before) + value)
        first, last = (before * 8 + 5) // 6, (before + len(value)) * 8 // 6
        found |= {text[first:last], text[first:last].translate(_URLSAFE)}
    return found


def decode_run(run: bytes, offset: int) -> bytes:
    """Decode base64 letters from `offset` on; letters at the end that fill no byte are left out."""
    text = run[offset:].translate(_STANDARD)
    text = text[: len(text) - (len(text) % 4 == 1)]
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4))
    except ValueError:
        return b""
