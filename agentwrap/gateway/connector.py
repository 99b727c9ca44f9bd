"""The connector: a process of ours that owns the agent's network namespace and makes sockets there.

It sets the namespace up, passes every descriptor out and then answers two requests: "give that process its ids" (the
tracer's child, while it stands) and "a socket in there" (the gateway, for published ports). No agent code runs in it.
When the supervisor dies, it dies.
"""

import errno
import os
import signal
import socket
import struct
from ipaddress import IPv4Network, IPv6Network
from typing import TYPE_CHECKING, NoReturn

import msgspec

from agentwrap.launching import attendant, namespaces

if TYPE_CHECKING:
    from agentwrap.launching.enforcement import MountPlan

OWN4, OWN6 = "10.200.0.2", "fd00:a9e7::2"
GATEWAY_PORT, LOG_GROUP = 1, 5
# linux/in.h, linux/in6.h
_IP_PKTINFO, _IP_TRANSPARENT = 8, 19
_IPV6_RECVPKTINFO, _IPV6_TRANSPARENT, _IPV6_FREEBIND = 49, 75, 78
_BACKLOG = 4096
_LOG_BUFFER_BYTES = 4 << 20
NAMESPACES = ("user", "net", "mnt")
_NAMES = ("tcp", "udp4", "udp6", "diag", "nflog", "nft", *NAMESPACES)


class ConnectorPlan(msgspec.Struct, frozen=True):
    """What the namespaces are to be like.

    `network`: whether there is one of the run's own. `open_addresses`: every address may be tried (the gateway judges).
    """

    network: bool = True
    host_ports: tuple[int, ...] = ()
    networks4: tuple[IPv4Network, ...] = ()
    networks6: tuple[IPv6Network, ...] = ()
    open_addresses: bool = True
    low_ports: int = 1024
    mounts: "MountPlan | None" = None


class Connector(msgspec.Struct):
    """The running connector and what it passed out: descriptors by the names of `_NAMES`, and two request channels."""

    pid: int
    maps: socket.socket
    sockets: socket.socket
    descriptors: dict[str, int] = msgspec.field(default_factory=dict)

    def close_sockets(self) -> None:
        """Close what the gateway alone may hold; the namespaces stay at hand for the child."""
        for name in list(self.descriptors):
            if name not in NAMESPACES:
                os.close(self.descriptors.pop(name))
        self.sockets.close()

    def close(self) -> None:
        """Close our ends of everything; what was forked from us keeps its own."""
        self.close_sockets()
        for descriptor in self.descriptors.values():
            os.close(descriptor)
        self.descriptors.clear()
        self.maps.close()

    def end(self) -> None:
        """The tree is gone: end the process."""
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except OSError:
            pass  # it ended by itself


class Refusal(msgspec.Struct, frozen=True):
    """Why there is no wall here: the step that failed, and how."""

    step: str
    errno: int
    detail: str


class _Made(msgspec.Struct, frozen=True):
    names: tuple[str, ...] = ()
    refusal: Refusal | None = None


