"""A little disk space held back, so that a full disk can still be told about in the file."""

import contextlib
import os
from pathlib import Path


class Reserve:
    """An allocated file without a name (open(2), O_TMPFILE): it is gone with us, and frees its blocks when released."""

    def __init__(self, folder: Path, size_bytes: int = 1 << 20) -> None:
        self._descriptor = -1
        with contextlib.suppress(OSError):  # not every filesystem has both; then there is no reserve
            self._descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            os.posix_fallocate(self._descriptor, 0, size_bytes)

    def release(self) -> None:
        """Give the space back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
