import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.gateway import dns
from agentwrap.gateway.dns import DnsError, format_error, frame_tcp, parse_query, refused_as, reply, split_tcp
from agentwrap.policy.hosts import HostError, parse_host

V4, V6 = IPv4Address("192.0.2.7"), IPv6Address("2001:db8::7")


def wire(*labels: bytes) -> bytes:
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def opt(size: int = 1232, *, version: int = 0, flags: int = 0, options: bytes = b"") -> bytes:
    return b"\0" + struct.pack("!HHBBHH", 41, size, 0, version, flags, len(options)) + options


def ask(
    name: bytes = wire(b"api", b"Example", b"com"),
    qtype: int = 1,
    qclass: int = 1,
    *,
    flags: int = 0x0100,
    counts: tuple[int, int, int] = (1, 0, 0),
    more: bytes = b"",
    additional: int = 0,
) -> bytes:
    return struct.pack("!HHHHHH", 0xBEEF, flags, *counts, additional) + name + struct.pack("!HH", qtype, qclass) + more


def test_a_plain_question() -> None:
    query = parse_query(ask())
    assert (query.id, query.name, query.qtype_name, query.qclass) == (0xBEEF, "api.Example.com", "A", 1)
    assert (query.edns, query.edns_size) == (False, 0)
    assert query.question == ask()[12:]


def test_a_question_with_edns_and_a_cookie() -> None:
    cookie = struct.pack("!HH", 10, 8) + b"12345678"
    query = parse_query(ask(more=opt(4096, flags=0x8000, options=cookie), additional=1))
    assert (query.edns, query.edns_size, query.edns_version, query.dnssec_ok) == (True, 4096, 0, True)


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        ((), "."),
        ((b"a",), "a"),
        ((b"xn--bcher-kva", b"example"), "xn--bcher-kva.example"),
        ((b"a.b", b"c"), "a\\046b.c"),
        ((b"a\\b",), "a\\092b"),
        ((b"a b\0\xff",), "a\\032b\\000\\255"),
        ((b"b\xc3\xbccher",), "b\\195\\188cher"),
        ((b"_dmarc", b"x" * 63), "_dmarc." + "x" * 63),
    ],
)
def test_names_are_shown_without_odd_bytes(labels: tuple[bytes, ...], shown: str) -> None:
    assert parse_query(ask(wire(*labels))).name == shown


def test_an_odd_byte_never_becomes_a_host_name() -> None:
    """A dot inside a label must not look like two labels to the policy."""
    with pytest.raises(HostError):
        parse_host(parse_query(ask(wire(b"evil", b"api.example.com"))).name)


