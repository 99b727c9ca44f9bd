"""The gateway's service: what it is given, and the loop that runs until the supervisor is gone.

Knows how to put the parts together. trio and what needs it are loaded by `run`, in the gateway's own process.
"""

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec

from agentwrap.mcp.http import HttpServer
from agentwrap.policy.layers import Layer
from agentwrap.policy.model_hosts import ModelHosts

if TYPE_CHECKING:
    from agentwrap.gateway.interception.authority import Authority


class Ports(msgspec.Struct, kw_only=True):
    """The sockets that the gateway works on.

    `tcp`: in the wall transparent, an accepted socket's own address is where the program wanted to go; in the guard a
    plain listener on loopback. `udp4`, `udp6`: datagrams to port 53, with packet information (wall) or on loopback
    (guard: `udp4`). `diag`, `nflog`, `nft`: netlink, made in the agent's network namespace. `callers`: SEQPACKET from
    the tracer. `supervisor`: frames out, lines in. `published`: listeners of the machine and the ports inside that they
    lead to. `connector`: the channel that gives sockets of the agent's network. `reverse`: where clients that were told
    of it ask for model servers.
    """

    tcp: socket.socket
    callers: socket.socket
    supervisor: socket.socket
    udp4: socket.socket | None = None
    udp6: socket.socket | None = None
    diag: socket.socket | None = None
    nflog: socket.socket | None = None
    nft: socket.socket | None = None
    published: tuple[tuple[socket.socket, int], ...] = ()
    connector: socket.socket | None = None
    reverse: socket.socket | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What one run allows.

    `tier`: `capture` lets everything pass and only reads. `closed`: nothing at all. `host_ports`: of the machine's own
    loopback that may lead out, None for every one. `now`: nanoseconds since the start of the run. `own4`, `own6`: the
    agent's addresses in its namespace, empty without one. `unattended`: in mode `ask` there is nobody to ask.
    `mcp_servers`: those that are declared with a URL (`agentwrap.mcp.http.http_servers`).
    `hosts`: whose TLS is ended here, by an authority with `run_id` in its name: `authority`, if it was made before.
    """

    layers: tuple[Layer, ...]
    tier: Literal["wall", "guard", "capture"]
    now: Callable[[], int]
    closed: bool = False
    host_ports: frozenset[int] | None = frozenset()
    own4: str = ""
    own6: str = ""
    ask_timeout_s: float = 300.0
    unattended: bool = False
    hosts: ModelHosts = ModelHosts()
    mcp_servers: tuple[HttpServer, ...] = ()
    run_id: str = ""
    authority: "Authority | None" = None


def load() -> None:
    """Load what `run` needs, which takes a tenth of a second."""
    import agentwrap.gateway.service  # noqa: F401


def run(ports: Ports, settings: Settings) -> None:
    """Serve until the supervisor's socket ends or it says `Q`; then tell what is left to tell. Blocks."""
    import trio

    from agentwrap.gateway.service import serve

    trio.run(serve, ports, settings)
