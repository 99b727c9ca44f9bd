"""The byte seal of a closed file: one hash (and signature) over every byte of it, kept inside it.

The row of `seal` is 112 bytes: a magic of 16, SHA-256 of 32, signature of 64. The hash is over the whole file with the
last 96 of those bytes as zeros. It is patched in place after SQLite has let go of the file. Never found by searching
the file: `seal` is the first table, so its row is on page 2, whatever the contents hold.
"""

from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

MAGIC = b"AGENTWRAP-SEAL-1"
BLANK = MAGIC + bytes(96)
SIZE = len(BLANK)


def signed_message(run_id: str, digest: bytes) -> bytes:
    """What the signature in the seal is over."""
    return b"agentwrap/%b\nseal %b\n" % (run_id.encode(), digest.hex().encode())


def locate(file: BinaryIO) -> int | None:
    """Offset of the magic, or None where there is no seal."""
    file.seek(0)
    head = file.read(100)
    if len(head) < 100:
        return None
    page_size = int.from_bytes(head[16:18], "big")
    page_size = 65536 if page_size == 1 else page_size
    file.seek(page_size)
    at = file.read(page_size).rfind(MAGIC)
    return page_size + at if 0 <= at <= page_size - SIZE else None


def digest(file: BinaryIO, offset: int) -> bytes:
    """SHA-256 of the file with the 96 bytes after the magic at `offset` read as zeros."""
    hashed = sha256()
    hole = offset + len(MAGIC)
    file.seek(0)
    hashed.update(file.read(hole))
    hashed.update(bytes(96))
    file.seek(hole + 96)
    while chunk := file.read(1 << 20):
        hashed.update(chunk)
    return hashed.digest()


def read(path: Path) -> tuple[bytes, bytes, bytes] | None:
    """(hash in the seal, signature in the seal, hash of the file as it is), or None where there is no seal row."""
    with path.open("rb") as file:
        offset = locate(file)
        if offset is None:
            return None
        file.seek(offset + len(MAGIC))
        kept = file.read(96)
        if len(kept) == 96 and _is_longer_than_it_says(file):
            return kept[:32], kept[32:], b""  # nothing that is sealed is: no need to read what was put behind it
        return kept[:32], kept[32:], digest(file, offset)


def _is_longer_than_it_says(file: BinaryIO) -> bool:
    """More bytes than the header counts pages for (SQLite file format, 1.3.2 and 1.3.7)."""
    file.seek(0)
    head = file.read(32)
    page_size = int.from_bytes(head[16:18], "big")
    pages = int.from_bytes(head[28:32], "big")
    return file.seek(0, 2) > pages * (65536 if page_size == 1 else page_size)
