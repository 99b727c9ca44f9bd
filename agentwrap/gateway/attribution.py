"""Who made a connection, and where to: what the tracer said, joined with what the kernel knows of the socket.

Knows the callers' channel and socket diagnosis. What nobody announced has no process; where the destination itself is
only known from the tracer (guard), it has none and goes nowhere.
"""

import socket
from collections.abc import Callable
from typing import Literal

import msgspec
import trio

from agentwrap.gateway.callers import Caller, CallerTable, decode
from agentwrap.gateway.netlink.diag import Diag, End

_MESSAGE_BYTES = 4096
_ANNOUNCED_S = 1.0


class Attribution:
    """The callers of late. `diag`: None where the tracer tells ports (guard)."""

    def __init__(self, channel: socket.socket, diag: Diag | None, broken: Callable[[str], None]) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._diag = diag
        self._broken = broken
        self._table = CallerTable()
        self._news = trio.Event()
        self._ended = False

    def drain(self) -> None:
        """Take what the tracer has said: it speaks before it lets a program connect, so it is here by then."""
        while not self._ended:
            try:
                data = self._channel.recv(_MESSAGE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._ended = True
                return
            try:
                self._table.add(decode(data))
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                self._broken(str(error))
            self._news.set()
            self._news = trio.Event()

    async def run(self) -> None:
        """Take what the tracer says while nothing connects, so that it never waits for us."""
        while not self._ended:
            await trio.lowlevel.wait_readable(self._channel)
            self.drain()

    async def by_port(self, port: int) -> Caller | None:
        """Guard: for whom the tracer connected from this port. None when it does not say so in time."""
        self.drain()
        caller = self._table.by_port(port)
        if caller is None:
            with trio.move_on_after(_ANNOUNCED_S):
                while caller is None and not self._ended:
                    await self._news.wait()
                    caller = self._table.by_port(port)
        return caller

    def by_ends(self, transport: Literal["tcp", "udp"], local: End, remote: End) -> Caller | None:
        """Wall: who holds the socket with these ends; `local` is its own."""
        self.drain()
        if self._diag is not None:
            try:
                found = self._diag.lookup(transport, local, remote)
            except (OSError, ValueError):
                found = None
            caller = self._table.by_inode(found[1]) if found else None
            if caller is not None:
                return caller
        return self._table.by_destination(*remote)

    def by_destination(self, host: str, port: int) -> Caller | None:
        """Who named this address last."""
        self.drain()
        return self._table.by_destination(host, port)