@pytest.mark.parametrize(
    ("data", "why", "rcode"),
    [
        (b"", "0 bytes", None),
        (b"\1", "1 bytes", None),
        (b"\1\2", "2 bytes", dns.FORMERR),
        (ask()[:11], "11 bytes", dns.FORMERR),
        (ask(flags=0x8100), "a response", None),
        (ask(flags=0x1000), "opcode 2", dns.NOTIMP),
        (ask(flags=0x2800), "opcode 5", dns.NOTIMP),
        (ask(counts=(0, 0, 0)), "0 questions", dns.FORMERR),
        (ask(counts=(2, 0, 0), more=wire(b"b") + b"\0\1\0\1"), "2 questions", dns.FORMERR),
        (ask(counts=(1, 1, 0)), "brings answers", dns.FORMERR),
        (ask(counts=(1, 0, 1)), "brings answers", dns.FORMERR),
        (ask(qtype=251, counts=(1, 0, 2)), "brings answers", dns.FORMERR),
        (ask(b"\xc0\x0c"), "a pointer", dns.FORMERR),
        (ask(b"\1a\xc0\x0c"), "a pointer", dns.FORMERR),
        (ask(b"\x41aaa\0"), "unknown label type", dns.FORMERR),
        (ask(b"\x80"), "unknown label type", dns.FORMERR),
        (ask(wire(*[b"x" * 63] * 4)), "255 bytes", dns.FORMERR),
        (ask(wire(*[b"a"] * 128)), "255 bytes", dns.FORMERR),
        (ask()[:-3], "question ends early", dns.FORMERR),
        (ask()[:20], "name ends early", dns.FORMERR),
        (ask(b"\x3fabc")[:16], "name ends early", dns.FORMERR),
        (ask(more=b"x"), "1 bytes after", dns.FORMERR),
        (ask(more=opt(), additional=0), "11 bytes after", dns.FORMERR),
        (ask(additional=1), "name ends early", dns.FORMERR),
        (ask(more=opt()[:5], additional=1), "record ends early", dns.FORMERR),
        (ask(more=opt(options=b"xx")[:-1], additional=1), "record ends early", dns.FORMERR),
        (ask(more=opt() * 2, additional=2), "two OPT", dns.FORMERR),
        (ask(more=b"\1a" + opt(), additional=1), "OPT record with a name", dns.FORMERR),
        (ask(more=b"\xc0\x0c" + opt()[1:], additional=1), "OPT record with a name", dns.FORMERR),
        (ask(more=opt(options=b"\0\x0a\0"), additional=1), "option ends early", dns.FORMERR),
        (ask(more=opt(options=b"\0\x0a\0\x09x"), additional=1), "option ends early", dns.FORMERR),
        (ask(additional=0xFFFF), "65535 additional", dns.FORMERR),
    ],
)
def test_what_is_no_question(data: bytes, why: str, rcode: int | None) -> None:
    with pytest.raises(DnsError, match=why) as told:
        parse_query(data)
    assert told.value.rcode == rcode
    answer = format_error(data, told.value.rcode)
    if rcode is None:
        assert answer is None
    else:
        assert answer is not None
        assert answer[:2] == data[:2]
        assert answer[3] & 0xF == rcode
        assert answer[2] & 0x80
        assert len(answer) == 12


def test_the_longest_name_passes() -> None:
    name = wire(*[b"x" * 63] * 3, b"y" * 61)
    assert len(name) == 255
    assert len(parse_query(ask(name)).name) == 253


def test_other_additional_records_are_skipped() -> None:
    tsig = wire(b"key") + struct.pack("!HHIH", 250, 255, 0, 4) + b"abcd"
    pointed = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 0, 4) + b"abcd"
    query = parse_query(ask(more=tsig + opt() + pointed, additional=3))
    assert query.edns_size == 1232


def test_a_transfer_brings_the_version_it_has() -> None:
    soa = b"\xc0\x0c" + struct.pack("!HHIH", 6, 1, 0, 4) + b"abcd"
    assert parse_query(ask(qtype=251, counts=(1, 0, 1), more=soa)).qtype_name == "IXFR"


@pytest.mark.parametrize(
    ("data", "rcode"),
    [
        (ask(), None),
        (ask(qtype=28), None),
        (ask(qtype=65), None),
        (ask(qtype=255), None),
        (ask(qtype=4711), None),
        (ask(qclass=3), dns.REFUSED),
        (ask(qclass=255), dns.REFUSED),
        (ask(qtype=252), dns.REFUSED),
        (ask(qtype=253), dns.NOTIMP),
        (ask(qtype=249), dns.NOTIMP),
        (ask(qtype=0), dns.FORMERR),
        (ask(qtype=41), dns.FORMERR),
        (ask(more=opt(version=1), additional=1), dns.BADVERS),
    ],
)
def test_questions_that_nobody_behind_us_is_asked(data: bytes, rcode: int | None) -> None:
    assert refused_as(parse_query(data)) == rcode


def sections(data: bytes) -> tuple[int, tuple[int, int, int, int], bytes]:
    """Flags, counts and everything behind the header."""
    _, flags, *counts = struct.unpack_from("!HHHHHH", data)
    return flags, (counts[0], counts[1], counts[2], counts[3]), data[12:]


