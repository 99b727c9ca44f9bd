"""Redacting a stream: bytes in chunks of any size, a secret split across them is found. Pure.

The end of what has come so far is held back, as long as a secret could still go on in it.
"""

from agentwrap.recording.redact.redactor import Redactor, replace

_OVERLAP_BYTES = 4096
"""A secret (or what tells it, and it) that is longer may be cut; known values hold back more, see `_hold`."""
_BLOCK_BYTES = 65536
_BREAKS = b"\n\r \t\0"


class RedactedStream:
    """One direction of one stream."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; give those that are safe to store now (often none)."""
        self._held += chunk
        hold = max(_OVERLAP_BYTES, 2 * self._redactor.exact.longest)
        if len(self._held) <= hold + min(hold, _BLOCK_BYTES):
            return b""
        return self._release(len(self._held) - hold)

    def flush(self) -> bytes:
        """The end of the stream: everything that is left."""
        held, self._held = self._held, b""
        return self._redactor.clean(held)

    def _release(self, limit: int) -> bytes:
        """Give out what lies before `limit`, cut between words and outside of every secret."""
        data = self._held
        cut = max(data.rfind(bytes([c]), limit - _OVERLAP_BYTES // 2, limit) for c in _BREAKS) + 1 or limit
        spans = self._redactor.find(data)
        moved = True
        while moved:
            moved = False
            for start, end, _, _ in spans:
                # A private key that has begun is known by its end only; it may grow to 20 KB.
                if start < cut < end:
                    cut, moved = start, True
        begun = data.find(b"-----BEGIN", max(0, cut - 24_000), cut)
        if begun >= 0 and data.find(b"-----END", begun) < 0:
            cut = begun
        if cut <= 0:
            return b""
        inside = [span for span in spans if span[1] <= cut]
        self._held = data[cut:]
        return replace(data[:cut], inside, self._redactor.mark)
