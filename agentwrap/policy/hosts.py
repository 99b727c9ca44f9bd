"""One parser and one normal form for host names and addresses, used before any compare and before any dial.

Knows every spelling that means an address (inet_aton(3) forms, IPv4 inside IPv6), and which addresses are nobody's
business by accident. What has no single normal form is refused with the reason. Never looks a name up.
"""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Literal

import msgspec

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Special = Literal["", "metadata", "loopback", "link-local", "private", "reserved"]

LOCALHOST = "localhost"
HOST_LOOPBACK = "host.loopback"  # the machine's own loopback, as policies name it
METADATA_NAMES = frozenset({"metadata.google.internal", "metadata", "instance-data", "instance-data.ec2.internal"})
_TEXT_MAX = 1024  # far above the 253 of RFC 1035; what is longer is not looked at closely
_NAME_MAX, _LABEL_MAX = 253, 63
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?")
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)")
# IDNA 2003 and 2008 disagree on these (RFC 5894, 7.2): two clients would dial two names.
_DEVIATIONS = frozenset("\u00df\u1e9e\u03c2\u200c\u200d")
_REFUSED = {"%": "a percent sign", "@": "user information", "\\": "a backslash", "/": "a slash", "\0": "a NUL byte",
            "\r": "a line break", "\n": "a line break", " ": "a space", "\t": "a tab"}  # fmt: skip

_METADATA: tuple[Network, ...] = tuple(
    ip_network(one)
    for one in ("169.254.169.254", "169.254.170.2", "fd00:ec2::254", "168.63.129.16", "100.100.100.200", "192.0.0.192")
)
_SPECIAL: tuple[tuple[Special, tuple[Network, ...]], ...] = (
    ("metadata", _METADATA),
    ("loopback", (ip_network("127.0.0.0/8"), ip_network("::1"))),
    ("link-local", (ip_network("169.254.0.0/16"), ip_network("fe80::/10"))),
    ("private", tuple(map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10",
                                       "fc00::/7", "fec0::/10")))),
    ("reserved", tuple(map(ip_network, ("0.0.0.0/8", "192.0.0.0/24", "224.0.0.0/3", "ff00::/8", "64:ff9b:1::/48")))),
)  # fmt: skip
_NAT64, _6TO4, _TEREDO = ip_network("64:ff9b::/96"), ip_network("2002::/16"), ip_network("2001::/32")
_COMPATIBLE = ip_network("::/96")


class HostError(ValueError):
    """A name or address without a normal form; the text says why."""


class Host(msgspec.Struct, frozen=True):
    """The normal form: a `name` (A-labels, lower case, no final dot) or an `address` (unwrapped), never both."""

    name: str = ""
    address: Address | None = None

    def __str__(self) -> str:
        return self.name or str(self.address)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of a name, none for an address."""
        return tuple(self.name.split(".")) if self.name else ()


def parse_host(text: str) -> Host:
    """The one normal form of a host. Raises HostError where there is none."""
    if len(text) > _TEXT_MAX:
        raise HostError(f"{len(text):,} characters are no host name")
    for character, what in _REFUSED.items():
        if character in text:
            raise HostError(f"{what} has no place in a host name")
    if ":" in text or text.startswith("["):
        return Host(address=unwrap(_ipv6(text)))
    name = _ascii(text).lower().removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return Host(address=unwrap(_ipv4(labels, text)))
    for label in labels:
        _check_label(label)
    if len(name) > _NAME_MAX:
        raise HostError(f"a name has at most {_NAME_MAX} characters (RFC 1035), this one has {len(name)}")
    return Host(name=name)


def _ascii(text: str) -> str:
    if text.isascii():
        return text
    odd = sorted(_DEVIATIONS & set(text))
    if odd:
        raise HostError(f"U+{ord(odd[0]):04X} is written differently by different clients; use the xn-- form")
    try:
        return text.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise HostError(f"not an international name: {error}") from error


def _check_label(label: str) -> None:
    if not label:
        raise HostError("a label is empty")
    if len(label) > _LABEL_MAX:
        raise HostError(f"a label has at most {_LABEL_MAX} characters (RFC 1035)")
    if not _LABEL.fullmatch(label):
        raise HostError(f"`{label}` is no label of a host name")
    if label.startswith("xn--"):
        try:
            label.encode("ascii").decode("idna")
        except UnicodeError as error:
            raise HostError(f"`{label}` does not decode") from error


def _ipv6(text: str) -> IPv6Address:
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        return IPv6Address(inner)
    except ValueError as error:
        raise HostError(f"`{inner}` is no IPv6 address") from error


def _ipv4(parts: list[str], text: str) -> IPv4Address:
    """inet_aton(3): one to four parts, decimal, octal or hexadecimal; the last one fills what is left."""
    numbers = [_number(part, text) for part in parts]
    last_bits = 8 * (5 - len(numbers))
    if len(numbers) > 4 or any(number > 255 for number in numbers[:-1]) or numbers[-1] >> last_bits:
        raise HostError(f"`{text}` ends in a number and is no IPv4 address")
    value = numbers[-1]
    for position, number in enumerate(numbers[:-1]):
        value |= number << (24 - 8 * position)
    return IPv4Address(value)


def _number(part: str, text: str) -> int:
    if len(part) > 40:
        raise HostError(f"`{text[:60]}` ends in a number and is no IPv4 address")
    try:
        if part.startswith("0x"):
            return int(part[2:] or "0", 16)
        return int(part, 8 if part.startswith("0") and part != "0" else 10)
    except ValueError as error:
        raise HostError(f"`{text}` ends in a number and is no IPv4 address") from error


def unwrap(address: Address) -> Address:
    """The address that packets reach in the end: IPv4 out of its IPv6 wrappings, `0.0.0.0` and `::` as loopback.

    RFC 4291 2.5.5 (mapped, compatible), RFC 6052 (NAT64), RFC 3056 (6to4), RFC 4380 (Teredo).
    """
    while isinstance(address, IPv6Address):
        inner = _inside(address)
        if inner is None:
            break
        address = inner
    if int(address) == 0:
        return IPv4Address("127.0.0.1") if address.version == 4 else IPv6Address("::1")
    return address


def _inside(address: IPv6Address) -> IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 0xFFFF):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _6TO4:
        return IPv4Address(int(address) >> 80 & 0xFFFFFFFF)
    if address in _TEREDO:
        return IPv4Address(~int(address) & 0xFFFFFFFF)
    return None


def special(host: Host) -> Special:
    """Why a host may not be reached by accident; empty for ordinary ones. A name is only known by what it says."""
    if host.address is None:
        if host.labels[-1:] == (LOCALHOST,) or host.name == HOST_LOOPBACK:
            return "loopback"
        return "metadata" if host.name in METADATA_NAMES else ""
    for kind, networks in _SPECIAL:
        if any(host.address.version == network.version and host.address in network for network in networks):
            return kind
    return ""
