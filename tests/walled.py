"""A namespace with the filter in place and somebody who listens as the gateway does."""

import errno
import select
import socket
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

from agentwrap.gateway.netlink import channel, packets, routes, rules

OWN4, OWN6, PORT, GROUP = "10.200.0.2", "fd00:a9e7::2", 1, 5
IP_TRANSPARENT, IPV6_TRANSPARENT = 19, 75


def transparent_listener(has_ipv6: bool) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if has_ipv6 else socket.AF_INET)
    if has_ipv6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.setsockopt(socket.IPPROTO_IPV6, IPV6_TRANSPARENT, 1)
    sock.setsockopt(socket.IPPROTO_IP, IP_TRANSPARENT, 1)
    sock.bind(("::" if has_ipv6 else "0.0.0.0", PORT))
    sock.listen(4096)
    sock.setblocking(False)
    return sock


@dataclass
class Tried:
    """A connect: `error` is the name of its errno, empty when it went through. `reached`: what the gateway accepted."""

    sock: socket.socket
    error: str
    reached: socket.socket | None = None

    def end(self, ours: bool = False) -> tuple[str, int]:
        """The address that was dialled, as the gateway reads it (`ours`: where from)."""
        assert self.reached is not None, self.error
        host, port, *_ = self.reached.getpeername() if ours else self.reached.getsockname()
        return host, port


@dataclass
class Wall:
    """`networks`, `known`: as text. Made inside `namespaces.inside`."""

    open_addresses: bool = False
    host_ports: list[int] | None = field(default_factory=list)
    networks: list[str] = field(default_factory=list)
    buffer_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        self.has_ipv6 = routes.set_up(OWN4, OWN6)
        self.listener = transparent_listener(self.has_ipv6)
        self.nft = channel.open_socket(channel.NETFILTER)
        self.log = channel.open_socket(channel.NETFILTER)
        self.log.setblocking(False)
        packets.subscribe(self.log, GROUP, self.buffer_bytes)
        networks: list[Any] = [ip_network(one) for one in self.networks]
        rules.install(
            self.nft,
            port=PORT,
            own4=OWN4,
            own6=OWN6 if self.has_ipv6 else None,
            group=GROUP,
            host_ports=self.host_ports,
            open_addresses=self.open_addresses,
            networks4=[one for one in networks if one.version == 4],
            networks6=[one for one in networks if one.version == 6],
        )

    def know(self, *addresses: str) -> None:
        rules.add_known(self.nft, [ip_address(one) for one in addresses])

    def connect(self, host: str, port: int, source: str | None = None, inner: socket.socket | None = None) -> Tried:
        """Connect and wait until somebody has it: the gateway, or `inner`, a listener of the program's own."""
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if source:
            sock.bind((source, 0))
        try:
            sock.connect((host, port))
            error = ""
        except OSError as caught:
            error = errno.errorcode[caught.errno or 0]
        if error:
            return Tried(sock, error)
        # connect(2) may return before the listener has heard the last segment of the handshake
        ready = select.select([self.listener] + ([inner] if inner else []), [], [], 300)[0]
        return Tried(sock, error, self.listener.accept()[0] if self.listener in ready else None)

    def send(self, host: str, port: int) -> str:
        """One datagram; the name of the errno, or empty."""
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as sock:
            try:
                sock.sendto(b"x", (host, port))
            except OSError as caught:
                return errno.errorcode[caught.errno or 0]
            return ""

    def refused(self) -> list[packets.Refused]:
        """The rows that wait."""
        rows = []
        while True:
            try:
                rows += packets.decode(self.log.recv(1 << 16))
            except BlockingIOError:
                return rows
