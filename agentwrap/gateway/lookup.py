"""Names to addresses, by the machine's own resolver (getaddrinfo(3)), for names that were judged before.

Threads, because the C library waits; few, and each with a bound in time. One question at a time for a name, whoever
asks; answers are kept for some seconds. Knows nothing of policies.
"""

import errno
import os
import socket
from collections.abc import Callable
from ipaddress import IPv4Address, ip_address

import msgspec
import trio

from agentwrap.gateway.dns import NOERROR, NXDOMAIN, SERVFAIL
from agentwrap.policy.hosts import Address

LOOKUP_S = 10.0
KEPT_S, KEPT_MISSING_S = 20.0, 5.0
_KEPT_MAX = 4096
_THREADS = 32
# An address of nobody (RFC 3849): connecting a datagram socket asks the routing table and sends nothing.
_SOMEWHERE_IPV6 = ("2001:db8::1", 53)


class Found(msgspec.Struct, frozen=True):
    """What a name led to. `rcode`: as in DNS; SERVFAIL where nobody could say."""

    rcode: int
    addresses: tuple[Address, ...] = ()


def has_ipv6_route() -> bool:
    """Whether this machine could reach an IPv6 address at all."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.connect(_SOMEWHERE_IPV6)
    except OSError:
        return False
    return True


def is_own_address(address: Address) -> bool:
    """Whether an address is this machine's: then it is the source, too, of what is sent to it. Nothing is sent."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect((str(address), 9))
            return ip_address(str(sock.getsockname()[0]).partition("%")[0]) == address
    except OSError:
        return False


def no_search_list() -> None:
    """Names arrive whole: the machine's search list must not be tried on them again (resolv.conf(5), LOCALDOMAIN)."""
    os.environ["LOCALDOMAIN"] = ""


Ask = Callable[[str], Found]


def ask_machine(name: str) -> Found:
    """One blocking lookup of both families."""
    try:
        rows = socket.getaddrinfo(name.encode("ascii"), None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno == socket.EAI_NONAME:
            return Found(NXDOMAIN)
        return Found(NOERROR if error.errno == getattr(socket, "EAI_NODATA", None) else SERVFAIL)
    except (OSError, UnicodeError) as error:
        return Found(SERVFAIL if getattr(error, "errno", 0) != errno.ENOENT else NXDOMAIN)
    found = [ip_address(str(row[4][0]).partition("%")[0]) for row in rows]
    return Found(NOERROR, tuple(dict.fromkeys(found)))


class Resolver:
    """Looks names up, each once at a time. `ask` is what a thread does."""

    def __init__(self, ask: Ask = ask_machine) -> None:
        self._ask = ask
        self._limiter = trio.CapacityLimiter(_THREADS)
        self._kept: dict[str, tuple[float, Found]] = {}
        self._running: dict[str, trio.Event] = {}

    async def find(self, name: str) -> Found:
        """The addresses of a name in normal form; IPv6 ones only where this machine could reach them."""
        while True:
            kept = self._kept.get(name)
            if kept is not None and trio.current_time() < kept[0]:
                return _reachable(kept[1])
            running = self._running.get(name)
            if running is None:
                return _reachable(await self._look_up(name))
            await running.wait()

    async def _look_up(self, name: str) -> Found:
        done = self._running[name] = trio.Event()
        found = Found(SERVFAIL)
        try:
            with trio.move_on_after(LOOKUP_S):
                found = await trio.to_thread.run_sync(self._ask, name, abandon_on_cancel=True, limiter=self._limiter)
        finally:
            del self._running[name]
            self._keep(name, found)
            done.set()
        return found

    def _keep(self, name: str, found: Found) -> None:
        if len(self._kept) >= _KEPT_MAX:
            now = trio.current_time()
            self._kept = {key: kept for key, kept in self._kept.items() if kept[0] > now}
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
        self._kept[name] = (trio.current_time() + (KEPT_S if found.addresses else KEPT_MISSING_S), found)


def _reachable(found: Found) -> Found:
    if not any(address.version == 6 for address in found.addresses) or has_ipv6_route():
        return found
    return Found(found.rcode, tuple(one for one in found.addresses if isinstance(one, IPv4Address)))
