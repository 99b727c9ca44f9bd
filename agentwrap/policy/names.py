"""Patterns for hosts: what may stand in `network.allow` and `network.deny`, and whether a host and port fit.

Knows exact names, `*.suffix` by whole labels, addresses and CIDR blocks, ports, `host.loopback:PORT` and the
placeholders `config:NAME`, which are resolved from a mapping that is handed in. Refuses patterns that say more than
their writer can mean.
"""

from collections.abc import Mapping
from ipaddress import ip_network
from typing import Literal

import msgspec

from agentwrap.policy.hosts import HOST_LOOPBACK, Host, HostError, Network, parse_host, special, unwrap

CONFIG = "config:"
CONFIGS = ("pip", "npm")
# Suffixes under which anybody can have a name: a star there is a star for everybody. Not the whole Public Suffix List;
# what is missing is one label deeper than what its writer owns, and their mistake to make.
SHARED_SUFFIXES = frozenset(
    "co.uk org.uk ac.uk gov.uk com.au net.au org.au co.nz co.jp ne.jp or.jp com.br com.cn com.mx co.in co.za co.kr "
    "com.tr com.sg com.hk com.tw github.io gitlab.io pages.dev workers.dev vercel.app netlify.app herokuapp.com "
    "web.app firebaseapp.com appspot.com run.app azurewebsites.net cloudapp.net azureedge.net cloudfront.net "
    "amazonaws.com s3.amazonaws.com fly.dev onrender.com ngrok.io ngrok.app trycloudflare.com repl.co glitch.me "
    "blogspot.com r2.dev".split()
)
_ANY_PORT = (0, 65535)


class HostPattern(msgspec.Struct, frozen=True):
    """One pattern. `kind` says which of the other fields counts; `ports` is an inclusive range.

    `unresolved`: a placeholder for which no host is known here: it fits nothing, and nobody can say what it would fit.
    """

    kind: Literal["name", "suffix", "network", "host-loopback", "unresolved", "every"]
    name: str = ""
    network: Network | None = None
    ports: tuple[int, int] = _ANY_PORT

    def fits_port(self, port: int | None) -> bool:
        """Whether the port is in range; None (a lookup) is any port."""
        return port is None or self.ports[0] <= port <= self.ports[1]

    def fits(self, host: Host, port: int | None) -> bool:
        """Whether the host, by its own normal form, and the port fit."""
        if not self.fits_port(port):
            return False
        if self.kind == "every":
            return True
        if self.kind == "name":
            return host.name == self.name
        if self.kind == "suffix":
            return host.name.endswith("." + self.name)
        if self.kind == "network":
            network, address = self.network, host.address
            return (
                network is not None
                and address is not None
                and address.version == network.version
                and address in network
            )
        # A service on the host's own loopback, by whichever of its names.
        return self.kind == "host-loopback" and special(host) == "loopback"

    @property
    def exact(self) -> bool:
        """Whether it names one host only."""
        return self.kind in ("name", "host-loopback") or (
            self.network is not None and self.network.prefixlen == self.network.max_prefixlen
        )

    @property
    def by_name(self) -> bool:
        """Whether it fits names, not addresses."""
        return self.kind in ("name", "suffix", "every")

    def covers(self, other: "HostPattern") -> bool:
        """Whether everything that `other` fits, this one fits too."""
        if not (self.ports[0] <= other.ports[0] and other.ports[1] <= self.ports[1]):
            return False
        if self.kind == "every" or (self.kind, self.name, self.network) == (other.kind, other.name, other.network):
            return self.kind != "unresolved"
        if self.kind == "suffix" and other.kind in ("name", "suffix"):
            return other.name.endswith("." + self.name)
        mine, theirs = self.network, other.network
        return mine is not None and theirs is not None and mine.version == theirs.version and (
            mine.prefixlen <= theirs.prefixlen and theirs.network_address in mine
        )  # fmt: skip


