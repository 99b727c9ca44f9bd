"""The parts of the gateway put together under trio: who accepts, who answers names, who reads the packet log.

Whatever ends this loop closes the only listener of the run: from then on every connect is refused.
"""

import errno
import gc
import resource
import select
import socket
from collections.abc import Callable, Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from itertools import count
from typing import TYPE_CHECKING

import trio

from agentwrap.events import Gap
from agentwrap.events.repeats import Teller
from agentwrap.gateway import hosts_file, publish
from agentwrap.gateway.asking import Asks
from agentwrap.gateway.attribution import Attribution
from agentwrap.gateway.callers import Caller
from agentwrap.gateway.capture.about import About
from agentwrap.gateway.capture.tap import Tap
from agentwrap.gateway.connection import Connection, refuse_unknown
from agentwrap.gateway.dns_service import DnsService
from agentwrap.gateway.host_ports import follow
from agentwrap.gateway.judging import Judge, text_of
from agentwrap.gateway.known_names import KnownNames
from agentwrap.gateway.link import Link
from agentwrap.gateway.lookup import Resolver, no_search_list
from agentwrap.gateway.netlink.diag import Diag, End
from agentwrap.gateway.netlink.known_addresses import KnownAddresses
from agentwrap.gateway.packet_log import PacketLog
from agentwrap.gateway.placeholders import Placeholders
from agentwrap.gateway.proxying.captured import Captured
from agentwrap.gateway.proxying.passing import PassingJudge
from agentwrap.gateway.relay import abort
from agentwrap.gateway.serve import Ports, Settings
from agentwrap.gateway.stage import Stage
from agentwrap.mcp.http import Recognition
from agentwrap.policy.hosts import Address
from agentwrap.tracing.wire import Ready

if TYPE_CHECKING:
    from agentwrap.gateway.gating.gates import Gates
    from agentwrap.gateway.interception.interceptor import Interceptor

_TELL_S = 0.05
_STEP_S, _QUEUE_LOOKS, _LAST_LOOKS = 0.005, 1000, 60
_NO_ROOM_S = 0.02
_SPINS = 16
_DNS_PORT = 53
_GC_OBJECTS = 10_000
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_BROKEN = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK)


async def serve(ports: Ports, settings: Settings) -> None:
    """Until the supervisor is gone or says so."""
    _take_descriptors()
    no_search_list()
    stage = _stage(ports, settings)
    _learn_hosts_file(stage)
    hosts_file.freeze()
    names = DnsService(stage)
    log = PacketLog(stage, ports.nflog, ports.nft) if ports.nflog is not None else None
    async with trio.open_nursery() as outer:
        outer.start_soon(stage.link.run)
        async with trio.open_nursery() as work:
            work.start_soon(_accept, stage, names, ports.tcp, work)
            work.start_soon(stage.attribution.run)
            work.start_soon(_tell_repeats, stage)
            for sock in (ports.udp4, ports.udp6):
                if sock is not None:
                    work.start_soon(names.serve_datagrams, sock, work)
            if log is not None:
                work.start_soon(log.run)
            if settings.tier == "wall" and ports.nft is not None:
                work.start_soon(follow, ports.nft, settings.host_ports)
            if ports.reverse is not None:
                work.start_soon(_proxy, stage, ports, ports.reverse, work)
            if ports.published:
                published = [publish.Published(listener, inner) for listener, inner in ports.published]
                inside = publish.Inside(ports.connector)
                work.start_soon(publish.serve, published, inside, stage.link.put, settings.now)
            stage.link.put(_ready(ports, settings, stage))
            # What is here stays: a collection that walks through all of it takes longer than a hundred connections.
            gc.freeze()
            gc.set_threshold(_GC_OBJECTS)
            if stage.interceptor is not None:
                work.start_soon(stage.interceptor.upstream.warm)
            await stage.link.over.wait()
            if stage.link.leaving:
                await _let_end(stage, [one for one in (ports.tcp, ports.reverse) if one is not None])
            work.cancel_scope.cancel()
        outer.cancel_scope.cancel()
    if log is not None:
        log.finish()
    if stage.interceptor is not None:
        stage.interceptor.finish()
    stage.teller.flush(settings.now(), everything=True)
    await stage.link.leave()


