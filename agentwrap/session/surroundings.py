"""What a run is put into: namespaces, a gateway, mounts, domains; as strong as its policy asks and the machine allows.

Made before the tracer is forked. What cannot be had is a refusal to start, or, with `--best-effort`, a gap.
"""

import ctypes
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec

from agentwrap.errors import EXIT_FAILED, AgentwrapError
from agentwrap.events import Coverage, Gap
from agentwrap.launching.authority_files import AuthorityFiles
from agentwrap.launching.child import Enclosure
from agentwrap.launching.options import RunOptions
from agentwrap.session.following import working_directory
from agentwrap.session.reading import Reading

if TYPE_CHECKING:
    from agentwrap.gateway.connector import Connector, Refusal
    from agentwrap.gateway.process import Loading
    from agentwrap.gateway.started import StartedGateway
    from agentwrap.launching.enforcement import EnforcementPlan
    from agentwrap.launching.mcp_servers import Servers
    from agentwrap.mcp.relay.started import StartedRelay

Tier = Literal["", "wall", "guard"]
_SYS_PIDFD_GETFD = 438
_NETWORK = ("connect", "dns", "udp")
_GUARD_NOTE = "programs whose threads could slip something under a call are told as gaps"
_MECHANISM: dict[Tier, str] = {
    "wall": "network namespace and gateway",
    "guard": "connections made by the tracer (%s), and gateway",
}


class Surroundings(msgspec.Struct):
    """What stands. `tier`: of the network, empty where it is the machine's own; `refusal`: why there is no wall.

    `reading`: how model traffic comes to be read. `relay`: between clients and their MCP servers, `servers`: which
    are declared, `gated`: rules speak of them.
    """

    tier: Tier = ""
    reading: Reading = msgspec.field(default_factory=Reading)
    connector: "Connector | None" = None
    gateway: "StartedGateway | None" = None
    relay: "StartedRelay | None" = None
    servers: "Servers | None" = None
    gated: bool = False
    plan: "EnforcementPlan | None" = None
    refusal: "Refusal | None" = None

    @property
    def enclosure(self) -> Enclosure | None:
        """The namespaces that the child joins."""
        if self.connector is None:
            return None
        held = self.connector.descriptors
        return Enclosure(
            held["user"], held.get("net", -1), held["mnt"], self.connector.maps, os.geteuid(), os.getegid()
        )

    def close_in_tracer(self) -> None:
        """In the tracer, right after the fork: what only the supervisor and the gateway may hold."""
        if self.relay is not None:
            self.relay.close_in_tracer()
        if self.gateway is not None:
            self.gateway.close_in_tracer()
        if self.connector is not None:
            self.connector.close_sockets()

    def forked_all(self) -> None:
        """In the supervisor, when everything that is forked has its copies."""
        if self.relay is not None:
            self.relay.forked_all()
        if self.gateway is not None:
            self.gateway.forked_all()
        if self.connector is not None:
            self.connector.close()

    def wait_until_ready(self, mode: str) -> None:
        """Until the gateway listens and its authority is known, where a run needs them. Raises AgentwrapError."""
        gateway = self.gateway
        if gateway is None:
            return
        if gateway.capture_ports is not None:
            # Nothing stands in the way of a connection; a gateway that died is told of when it is heard.
            if self.reading.way(mode) == "capture":
                self.reading.write_files(gateway.wait_for_authority())
            return
        gateway.wait_until_ready()
        self.reading.write_files(gateway.ca_pem)

    def statements(self, given: list[Coverage], mode: str) -> list[Coverage]:
        """Coverage as it is here: what the wall or the guard holds is no testimony any more."""
        model = self.reading.coverage(mode, self.tier)
        return [*(self._held(one) for one in given), model, *self._of_mcp(mode, model)]

    def _of_mcp(self, mode: str, model: Coverage) -> list[Coverage]:
        if self.servers is None:
            return []
        from agentwrap.launching.mcp_servers import coverage

        relayed = "descriptors swapped at exec" if self.relay is not None and mode != "none" else ""
        return coverage(self.servers, relayed=relayed, gated=self.gated, model=model)

    def _held(self, one: Coverage) -> Coverage:
        if one.what in _NETWORK and self.tier:
            note = _GUARD_NOTE if self.tier == "guard" and one.what != "connect" else ""
            mechanism = _MECHANISM[self.tier].replace("%s", one.mechanism)
            return Coverage(at_ns=0, what=one.what, tier=self.tier, mechanism=mechanism, note=note)
        if one.what == "file-write" and one.mechanism and self.plan and (by := self._files_held_by()):
            note = f"{one.note}; what the policy closes is held by {by}, the rest of it judged at the call"
            return Coverage(at_ns=0, what=one.what, tier=one.tier, mechanism=one.mechanism, note=note)
        return one

    def _files_held_by(self) -> str:
        if self.plan is None:
            return ""
        if self.connector is not None and self.plan.mounts:
            return "mounts"
        return "Landlock" if self.plan.landlock.handled_files else ""

    def losses(self, mode: str) -> list[Gap]:
        """What `--best-effort` goes on without: a gateway that nothing leads to. What cannot be read, or relayed."""
        unread = self.servers.losses if self.servers is not None else []
        if self.servers is not None and self.servers.declared and mode == "none":
            could_hide = "what declared MCP servers are asked, and answer"
            unread = [*unread, Gap(at_ns=0, what="mcp-stdio", cause="not-observed", could_hide=could_hide, from_ns=0)]
        model = self.reading.coverage(mode, self.tier)
        if self.servers is not None and (urls := self.servers.urls) and model.mechanism == "base-url":
            could_hide = "what declared MCP servers behind URLs are asked, and answer"
            names = b", ".join(one.name for one in urls)[:300]
            lost = Gap(at_ns=0, what="mcp-http", cause="not-observed", could_hide=could_hide, from_ns=0, detail=names)
            unread = [*unread, lost]
        if self.gateway is None or self.tier or self.gateway.capture_ports is not None:
            return unread
        refusal = self.refusal
        detail = f"{refusal.step}: {refusal.detail}" if refusal is not None else ""
        could_hide = "connections that the policy denies: nothing stops them"
        told = detail.encode()
        no_wall = Gap(at_ns=0, what="connect", cause="no-wall", could_hide=could_hide, from_ns=0, detail=told)
        return [no_wall, *unread]

    def go_on(self) -> None:
        """The command is about to begin."""
        if self.gateway is not None:
            self.gateway.go_on()

    def pids(self) -> list[int]:
        """The processes that stand around the run."""
        return [one.pid for one in (self.gateway, self.connector, self.relay) if one is not None]

    def catch_up(self) -> None:
        """What the gateway has told is noted: a program may say the key that it has just called a model with."""
        if self.gateway is not None:
            self.gateway.catch_up()

    def keep_going(self) -> None:
        """An agent may stop what stands (SIGSTOP), and with it what it passes and tells: go on at once."""
        for one in (self.gateway, self.relay):
            if one is not None:
                one.keep_going()

    def close(self) -> str:
        """The tree is gone: end what stands. Returns what went wrong with it, in words."""
        failure = ""
        if self.relay is not None:
            self.relay.close()
            failure = self.relay.failure
        if self.gateway is not None:
            self.gateway.close()
            failure = self.gateway.failure or failure
        if self.connector is not None:
            self.connector.end()
        self.reading.close()
        return failure

    def abandon(self) -> None:
        """Nothing ran."""
        self.forked_all()
        if self.relay is not None:
            self.relay.abandon()
        if self.gateway is not None:
            self.gateway.abandon()
        if self.connector is not None:
            self.connector.end()
        self.reading.close()