def parse_pattern(
    text: str, configs: Mapping[str, tuple[str, ...]], *, for_deny: bool = False
) -> tuple[HostPattern, ...]:
    """The patterns that one entry of a list means (several for a placeholder). Raises HostError with the reason.

    `configs`: what `config:pip` and `config:npm` stand for, as `host:port` texts. In a deny list everything may be
    as broad as it likes: `*` is every host.
    """
    if text.startswith(CONFIG):
        return _placeholder(text.removeprefix(CONFIG), configs)
    if "://" in text:
        raise HostError(f"a rule names a host, not a URL: write `{text.partition('://')[2].partition('/')[0]}`")
    if text == "*" and for_deny:
        return (HostPattern("every"),)
    rest, ports = _split_port(text)
    if "/" in rest:
        return (HostPattern("network", network=_network(rest, for_deny=for_deny), ports=ports),)
    if "*" in rest:
        return (_suffix(rest, ports, for_deny=for_deny),)
    host = parse_host(rest)
    if host.name == HOST_LOOPBACK:
        if ports[0] != ports[1]:
            raise HostError(f"`{HOST_LOOPBACK}` needs one port, as in `{HOST_LOOPBACK}:11434`")
        return (HostPattern("host-loopback", ports=ports),)
    if host.address is not None:
        if rest.strip("[]").lower() != str(host.address):
            raise HostError(f"`{rest}` is an odd spelling of {host.address}; write that")
        return (HostPattern("network", network=ip_network(host.address), ports=ports),)
    if special(host) == "loopback" and not for_deny:
        raise HostError(f"`{rest}` is the agent's own loopback, which is free; the host's is `{HOST_LOOPBACK}:PORT`")
    return (HostPattern("name", name=host.name, ports=ports),)


def _placeholder(name: str, configs: Mapping[str, tuple[str, ...]]) -> tuple[HostPattern, ...]:
    if name not in CONFIGS:
        known = ", ".join(CONFIG + one for one in CONFIGS)
        raise HostError(f"there is no placeholder `{CONFIG}{name}`; there are {known}")
    hosts = configs.get(name, ())
    found: list[HostPattern] = []
    for host in hosts:
        for pattern in parse_pattern(host, {}):
            if pattern not in found:
                found.append(pattern)
    return tuple(found) or (HostPattern("unresolved", name=name),)


def _split_port(text: str) -> tuple[str, tuple[int, int]]:
    """The host part and the range of ports: `:443`, `:8000-8999`, none for all."""
    if text.startswith("["):
        inner, bracket, tail = text[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise HostError("an address in brackets is followed by `:PORT` or by nothing")
        # `[2001:db8::]/32` is no form anybody writes; the block stands inside.
        return inner, _ports(tail[1:]) if tail else _ANY_PORT
    if text.count(":") > 1:
        return text, _ANY_PORT
    host, colon, port = text.partition(":")
    return host, _ports(port) if colon else _ANY_PORT


def _ports(text: str) -> tuple[int, int]:
    low, dash, high = text.partition("-")
    words = (low, high if dash else low)
    if not all(word.isascii() and word.isdigit() and len(word) <= 5 for word in words):
        raise HostError(f"`{text}` is no port; write 443 or 8000-8999")
    first, last = int(words[0]), int(words[1])
    if not 1 <= first <= last <= 65535:
        raise HostError(f"`{text}` is no range of ports between 1 and 65535")
    return first, last


def _network(text: str, *, for_deny: bool) -> Network:
    if "%" in text:
        raise HostError("a percent sign has no place in an address")
    try:
        network = ip_network(text)
    except ValueError as error:
        raise HostError(f"`{text}` is no block of addresses: {error}") from error
    inner = unwrap(network.network_address)
    if inner.version != network.version:
        raise HostError(f"`{text}` wraps IPv4 addresses; name those ({inner}/...)")
    if network.prefixlen == 0 and not for_deny:
        raise HostError(f'`{text}` is every address; if that is meant, say default = "allow"')
    return network


def _suffix(text: str, ports: tuple[int, int], *, for_deny: bool) -> HostPattern:
    star, _, rest = text.partition(".")
    if text in ("*", "*.*", "*."):
        raise HostError(f'`{text}` is every host; if that is meant, say default = "allow"')
    if star != "*" or "*" in rest:
        raise HostError("a star stands for whole labels at the start: `*.example.com`")
    host = parse_host(rest)
    if host.address is not None:
        raise HostError(f"a star does not go with addresses; a block is written {host.address}/24")
    if not for_deny and (len(host.labels) < 2 or host.name in SHARED_SUFFIXES):
        raise HostError(f"anybody can have a name under `{host.name}`; name the hosts, or the suffix you trust")
    return HostPattern("suffix", name=host.name, ports=ports)
