r"""DNS messages (RFC 1035, 6891, 8914): one question in, one answer out.

Knows the wire: headers, labels, EDNS, the length in front of a message on TCP. Refuses to know what a name may be asked
for, and what it leads to. Names are shown dot-joined as they were asked, case kept; any byte that is not a visible
ASCII character, and a dot or backslash inside a label, is shown as `\DDD` (RFC 1035, 5.1).
"""

import struct
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address

import msgspec

NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS = 0, 1, 2, 3, 4, 5, 16
RCODES = {0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED", 16: "BADVERS"}
A, SOA, AAAA, OPT, IXFR, AXFR, ANY = 1, 6, 28, 41, 251, 252, 255
_QTYPE_WORDS = """
1 A 2 NS 5 CNAME 6 SOA 10 NULL 12 PTR 13 HINFO 15 MX 16 TXT 17 RP 18 AFSDB 24 SIG 25 KEY 28 AAAA 29 LOC 33 SRV
35 NAPTR 36 KX 37 CERT 39 DNAME 41 OPT 43 DS 44 SSHFP 46 RRSIG 47 NSEC 48 DNSKEY 50 NSEC3 52 TLSA 53 SMIMEA 55 HIP
59 CDS 60 CDNSKEY 61 OPENPGPKEY 64 SVCB 65 HTTPS 99 SPF 249 TKEY 250 TSIG 251 IXFR 252 AXFR 255 ANY 256 URI 257 CAA
""".split()
QTYPES = dict(zip(map(int, _QTYPE_WORDS[::2]), _QTYPE_WORDS[1::2], strict=True))
CLASS_IN = 1
UDP_PAYLOAD = 1232  # what we say in EDNS that we take: no fragments on any path (DNS flag day 2020)
UDP_PLAIN = 512  # RFC 1035, 2.3.4: without EDNS
TCP_QUERY_MAX = 8192  # a question with every option and padding is far below

_HEADER = struct.Struct("!HHHHHH")
_NAME_BYTES_MAX = 255  # RFC 1035, 2.3.4: with lengths and the root
_RECORDS_MAX = 16  # additional records of a query that are looked at: OPT, TSIG and nothing else is usual
_QR, _OPCODE, _TC, _RD, _RA, _CD = 0x8000, 0x7800, 0x0200, 0x0100, 0x0080, 0x0010
_DO = 0x8000  # RFC 3225, in the TTL of OPT
_EDE, _EDE_BLOCKED = 15, 15  # RFC 8914: option code; info code 4.16 "Blocked"
_TOLD_MAX = 240  # bytes of text in an answer: it has to fit beside a name of 255 bytes in 512
_PLAIN = frozenset(range(0x21, 0x7F)) - frozenset(b".\\")
# The negative answer's SOA (RFC 2308, 5): owner is the root, so that it is above every name.
_SOA_NAMES = b"\x09agentwrap\x07invalid\x00" + b"\x06denied\x09agentwrap\x07invalid\x00"


class DnsError(ValueError):
    """A message that is no question we answer. `rcode` is what it may be told; None: it gets no answer at all."""

    def __init__(self, message: str, rcode: int | None = FORMERR) -> None:
        super().__init__(message)
        self.rcode = rcode


class Query(msgspec.Struct, frozen=True):
    r"""One question. `question`: its bytes as they came, for the echo. `edns_size`: what the asker takes in bytes.

    `edns`: it was asked with EDNS. `name` is shown text, `.` for the root. `refused_as` tells what cannot be answered.
    """

    id: int
    name: str
    qtype: int
    qclass: int
    flags: int
    question: bytes
    edns: bool = False
    edns_size: int = 0
    edns_version: int = 0
    dnssec_ok: bool = False

    @property
    def qtype_name(self) -> str:
        """`A`, `HTTPS`, `TYPE4711` (RFC 3597, 5)."""
        return QTYPES.get(self.qtype, f"TYPE{self.qtype}")


def parse_query(data: bytes) -> Query:
    """The question of a message. Raises DnsError; its `rcode` goes into `format_error`."""
    if len(data) < _HEADER.size:
        raise DnsError(f"{len(data)} bytes are no header", FORMERR if len(data) >= 2 else None)
    ident, flags, questions, answers, authorities, additional = _HEADER.unpack_from(data)
    if flags & _QR:
        raise DnsError("a response, not a query", None)
    if flags & _OPCODE:
        raise DnsError(f"opcode {(flags & _OPCODE) >> 11} is not QUERY", NOTIMP)
    if questions != 1:
        raise DnsError(f"{questions} questions, not one")
    if additional > _RECORDS_MAX:
        raise DnsError(f"{additional} additional records")
    name, position = _name(data, _HEADER.size)
    if position + 4 > len(data):
        raise DnsError("the question ends early")
    qtype, qclass = struct.unpack_from("!HH", data, position)
    position += 4
    question = data[_HEADER.size : position]
    if answers or authorities > (qtype == IXFR):  # RFC 1995, 3: the version that the asker has
        raise DnsError("a question that brings answers")
    if authorities:
        _, position = _record(data, position)
    edns: tuple[int, int, bool] | None = None
    for _ in range(additional):
        found, position = _record(data, position)
        if found is not None and edns is not None:
            raise DnsError("two OPT records")
        edns = found or edns
    if position != len(data):
        raise DnsError(f"{len(data) - position} bytes after the message")
    size, version, dnssec_ok = edns or (0, 0, False)
    return Query(ident, name, qtype, qclass, flags, question, edns is not None, size, version, dnssec_ok)


def _name(data: bytes, position: int) -> tuple[str, int]:
    """An uncompressed name at `position`, as text, and where it ends."""
    labels: list[str] = []
    start = position
    while True:
        if position >= len(data):
            raise DnsError("the name ends early")
        length = data[position]
        if length & 0xC0:  # a pointer has nothing before it to point to in a first question
            raise DnsError("a name with a pointer or an unknown label type")
        position += 1
        if position + length - start > _NAME_BYTES_MAX:
            raise DnsError(f"a name of more than {_NAME_BYTES_MAX} bytes")
        if not length:
            return ".".join(labels) or ".", position
        label = data[position : position + length]
        if len(label) < length:
            raise DnsError("the name ends early")
        labels.append("".join(chr(byte) if byte in _PLAIN else f"\\{byte:03d}" for byte in label))
        position += length


def _record(data: bytes, position: int) -> tuple[tuple[int, int, bool] | None, int]:
    """A record of the additional section: what OPT says (size, version, DO), and where the record ends."""
    start = position
    if data[position : position + 1] and data[position] & 0xC0 == 0xC0:
        position += 2  # whom it is about is not asked, so the pointer is not followed
    else:
        _, position = _name(data, position)
    if position + 10 > len(data):
        raise DnsError("a record ends early")
    kind, size, extended, length = struct.unpack_from("!HHIH", data, position)
    end = position + 10 + length
    if end > len(data):
        raise DnsError("a record ends early")
    if kind != OPT:
        return None, end
    if data[start] != 0:
        raise DnsError("an OPT record with a name")
    _check_options(data[position + 10 : end])
    return (size, extended >> 16 & 0xFF, bool(extended & _DO)), end


def _check_options(data: bytes) -> None:
    """RFC 6891, 6.1.2: options fill the record exactly. Which ones (cookies, padding, subnets) is not asked."""
    position = 0
    while position < len(data):
        if position + 4 > len(data):
            raise DnsError("an EDNS option ends early")
        position += 4 + int.from_bytes(data[position + 2 : position + 4], "big")
    if position != len(data):
        raise DnsError("an EDNS option ends early")


def refused_as(query: Query) -> int | None:
    """The rcode of a question that no name server behind us could be asked; None for ordinary ones.

    BADVERS for another EDNS than 0 (RFC 6891, 6.1.3), REFUSED for another class than IN and for zone transfers, FORMERR
    for what is no type of data, NOTIMP for other meta types (RFC 6895, 3.1).
    """
    if query.edns_version:
        return BADVERS
    if query.qtype in (0, OPT):
        return FORMERR
    if query.qclass != CLASS_IN or query.qtype in (IXFR, AXFR):
        return REFUSED
    if 128 <= query.qtype < ANY:
        return NOTIMP
    return None


def udp_room(query: Query) -> int:
    """Bytes that an answer by datagram may have."""
    return min(max(query.edns_size, UDP_PLAIN), UDP_PAYLOAD)


def reply(
    query: Query,
    *,
    rcode: int,
    addresses: Sequence[IPv4Address | IPv6Address] = (),
    ttl: int = 30,
    truncate_to: int | None = None,
    told: str = "",
) -> bytes:
    """The answer to `query`: the question byte for byte, the addresses that its type asks for, EDNS if asked with it.

    Without an address a NOERROR or NXDOMAIN carries an SOA, so that it may be remembered for `ttl` seconds. `told` is
    text for a human (RFC 8914, "Blocked"). What is larger than `truncate_to` bytes loses its text, then its answers:
    then it has the TC bit.
    """
    records = _addresses(query, addresses, ttl) if rcode == NOERROR else []
    authority = [] if records or rcode not in (NOERROR, NXDOMAIN) else [_soa(ttl)]
    whole = _message(query, rcode, records, authority, told)
    if truncate_to is None or len(whole) <= truncate_to:
        return whole
    whole = _message(query, rcode, records, authority, "")
    if len(whole) <= truncate_to:
        return whole
    return _message(query, rcode, [], [], "", _TC if records else 0)


def _addresses(query: Query, addresses: Sequence[IPv4Address | IPv6Address], ttl: int) -> list[bytes]:
    records = []
    for address in addresses:
        kind = A if address.version == 4 else AAAA
        if query.qtype in (kind, ANY):
            packed = address.packed
            records.append(b"\xc0\x0c" + struct.pack("!HHIH", kind, CLASS_IN, ttl, len(packed)) + packed)
    return records


def _soa(ttl: int) -> bytes:
    data = _SOA_NAMES + struct.pack("!IIIII", 1, 3600, 600, 86400, ttl)
    return b"\x00" + struct.pack("!HHIH", SOA, CLASS_IN, ttl, len(data)) + data


def _message(
    query: Query, rcode: int, records: list[bytes], authority: list[bytes], told: str, extra_flags: int = 0
) -> bytes:
    flags = _QR | _RA | (query.flags & (_RD | _CD)) | extra_flags | (rcode & 0xF)
    opt = [_opt(query, rcode, told)] if query.edns else []
    header = _HEADER.pack(query.id, flags, 1, len(records), len(authority), len(opt))
    return b"".join([header, query.question, *records, *authority, *opt])


def _opt(query: Query, rcode: int, told: str) -> bytes:
    options = b""
    if told:
        text = told.encode("utf-8", "replace")[:_TOLD_MAX].decode("utf-8", "ignore").encode()
        options = struct.pack("!HHH", _EDE, 2 + len(text), _EDE_BLOCKED) + text
    extended = (rcode >> 4) << 24 | (_DO if query.dnssec_ok else 0)
    return b"\x00" + struct.pack("!HHIH", OPT, UDP_PAYLOAD, extended, len(options)) + options


def format_error(data: bytes, rcode: int | None = FORMERR) -> bytes | None:
    """The answer to a message that `parse_query` refused with `rcode`: a header alone. None where none may be given.

    A response is never answered: two of us would talk for ever.
    """
    if rcode is None or len(data) < 2:
        return None
    flags = int.from_bytes(data[2:4], "big") if len(data) >= 4 else 0
    if (len(data) >= 3 and data[2] & 0x80) or flags & _QR:
        return None
    flags = _QR | _RA | (flags & (_OPCODE | _RD)) | rcode & 0xF
    return _HEADER.pack(int.from_bytes(data[:2], "big"), flags, 0, 0, 0, 0)


def split_tcp(buffer: bytes) -> tuple[list[bytes], bytes]:
    """The complete messages in a stream (RFC 1035, 4.2.2) and what is left of it.

    Raises DnsError for a length above TCP_QUERY_MAX: nobody asks that much.
    """
    messages = []
    position = 0
    while position + 2 <= len(buffer):
        length = int.from_bytes(buffer[position : position + 2], "big")
        if length > TCP_QUERY_MAX:
            raise DnsError(f"a question of {length:,} bytes", None)
        if position + 2 + length > len(buffer):
            break
        messages.append(bytes(buffer[position + 2 : position + 2 + length]))
        position += 2 + length
    return messages, bytes(buffer[position:])


def frame_tcp(message: bytes) -> bytes:
    """A message with its length in front. Raises ValueError above 65,535 bytes."""
    if len(message) > 0xFFFF:
        raise ValueError(f"a message of {len(message):,} bytes")
    return len(message).to_bytes(2, "big") + message