def start(plan: ConnectorPlan) -> Connector | Refusal:
    """Fork the connector and wait until its namespace stands (some 10 ms). Must run before there are threads."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    maps, maps_inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sockets, sockets_inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        for end in (ours, maps, sockets):
            end.close()
        _become(plan, parent, theirs, maps_inside, sockets_inside)
    for end in (theirs, maps_inside, sockets_inside):
        end.close()
    refusal = _hear(ours, pid)
    connector = Connector(pid, maps, sockets)
    if isinstance(refusal, dict):
        connector.descriptors = refusal
        return connector
    connector.close()
    os.waitpid(pid, 0)
    return refusal


def _hear(channel: socket.socket, pid: int) -> dict[str, int] | Refusal:
    with channel:
        while True:
            data, descriptors, _flags, _address = socket.recv_fds(channel, 4096, len(_NAMES))
            if data == b"map":
                try:
                    namespaces.map_all_ids(pid)
                except OSError as error:
                    channel.send(b"%d" % (error.errno or errno.EPERM))
                    continue
                channel.send(b"0")
                continue
            if not data:
                return Refusal("connector", errno.EPIPE, "it died while setting the namespace up")
            made = msgspec.msgpack.decode(data, type=_Made)
            if made.refusal is not None:
                return made.refusal
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
            return dict(zip(made.names, descriptors, strict=True))


def _become(
    plan: ConnectorPlan, parent: int, channel: socket.socket, maps: socket.socket, sockets: socket.socket
) -> NoReturn:
    step = ["fork"]
    try:
        attendant.be_called("aw-connector")
        attendant.die_with(parent)
        attendant.ignore_terminal_signals()
        attendant.let_go_of_streams()
        held = _set_up(plan, channel, step)
        attendant.die_with(parent)  # forgotten by the kernel when credentials change (prctl(2))
        named = [name for name in _NAMES if name in held]
        channel_message = msgspec.msgpack.encode(_Made(names=tuple(named)))
        socket.send_fds(channel, [channel_message], [held[name] for name in named])
        channel.close()
        for descriptor in held.values():
            os.close(descriptor)
        attendant.hide_memory()
        _serve(maps, sockets)
    except BaseException as error:
        number = error.errno or errno.EIO if isinstance(error, OSError) else errno.EIO
        told = _Made(refusal=Refusal(step[0], number, str(error)))
        try:
            channel.send(msgspec.msgpack.encode(told))
        except OSError:
            pass  # the supervisor is gone
    os._exit(0)


def _set_up(plan: ConnectorPlan, channel: socket.socket, step: list[str]) -> dict[str, int]:
    """Everything inside the namespace; `step[0]` is what is being tried, for the refusal."""
    uid, gid = os.geteuid(), os.getegid()
    # The kernel hides /proc/self/uid_map of a process that is not dumpable from its own user.
    attendant.hide_memory(False)
    step[0] = "user namespace"
    namespaces.unshare(namespaces.NEWUSER)
    step[0] = "id map"
    _map(uid, gid, channel)
    step[0] = "mount namespace"
    namespaces.unshare(namespaces.NEWNS)
    namespaces.hear_mounts_only()
    held = _set_up_network(plan, gid, step) if plan.network else {}
    if plan.mounts is not None:
        from agentwrap.launching import mounts

        step[0] = "mounts"
        mounts.execute(plan.mounts)
    out = {name: end.detach() for name, end in held.items()}
    for kind in NAMESPACES:
        if kind != "net" or plan.network:
            out[kind] = namespaces.open_own(kind)
    return out


def _set_up_network(plan: ConnectorPlan, gid: int, step: list[str]) -> dict[str, socket.socket]:
    from agentwrap.gateway.netlink import packets, routes, rules

    step[0] = "network namespace"
    namespaces.unshare(namespaces.NEWNET)
    step[0] = "addresses and routes"
    has_ipv6 = routes.set_up(OWN4, OWN6)
    _set_sysctls(plan, gid)
    step[0] = "packet rules (nf_tables)"
    nft = _netlink(12)  # NETLINK_NETFILTER
    rules.install(
        nft,
        port=GATEWAY_PORT,
        own4=OWN4,
        own6=OWN6 if has_ipv6 else None,
        group=LOG_GROUP,
        host_ports=plan.host_ports,
        open_addresses=plan.open_addresses,
        networks4=plan.networks4,
        networks6=plan.networks6,
    )
    step[0] = "packet log"
    nflog = _netlink(12)
    packets.subscribe(nflog, LOG_GROUP, _LOG_BUFFER_BYTES)
    step[0] = "listener"
    held = {"tcp": _listener(has_ipv6), "diag": _netlink(4), "nflog": nflog, "nft": nft, "udp4": _dns4()}
    if has_ipv6:
        held["udp6"] = _dns6()
    return held


def _map(uid: int, gid: int, channel: socket.socket) -> None:
    if uid != 0:
        namespaces.map_own_id(uid, gid)
        return
    channel.send(b"map")
    refused = int(channel.recv(16))
    if refused:
        raise OSError(refused, f"/proc/PID/uid_map: {os.strerror(refused)}")


def _set_sysctls(plan: ConnectorPlan, gid: int) -> None:
    """What the machine lets a program do without privileges, it shall do here."""
    for name, value in (("ip_unprivileged_port_start", f"{plan.low_ports}"), ("ping_group_range", f"{gid} {gid}")):
        try:
            with open(f"/proc/sys/net/ipv4/{name}", "w") as file:
                file.write(value)
        except OSError:
            pass  # /proc/sys is read-only in containers: then low ports and ping are refused


def _netlink(protocol: int) -> socket.socket:
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    sock.bind((0, 0))
    return sock


def _listener(has_ipv6: bool) -> socket.socket:
    """Transparent: whatever address was dialled, `getsockname` of the accepted socket tells it (tproxy, ip(7))."""
    sock = socket.socket(socket.AF_INET6 if has_ipv6 else socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    if has_ipv6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_TRANSPARENT, 1)
    sock.setsockopt(socket.IPPROTO_IP, _IP_TRANSPARENT, 1)
    sock.bind(("::" if has_ipv6 else "0.0.0.0", GATEWAY_PORT))
    sock.listen(_BACKLOG)
    return sock


def _dns4() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    sock.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
    sock.bind(("0.0.0.0", 53))
    return sock


def _dns6() -> socket.socket:
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVPKTINFO, 1)
    # Without it a reply cannot leave from the address that was asked (EINVAL).
    sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
    sock.bind(("::", 53))
    return sock


def _serve(maps: socket.socket, sockets: socket.socket) -> None:
    """Until both channels have ended."""
    import select

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    poll = select.poll()
    ends = {maps.fileno(): (maps, _give_ids), sockets.fileno(): (sockets, _give_socket)}
    for descriptor in ends:
        poll.register(descriptor, select.POLLIN)
    while ends:
        for descriptor, _events in poll.poll():
            end, answer = ends[descriptor]
            request = end.recv(64)
            if not request:
                poll.unregister(descriptor)
                del ends[descriptor]
                continue
            answer(end, request)


def _give_ids(channel: socket.socket, request: bytes) -> None:
    try:
        namespaces.map_all_ids(int(request))
    except OSError as error:
        channel.send(b"%d" % (error.errno or errno.EPERM))
    else:
        channel.send(b"0")


def _give_socket(channel: socket.socket, request: bytes) -> None:
    family, kind = struct.unpack("=HH", request)
    try:
        with socket.socket(family, kind) as sock:
            socket.send_fds(channel, [b"0"], [sock.fileno()])
    except OSError as error:
        channel.send(b"%d" % (error.errno or errno.EPERM))