def surround(options: RunOptions, now: Callable[[], int], *, attended: bool) -> Surroundings:
    """Make what the run asks for. Before any thread. Raises AgentwrapError where it cannot be had."""
    from agentwrap.launching import mcp_servers

    relay = _relay(options, now, attended=attended)  # first: it must hold none of the others' sockets
    try:
        servers = mcp_servers.of_run(options, options.cwd or working_directory())
        if mcp_servers.rules_reach_http(options.layers, servers):
            options = _ruled_over_http(options, servers)
        standing = _surround(options, now, servers, attended=attended)
    except BaseException:
        relay.abandon()
        raise
    standing.relay, standing.servers = relay, servers
    standing.gated = mcp_servers.are_gated(options.layers)
    return standing


def _ruled_over_http(options: RunOptions, servers: "Servers") -> RunOptions:
    """Rules may be about servers that speak HTTP: no connection may go past the gateway."""
    if options.network != "host":
        return msgspec.structs.replace(options, ruled_over_http=True)
    if not options.best_effort:
        raise AgentwrapError(
            "usage", "the policy has rules about MCP servers, and with `--network host` nothing judges those over HTTP",
            hint="leave out --network host, or name servers over stdio alone (`server`, without wildcards)",
        )  # fmt: skip
    could_hide = "calls of MCP servers over HTTP that the policy denies: nothing stops them"
    servers.losses.append(
        Gap(at_ns=0, what="mcp-http", cause="no-gateway", could_hide=could_hide, from_ns=0, detail=b"--network host")
    )
    return options


def _relay(options: RunOptions, now: Callable[[], int], *, attended: bool) -> "StartedRelay":
    from agentwrap.mcp.relay import process, started

    settings = process.Settings(
        now=now, layers=options.layers, ask_timeout_s=options.ask_timeout_s, unattended=not attended
    )
    try:
        return started.fork(settings)
    except OSError as error:
        raise AgentwrapError(
            "unsupported", "there are not enough descriptors or processes for a relay of MCP servers",
            evidence=str(error), hint="ulimit -n 1024", exit_status=EXIT_FAILED,
        ) from error  # fmt: skip


