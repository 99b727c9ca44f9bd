"""The vocabulary of nf_tables: expressions, rules, sets and counters as netlink bytes. Knows no rule of ours.

linux/netfilter/nf_tables.h; the names are those of nft(8).
"""

import struct
from collections.abc import Iterable, Sequence

from agentwrap.gateway.netlink import messages as nl
from agentwrap.gateway.netlink.messages import Request, attribute, be16, be32, nested

PREROUTING, OUTPUT = 0, 3
IPV4, IPV6 = 2, 10
TCP, UDP = 6, 17
ACCEPT = 1
PORTS, IPV4_ADDRESSES, IPV6_ADDRESSES = (13, 2), (7, 4), (8, 16)
"""Kinds of sets: nft's number of the type (only `nft list` reads it), bytes of a key."""

_INET = 1  # NFPROTO_INET
_SUBSYSTEM = 10 << 8
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_NEW_TABLE, _NEW_CHAIN, _NEW_RULE, _NEW_SET, _NEW_ELEMENT, _DELETE_ELEMENT, _NEW_OBJECT, _GET_OBJECT = (
    *(0, 3, 6, 9, 12, 14, 18, 19),
)
_REGISTER = 1
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_EQUAL, _NOT_EQUAL, _AT_MOST = 0, 1, 3
_INTERVAL, _INTERVAL_END = 4, 1
_COUNTER = 1

Expression = bytes
Interval = tuple[int, int]
"""First and last address, as numbers."""


def _expression(name: str, *body: bytes) -> Expression:
    return nested(1, attribute(1, name), nested(2, *body))


def meta(key: int) -> Expression:
    """Load what the kernel knows of a packet: 15 its family, 16 its transport protocol."""
    return _expression("meta", attribute(2, be32(key)), attribute(1, be32(_REGISTER)))


def payload(base: int, offset: int, length: int) -> Expression:
    """Load bytes of the packet, counted from the network (1) or the transport (2) header."""
    fields = (_REGISTER, base, offset, length)
    return _expression("payload", *(attribute(number, be32(field)) for number, field in enumerate(fields, 1)))


def compare(data: bytes, operation: int = _EQUAL) -> Expression:
    """Leave the rule unless the register is so related to `data`."""
    return _expression(
        "cmp", attribute(1, be32(_REGISTER)), attribute(2, be32(operation)), nested(3, attribute(1, data))
    )


def masked(mask: bytes) -> Expression:
    """Keep only the bits of the mask in the register."""
    register, size = be32(_REGISTER), be32(len(mask))
    return _expression(
        "bitwise",
        *(attribute(1, register), attribute(2, register), attribute(3, size)),
        *(nested(4, attribute(1, mask)), nested(5, attribute(1, bytes(len(mask))))),
    )


def family(number: int) -> Expression:
    """The packet is IPv4 or IPv6."""
    return meta(15) + compare(bytes([number]))


def transport(protocol: int) -> Expression:
    """The packet's transport protocol, IPv6 extension headers skipped."""
    return meta(16) + compare(bytes([protocol]))


def destination_port(port: int) -> Expression:
    """TCP or UDP to this port; stands behind `transport`."""
    return payload(_TRANSPORT_HEADER, 2, 2) + compare(be16(port))


def destination(address: bytes, mask: bytes = b"") -> Expression:
    """To this address (4 or 16 bytes), or to one that is the same under the mask."""
    place = (_NETWORK_HEADER, 16, 4) if len(address) == 4 else (_NETWORK_HEADER, 24, 16)
    return (
        family(IPV4 if len(address) == 4 else IPV6)
        + payload(*place)
        + (masked(mask) if mask else b"")
        + compare(address)
    )


def destination_in(set_name: str, kind: tuple[int, int]) -> Expression:
    """The destination (port or address, by the kind of the set) is in the set. A port stands behind `transport`."""
    loads = {
        PORTS: payload(_TRANSPORT_HEADER, 2, 2),
        IPV4_ADDRESSES: family(IPV4) + payload(_NETWORK_HEADER, 16, 4),
        IPV6_ADDRESSES: family(IPV6) + payload(_NETWORK_HEADER, 24, 16),
    }
    return loads[kind] + _expression("lookup", attribute(1, set_name), attribute(2, be32(_REGISTER)))


def opening(yes: bool = True) -> Expression:
    """A TCP segment that opens a connection (of SYN, ACK, FIN and RST only SYN is set), or any other one."""
    return payload(_TRANSPORT_HEADER, 13, 1) + masked(b"\x17") + compare(b"\x02", _EQUAL if yes else _NOT_EQUAL)


def has_socket() -> Expression:
    """Somebody in this namespace holds a socket for the packet, connected or listening (Linux 5.10).

    `socket wildcard <= 1`: true for every socket, and the rule is left when there is none.
    """
    return _expression("socket", attribute(1, be32(2)), attribute(2, be32(_REGISTER))) + compare(b"\x01", _AT_MOST)


def tproxy(port: int) -> Expression:
    """Deliver to the transparent socket that listens on this port, addresses unchanged. Prerouting only."""
    load = _expression("immediate", attribute(1, be32(_REGISTER)), nested(2, attribute(1, be16(port))))
    return load + _expression("tproxy", attribute(1, be32(0)), attribute(3, be32(_REGISTER)))


def accept() -> Expression:
    """Let it pass."""
    verdict = nested(2, nested(2, attribute(1, be32(ACCEPT))))
    return _expression("immediate", attribute(1, be32(0)), verdict)


