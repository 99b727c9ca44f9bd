"""Services on the machine's own loopback: only ports on which one listens lead to the gateway.

So a connect to a port where nobody listens is refused by the kernel, as outside; a program that waits for a server of
its own to come up is not told that it is there.
"""

import socket
from collections.abc import Iterator

import trio

from agentwrap.gateway.netlink import channel, rules
from agentwrap.gateway.netlink.diag import Diag

LOOK_S = 0.25
_LISTEN = b"0A"  # TCP_LISTEN (net/tcp_states.h)
_ANY_OR_LOOPBACK = frozenset(
    {
        *(b"00000000", b"0100007F"),
        *(b"0" * 32, b"0" * 24 + b"01000000", b"0000000000000000FFFF00000100007F"),
    }
)


def listening_ports(table: bytes) -> Iterator[int]:
    """The ports of a `/proc/net/tcp` or `tcp6` (proc_pid_net(5)) on which something listens that loopback reaches."""
    for line in table.splitlines()[1:]:
        words = line.split(None, 4)
        if len(words) < 4 or words[3] != _LISTEN:
            continue
        address, _, port = words[1].partition(b":")
        if address in _ANY_OR_LOOPBACK or address.endswith(b"7F"):
            yield int(port, 16)


def listening_now() -> set[int]:
    """The ports of our own namespace's loopback on which something listens."""
    try:
        with channel.open_socket(channel.SOCK_DIAG) as sock:
            return {port for host, port in Diag(sock).listening() if _reached_by_loopback(host)}
    except OSError:
        return _listed()  # a container may refuse that kind of socket


def _reached_by_loopback(host: str) -> bool:
    return host in ("0.0.0.0", "::", "::1") or host.removeprefix("::ffff:").startswith("127.")


def _listed() -> set[int]:
    """The same out of the table of all sockets, which takes long where there are many connections."""
    found: set[int] = set()
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/self/net/{name}", "rb") as file:
                found.update(listening_ports(file.read()))
        except OSError:
            continue  # no IPv6 here
    return found


async def follow(nft: socket.socket, wanted: frozenset[int] | None) -> None:
    """Keep the set of host ports as the machine is: those of `wanted` (None: every one) on which something listens."""
    led: set[int] = set()
    while wanted is None or wanted:
        there = listening_now()
        now = there if wanted is None else there & wanted
        if now - led:
            rules.add_host_ports(nft, now - led)
        if led - now:
            rules.forget_host_ports(nft, led - now)
        led = now
        await trio.sleep(LOOK_S)
