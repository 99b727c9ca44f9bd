"""The packet filter of the agent's network namespace: who is led to the gateway, who is refused at once, what is told.

`ruleset` is the whole of it, a pure function; the rest sends it and changes its sets while the agent runs. What is
allowed is decided elsewhere: this knows addresses and ports.

Every address is local there (see `routes`), so all traffic passes OUTPUT, the loopback and PREROUTING. OUTPUT refuses,
where the kernel tells the program at once and still knows its user. PREROUTING leads what is left to one listener by
TPROXY: its getsockname(2) is the address that the program asked for. No connection tracking takes part.
"""

import socket
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from agentwrap.gateway.netlink import nftables as nft
from agentwrap.gateway.netlink.channel import ask
from agentwrap.gateway.netlink.messages import Request, be16

TABLE = "agentwrap"
TCP_REFUSED, OTHER_REFUSED, LOOPBACK_REFUSED = "aw-tcp", "aw-udp", "aw-lo"
"""Prefixes of refused packets, and the names of their counters."""

KNOWN_SIZE = 16384
"""How many addresses of each family `add_known` takes; beyond it fails with ENFILE."""

_HOST_PORTS = "hostports"
_MANGLE, _FILTER = -150, 0  # NF_IP_PRI_MANGLE, NF_IP_PRI_FILTER
_DNS = 53
# One attribute holds less than 64 KiB.
_ELEMENTS_AT_ONCE = 1000
# One datagram holds less than net.core.wmem_default, 208 KiB.
_TRANSACTION_BYTES = 128 << 10

Address = IPv4Address | IPv6Address


def merged(networks: Iterable[IPv4Network] | Iterable[IPv6Network]) -> list[nft.Interval]:
    """Networks as intervals that neither touch nor overlap, in order: the kernel refuses overlaps."""
    found: list[nft.Interval] = []
    for first, last in sorted((int(one.network_address), int(one.broadcast_address)) for one in networks):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def ruleset(
    *,
    port: int,
    own4: str,
    own6: str | None,
    group: int,
    open_addresses: bool,
    every_host_port: bool = False,
) -> list[Request]:
    """The table with its sets, still empty, and its two chains; see `install` for what the arguments mean."""
    made = [
        nft.table(TABLE),
        nft.new_set(TABLE, _HOST_PORTS, 1, nft.PORTS),
        nft.new_set(TABLE, "allowed4", 2, nft.IPV4_ADDRESSES, interval=True),
        nft.new_set(TABLE, "allowed6", 3, nft.IPV6_ADDRESSES, interval=True),
        nft.new_set(TABLE, "known4", 4, nft.IPV4_ADDRESSES, size=KNOWN_SIZE),
        nft.new_set(TABLE, "known6", 5, nft.IPV6_ADDRESSES, size=KNOWN_SIZE),
        *(nft.counter(TABLE, name) for name in (TCP_REFUSED, OTHER_REFUSED, LOOPBACK_REFUSED)),
    ]
    loopback = nft.destination(bytes([127, 0, 0, 0]), bytes([255, 0, 0, 0]))
    local = [loopback, nft.destination(IPv4Address(own4).packed)]
    if own6 is not None:
        local += [nft.destination(IPv6Address(1).packed), nft.destination(IPv6Address(own6).packed)]
    return [
        *made,
        *_prerouting(port, local, loopback, group, every_host_port),
        *_output(port, local, group, open_addresses),
    ]


def _prerouting(
    port: int, local: list[nft.Expression], loopback: nft.Expression, group: int, every_host_port: bool
) -> list[Request]:
    tcp, opening, accept, gateway = nft.transport(nft.TCP), nft.opening(), nft.accept(), nft.tproxy(port)
    host_port = b"" if every_host_port else nft.destination_in(_HOST_PORTS, nft.PORTS)
    refused = nft.counted(LOOPBACK_REFUSED) + nft.log(group, LOOPBACK_REFUSED)

    def rule(what: str, *expressions: nft.Expression) -> Request:
        return nft.rule(TABLE, "pre", what, *expressions)

    return [
        nft.chain(TABLE, "pre", nft.PREROUTING, _MANGLE),
        *(rule("a socket inside wins", where, nft.has_socket(), accept) for where in local),
        # A resolver on the loopback, asked again over TCP after a truncated answer.
        *(rule("DNS", where, tcp, nft.destination_port(_DNS), gateway, accept) for where in local),
        # Not ::1: a program that tries it before 127.0.0.1 must be refused there, or it never tries the other.
        rule("ports of the host", loopback, tcp, host_port, gateway, accept),
        *(rule("nobody there", where, tcp, opening, refused) for where in local),
        # The kernel answers as it does where nobody listens.
        *(rule("nobody there", where, accept) for where in local),
        rule("the world", tcp, gateway, accept),
    ]


