"""Declared MCP servers that the run serves itself, on its own loopback: no gateway stands between it and them.

Knows where servers are declared and whether rules are about them. What is said there is read by nobody: a connection is
told as a gap, and refused where rules would have to judge it.
"""

import errno
from collections.abc import Callable
from ipaddress import ip_address

from agentwrap.events import Sink
from agentwrap.events.egress import NetDecision
from agentwrap.launching.mcp_servers import Servers
from agentwrap.mcp.declared import Declared
from agentwrap.policy.layers import Layer, mode_of
from agentwrap.tracing.gaps import gap_of
from agentwrap.tracing.processes import Process

_COULD_HIDE = "what is said to this MCP server, which the run serves itself"
_WHY = b"rules are about the MCP server %b, and what is said to it on the run's own loopback is judged by nobody"
_CHANGE = b"serve it outside of the run, and allow host.loopback:%d in [network]"


class OwnServers:
    """One run's, behind a wall or a guard. `connecting` is for the thread that answers calls."""

    def __init__(self, servers: Servers, layers: tuple[Layer, ...], sink: Sink, now: Callable[[], int]) -> None:
        self._servers = servers
        self._layers = layers
        self._enforces = bool(layers) and mode_of(layers) != "observe"
        self._sink = sink
        self._now = now
        self._known: tuple[Declared, ...] | None = None
        self._names: dict[int, bytes] = {}
        self._ruled: dict[bytes, bool] = {}

    def connecting(self, process: Process, tid: int, host: str, port: int) -> int:
        """A connection that the kernel makes by itself if it stays within: an errno, 0 where it may be."""
        if port not in self._declared() or not _is_served(tid, port) or not _is_local(tid, host):
            return 0
        return self.led_past(process, host, port)

    def led_past(self, process: Process, host: str, port: int) -> int:
        """As `connecting`, of a port that a program of the run is known to serve."""
        name = self._declared().get(port)
        if name is None:
            return 0
        if not self._enforces or not self._is_ruled(name):
            if process.once(f"own server {port}"):
                detail = b"%b at %b:%d" % (name, host.encode(), port)
                self._sink(gap_of(process, self._now(), "mcp-http", "not-led", _COULD_HIDE, detail))
            return 0
        self._sink(
            NetDecision(
                at_ns=self._now(), span=process.span, pid=process.pid, decision="deny", by="witness",
                rule=b"built-in.own-mcp", why=_WHY % name, change=_CHANGE % port, host=host.encode(), port=port,
                asked=host.encode(),
            )
        )  # fmt: skip
        return errno.ECONNREFUSED

    def _declared(self) -> dict[int, bytes]:
        """Servers on loopback by their ports; more may be declared while the run goes on."""
        known = self._servers.declared
        if known != self._known:
            from agentwrap.mcp.http import http_servers, is_loopback

            self._known = known
            found = http_servers(self._servers.urls)
            self._names = {one.place.port: one.name for one in found if is_loopback(one.place.host)}
        return self._names

    def _is_ruled(self, name: bytes) -> bool:
        ruled = self._ruled.get(name)
        if ruled is None:
            from agentwrap.mcp.gate import Gate

            gate = Gate(self._layers, name)
            ruled = self._ruled[name] = gate.reads(up=True) or gate.reads(up=False)
        return ruled


def _is_local(tid: int, host: str) -> bool:
    """Whether an address is one of the thread's own network; the unspecified one is (ip(7)), so is what is unclear."""
    try:
        address = ip_address(host)
    except ValueError:
        return True
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback or address.is_unspecified:
        return True
    try:
        if address.version == 6:
            with open(f"/proc/{tid}/net/if_inet6") as lines:
                return any(line.split()[0] == address.packed.hex() for line in lines)
        with open(f"/proc/{tid}/net/fib_trie") as lines:
            return f"-- {address}\n" in lines.read()  # also one of a network, which is no host's
    except OSError:
        return True


def _is_served(tid: int, port: int) -> bool:
    """Whether somebody listens on a port in the thread's own network (proc_pid_net(5)): behind a wall, the run."""
    wanted = b":%04X" % port
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{tid}/net/{name}", "rb") as file:
                for line in file:
                    words = line.split(None, 4)
                    if len(words) > 3 and words[3] == b"0A" and words[1].endswith(wanted):
                        return True
        except OSError:
            continue  # no IPv6 here, or it is gone
    return False