async def _let_end(stage: Stage, listeners: Sequence[socket.socket]) -> None:
    """The programs are gone: who still waits is accepted and judged, and what is under way has a moment to end.

    A moment is counted in looks, each a turn for everybody: on a busy machine seconds pass without one.
    """
    waiting = select.poll()
    for listener in listeners:
        waiting.register(listener, select.POLLIN)
    await trio.sleep(_STEP_S)
    for _ in range(_QUEUE_LOOKS):
        if not waiting.poll(0):
            break
        await trio.sleep(_STEP_S)
    for _ in range(_LAST_LOOKS):
        if not stage.live:
            break
        await trio.sleep(_STEP_S)


def _take_descriptors() -> None:
    """Two for each connection: as many as we may have."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _ready(ports: Ports, settings: Settings, stage: Stage) -> Ready:
    ca_pem = stage.interceptor.authority.pem if stage.interceptor is not None else b""
    if settings.tier == "wall":
        return Ready(ca_pem=ca_pem)
    dns_port = ports.udp4.getsockname()[1] if ports.udp4 is not None else 0
    return Ready(tcp_port=ports.tcp.getsockname()[1], dns_port=dns_port, ca_pem=ca_pem)


def _stage(ports: Ports, settings: Settings) -> Stage:
    def broken(what: str, cause: str, detail: str) -> None:
        _broken(stage, what, cause, detail)

    link = Link(ports.supervisor)
    asks = Asks(link.put, settings.now, settings.ask_timeout_s)
    link.answered, link.because = asks.answered, asks.because
    attribution = Attribution(
        ports.callers,
        Diag(ports.diag) if ports.diag is not None else None,
        lambda text: broken("which process made a connection", "caller-unreadable", text),
    )
    recognition = Recognition(settings.mcp_servers)
    known = KnownAddresses(ports.nft) if ports.nft is not None else None

    def admit(addresses: tuple[Address, ...]) -> None:
        try:
            if known is not None:
                known.add(addresses)
        except OSError as error:
            broken("nothing: connects to what a name led to are refused", "packet-filter", str(error))

    stage = Stage(
        by="witness" if settings.tier == "capture" else settings.tier,
        now=settings.now,
        judge=_judge(settings),
        known=KnownNames(),
        placeholders=Placeholders(),
        link=link,
        teller=Teller(link.put),
        attribution=attribution,
        resolver=Resolver(),
        asks=asks,
        admit=admit,
        taps=_taps(link, settings.now, recognition),
        interceptor=_interceptor(link, settings),
        gates=_gates(link, settings, asks, recognition),
    )
    return stage


def _interceptor(link: Link, settings: Settings) -> "Interceptor | None":
    if not settings.hosts:
        return None
    from agentwrap.gateway.interception.interceptor import Interceptor

    return Interceptor(settings.hosts, settings.run_id, link.put, settings.now, authority=settings.authority)


def _gates(link: Link, settings: Settings, asks: Asks, recognition: Recognition) -> "Gates | None":
    if not any(layer.policy.mcp.rules or layer.policy.mcp.pins for layer in settings.layers):
        return None
    from agentwrap.gateway.gating.gates import Gates

    return Gates(settings.layers, recognition, link, asks, settings.now, unattended=settings.unattended)


def _taps(link: Link, now: Callable[[], int], recognition: Recognition) -> Callable[[About], Tap]:
    """Taps with one count of exchanges."""
    numbers = count(1)

    def tap(about: About) -> Tap:
        from agentwrap.models.shapes import recognise  # for a run that speaks HTTP

        def wanted(method: bytes, host: bytes, path: bytes) -> bool:
            return about.intercepted or recognise(method, host, path) is not None

        return Tap(about, link.put, now, numbers.__next__, wanted, recognition)

    return tap


def _judge(settings: Settings) -> Judge:
    if settings.tier == "capture":
        return PassingJudge()
    return Judge(
        settings.layers,
        closed=settings.closed,
        own=[ip_address(one) for one in (settings.own4, settings.own6) if one],
        host_ports=settings.host_ports if settings.tier == "wall" else None,
        unattended=settings.unattended,
    )


def _broken(stage: Stage, what: str, cause: str, detail: str) -> None:
    now = stage.now()
    told = detail.encode("utf-8", "backslashreplace")[:400]
    stage.gap_once(Gap(at_ns=now, what="connect", cause=cause, could_hide=what, from_ns=now, to_ns=now, detail=told))


def _learn_hosts_file(stage: Stage) -> None:
    """Programs look there themselves, unasked: those names are known from the start."""
    for name, address in hosts_file.read():
        stage.known.learn(name, (address,))
        if stage.judge.lookup(name).decision != "deny":
            stage.admit((address,))


async def _proxy(stage: Stage, ports: Ports, listener: socket.socket, nursery: trio.Nursery) -> None:
    from agentwrap.gateway.proxying import listening, owners
    from agentwrap.gateway.proxying.front import Front

    diag = Diag(ports.diag) if ports.diag is not None else None

    def who(local: End, remote: End) -> Caller | None:
        return stage.attribution.by_ends("tcp", local, remote) or owners.owner(diag, local, remote)

    await listening.serve(Front(stage), listener, who, stage.link.room, nursery)


async def _tell_repeats(stage: Stage) -> None:
    while True:
        await trio.sleep(_TELL_S)
        stage.teller.flush(stage.now())


async def _accept(stage: Stage, names: DnsService, listener: socket.socket, nursery: trio.Nursery) -> None:
    listener.setblocking(False)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what it accepts inherits it (tcp(7))
    spins = 0
    while True:
        try:
            client, peer = listener.accept()
        except BlockingIOError:
            await trio.lowlevel.wait_readable(listener)
            spins = 0
            continue
        except OSError as error:
            if error.errno in _BROKEN:
                raise
            # Until a connection ends; meanwhile they queue in the kernel. Anything else is about one that is gone.
            await trio.sleep(_NO_ROOM_S if error.errno in _NO_ROOM else 0)
            continue
        client.setblocking(False)
        stage.live += 1
        nursery.start_soon(_connected, stage, names, client, peer, nursery)
        spins += 1
        if spins >= _SPINS:
            spins = 0
            await stage.link.room()
            await trio.lowlevel.checkpoint()


async def _connected(
    stage: Stage, names: DnsService, client: socket.socket, peer: tuple[str, int], nursery: trio.Nursery
) -> None:
    connection: Connection | None = None
    try:
        found = await _whereabouts(stage, client, peer)
        if found is None:
            await refuse_unknown(stage, client, peer[0])
            return
        address, port, caller = found
        if port == _DNS_PORT:
            await names.serve_stream(client, str(address), caller)
            return
        made = Captured if stage.by == "witness" else Connection
        connection = made(stage, client, address, port, caller)
        await connection.run(nursery)
    except Exception as error:  # one connection's fault must not end the others
        if connection is not None:
            connection.cut()
        _broken(stage, "how one connection ended: the gateway failed on it and cut it", "gateway-fault", repr(error))
    finally:
        abort(client)
        stage.live -= 1


async def _whereabouts(
    stage: Stage, client: socket.socket, peer: tuple[str, int]
) -> tuple[Address, int, Caller | None] | None:
    """Where a connection wants to go and who made it; None if nobody knows where."""
    if stage.by != "wall":
        caller = await stage.attribution.by_port(peer[1])
        return (_address(caller.host), caller.port, caller) if caller is not None else None
    host, port = client.getsockname()[:2]
    address = _address(host)
    ends = (text_of(_address(peer[0])), peer[1]), (text_of(address), port)
    return address, port, stage.attribution.by_ends("tcp", *ends)


@lru_cache(maxsize=4096)
def _address(text: str) -> Address:
    address = ip_address(text.partition("%")[0])
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address
