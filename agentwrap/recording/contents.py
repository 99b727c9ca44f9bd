"""Contents on their way into the file: redacted once, remembered by their raw hash until an event names them."""

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256

from agentwrap.events import Content
from agentwrap.recording.encode import Stored
from agentwrap.recording.redact import Redactor
from agentwrap.recording.redact.streams import texts_of

_REMEMBERED = 65536
_WAITING_BYTES = 96 << 20
"""The largest body (64 MB) in pieces, and the largest contents of files beside it."""


def _is_stream(data: bytes) -> bool:
    """Whether a file holds server-sent events, as the logs of some agents do."""
    return data.startswith(b"data: {") or data.find(b"\ndata: {") >= 0


class Contents:
    """Recent contents. The bytes wait (bounded) until they are taken; what they hash to is remembered for longer."""

    def __init__(
        self, redactor: Redactor, keep_bytes: bool, harmless: Callable[[Content], bool] | None = None
    ) -> None:
        """`harmless`: says of a content that no secret is in it, where somebody knows."""
        self._harmless = harmless or (lambda _content: False)
        self._redactor = redactor
        self._keep_bytes = keep_bytes
        self._known: OrderedDict[bytes, Stored] = OrderedDict()
        self._waiting: OrderedDict[bytes, tuple[list[bytes], bytes]] = OrderedDict()
        """Stored hash -> (raw hashes, stored bytes): contents may differ in what was hidden alone."""
        self._waiting_bytes = 0

    def add(self, content: Content) -> None:
        """Redact a content and keep it for the event that will name it. One that is known costs nothing."""
        raw, data = content.sha, content.data
        known = self._known.get(raw)
        if known is not None and (known.joined or not content.scattered):
            self._known.move_to_end(raw)
            if not known.keyed and content.role != "body":
                # A message first, and a file now: what was downloaded.
                self._known[raw] = known._replace(keyed=self._redactor.keyed(data))
            return
        scattered = content.scattered or (texts_of(data) if content.role == "body" or _is_stream(data) else ())
        as_it_is = content.plain or (not scattered and self._harmless(content))
        clean = data if as_it_is else self._redactor.clean_scattered(data, scattered)
        keyed = self._redactor.keyed(data) if content.role != "body" else known.keyed if known is not None else ""
        stored = Stored(sha256(clean).digest() if clean is not data else raw, clean != data, keyed, bool(scattered))
        if known is not None:
            # A file first, and now known to be a stream: from here on it is what was found now.
            self._forget(raw, known)
        self._known[raw] = stored
        if len(self._known) > _REMEMBERED:
            self._forget(*self._known.popitem(last=False))
        if self._keep_bytes:
            self._wait(raw, stored.sha256, clean)

    def _forget(self, raw: bytes, stored: Stored) -> None:
        waiting = self._waiting.get(stored.sha256)
        if waiting is not None and raw in waiting[0]:
            waiting[0].remove(raw)
            if not waiting[0]:  # nobody can name it any more
                self.take(stored.sha256)

    def _wait(self, raw: bytes, digest: bytes, clean: bytes) -> None:
        waiting = self._waiting.get(digest)
        if waiting is not None:
            waiting[0].append(raw)
            return
        self._waiting[digest] = ([raw], clean)
        self._waiting_bytes += len(clean)
        while self._waiting_bytes > _WAITING_BYTES and len(self._waiting) > 1:
            _, (dropped, data) = self._waiting.popitem(last=False)
            self._waiting_bytes -= len(data)
            # Its hash must not be named by a part whose bytes never came.
            for one in dropped:
                self._known.pop(one, None)

    def lookup(self, raw: bytes) -> Stored | None:
        """What became of the content whose raw SHA-256 this is, if it is remembered."""
        return self._known.get(raw)

    def take(self, digest: bytes) -> bytes | None:
        """The stored bytes, once: a later event that names them finds them in the file."""
        waiting = self._waiting.pop(digest, None)
        if waiting is None:
            return None
        self._waiting_bytes -= len(waiting[1])
        return waiting[1]
