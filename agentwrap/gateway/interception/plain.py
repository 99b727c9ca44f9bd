"""What is inside of two TLS sessions, carried from one to the other as `relay.Passage` carries what is outside.

Record by record and at once; pressure, ends, cut ends and resets go through. Knows nothing of what the bytes mean.
"""

from collections.abc import Callable

from agentwrap.gateway.interception.tls import TlsError, TlsSide
from agentwrap.gateway.relay import Passage, SinkError, SourceError, close


class PlainPassage(Passage):
    """As Passage; `client` and `server` are the sockets below.

    `first` is called when the client says its first word inside; `refusal`: how it ended where it never did, though the
    server still listened: it does not like our certificate.
    """

    __slots__ = ("_client_tls", "_heard", "_server_tls", "first", "refusal")

    def __init__(self, client: TlsSide, server: TlsSide) -> None:
        super().__init__(client.sock, server.sock)
        self._client_tls = client
        self._server_tls = server
        self.first: Callable[[], None] = lambda: None
        self.refusal = ""
        self._heard = False

    async def receive_up(self) -> bytes:
        """What the client says next, nothing at its end. Raises OSError, trio.ClosedResourceError."""
        try:
            pieces = await self._client_tls.read()
        except OSError as error:
            self._judge_end(error.reason if isinstance(error, TlsError) else "it broke off before its first request")
            raise
        if not pieces:
            self._judge_end("it ended before its first request")
        elif not self._heard:
            self._heard = True
            self.first()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _judge_end(self, how: str) -> None:
        if not self._heard and not self._down_over.is_set():
            self.refusal = how

    async def _send_to_server(self, data: bytes | bytearray) -> None:
        await self._server_tls.send([bytes(data)])

    async def _send_to_client(self, data: bytes) -> None:
        await self._client_tls.send([data])

    async def _say_last(self, words: bytes) -> None:
        await self._client_tls.say_last([words])
        close(self.client)

    async def _end(self, *, up: bool) -> None:
        """Also where both sockets are closed next: an end that nobody announced would look like a cut one."""
        source, sink = self._sides(up=up)
        if source.cut_short:
            sink.shut()
            return
        try:
            await sink.end()
        except OSError:
            pass  # it was faster

    def _sides(self, *, up: bool) -> tuple[TlsSide, TlsSide]:
        return (self._client_tls, self._server_tls) if up else (self._server_tls, self._client_tls)

    async def _pump(self, *, up: bool) -> None:
        source, sink = self._sides(up=up)
        while True:
            try:
                pieces = await source.read()
            except TlsError as error:
                if not sink.cut_short:
                    raise SourceError from error
                sink.shut()  # OpenSSL's word (decode_error) about the other's end that was cut short
                return
            except OSError as error:
                raise SourceError from error
            if not pieces:
                await self._ended(up=up)
                return
            if not up and self.gate is not None and self.gate.active:
                for data in pieces:
                    await self._through_gate(data)
                continue
            count = sum(map(len, pieces))
            if up:
                for data in pieces:
                    await self._copied(data, up=True)
            self.writing = self.writing or not up
            try:
                await sink.send(pieces)
            except OSError as error:
                raise SinkError from error
            if up:
                self.up_bytes += count
                continue
            self.writing = False
            self.down_bytes += count
            for data in pieces:
                await self._given(data)
