import socket
import ssl

import pytest
from gateway.hellos import client, extension, message, name_extension, records, vector
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.gateway.client_hello import (
    HELLO_MAX,
    NEED_MORE,
    Hello,
    HelloReader,
    NeedMore,
    TlsError,
    alert_access_denied,
    parse,
)


def read_in_pieces(data: bytes, *cuts: int) -> Hello | NeedMore:
    reader = HelloReader()
    told: Hello | NeedMore = NEED_MORE
    for start, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        told = reader.feed(data[start:end])
        if isinstance(told, Hello):
            break
    return told


@pytest.mark.parametrize("name", ["api.example.com", "xn--bcher-kva.example", "a" * 63 + ".example", None])
@pytest.mark.parametrize("alpn", [(), ("h2",), ("h2", "http/1.1"), ("http/1.1",), ("x" * 255,)])
def test_what_a_client_says(name: str | None, alpn: tuple[str, ...]) -> None:
    hello = parse(client(name, alpn))
    assert hello == Hello(name, tuple(one.encode() for one in alpn), ech=False, versions=(0x0304, 0x0303))


def test_an_older_client() -> None:
    hello = parse(client(newest=ssl.TLSVersion.TLSv1_2))
    assert hello == Hello("api.example.com", versions=(0x0303,))


def test_an_address_is_no_server_name() -> None:
    """RFC 6066, 3: literal addresses are not permitted; clients leave the extension away."""
    assert parse(client("192.0.2.1")) == Hello(None, versions=(0x0304, 0x0303))


@pytest.mark.parametrize(
    "data", [client(alpn=("h2",)), records(message(name_extension(b"a.example")), 1), records(client()[5:], 100)]
)
def test_split_anywhere(data: bytes) -> None:
    whole = parse(data)
    assert isinstance(whole, Hello)
    for cut in range(len(data)):
        assert parse(data[:cut]) == NEED_MORE
        assert read_in_pieces(data, cut) == whole
    assert read_in_pieces(data, *range(1, len(data))) == whole


def test_what_follows_in_other_records_is_left() -> None:
    assert parse(client() + b"\x14\3\3\0\1\1" + b"\xff" * 100) == parse(client())


def test_grease_and_unknown_extensions_are_skipped() -> None:
    data = message(
        extension(0x2A2A, b""),
        name_extension(b"a.example"),
        extension(43, vector(1, b"\x5a\x5a\3\4\3\3")),
        extension(16, vector(2, vector(1, b"\x8a\x8a") + vector(1, b"h2"))),
        extension(0xFE0D, b"\0" * 40),
        extension(0x4A4A, b"\0"),
    )
    assert parse(records(data)) == Hello("a.example", (b"\x8a\x8a", b"h2"), ech=True, versions=(0x0304, 0x0303))


def test_a_hello_of_the_nineties() -> None:
    assert parse(records(message(version=b"\3\0", session=b"", without_extensions=True))) == Hello(versions=(0x0300,))


@pytest.mark.parametrize("size", [100, 1 << 14])
def test_a_large_hello(size: int) -> None:
    data = message(name_extension(b"a.example"), extension(21, bytes(60_000)))
    assert parse(records(data, size)) == Hello("a.example", versions=(0x0303,))