def _output(port: int, local: list[nft.Expression], group: int, open_addresses: bool) -> list[Request]:
    tcp, accept = nft.transport(nft.TCP), nft.accept()
    dns = nft.destination_port(_DNS)
    refuse_gateway = nft.counted(LOOPBACK_REFUSED) + nft.log(group, LOOPBACK_REFUSED) + nft.reject_with_reset()
    refuse_tcp = nft.counted(TCP_REFUSED) + nft.log(group, TCP_REFUSED) + nft.reject_with_reset()
    refuse = nft.counted(OTHER_REFUSED) + nft.log(group, OTHER_REFUSED) + nft.reject_as_prohibited()
    let_in = {
        "allowed4": nft.IPV4_ADDRESSES,
        "known4": nft.IPV4_ADDRESSES,
        "allowed6": nft.IPV6_ADDRESSES,
        "known6": nft.IPV6_ADDRESSES,
    }

    def rule(what: str, *expressions: nft.Expression) -> Request:
        return nft.rule(TABLE, "out", what, *expressions)

    return [
        nft.chain(TABLE, "out", nft.OUTPUT, _FILTER),
        # Only what opens a connection is judged: a listener takes nothing else from a stranger.
        rule("connections that stand", tcp, nft.opening(False), accept),
        # Its listener is there for what it is led to, not a service of this namespace.
        *(rule("the gateway itself", where, tcp, nft.destination_port(port), refuse_gateway) for where in local),
        *(rule("local", where, accept) for where in local),
        rule("DNS over TCP", tcp, dns, accept),
        rule("DNS", nft.transport(nft.UDP), dns, accept),
        *(
            [rule("every address", tcp, accept)]
            if open_addresses
            else [rule(name, tcp, nft.destination_in(name, kind), accept) for name, kind in let_in.items()]
        ),
        rule("TCP to an address that nothing allows", tcp, refuse_tcp),
        rule("everything else", refuse),
    ]


def install(
    sock: socket.socket,
    *,
    port: int,
    own4: str,
    own6: str | None,
    group: int,
    host_ports: Sequence[int] | None,
    open_addresses: bool,
    networks4: Sequence[IPv4Network] = (),
    networks6: Sequence[IPv6Network] = (),
) -> None:
    """Put the whole filter in place, in one transaction, in the network namespace of `sock` (a NETFILTER socket).

    `port`: where the gateway's transparent listener is. `own4`, `own6`: as given to `routes.set_up`, None without IPv6.
    `group`: the NFLOG group that refused packets are shown to. `host_ports`: ports of 127/8 that lead to the gateway
    when nothing inside listens there, None for all. `open_addresses`: TCP to any address reaches the gateway;
    otherwise only to `networks4`, `networks6` and what `add_known` adds, anything else is refused at connect(2).

    Raises OSError that names what the kernel refused: ENOENT an expression that it lacks, EOPNOTSUPP nf_tables.
    """
    requests = ruleset(
        port=port,
        own4=own4,
        own6=own6,
        group=group,
        open_addresses=open_addresses,
        every_host_port=host_ports is None,
    )
    ranges: list[tuple[str, int, list[nft.Interval]]] = [
        ("allowed4", 4, merged(networks4)),
        ("allowed6", 16, merged(networks6)),
    ]
    for name, size, wanted in ranges:
        for at in range(0, len(wanted), _ELEMENTS_AT_ONCE):
            requests.append(nft.intervals(TABLE, name, wanted[at : at + _ELEMENTS_AT_ONCE], size))
    requests += _added(_HOST_PORTS, [be16(one) for one in host_ports or ()])
    _send(sock, requests)


def add_known(sock: socket.socket, addresses: Iterable[Address]) -> None:
    """Let TCP to these addresses reach the gateway from now on. Those that are known stay.

    Raises OSError ENFILE when more than `KNOWN_SIZE` of a family would be known: then none of them is added
    (of some thousand).
    """
    _change_known(sock, addresses, remove=False)


def forget_known(sock: socket.socket, addresses: Iterable[Address]) -> None:
    """Take back what `add_known` gave; connections that stand go on. Raises OSError ENOENT for one that is unknown."""
    _change_known(sock, addresses, remove=True)


def add_host_ports(sock: socket.socket, ports: Iterable[int]) -> None:
    """Lead these ports of 127/8 to the gateway, too, where nothing inside listens."""
    _send(sock, _added(_HOST_PORTS, [be16(one) for one in ports]))


def forget_host_ports(sock: socket.socket, ports: Iterable[int]) -> None:
    """Take back what `add_host_ports` gave: nobody listens there any more. Raises OSError ENOENT for an unknown one."""
    _send(sock, _added(_HOST_PORTS, [be16(one) for one in ports], remove=True))


def counters(sock: socket.socket) -> dict[str, int]:
    """How many packets were refused so far, by the prefix that they are logged with. Exact, whatever was logged."""
    return dict(nft.counted_packets(body) for body in ask(sock, [nft.counters_wanted(TABLE)]))


def _change_known(sock: socket.socket, addresses: Iterable[Address], *, remove: bool) -> None:
    keys: dict[str, list[bytes]] = {"known4": [], "known6": []}
    for one in addresses:
        keys["known4" if one.version == 4 else "known6"].append(one.packed)
    _send(sock, [request for name in keys for request in _added(name, keys[name], remove=remove)])


def _added(name: str, keys: Sequence[bytes], *, remove: bool = False) -> list[Request]:
    chunks = [keys[at : at + _ELEMENTS_AT_ONCE] for at in range(0, len(keys), _ELEMENTS_AT_ONCE)]
    return [nft.elements(TABLE, name, chunk, remove=remove) for chunk in chunks]


def _send(sock: socket.socket, requests: Sequence[Request]) -> None:
    """In one transaction where it fits the send buffer: the filter always does, long lists of elements follow it."""
    together: list[Request] = []
    size = 0
    for request in requests:
        if size + len(request[2]) > _TRANSACTION_BYTES:
            ask(sock, nft.batch(together), nft.expression_named)
            together, size = [], 0
        together.append(request)
        size += len(request[2])
    if together:
        ask(sock, nft.batch(together), nft.expression_named)
