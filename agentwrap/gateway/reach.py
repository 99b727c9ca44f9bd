"""What a policy's host rules mean for the packet rules: which blocks of addresses, which ports of the host. Pure."""

from ipaddress import IPv4Network, IPv6Network

import msgspec

from agentwrap.policy.rules import Policy


class Reach(msgspec.Struct, frozen=True):
    """What a connect may try. The gateway judges each one; this only lets the kernel refuse the hopeless ones at once.

    `open`: every address may be tried. `host_ports`: ports of the machine's own loopback; `every_host_port` where no
    list says which.
    """

    open: bool
    restricts: bool
    networks4: tuple[IPv4Network, ...] = ()
    networks6: tuple[IPv6Network, ...] = ()
    host_ports: frozenset[int] = frozenset()
    every_host_port: bool = False


def reach_of(*policies: Policy) -> Reach:
    """The union of what several policies could allow. None: everything."""
    networks4: list[IPv4Network] = []
    networks6: list[IPv6Network] = []
    ports: set[int] = set()
    for policy in policies:
        for rule in policy.network.allow:
            for pattern in rule.patterns:
                if pattern.kind == "host-loopback":
                    ports.add(pattern.ports[0])
                elif isinstance(pattern.network, IPv4Network):
                    networks4.append(pattern.network)
                elif isinstance(pattern.network, IPv6Network):
                    networks6.append(pattern.network)
    free = all(policy.mode == "observe" and "network" not in policy.stated for policy in policies)
    return Reach(
        open=any(policy.network.default == "allow" for policy in policies) or not policies,
        restricts=any(
            policy.network.default == "deny" or policy.network.deny or policy.network.allow for policy in policies
        ),
        networks4=tuple(dict.fromkeys(networks4)),
        networks6=tuple(dict.fromkeys(networks6)),
        host_ports=frozenset(ports),
        every_host_port=free,
    )
