"""Where the states before wait for their state after: memory up to a cap, then an unlinked temporary file.

Knows bytes and sizes only. Nothing here outlives the process: the file has no name from the start.
"""

import os
import tempfile
from typing import IO


class Spool:
    """Holds byte strings; what does not fit is refused (the caller then keeps the hash alone and reports a gap)."""

    def __init__(self, memory_bytes: int, file_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._file_bytes = file_bytes
        self._held = 0
        self._file: IO[bytes] | None = None
        self._end = 0
        self._in_file = 0

    @property
    def held_bytes(self) -> int:
        """Bytes held in memory now."""
        return self._held

    def put(self, data: bytes) -> "Held | None":
        """Keep `data`; None where neither memory nor the temporary file has room."""
        if self._held + len(data) <= self._memory_bytes:
            self._held += len(data)
            return Held(self, data, 0, len(data))
        if self._end + len(data) > self._file_bytes:
            return None
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="agentwrap-")  # noqa: SIM115  lives as long as we do
            written = os.pwrite(self._file.fileno(), data, self._end)
        except OSError:
            return None  # no room on the disk, or no place for temporary files
        if written != len(data):
            return None
        held = Held(self, None, self._end, len(data))
        self._end += len(data)
        self._in_file += 1
        return held

    def read(self, held: "Held") -> bytes | None:
        """The bytes again; None where the temporary file cannot be read any more."""
        if held.data is not None:
            return held.data
        assert self._file is not None
        try:
            data = os.pread(self._file.fileno(), held.size, held.offset)
        except OSError:
            return None
        return data if len(data) == held.size else None

    def drop(self, held: "Held") -> None:
        """Forget. The temporary file is emptied when nothing in it is needed."""
        if held.data is not None:
            self._held -= held.size
            held.data = b""
            held.size = 0
            return
        self._in_file -= 1
        if self._in_file == 0 and self._file is not None:
            self._end = 0
            try:
                os.ftruncate(self._file.fileno(), 0)
            except OSError:
                pass  # a full or failing disk: the space is used again anyway

    def close(self) -> None:
        """Give the temporary file back."""
        if self._file is not None:
            self._file.close()
            self._file = None


class Held:
    """One kept byte string."""

    __slots__ = ("_spool", "data", "offset", "size")

    def __init__(self, spool: Spool, data: bytes | None, offset: int, size: int) -> None:
        self._spool = spool
        self.data = data
        self.offset = offset
        self.size = size

    def read(self) -> bytes | None:
        """The bytes."""
        return self._spool.read(self)

    def drop(self) -> None:
        """No longer needed; call once."""
        self._spool.drop(self)
