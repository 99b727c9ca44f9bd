"""The supervisor's side of the gateway: starts it; what its news make, and what its death hides.

Tiers: `wall` (namespaces of the run's own; nothing but the gateway can be reached), `guard` (the tracer makes every
connection itself, towards the gateway, where the machine allows no namespaces) and `capture` (the network is the
machine's; the tracer leads connections to model servers here, and clients may be told of a reverse proxy).
"""

import errno
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from agentwrap.errors import EXIT_FAILED, AgentwrapError
from agentwrap.events import ExchangeNews, Gap, Item, McpNews
from agentwrap.gateway.connector import OWN4, OWN6, Connector, Refusal
from agentwrap.gateway.netlink import channel
from agentwrap.gateway.reach import reach_of
from agentwrap.launching.options import RunOptions
from agentwrap.launching.sidecar import Sidecar, channel_pair

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentwrap.gateway.interception.authority import Authority
    from agentwrap.gateway.process import Loading
    from agentwrap.gateway.serve import Ports, Settings
    from agentwrap.launching.mcp_servers import Servers
    from agentwrap.tracing.wire import Ready

Tier = Literal["wall", "guard", "capture"]
# Against hangs only: one that died is heard at once, and a busy machine takes a hundred times as long to load it.
_READY_S = 120.0
_NAMESPACES = ("user", "net", "mnt")
_PUBLISHED = "published:"


def wanted(options: RunOptions) -> bool:
    """Whether a run has a gateway: asked for, or as a policy says something about the network or servers on it."""
    if options.publish and options.network == "auto":
        return True
    if options.network == "auto":
        return options.ruled_over_http or any(reach_of(layer.policy).restricts for layer in options.layers)
    return options.network != "host"


class GuardPorts(msgspec.Struct, frozen=True):
    """Guard tier: where the gateway listens on the loopback that it shares with the agent."""

    tcp: int
    dns: int


class Traffic(Protocol):
    """Who makes items of the exchanges that pass, and of what was judged about MCP messages in them."""

    def read(self, news: ExchangeNews | McpNews) -> list[Item]:
        """What the next news make."""
        ...

    def finish(self, *, lost: bool) -> list[Item]:
        """What is left when there are no more. `lost`: who told them died, so what is open went on unseen."""
        ...


class CapturePorts(msgspec.Struct, frozen=True):
    """Capture tier: where connections are led to, where the reverse proxy listens, both on 127.0.0.1."""

    tcp: int
    reverse: int


