"""Events about sockets, as a witness sees them: what was tried, before the kernel answered."""

from typing import Literal

from agentwrap.events.base import Event

Family = Literal["inet", "inet6", "unix", "netlink", "vsock", "packet", "other"]
Transport = Literal["tcp", "udp", "stream", "datagram", "seqpacket", "raw", "unknown"]


def endpoint(host: bytes, port: int) -> bytes:
    """`host:port`, with brackets around an IPv6 address."""
    return (b"[%b]:%d" if b":" in host else b"%b:%d") % (host, port)


class SocketEvent(Event, frozen=True, kw_only=True):
    """What socket events share. `inet`, `inet6`: `host` (numeric) and `port`; `unix`: `path` (`@name`: abstract)."""

    family: Family
    transport: Transport = "unknown"
    host: bytes = b""
    port: int = 0
    path: bytes = b""

    @property
    def subject(self) -> bytes:
        return self.path or (endpoint(self.host, self.port) if self.host else self.family.encode())


class NetConnect(SocketEvent, frozen=True, kw_only=True, tag="net.connect"):
    """A connect was tried."""

    count: int = 1


class NetBind(SocketEvent, frozen=True, kw_only=True, tag="net.bind"):
    """A socket was given a local address."""


class NetListen(SocketEvent, frozen=True, kw_only=True, tag="net.listen"):
    """A socket began to accept connections; the address is the one its descriptor has."""


class NetSend(SocketEvent, frozen=True, kw_only=True, tag="net.send"):
    """Datagrams were sent to an address without a connect; one row per process and address, with a count."""

    count: int = 1


class DnsServer(Event, frozen=True, kw_only=True, tag="dns.server"):
    """A process spoke to a name server (port 53); `names` are the questions that could be read, in order, unique."""

    host: bytes
    port: int = 53
    transport: Transport = "udp"
    names: tuple[bytes, ...] = ()

    @property
    def subject(self) -> bytes:
        return endpoint(self.host, self.port) + (b" " + b" ".join(self.names) if self.names else b"")