def test_a_name_that_is_not_ascii_is_shown_escaped() -> None:
    assert parse(records(message(name_extension(b"b\xfccher.example")))) == Hello(
        "b\\xfccher.example", versions=(0x0303,)
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x80\x2e\1\3\1", "type 128"),
        (b"\x15\3\3\0\2\1\0", "type 21"),
        (b"GET / HTTP/1.1\r\n", "type 71"),
        (b"\x16\2\0", "record version 2"),
        (b"\x16\3\1\0\0", "record of 0 bytes"),
        (b"\x16\3\1\x40\1", "record of 16,385 bytes"),
        (records(b"\2\0\0\4abcd"), "type 2, not"),
        (records(b"\1\1\0\1"), "ClientHello of 65,537 bytes"),
        (records(b"\1\xff\xff\xff"), "ClientHello of 16,777,215 bytes"),
        (records(message() + b"x"), "follows the ClientHello"),
        (records(message() + message()), "follows the ClientHello"),
        (records(b"\1\0\0\0"), "ends early"),
        (records(b"\1\0\0\5abcde"), "ends early"),
        (records(message(session=b"s" * 33)), "session id"),
        (records(message(suites=b"")), "cipher suites"),
        (records(message(suites=b"abc")), "cipher suites"),
        (records(message(compression=b"")), "compression"),
        (records(message(after=b"x")), "bytes after the extensions"),
        (records(message(after=b"x", without_extensions=True)), "ends early"),
        (records(message(b"\0")), "ends early"),
        (records(message(b"\0\0\0\5abc")), "ends early"),
        (records(message(name_extension(b"a"), name_extension(b"b"))), "extension 0 twice"),
        (records(message(extension(43, b"\2\3\4"), extension(43, b"\2\3\4"))), "extension 43 twice"),
        (records(message(extension(0x0A0A, b""), extension(0x0A0A, b""))), "twice"),
        (records(message(name_extension(b"a", b"b"))), "exactly one host name"),
        (records(message(name_extension(b"a", kind=1))), "exactly one host name"),
        (records(message(name_extension())), "server_name"),
        (records(message(name_extension(b""))), "empty or has a NUL"),
        (records(message(name_extension(b"good.example\0.evil.example"))), "empty or has a NUL"),
        (records(message(extension(0, b""))), "ends early"),
        (records(message(extension(0, b"\0\0"))), "broken server_name"),
        (records(message(extension(0, vector(2, b"\0\0\1a") + b"x"))), "broken server_name"),
        (records(message(extension(0, b"\0\x09\0\0\1a"))), "ends early"),
        (records(message(extension(16, vector(2, b"")))), "broken ALPN"),
        (records(message(extension(16, vector(2, b"\0")))), "empty protocol"),
        (records(message(extension(16, vector(2, b"\3h2")))), "ends early"),
        (records(message(extension(43, vector(1, b"\3\4\3")))), "supported_versions"),
        (records(message(extension(43, vector(1, b"")))), "supported_versions"),
    ],
)
def test_what_is_no_hello(data: bytes, why: str) -> None:
    with pytest.raises(TlsError, match=why):
        parse(data)
    with pytest.raises(TlsError, match=why):
        read_in_pieces(data, *range(1, len(data)))


def test_what_is_held_is_bounded() -> None:
    reader = HelloReader()
    reader.feed(b"\x16\3\1" + vector(2, b"\1\1\0\0"))  # announces HELLO_MAX bytes
    for _ in range(HELLO_MAX >> 14):
        assert reader.feed(b"\x16\3\1" + vector(2, bytes((1 << 14) - 1))) == NEED_MORE
    with pytest.raises(TlsError, match="follows"):
        reader.feed(b"\x16\3\1" + vector(2, bytes(1 << 14)))


@given(st.binary(max_size=400))
def test_random_bytes(data: bytes) -> None:
    for start in (b"", b"\x16\3\1", records(b"\1\0\0\xff")):
        try:
            parse(start + data)
        except TlsError:
            pass


@given(st.data())
def test_bent_hellos(draw: st.DataObject) -> None:
    whole = bytearray(client(alpn=("h2",)))
    for _ in range(draw.draw(st.integers(1, 4))):
        whole[draw.draw(st.integers(0, len(whole) - 1))] = draw.draw(st.integers(0, 255))
    cut = draw.draw(st.integers(0, len(whole)))
    told: list[Hello | NeedMore | str] = []
    for cuts in ((), (cut,)):
        try:
            told.append(read_in_pieces(bytes(whole), *cuts))
        except TlsError as error:
            told.append(str(error))
    assert told[0] == told[1]


names = st.text("abcxyz0189-_", min_size=1, max_size=20)


@given(names, st.lists(st.binary(min_size=1, max_size=20), max_size=4), st.booleans(), st.integers(1, 300))
def test_what_goes_in_comes_out(name: str, alpn: list[bytes], ech: bool, size: int) -> None:
    extensions = [name_extension(name.encode())]
    if alpn:
        extensions.append(extension(16, vector(2, b"".join(vector(1, one) for one in alpn))))
    if ech:
        extensions.append(extension(0xFE0D, b"\1\2"))
    hello = parse(records(message(*extensions), size))
    assert hello == Hello(name, tuple(alpn), ech, (0x0303,))


def test_a_client_understands_the_alert() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(alert_access_denied())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with pytest.raises(ssl.SSLError, match=r"(?i)access.denied"):
            context.wrap_socket(theirs, server_hostname="api.example.com")
