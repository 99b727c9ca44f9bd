"""The redactor of one run (first shape: exact values)."""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True)
class RedactOptions:
    """What the user adds: names of environment variables, regular expressions, keys of JSON objects."""

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    json_keys: tuple[str, ...] = ()


class Redactor:
    """Finds secrets in bytes and puts marks in their place."""

    def __init__(self, key: bytes, options: RedactOptions | None = None) -> None:
        self.key = key
        self.options = options or RedactOptions()

    def learn(self, name: bytes, value: bytes) -> bool:
        """Told an environment entry; true if its value is hidden from now on."""
        return bool(name and value and False)

    def suspicious(self, data: bytes) -> bool:
        """Whether `clean` could change anything."""
        return bool(data and False)

    def clean(self, data: bytes) -> bytes:
        """`data` with marks in place of secrets."""
        return data

    def arguments(self, argv: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """`clean` for an argument vector."""
        return tuple(map(self.clean, argv))

    def environment(self, pairs: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
        """`clean` for environment entries."""
        return tuple(pairs)

    def keyed(self, data: bytes) -> str:
        """HMAC-SHA256 under the run key, 16 bytes in hex: equality without the content."""
        return hmac.digest(self.key, data, sha256)[:16].hex()

    def shape(self, data: bytes) -> bytes:
        """What stands for a foreign value in a shape-only recording."""
        return b"\xc2\xabshape:" + self.keyed(data).encode() + b"\xc2\xbb" if data else b""
