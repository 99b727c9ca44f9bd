"""One TLS session over a raw non-blocking socket under trio: bytes in and out as they come, and how each side ends.

Keeps ends apart that mean different things: a `close_notify` is an end, a bare end of the socket is a cut short one
(RFC 8446, 6.1), a reset is a reset. Knows nothing of what the bytes mean.
"""

import socket
import ssl

import trio
from trio.lowlevel import checkpoint, wait_readable, wait_writable

from agentwrap.gateway.relay import SMALL_BYTES

_RECORD_BYTES = 1 << 14  # RFC 8446, 5.1
_SPINS = 16  # so many reads before others have a turn


class TlsError(ConnectionError):
    """The session could not be made, or broke. `reason`: the library's word for it (`SSLV3_ALERT_BAD_CERTIFICATE`)."""

    def __init__(self, reason: str, *, untrusted: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.untrusted = untrusted


class TlsSide:
    """One side. `sock` is not blocking and stays its owner's to close; `held`: bytes that were read from it already.

    One task may read while another one writes. `cut_short`: the other end left without saying so.
    """

    __slots__ = ("_ahead", "_error", "_in", "_out", "_over", "_sending", "_spins", "cut_short", "session", "sock")

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, *, server_name: str | None = None, held: bytes = b""
    ) -> None:
        self.sock = sock
        self.cut_short = False
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        server_side = server_name is None
        self.session = context.wrap_bio(self._in, self._out, server_side=server_side, server_hostname=server_name)
        self._in.write(held)
        self._sending = trio.Lock()
        self._ahead: list[bytes] = []
        self._over = False
        self._spins = 0
        self._error: TlsError | None = None

    async def handshake(self) -> None:
        """Agree on keys. Raises TlsError, OSError, trio.ClosedResourceError."""
        while True:
            try:
                self.session.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._fill():
                    raise TlsError("it ended during the handshake") from None
            except ssl.SSLError as error:
                with trio.move_on_after(1):
                    await self._flush()
                raise _failed(error) from error
            else:
                await self._flush()
                return

    @property
    def protocol(self) -> str:
        """What both agreed to speak inside (ALPN), empty if they said nothing."""
        return self.session.selected_alpn_protocol() or ""

    async def read(self) -> list[bytes]:
        """The next pieces, record by record, none at the end. Raises TlsError, OSError, trio.ClosedResourceError."""
        if self._ahead:
            pieces, self._ahead = self._ahead, []
            return pieces
        while not self._over:
            pieces = [] if self._error else self._decrypt()
            if pieces or self._over:
                return pieces
            if self._error is not None:
                raise self._error
            if self._out.pending:  # an answer to a change of keys
                await self._flush()
            if not await self._fill():
                self.cut_short = self._over = True
        return []

    def _decrypt(self) -> list[bytes]:
        """All that is complete by now: at most what was read from the socket at once."""
        pieces: list[bytes] = []
        try:
            while data := self.session.read(_RECORD_BYTES):
                pieces.append(data)
            self._over = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._over = True
        except ssl.SSLError as error:
            self._error = _failed(error)  # what came before it is told first
        return pieces

    async def _fill(self) -> bool:
        """More of what the socket has. False at its end."""
        while True:
            try:
                data = self.sock.recv(SMALL_BYTES)
            except BlockingIOError:
                self._spins = 0
                await wait_readable(self.sock)
                continue
            self._in.write(data)
            self._spins += 1
            if self._spins >= _SPINS:
                self._spins = 0
                await checkpoint()
            return bool(data)

    async def send(self, pieces: list[bytes]) -> None:
        """All of it, each piece in records of its own. Raises TlsError, OSError, trio.ClosedResourceError."""
        try:
            for data in pieces:
                self.session.write(data)
        except ssl.SSLError as error:
            raise _failed(error) from error
        await self._flush()

    async def end(self) -> None:
        """Nothing more comes from our side; the other may go on. Raises OSError, trio.ClosedResourceError."""
        # `unwrap` looks for the other's end, too, and would throw away data that is there instead.
        if not self._over and self._error is None:
            self._ahead += self._decrypt()
        try:
            self.session.unwrap()
        except ssl.SSLError:
            pass  # the other has not ended yet; ours is said
        await self._flush()
        self.shut()

    async def say_last(self, pieces: list[bytes], linger_s: float = 1.0) -> None:
        """Send, end our side, and wait until the other has read it: with unread input a close would be a reset."""
        with trio.move_on_after(linger_s):
            try:
                await self.send(pieces)
                await self.end()
                while await self.read():
                    pass
            except (OSError, trio.ClosedResourceError):
                pass  # it is gone: nobody to tell

    def shut(self) -> None:
        """End our side of the socket, without a word in TLS if `end` did not say it."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it was faster

    async def _flush(self) -> None:
        """Hand over what is encrypted, in order, whoever made it."""
        try:
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            await self._sending.acquire()
        try:
            while self._out.pending:
                with memoryview(self._out.read()) as view:
                    position = 0
                    while position < len(view):
                        try:
                            position += self.sock.send(view[position:])
                        except BlockingIOError:
                            await wait_writable(self.sock)
        finally:
            self._sending.release()


def _failed(error: ssl.SSLError) -> TlsError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(error.verify_message or "certificate verify failed", untrusted=True)
    return TlsError(error.reason or type(error).__name__)
