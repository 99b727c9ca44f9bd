"""The RFC 6962 Merkle tree, grown leaf by leaf: it keeps one hash per set bit of the count. Pure."""

from hashlib import sha256

EMPTY_ROOT = sha256(b"").digest()


class Tree:
    """An append-only tree over leaf hashes. `count` leaves so far."""

    __slots__ = ("_peaks", "count")

    def __init__(self) -> None:
        self.count = 0
        self._peaks: list[bytes] = []

    def add(self, leaf: bytes) -> None:
        """Append one leaf hash (already SHA-256(0x00 || data))."""
        position, node, peaks = self.count, leaf, self._peaks
        while position & 1:
            node = sha256(b"\x01" + peaks.pop() + node).digest()
            position >>= 1
        peaks.append(node)
        self.count += 1

    def root(self) -> bytes:
        """The tree head for everything appended so far (RFC 6962 section 2.1)."""
        if not self._peaks:
            return EMPTY_ROOT
        node = self._peaks[-1]
        for peak in reversed(self._peaks[:-1]):
            node = sha256(b"\x01" + peak + node).digest()
        return node
