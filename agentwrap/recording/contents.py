"""Contents on their way into the file: redacted once, remembered by their raw hash until an event names them."""

from collections import OrderedDict
from hashlib import sha256

from agentwrap.recording.encode import Stored
from agentwrap.recording.redact import Redactor

_REMEMBERED = 16384
_WAITING_BYTES = 32 << 20


class Contents:
    """Recent contents. The bytes wait (bounded) until they are taken; what they hash to is remembered for longer."""

    def __init__(self, redactor: Redactor, keep_bytes: bool) -> None:
        self._redactor = redactor
        self._keep_bytes = keep_bytes
        self._known: OrderedDict[bytes, Stored] = OrderedDict()
        self._waiting: OrderedDict[bytes, bytes] = OrderedDict()
        self._waiting_bytes = 0

    def add(self, raw: bytes, data: bytes) -> None:
        """Redact `data` (whose SHA-256 is `raw`) and keep it for the event that will name it."""
        if raw in self._known:
            self._known.move_to_end(raw)
            return
        clean = self._redactor.clean(data)
        stored = Stored(sha256(clean).digest() if clean is not data else raw, clean != data, self._redactor.keyed(data))
        self._known[raw] = stored
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        if not self._keep_bytes:
            return
        self._waiting[stored.sha256] = clean
        self._waiting_bytes += len(clean)
        while self._waiting_bytes > _WAITING_BYTES and len(self._waiting) > 1:
            digest, dropped = self._waiting.popitem(last=False)
            self._waiting_bytes -= len(dropped)
            # Its hash must not be named by a part whose bytes never came.
            for known in [key for key, value in self._known.items() if value.sha256 == digest]:
                del self._known[known]

    def lookup(self, raw: bytes) -> Stored | None:
        """What became of the content whose raw SHA-256 this is, if it is remembered."""
        return self._known.get(raw)

    def take(self, digest: bytes) -> bytes | None:
        """The stored bytes, once: a later event that names them finds them in the file."""
        data = self._waiting.pop(digest, None)
        if data is not None:
            self._waiting_bytes -= len(data)
        return data
