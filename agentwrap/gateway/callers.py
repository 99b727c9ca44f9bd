"""Who is calling: what the tracer tells the gateway before it lets a connect happen. Pure.

The tracer sends one message for each call that names an inet address, and answers the call only then: when the
gateway accepts the connection, the message is there already. Bounded: the oldest callers are forgotten first.
"""

from collections import OrderedDict
from typing import TypeVar

import msgspec

MAX_CALLERS = 65_536
_Key = TypeVar("_Key")


class Caller(msgspec.Struct, frozen=True, array_like=True):
    """One call of one process, towards `host:port`.

    `inode`: of its socket, 0 if unknown. `local_port`: of the socket that the tracer connected on the process's behalf,
    0 where the process connects by itself. `span`: of the process.
    """

    inode: int
    local_port: int
    pid: int
    span: str
    transport: str
    host: str
    port: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Caller).decode


def encode(caller: Caller) -> bytes:
    """One message of the channel."""
    return _encode(caller)


def decode(data: bytes) -> Caller:
    """The reverse of `encode`. Raises msgspec.DecodeError, msgspec.ValidationError."""
    return _decode(data)


class CallerTable:
    """The callers of late, by what a connection can be recognised by."""

    def __init__(self, limit: int = MAX_CALLERS) -> None:
        self._limit = limit
        self._inodes: OrderedDict[int, Caller] = OrderedDict()
        self._ports: OrderedDict[int, Caller] = OrderedDict()
        self._destinations: OrderedDict[tuple[str, int], Caller] = OrderedDict()

    def add(self, caller: Caller) -> None:
        """Remember a caller; a later one of the same socket, port or destination takes its place."""
        if caller.inode:
            self._keep(self._inodes, caller.inode, caller)
        if caller.local_port:
            self._keep(self._ports, caller.local_port, caller)
        self._keep(self._destinations, (_on_the_wire(caller.host), caller.port), caller)

    def _keep(self, table: "OrderedDict[_Key, Caller]", key: _Key, caller: Caller) -> None:
        table[key] = caller
        table.move_to_end(key)
        if len(table) > self._limit:
            table.popitem(last=False)

    def by_inode(self, inode: int) -> Caller | None:
        """The last caller with this socket."""
        return self._inodes.get(inode)

    def by_port(self, local_port: int) -> Caller | None:
        """The caller on whose behalf the tracer connected from this port."""
        return self._ports.get(local_port)

    def by_destination(self, host: str, port: int) -> Caller | None:
        """The last caller that named this address."""
        return self._destinations.get((_on_the_wire(host), port))


def _on_the_wire(host: str) -> str:
    """The address in the packets of who calls this one: IPv4 for a mapped one, loopback for none (ip(7), ipv6(7))."""
    plain = host.removeprefix("::ffff:") if "." in host else host
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(plain, plain)