def _surround(options: RunOptions, now: Callable[[], int], servers: "Servers", *, attended: bool) -> Surroundings:
    from agentwrap.gateway import started

    confined = started.wanted(options)
    if not confined and options.no_intercept:
        return _stand(options, None)
    loading = started.load(options, now, servers, attended=attended)
    try:
        return _confined(options, loading) if confined else _capturing(options, loading)
    except OSError as error:
        loading.end()
        raise AgentwrapError(
            "unsupported", "there are not enough descriptors or ports for a gateway", evidence=str(error),
            hint="ulimit -n 1024", exit_status=EXIT_FAILED,
        ) from error  # fmt: skip
    except BaseException:
        loading.end()
        raise


def _confined(options: RunOptions, loading: "Loading") -> Surroundings:
    standing = _stand(options, loading)
    standing.reading = Reading("gateway", "gateway")
    if not options.no_intercept:
        standing.reading.files = _authority_files(standing, options)
    return standing


def _capturing(options: RunOptions, loading: "Loading") -> Surroundings:
    from agentwrap.gateway import started

    standing = _stand(options, None)
    try:
        gateway = standing.gateway = started.start_capture(loading)
    except BaseException:
        standing.abandon()
        raise
    assert gateway.capture_ports is not None
    reading = standing.reading = Reading("base-url", "base-url", reverse_port=gateway.capture_ports.reverse)
    if options.network == "host":
        reading.why = "--network host"
    elif not _can_take():
        reading.why = "pidfd_getfd is refused"
    else:
        reading.notified = "capture"
        reading.files = _authority_files(standing, options)
    return standing


def _authority_files(standing: Surroundings, options: RunOptions) -> AuthorityFiles:
    try:
        return AuthorityFiles(options.environment, options.cwd or working_directory())
    except OSError as error:
        standing.abandon()
        raise AgentwrapError(
            "output",
            "there is no place for the certificates that this run's programs are to trust",
            evidence=str(error),
            hint="agentwrap run --no-intercept -- COMMAND",
            exit_status=EXIT_FAILED,
        ) from error


def _can_take() -> bool:
    """Whether sockets can be taken from processes at all, tried on ourselves: Docker's profile refuses it.

    Without what the tracer has for it: that takes long to load, and the tracer is not forked yet.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        handle = os.pidfd_open(os.getpid())
    except OSError:
        return False
    taken = int(libc.syscall(_SYS_PIDFD_GETFD, handle, handle, 0))
    for descriptor in (handle, taken):
        if descriptor >= 0:
            os.close(descriptor)
    return taken >= 0


def _stand(options: RunOptions, loading: "Loading | None") -> Surroundings:
    if not options.layers and loading is None:
        return Surroundings()  # nothing to load for a run that is only watched
    from agentwrap.gateway import started
    from agentwrap.gateway.connector import Connector

    wall = _plan(options, "wall") if options.layers else None
    if loading is None and not (wall is not None and wall.mounts):
        return Surroundings(plan=_plan(options, "none") if options.layers else None)
    made = _connector(options, wall, network=loading is not None)
    standing = Surroundings(plan=wall)
    if isinstance(made, Connector):
        standing.connector = made
    elif options.tier == "wall":
        raise no_wall(made)
    else:
        standing.refusal = made
        standing.plan = _plan(options, "guard") if options.layers else None
    try:
        if loading is not None:
            standing.tier = "wall" if standing.connector is not None else "guard"
            standing.gateway = started.start(loading, options, standing.connector)
    except BaseException:
        standing.abandon()
        raise
    return standing


def no_wall(refusal: "Refusal") -> AgentwrapError:
    """The error for a run that accepts nothing less than namespaces."""
    from agentwrap.gateway import started

    return AgentwrapError(
        "unsupported",
        "there can be no wall here, and nothing less was accepted",
        evidence=f"{refusal.step}: {refusal.detail}",
        hint=started.fix(refusal),
        exit_status=EXIT_FAILED,
    )


def _plan(options: RunOptions, tier: Literal["wall", "guard", "none"]) -> "EnforcementPlan":
    from agentwrap.gateway import started
    from agentwrap.launching import enforcement, landlock
    from agentwrap.launching.disk import MachineDisk

    return enforcement.plan(
        options.layers,
        MachineDisk(),
        uid=os.geteuid(),
        tier=tier,
        landlock_abi=landlock.version(),
        restricts_network=started.wanted(options),
    )


def _connector(options: RunOptions, wall: "EnforcementPlan | None", *, network: bool) -> "Connector | Refusal":
    from agentwrap.gateway import connector
    from agentwrap.gateway.reach import reach_of
    from agentwrap.policy.layers import mode_of

    if options.tier == "guard":
        return connector.Refusal("wall", 0, "only the guard was asked for")
    reach = reach_of(*(layer.policy for layer in options.layers))
    enforced = bool(options.layers) and mode_of(options.layers) == "enforce"
    plan = connector.ConnectorPlan(
        network=network,
        networks4=reach.networks4,
        networks6=reach.networks6,
        open_addresses=options.network != "none" and (reach.open or not enforced),
        low_ports=0 if os.geteuid() == 0 else _low_ports(),
        mounts=wall.mounts if wall is not None and wall.mounts else None,
    )
    return connector.start(plan)


def _low_ports() -> int:
    try:
        with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 1024