@pytest.mark.parametrize(
    ("qtype", "answers"),
    [(1, [V4.packed]), (28, [V6.packed]), (255, [V4.packed, V6.packed]), (16, []), (65, [])],
)
def test_only_the_addresses_that_were_asked_for(qtype: int, answers: list[bytes]) -> None:
    query = parse_query(ask(qtype=qtype))
    flags, counts, rest = sections(reply(query, rcode=0, addresses=[V4, V6]))
    assert flags == 0x8180
    assert counts == (1, len(answers), 0 if answers else 1, 0)
    assert rest.startswith(query.question)
    for address in answers:
        kind = 1 if len(address) == 4 else 28
        assert b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 30, len(address)) + address in rest


@pytest.mark.parametrize(("rcode", "authority"), [(0, 1), (3, 1), (2, 0), (5, 0), (4, 0)])
def test_negative_answers_may_be_remembered(rcode: int, authority: int) -> None:
    flags, counts, rest = sections(reply(parse_query(ask()), rcode=rcode, ttl=7))
    assert flags & 0xF == rcode
    assert counts == (1, 0, authority, 0)
    assert rest.endswith(struct.pack("!I", 7)) == bool(authority)  # RFC 2308: the minimum of the SOA


def test_addresses_go_only_with_noerror() -> None:
    assert V4.packed not in reply(parse_query(ask()), rcode=3, addresses=[V4])


def test_badvers_is_told_in_two_places() -> None:
    query = parse_query(ask(more=opt(version=1), additional=1))
    answer = reply(query, rcode=dns.BADVERS)
    assert answer[3] & 0xF == 0
    assert answer.endswith(b"\0" + struct.pack("!HHBBHH", 41, 1232, 1, 0, 0, 0))


def test_what_does_not_fit_is_left_out_and_said() -> None:
    query = parse_query(ask())
    many = [IPv4Address(0xC0000200 + number) for number in range(100)]
    whole = reply(query, rcode=0, addresses=many)
    assert len(whole) > 1600
    assert reply(query, rcode=0, addresses=many, truncate_to=len(whole)) == whole
    flags, counts, _ = sections(reply(query, rcode=0, addresses=many, truncate_to=512))
    assert flags & 0x0200
    assert counts == (1, 0, 0, 0)


def test_the_text_is_the_first_to_go() -> None:
    query = parse_query(ask(more=opt(512), additional=1))
    long = reply(query, rcode=3, told="agentwrap " * 50)
    assert b"agentwrap agentwrap" in long
    assert len(long) < 512
    short = reply(query, rcode=3, told="agentwrap " * 50, truncate_to=200)
    assert b"agentwrap agentwrap" not in short
    assert not short[2] & 0x02
    assert reply(parse_query(ask()), rcode=3, told="x") == reply(parse_query(ask()), rcode=3)


def test_text_is_cut_between_characters() -> None:
    query = parse_query(ask(more=opt(), additional=1))
    told = reply(query, rcode=3, told="\u20ac" * 300).rsplit(b"\0\x0f", 1)[1]
    assert told.decode() == "\u20ac" * 80


@pytest.mark.parametrize(
    ("size", "room"), [(None, 512), (0, 512), (100, 512), (1000, 1000), (1232, 1232), (65535, 1232)]
)
def test_room_of_a_datagram(size: int | None, room: int) -> None:
    data = ask() if size is None else ask(more=opt(size), additional=1)
    assert dns.udp_room(parse_query(data)) == room


def test_messages_of_a_stream() -> None:
    stream = frame_tcp(b"one") + frame_tcp(b"") + frame_tcp(b"three") + b"\0\5fo"
    for cut in range(len(stream) + 1):
        first, rest = split_tcp(stream[:cut])
        second, rest = split_tcp(rest + stream[cut:])
        assert (first + second, rest) == ([b"one", b"", b"three"], b"\0\5fo")


def test_a_stream_that_announces_too_much() -> None:
    with pytest.raises(DnsError):
        split_tcp(b"\xff\xff")
    with pytest.raises(ValueError, match="65,536"):
        frame_tcp(bytes(65536))