def log(group: int, prefix: str, snap_bytes: int = 128) -> Expression:
    """Show the packet's beginning to whoever has bound the group; NFTA_LOG_GROUP has 16 bits."""
    return _expression(
        "log",
        *(attribute(1, be16(group)), attribute(2, prefix), attribute(3, be32(snap_bytes)), attribute(4, be16(1))),
    )


def counted(name: str) -> Expression:
    """Add to a named counter."""
    return _expression("objref", attribute(1, be32(_COUNTER)), attribute(2, name))


def reject_with_reset() -> Expression:
    """Refuse a TCP segment as a closed port does."""
    return _expression("reject", attribute(1, be32(1)))


def reject_as_prohibited() -> Expression:
    """Refuse with ICMP "administratively prohibited", of either family."""
    return _expression("reject", attribute(1, be32(2)), attribute(2, bytes([3])))


def table(name: str) -> Request:
    """Make a table of the family inet. EEXIST where there is one."""
    return _NEW_TABLE, nl.CREATE | nl.EXCLUSIVE, attribute(1, name), f"nf_tables table {name}"


def chain(table_name: str, name: str, hook: int, priority: int) -> Request:
    """Make a filter chain at a hook, policy accept."""
    place = nested(4, attribute(1, be32(hook)), attribute(2, be32(priority)))
    names = attribute(1, table_name) + attribute(3, name)
    body = names + place + attribute(5, be32(ACCEPT)) + attribute(7, "filter")
    return _NEW_CHAIN, nl.CREATE, body, f"nf_tables chain {name}"


def rule(table_name: str, chain_name: str, what: str, *expressions: Expression) -> Request:
    """Append a rule; `what` names it in errors."""
    body = attribute(1, table_name) + attribute(2, chain_name) + nested(4, *expressions)
    return _NEW_RULE, nl.CREATE | nl.APPEND, body, f"nf_tables rule ({what})"


def new_set(
    table_name: str, name: str, number: int, kind: tuple[int, int], *, interval: bool = False, size: int = 0
) -> Request:
    """Make a set; `number` is its own within the batch, `size` (0: none) how many elements the kernel lets in."""
    flags = attribute(3, be32(_INTERVAL if interval else 0))
    key = attribute(4, be32(kind[0])) + attribute(5, be32(kind[1]))
    bound = nested(9, attribute(1, be32(size))) if size else b""
    body = attribute(1, table_name) + attribute(2, name) + flags + key + bound + attribute(10, be32(number))
    return _NEW_SET, nl.CREATE, body, f"nf_tables set {name}"


def elements(table_name: str, name: str, keys: Iterable[bytes], *, remove: bool = False) -> Request:
    """Add keys to a set (those that are in it stay), or remove them (ENOENT for one that is not in it)."""
    listed = nested(3, *(nested(1, nested(1, attribute(1, key))) for key in keys))
    kind, flags = (_DELETE_ELEMENT, 0) if remove else (_NEW_ELEMENT, nl.CREATE)
    return kind, flags, attribute(1, table_name) + attribute(2, name) + listed, f"nf_tables elements of {name}"


def intervals(table_name: str, name: str, ranges: Sequence[Interval], key_bytes: int) -> Request:
    """Add intervals that neither touch nor overlap to an interval set."""
    listed = []
    for first, last in ranges:
        listed.append(nested(1, nested(1, attribute(1, first.to_bytes(key_bytes, "big")))))
        if last + 1 < 1 << 8 * key_bytes:  # one that reaches the last address has no end
            end = nested(1, attribute(1, (last + 1).to_bytes(key_bytes, "big")))
            listed.append(nested(1, end, attribute(3, be32(_INTERVAL_END))))
    body = attribute(1, table_name) + attribute(2, name) + nested(3, *listed)
    return _NEW_ELEMENT, nl.CREATE, body, f"nf_tables elements of {name}"


def counter(table_name: str, name: str) -> Request:
    """Make a named counter."""
    body = attribute(1, table_name) + attribute(2, name) + attribute(3, be32(_COUNTER)) + nested(4)
    return _NEW_OBJECT, nl.CREATE, body, f"nf_tables counter {name}"


def batch(requests: Iterable[Request]) -> list[Request]:
    """Wrap the requests so that the kernel takes all or none."""
    bound = struct.pack("=BB", 0, 0) + be16(10)
    general = struct.pack("=BB", _INET, 0) + be16(0)
    inner = [(_SUBSYSTEM | kind, flags | nl.ACK, general + body, what) for kind, flags, body, what in requests]
    return [(_BATCH_BEGIN, 0, bound, "nf_tables"), *inner, (_BATCH_END, 0, bound, "nf_tables")]


def counters_wanted(table_name: str) -> Request:
    """A dump of the table's counters; `counted_packets` reads the answers."""
    body = struct.pack("=BB", _INET, 0) + be16(0) + attribute(1, table_name) + attribute(3, be32(_COUNTER))
    return _SUBSYSTEM | _GET_OBJECT, nl.DUMP, body, f"nf_tables counters of {table_name}"


def counted_packets(body: bytes) -> tuple[str, int]:
    """One answer of the dump: the counter's name and its packets. Raises ValueError or KeyError for anything else."""
    told = nl.attributes(body[4:])
    name = told[2].rstrip(b"\0").decode()
    return name, int.from_bytes(nl.attributes(told[4])[2], "big")


def expression_named(data: bytes) -> str:
    """The name of the expression that begins here, empty where none does: what the kernel refused of a rule."""
    try:
        (length,) = struct.unpack_from("=H", data)
        listed = nl.attributes(data[4:length])
        return listed[1].rstrip(b"\0").decode("ascii")
    except (KeyError, ValueError, struct.error):
        return ""
