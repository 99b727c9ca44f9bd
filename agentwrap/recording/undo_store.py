"""The raw contents from before, kept beside the recording for `agentwrap undo`. Never part of the file.

`undo/<run id>/key` is the run key (it makes the `keyed` hashes of the recording comparable with what is on disk now),
`undo/<run id>/content/<SHA-256 in hex>` a raw content. All of it is readable by the owner alone.
"""

import hmac
import os
import shutil
import time
from hashlib import sha256
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


class Kept:
    """The folder of a run, being read. A folder that is not there holds nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._by_size: dict[int, list[str]] | None = None
        try:
            self.key = read_key(folder)
        except OSError:
            self.key = b""

    def keyed(self, data: bytes) -> str:
        """The keyed hash that the recording has of a content; empty without the key."""
        return hmac.digest(self.key, data, "sha256")[:16].hex() if self.key else ""

    def find(self, size: int, digest_hex: str, keyed: str) -> bytes | None:
        """A raw content by its SHA-256, or by its size and keyed hash; None where it is not kept (or was damaged)."""
        if len(digest_hex) == 64:
            data = self._read(digest_hex)
            if data is not None and sha256(data).hexdigest() == digest_hex:
                return data
        if keyed and self.key:
            for name in self._sizes().get(size, ()):
                data = self._read(name)
                if data is not None and hmac.compare_digest(self.keyed(data), keyed):
                    return data
        return None

    def _read(self, name: str) -> bytes | None:
        try:
            return read_content(self._folder, name)
        except OSError:
            return None

    def _sizes(self) -> dict[int, list[str]]:
        if self._by_size is None:
            self._by_size = {}
            try:
                with os.scandir(self._folder / "content") as entries:
                    for entry in entries:
                        self._by_size.setdefault(entry.stat(follow_symlinks=False).st_size, []).append(entry.name)
            except OSError:
                pass  # no store, or removed while we look: what was found is found
        return self._by_size


MAX_STORE_BYTES = 1 << 30
MAX_STORE_AGE_S = 30 * 86400.0


def age_out(
    root: Path, *, keep: str = "", max_bytes: int = MAX_STORE_BYTES, max_age_s: float = MAX_STORE_AGE_S
) -> list[str]:
    """Remove the stores (folders of `root`) that are too old, then the oldest until the rest fits. Returns their names.

    `keep` names the store of the run that is beginning. A store whose run goes on is as young as its last content.
    Never raises for a folder that cannot be read or removed: it stays.
    """
    found: list[tuple[float, int, Path]] = []
    try:
        folders = [path for path in root.iterdir() if path.name != keep and path.is_dir() and not path.is_symlink()]
    except OSError:
        return []
    for folder in folders:
        measured = _measure(folder)
        if measured is not None:
            found.append((*measured, folder))
    found.sort(reverse=True)  # the youngest first
    gone: list[str] = []
    total = 0
    oldest_allowed = time.time() - max_age_s
    for changed_s, size, folder in found:
        total += size
        if changed_s < oldest_allowed or total > max_bytes:
            shutil.rmtree(folder, ignore_errors=True)
            gone.append(folder.name)
            total -= size
    return gone


def _measure(folder: Path) -> tuple[float, int] | None:
    """(last change, bytes) of a store."""
    changed_s, size = 0.0, 0
    try:
        for path in (folder, *folder.iterdir(), *(folder / "content").iterdir()):
            status = path.lstat()
            changed_s = max(changed_s, status.st_mtime)
            size += status.st_size
    except FileNotFoundError:
        pass  # half a store, or one that is being removed by somebody else
    except OSError:
        return None
    return changed_s, size
