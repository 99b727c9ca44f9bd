"""The raw contents from before, kept beside the recording for `agentwrap undo`. Never part of the file.

`undo/<run id>/key` is the run key (it makes the `keyed` hashes of the recording comparable with what is on disk now),
`undo/<run id>/content/<SHA-256 in hex>` a raw content. All of it is readable by the owner alone.
"""

import os
from pathlib import Path


class UndoStore:
    """The folder of one run, being filled."""

    def __init__(self, folder: Path, key: bytes) -> None:
        self._content = folder / "content"
        self._content.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        self._write(folder / "key", key)

    def keep(self, digest_hex: str, data: bytes) -> None:
        """Keep one content. Raises OSError (a full disk is the caller's to tell)."""
        path = self._content / digest_hex
        if not path.exists():
            self._write(path, data)

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        partial = path.with_name(path.name + ".partial")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(partial, flags, 0o600), "wb") as file:
            file.write(data)
        partial.rename(path)


def read_key(folder: Path) -> bytes:
    """The run key. Raises OSError where there is no store."""
    return (folder / "key").read_bytes()


def read_content(folder: Path, digest_hex: str) -> bytes | None:
    """A raw content by its SHA-256, or None."""
    try:
        return (folder / "content" / digest_hex).read_bytes()
    except FileNotFoundError:
        return None
