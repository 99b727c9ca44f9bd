"""The run's claims socket: a thread that takes lines from the run's programs and makes claims of them.

Who speaks is the kernel's word (unix(7), SO_PEERCRED), never the line's. A peer costs a bounded buffer and a bounded
number of rows; what is over that is counted, and the count is told.
"""

import os
import selectors
import shutil
import socket
import struct
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from agentwrap.claims.lines import LINE_BYTES, LineError, claim
from agentwrap.events import Claim, Gap, Item

MAX_CONNECTIONS = 64
RATE_PER_S, BURST = 500, 5000
_READ_BYTES = 1 << 16
_LAST_READS = 64
_WAITING_MAX = MAX_CONNECTIONS + 1  # a backlog holds one more than it is asked to (listen(2), sk_acceptq_is_full)
_UCRED = struct.Struct("@iII")  # pid, uid, gid

SpanOf = Callable[[int], str]
"""The span of a process; may wait a moment for one that began just now. Empty if it is not known."""


class _Peer:
    def __init__(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        self.socket = accepted
        self.pid = _UCRED.unpack(accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))[0]
        self.span = ""
        self.received = bytearray()
        self.skipping = False


class ClaimsServer:
    """Serves one run. `path`: for the environment of the command. Make it before the forks, `start` it after them.

    `put` takes what is to be recorded, from the server's thread.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        """Listen at a new path. Raises OSError where there can be no socket."""
        self._now = now
        self._folder = Path(tempfile.mkdtemp(prefix="agentwrap-claims-"))
        self._folder.chmod(0o700)  # whatever the umask has taken from it
        self.path = self._folder / "socket"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._thread: threading.Thread | None = None
        try:
            self._listener.bind(str(self.path))
            os.chmod(self.path, 0o600)
            self._listener.listen(MAX_CONNECTIONS)
        except OSError:
            self.close()
            raise
        self._peers: dict[int, _Peer] = {}
        self._dropped: Counter[str] = Counter()
        self._since_ns = 0
        self._allowance = float(BURST)
        self._allowed_at = time.monotonic()
        self._wake = -1

    def start(self, put: Callable[[list[Item]], None], span_of: SpanOf) -> None:
        """Begin to take lines."""
        self._put, self._span_of = put, span_of
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._serve, name="agentwrap-claims", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take what has been sent so far, tell what was dropped, and go."""
        if self._thread is not None:
            os.eventfd_write(self._wake, 1)
            self._thread.join()  # what it still does is bounded: so many peers, so many reads
            os.close(self._wake)
            self._thread = None
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # The thread.

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if self._wake in ready:
                    break
                if self._listener.fileno() in ready:
                    self._accept(selector)
                for number in ready & self._peers.keys():
                    self._take(self._peers[number], selector)
            for _ in range(_WAITING_MAX):
                if not self._accept(selector):
                    break
                for peer in list(self._peers.values()):
                    self._take(peer, selector)
            for _ in range(_LAST_READS):
                for peer in list(self._peers.values()):
                    self._take(peer, selector)
        for peer in self._peers.values():
            peer.socket.close()
        self._tell_dropped()

    def _accept(self, selector: selectors.BaseSelector) -> bool:
        """One who waits. False: nobody does."""
        try:
            accepted, _ = self._listener.accept()
        except OSError:
            return False
        if len(self._peers) >= MAX_CONNECTIONS:
            accepted.close()
            self._drop("too-many")
            return True
        peer = _Peer(accepted)
        self._peers[accepted.fileno()] = peer
        selector.register(accepted, selectors.EVENT_READ)
        return True

    def _take(self, peer: _Peer, selector: selectors.BaseSelector) -> None:
        ended = False
        try:
            data = peer.socket.recv(_READ_BYTES)
            ended = not data
        except BlockingIOError:
            return
        except OSError:
            data, ended = b"", True
        peer.received += data
        self._lines(peer)
        if ended:
            if peer.received or peer.skipping:
                self._drop("malformed")
            selector.unregister(peer.socket)
            del self._peers[peer.socket.fileno()]
            peer.socket.close()

    def _lines(self, peer: _Peer) -> None:
        claims: list[Item] = []
        *lines, rest = bytes(peer.received).split(b"\n")
        peer.received = bytearray(rest)
        for line in lines:
            if peer.skipping:
                peer.skipping = False
                self._drop("malformed")
            elif line.strip() and (made := self._claim(peer, line)) is not None:
                claims.append(made)
        if len(peer.received) > LINE_BYTES:
            peer.received.clear()
            peer.skipping = True
        if claims:
            self._put(claims)

    def _claim(self, peer: _Peer, line: bytes) -> Claim | None:
        if not self._may():
            self._drop("flood")
            return None
        try:
            peer.span = peer.span or self._span_of(peer.pid) or "run"
            return claim(line, self._now(), peer.span, peer.pid)
        except LineError:
            self._drop("malformed")
            return None

    def _may(self) -> bool:
        now = time.monotonic()
        self._allowance = min(float(BURST), self._allowance + (now - self._allowed_at) * RATE_PER_S)
        self._allowed_at = now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True

    def _drop(self, cause: str) -> None:
        self._since_ns = self._since_ns or self._now()
        self._dropped[cause] += 1

    def _tell_dropped(self) -> None:
        now = self._now()
        gaps: list[Item] = [
            Gap(
                at_ns=now,
                what="claims",
                cause=f"claims-{cause}",
                could_hide="what programs said about themselves; nothing that was observed",
                from_ns=self._since_ns,
                to_ns=now,
                detail=b"%d not taken" % count,
            )
            for cause, count in self._dropped.items()
        ]
        if gaps:
            self._put(gaps)