labels = st.lists(st.binary(min_size=1, max_size=63), max_size=6).filter(lambda one: sum(map(len, one)) < 240)


@given(labels, st.integers(0, 65535), st.integers(0, 65535), st.integers(0, 65535), st.booleans())
def test_every_question_comes_back_as_it_was(
    name: list[bytes], ident: int, qtype: int, size: int, with_edns: bool
) -> None:
    data = ask(wire(*name), qtype, more=opt(size) if with_edns else b"", additional=with_edns)
    query = parse_query(struct.pack("!H", ident) + data[2:])
    assert query.id == ident
    answer = reply(query, rcode=0, addresses=[V4, V6], truncate_to=dns.udp_room(query))
    assert answer[12:].startswith(wire(*name) + struct.pack("!HH", qtype, 1))
    assert len(answer) <= 512
    assert query.name.isascii()
    assert query.name.isprintable()


@given(st.binary(max_size=600))
def test_random_bytes(data: bytes) -> None:
    check(data)


@given(st.data())
def test_bent_questions(draw: st.DataObject) -> None:
    whole = bytearray(ask(more=opt(options=struct.pack("!HH", 10, 8) + b"12345678"), additional=1))
    for _ in range(draw.draw(st.integers(1, 4))):
        whole[draw.draw(st.integers(0, len(whole) - 1))] = draw.draw(st.integers(0, 255))
    check(bytes(whole[: draw.draw(st.integers(0, len(whole)))]))


def check(data: bytes) -> None:
    try:
        query = parse_query(data)
    except DnsError as error:
        answer = format_error(data, error.rcode)
        assert answer is None or len(answer) == 12
        if len(data) > 2 and data[2] & 0x80:
            assert answer is None
    else:
        assert len(reply(query, rcode=0, addresses=[V4] * 100, truncate_to=512, told="x" * 999)) <= 512


@given(st.binary(max_size=300))
def test_random_streams(data: bytes) -> None:
    try:
        messages, rest = split_tcp(data)
    except DnsError:
        return
    assert b"".join(map(frame_tcp, messages)) + rest == data


def answer_to(data: bytes) -> bytes | None:
    try:
        query = parse_query(data)
    except DnsError as error:
        return format_error(data, error.rcode)
    refused = refused_as(query)
    if refused is not None:
        return reply(query, rcode=refused)
    if query.name.lower() == "denied.example":
        return reply(query, rcode=dns.NXDOMAIN, told="agentwrap denied it")
    if query.name.lower() == "large.example":
        return reply(query, rcode=0, addresses=[V4] * 90, truncate_to=dns.udp_room(query))
    return reply(query, rcode=0, addresses=[V4, V6])


def by_datagram(server: socket.socket) -> None:
    while True:
        data, peer = server.recvfrom(65536)
        if data == b"stop":
            return
        answer = answer_to(data)
        if answer is not None:
            server.sendto(answer, peer)


def by_stream(server: socket.socket) -> None:
    while True:
        client, _ = server.accept()
        with client:
            rest = b""
            while piece := client.recv(3):
                if rest + piece == b"sto":
                    return
                messages, rest = split_tcp(rest + piece)
                for message in messages:
                    query = answer_to(message)
                    if query is not None:
                        client.sendall(frame_tcp(query if not query[2] & 2 else large(message)))


def large(message: bytes) -> bytes:
    return reply(parse_query(message), rcode=0, addresses=[V4] * 90)


def bound_alike() -> tuple[socket.socket, socket.socket]:
    """Two sockets with one number: a port that is free for datagrams may be somebody's for streams."""
    while True:
        datagrams, streams = socket.socket(type=socket.SOCK_DGRAM), socket.socket()
        streams.bind(("127.0.0.1", 0))
        try:
            datagrams.bind(streams.getsockname())
            return datagrams, streams
        except OSError:
            datagrams.close()
            streams.close()