class StartedGateway(Sidecar):
    """The run's gateway, from `start` to `close`. `callers`: the tracer's end, to be closed here once it has it.

    `traffic`: makes items of what passed through it; without one that is dropped. `ca_pem`: the certificate of its
    authority, known once it listens, empty if it ends no TLS.
    """

    tier: Tier
    callers: socket.socket
    guard_ports: GuardPorts | None = None
    capture_ports: CapturePorts | None = None
    traffic: Traffic | None = None
    ca_pem: bytes = b""
    inside: list[socket.socket] = msgspec.field(default_factory=list)
    loading: "Loading | None" = None

    def close_in_tracer(self) -> None:
        """In the tracer, right after the fork: what only the supervisor and the gateway may hold."""
        self.channel.close()
        if self.loading is not None:
            self.loading.close()
        self._drop()

    def forked_all(self) -> None:
        """In the supervisor, when the tracer has its copies."""
        self.callers.close()
        self._drop()

    def _drop(self) -> None:
        # The listener above all: it must be closed with the gateway's death, so that nothing is accepted any more.
        for end in self.inside:
            end.close()
        self.inside.clear()

    def wait_for_authority(self) -> bytes:
        """Its certificate, long before it listens; empty where there is none, and where it died."""
        self.ca_pem = self.loading.first_word(_READY_S) if self.loading is not None else b""
        return self.ca_pem

    def go_on(self) -> None:
        """Everything that the command waits for is done: a patient gateway loads the rest."""
        if self.loading is not None:
            self.loading.go_on()
            self.loading = None

    def wait_until_ready(self) -> None:
        """Until the gateway listens. Raises AgentwrapError."""
        from agentwrap.tracing.wire import Failed, FrameReader, Ready

        frames = self._frames = FrameReader()
        self.channel.settimeout(_READY_S)
        failure, listens = "it ended while it started", False
        try:
            while not listens and (data := self.channel.recv(65536)):
                for messages in frames.feed(data):
                    for message in messages:
                        if listens:
                            self._early.append(message)
                        elif isinstance(message, Ready):
                            self._welcome(message)
                            listens = True
                        elif isinstance(message, Failed):
                            failure = self._failure_of(message) or failure
            if listens:
                self.channel.settimeout(None)
                return
        except TimeoutError:
            failure = f"it did not start within {_READY_S:.0f} s"
        raise AgentwrapError(
            "internal",
            "the gateway could not be started",
            evidence=failure,
            hint="agentwrap doctor",
            exit_status=EXIT_FAILED,
        )

    def _made_of(self, news: ExchangeNews | McpNews) -> list[Item]:
        return self.traffic.read(news) if self.traffic is not None else []

    def _welcome(self, ready: "Ready") -> None:
        self.ca_pem = ready.ca_pem

    def _left_over(self, *, lost: bool) -> list[Item]:
        return self.traffic.finish(lost=lost) if self.traffic is not None else []

    def _loss(self, at_ns: int) -> tuple[Gap, str]:
        if self.capture_ports is not None:  # connections are made past it from now on
            could_hide = "model calls that were under way; those made afterwards went past it"
            return Gap(at_ns=at_ns, what="model", cause="gateway-lost", could_hide=could_hide, from_ns=at_ns), ""
        could_hide = "names and ends of connections that were open; nothing was let through afterwards"
        gap = Gap(at_ns=at_ns, what="connect", cause="gateway-lost", could_hide=could_hide, from_ns=at_ns)
        return gap, "the gateway died: nothing could be connected to from then on"


def load(
    options: RunOptions, now: Callable[[], int], servers: "Servers | None" = None, *, attended: bool
) -> "Loading":
    """Fork the gateway, which loads what it needs while its namespace is made. Before any thread.

    `servers`: the declared MCP servers; what goes to those behind a URL is read.
    """
    from agentwrap.gateway import process

    reach = reach_of(*(layer.policy for layer in options.layers))

    made: list[Authority] = []

    def authority() -> bytes:
        """Before everything else: the command waits for its certificate."""
        if options.no_intercept:
            return b""
        from agentwrap.gateway.interception.authority import Authority

        made.append(Authority(options.run_id))
        return made[0].pem

    def build(sockets: "Mapping[str, socket.socket]") -> "tuple[Ports, Settings]":
        from agentwrap.gateway.serve import Ports, Settings
        from agentwrap.mcp.http import http_servers
        from agentwrap.policy.model_hosts import model_hosts

        published = tuple(
            (sock, int(name.rpartition(":")[2])) for name, sock in sockets.items() if name.startswith(_PUBLISHED)
        )
        named = {name: sock for name, sock in sockets.items() if not name.startswith(_PUBLISHED)}
        settings = Settings(
            layers=options.layers,
            tier="wall" if "connector" in sockets else "guard" if "udp4" in sockets else "capture",
            closed=options.network == "none",
            host_ports=None if reach.every_host_port else reach.host_ports,
            now=now,
            own4=OWN4,
            own6=OWN6,
            ask_timeout_s=options.ask_timeout_s,
            unattended=not attended,
            hosts=model_hosts(
                options.layers, options.intercept, servers.tls_hosts if servers else (), none=options.no_intercept
            ),
            mcp_servers=http_servers(servers.urls) if servers else (),
            run_id=options.run_id,
            authority=made[0] if made else None,
        )
        return Ports(published=published, **named), settings

    return process.fork(build, authority, patient=not wanted(options))


