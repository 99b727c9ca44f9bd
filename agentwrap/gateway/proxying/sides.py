"""A plain socket with the words of `interception.tls.TlsSide`: what is carried need not know which of them it is."""

import socket
from typing import Protocol

from agentwrap.gateway.relay import receive, send


class Side(Protocol):
    """One end of something that bytes come from and go to. `cut_short`: it ended without saying so."""

    sock: socket.socket
    cut_short: bool

    async def read(self) -> list[bytes]:
        """The next pieces, none at the end. Raises OSError, trio.ClosedResourceError."""

    async def send(self, pieces: list[bytes]) -> None:
        """All of it. Raises OSError, trio.ClosedResourceError."""

    async def end(self) -> None:
        """Nothing more comes from our side. Raises OSError, trio.ClosedResourceError."""


class BareSide:
    """A socket as it is."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.cut_short = False

    async def read(self) -> list[bytes]:
        """The next piece, none at the end. Raises OSError, trio.ClosedResourceError."""
        data = await receive(self.sock)
        return [data] if data else []

    async def send(self, pieces: list[bytes]) -> None:
        """All of it. Raises OSError, trio.ClosedResourceError."""
        for data in pieces:
            await send(self.sock, data)

    async def end(self) -> None:
        """Nothing more comes from our side."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it was faster