@contextmanager
def served() -> Iterator[int]:
    """A name server on a port of loopback that answers with what is tested here, by datagram and by stream."""
    datagrams, streams = bound_alike()
    with datagrams, streams:
        port = datagrams.getsockname()[1]
        streams.listen()
        threads = [
            threading.Thread(target=by_datagram, args=[datagrams]),
            threading.Thread(target=by_stream, args=[streams]),
        ]
        for thread in threads:
            thread.start()
        try:
            yield port
        finally:
            datagrams.sendto(b"stop", ("127.0.0.1", port))
            with socket.create_connection(("127.0.0.1", port)) as last:
                last.sendall(b"sto")
            for thread in threads:
                thread.join()


DIG = [
    ("api.example.com", ["status: NOERROR", "ANSWER: 1", "192.0.2.7"]),
    ("aPi.eXample.com AAAA", ["status: NOERROR", "2001:db8::7", "aPi.eXample.com."]),
    ("api.example.com ANY", ["ANSWER: 2", "192.0.2.7", "2001:db8::7"]),
    ("api.example.com ANY +notcp", ["ANSWER: 2"]),
    ("api.example.com TXT", ["status: NOERROR", "ANSWER: 0", "agentwrap.invalid."]),
    ("api.example.com HTTPS", ["status: NOERROR", "ANSWER: 0"]),
    ("api.example.com TYPE4711", ["status: NOERROR", "ANSWER: 0"]),
    ("denied.example", ["status: NXDOMAIN", "EDE: 15 (Blocked): (agentwrap denied it)", "denied.agentwrap.invalid."]),
    ("denied.example +noedns", ["status: NXDOMAIN", "AUTHORITY: 1"]),
    ("api.example.com +tcp", ["192.0.2.7", "(TCP)"]),
    ("api.example.com api.example.com AAAA +tcp +keepopen", ["192.0.2.7", "2001:db8::7"]),
    ("large.example", ["Truncated, retrying in TCP mode", "ANSWER: 90"]),
    ("large.example +ignore", ["flags: qr tc rd", "ANSWER: 0"]),
    ("-x 192.0.2.7", ["7.2.0.192.in-addr.arpa", "status: NOERROR"]),
    ("version.bind CH TXT", ["status: REFUSED"]),
    ("example.com AXFR", ["Transfer failed"]),
    ("example.com IXFR=1 +notcp", ["status: REFUSED"]),
    ("api.example.com +opcode=STATUS", ["opcode: STATUS, status: NOTIMP"]),
    ("api.example.com +opcode=UPDATE", ["opcode: UPDATE, status: NOTIMP"]),
    ("api.example.com +edns=1 +noednsneg", ["status: BADVERS"]),
    ("api.example.com +edns=1", ["192.0.2.7", "BADVERS, retrying with EDNS version 0"]),
    ("api.example.com +dnssec", ["flags: do", "192.0.2.7"]),
    ("api.example.com +cookie=1122334455667788", ["192.0.2.7"]),
    ("api.example.com +subnet=192.0.2.0/24 +nsid +expire +padding=64", ["192.0.2.7"]),
    ("api.example.com +ednsopt=65001:beef +bufsize=100", ["192.0.2.7"]),
    ("api.example.com +norecurse +cdflag +adflag", ["flags: qr ra cd;", "192.0.2.7"]),
    ("+header-only", ["status: FORMERR"]),
    ("a\\.b\\000c.example", ["a\\.b\\000c.example.", "192.0.2.7"]),
    (". NS", ["status: NOERROR", "AUTHORITY: 1"]),
    ("x" * 63 + ".example", ["192.0.2.7"]),
]


@pytest.mark.skipif(shutil.which("dig") is None, reason="dig is not installed")
def test_dig_in_all_its_forms() -> None:
    with served() as port:
        for form, expected in DIG:
            command = ["dig", "@127.0.0.1", "-p", str(port), "+tries=1", "+timeout=300", "+comments", *form.split()]
            shown = subprocess.run(command, capture_output=True, text=True, timeout=300).stdout
            for text in expected:
                assert text in shown, (form, shown)
            assert "malformed" not in shown.lower(), (form, shown)
            assert "WARNING: recursion" not in shown, (form, shown)