def start(loading: "Loading", options: RunOptions, connector: Connector | None) -> StartedGateway:
    """Give the gateway its place: behind the connector's namespace, or, without one, on the machine's own loopback.

    Before any thread, before the tracer is forked. Raises AgentwrapError for a published port that is taken.
    """
    published = _published(options)
    inside = _loopback_ports() if connector is None else _sockets_of(connector)
    more = {f"{_PUBLISHED}{number}:{inner}": listener for number, (listener, inner) in enumerate(published)}
    if connector is not None:
        more["connector"] = connector.sockets
    gateway = _given(loading, "guard" if connector is None else "wall", {**inside, **more})
    if connector is None:
        gateway.guard_ports = GuardPorts(inside["tcp"].getsockname()[1], inside["udp4"].getsockname()[1])
    gateway.inside = [*inside.values(), *(listener for listener, _inner in published)]
    return gateway


def start_capture(loading: "Loading", reverse: socket.socket | None = None) -> StartedGateway:
    """Give the gateway its place in a run that keeps the machine's network. Before the tracer is forked.

    `reverse`: where its proxy listens, if not on a port of its own. Raises AgentwrapError where it died,
    OSError where this machine has no port left.
    """
    inside = {"tcp": _listener(), "reverse": reverse or _listener()}
    gateway = _given(loading, "capture", {**inside, **_diagnosis()})
    tcp_port, reverse_port = (int(sock.getsockname()[1]) for sock in inside.values())
    gateway.capture_ports = CapturePorts(tcp_port, reverse_port)
    gateway.loading = loading
    gateway.inside = list(inside.values())
    return gateway


def _diagnosis() -> "dict[str, socket.socket]":
    """What tells whose socket is at the other end; a container may refuse it."""
    try:
        return {"diag": channel.open_socket(channel.SOCK_DIAG)}
    except OSError:
        return {}


def _given(loading: "Loading", tier: Tier, sockets: "Mapping[str, socket.socket]") -> StartedGateway:
    ours, theirs = channel_pair(socket.SOCK_STREAM)
    callers, heard = channel_pair(socket.SOCK_SEQPACKET)
    given = {"supervisor": theirs, "callers": heard, **sockets}
    try:
        loading.give(given)
    except OSError as error:
        raise AgentwrapError(
            "internal",
            "the gateway could not be started",
            evidence=f"it ended while it was given its sockets ({error.strerror})",
            hint="agentwrap doctor",
            exit_status=EXIT_FAILED,
        ) from error
    theirs.close()
    heard.close()
    if tier != "capture":
        loading.close()
    return StartedGateway(tier, callers, pid=loading.pid, channel=ours)


def _published(options: RunOptions) -> tuple[tuple[socket.socket, int], ...]:
    made: list[tuple[socket.socket, int]] = []
    for outer, inner in options.publish:
        try:
            made.append((socket.create_server(("127.0.0.1", outer)), inner))
        except OSError as error:
            raise AgentwrapError(
                "unsupported",
                f"port {outer} cannot be published",
                evidence=f"127.0.0.1:{outer}: {error.strerror}",
                hint=f"agentwrap run -p {outer + 1}:{inner} -- COMMAND",
                exit_status=EXIT_FAILED,
            ) from error
    return tuple(made)


def _sockets_of(connector: Connector) -> dict[str, socket.socket]:
    return {
        name: socket.socket(fileno=os.dup(descriptor))
        for name, descriptor in connector.descriptors.items()
        if name not in _NAMESPACES
    }


def _loopback_ports() -> dict[str, socket.socket]:
    """Guard tier: a listener and a name server on the loopback, which the tracer alone connects to."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    return {"tcp": _listener(), "udp4": udp}


def _listener() -> socket.socket:
    tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    tcp.bind(("127.0.0.1", 0))
    tcp.listen(4096)
    return tcp


def fix(refusal: Refusal) -> str:
    """One thing to do about a wall that cannot be had."""
    if refusal.errno == errno.ENOSPC:
        return "sysctl user.max_user_namespaces=15000 user.max_net_namespaces=15000"
    if _reads_one("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"):
        return "sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    if refusal.step == "user namespace" and refusal.errno in (errno.EPERM, errno.EACCES):
        return "docker run --security-opt seccomp=unconfined (a container); sysctl kernel.unprivileged_userns_clone=1"
    if refusal.step.startswith("packet"):
        return "modprobe -a nf_tables nft_tproxy nft_socket nft_reject_inet nft_log nfnetlink_log nft_objref"
    return "agentwrap doctor"


def _reads_one(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read().strip() == b"1"
    except OSError:
        return False
