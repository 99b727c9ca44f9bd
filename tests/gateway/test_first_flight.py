import pytest
from gateway.hellos import client, message, records
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.gateway.client_hello import NEED_MORE, NeedMore
from agentwrap.gateway.first_flight import (
    FLIGHT_MAX,
    H2_PREFACE,
    LINE_MAX,
    FirstFlight,
    Flight,
    Malformed,
    Other,
    Tls,
)


def seen(*pieces: bytes) -> Flight:
    """What is said first, and nothing if nothing is said."""
    flight = FirstFlight()
    for number, piece in enumerate(pieces):
        told = flight.feed(piece)
        if not isinstance(told, NeedMore):
            assert bytes(flight.data) == b"".join(pieces[: number + 1])
            return told
    return NEED_MORE


def kind(told: Flight) -> str:
    if isinstance(told, Other):
        return f"other {told.reason}"
    return f"malformed {told.protocol}" if isinstance(told, Malformed) else type(told).__name__


BEGINNINGS = [
    (client(), "Tls"),
    (client(None), "Tls"),
    (records(client()[5:], 7), "Tls"),
    (b"GET / HTTP/1.1\r\n", "Http"),
    (b"POST /x HTTP/1.1\r\n", "Http"),
    (b"PUT /x HTTP/1.1\r\n", "Http"),
    (b"PROPFIND / HTTP/1.1\r\n", "Http"),
    (b"CONNECT a.example:443 HTTP/1.1\r\n", "Http"),
    (b"OPTIONS * HTTP/1.1\r\n", "Http"),
    (b"get / HTTP/1.1\r\n", "Http"),
    (b"GET\t/ HTTP/1.1\r\n", "Http"),
    (b"GET\x0b/ HTTP/1.1\r\n", "Http"),
    (b"\r\nGET / HTTP/1.1\r\n", "Http"),
    (b"\n\n\r\nGET / HTTP/1.1\r\n", "Http"),
    (b" \t GET / HTTP/1.1\r\n", "Http"),
    (b"PURGE /x HTTP/1.1\r\n", "Http"),
    (b"M-SEARCH * HTTP/1.1\r\n", "Http"),
    (b"X" * 100 + b" /x http/1.0\n", "Http"),
    (b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", "Http"),
    (b"PRIV x HTTP/1.1\r\n", "Http"),
    (b"SSH /x HTTP/1.1\r\n", "Http"),
    (H2_PREFACE, "H2PriorKnowledge"),
    (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", "other ssh"),
    (b"NICK somebody\r\n", "other text"),
    (b"EHLO there\r\n", "other text"),
    (b"OPTIONS rtsp://a.example/x RTSP/1.0\r\n", "other text"),
    (b"REGISTER sip:a.example SIP/2.0\r\n", "other text"),
    (b"PING\r\n", "other text"),
    (b"*1\r\n$4\r\nPING\r\n", "other text"),
    (b"@RSYNCD: 31.0\n", "other text"),
    (b"<stream:stream>", "other text"),
    (b'{"jsonrpc": "2.0"}', "other text"),
    (b"0032git-upload-pack /project.git\0host=a.example\0", "other binary"),
    (b"\0\0\0\x08\4\xd2\x16\x2f", "other binary"),  # PostgreSQL, SSLRequest
    (b"\x03\0\0\x13\x0e\xe0", "other binary"),  # RDP
    (b"\x16\x02abc", "other binary"),
    (b"\x15\3\3\0\2\1\0", "other binary"),
    (b"\xff\xff\xff\xff", "other binary"),
    (b"\x80\x2e\1\7\1", "other binary"),
    (b"\x80\x2e\1\0\3", "other binary"),
    (b"GE\0", "other binary"),
    (b"a" * 280, "other text"),
    (b"a" * 257 + b" / HTTP/1.1\r\n", "other text"),
    (b"\x80\x2e\1\0\2\0\x15\0\0\0\x10", "malformed tls"),
    (b"\x80\x2e\1\3\1\0\x15\0\0\0\x10", "malformed tls"),
    (b"\x16\3\1\0\0", "malformed tls"),
    (records(message(suites=b"")), "malformed tls"),
    (b"\r\n" * 20, "malformed http"),
]


@pytest.mark.parametrize(("data", "expected"), BEGINNINGS)
def test_how_connections_begin(data: bytes, expected: str) -> None:
    assert kind(seen(data)) == expected


@pytest.mark.parametrize(("data", "expected"), BEGINNINGS)
def test_pieces_make_no_difference(data: bytes, expected: str) -> None:
    for cut in range(1, min(len(data), 300)):
        assert kind(seen(data[:cut], data[cut:])) == expected, cut
    assert kind(seen(*(data[at : at + 1] for at in range(len(data))))) == expected


def test_the_hello_comes_with_it() -> None:
    told = seen(client("a.example", ("h2",)))
    assert isinstance(told, Tls)
    assert (told.hello.sni, told.hello.alpn) == ("a.example", (b"h2",))


@pytest.mark.parametrize(
    "data", [b"G", b"GET", b"PRI * HT", b"\x16", b"\x16\3\1", client()[:-1], b"SS", b"\r\n", b"FOO bar", b"\x80\x2e\1"]
)
def test_what_may_still_be_one_or_the_other(data: bytes) -> None:
    assert seen(data) == NEED_MORE
    assert seen(b"", data, b"") == NEED_MORE


def test_what_may_be_shown_to_a_server_before_it_is_known() -> None:
    for data, harmless in (
        (b"JDWP-Handshake", True),
        (b"FOO http://b.example/", True),
        (b"\x16", False),
        (client()[:-1], False),
    ):
        flight = FirstFlight()
        assert flight.feed(data) == NEED_MORE
        assert flight.harmless is harmless


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "other empty"),
        (b"GE", "other text"),
        (b"\r\n", "other text"),
        (b"FOO bar", "other text"),
        (b"PRI * HT", "other text"),
        (b"\x80\x2e\1", "other binary"),
        (b"\x16", "malformed tls"),
        (client()[:-1], "malformed tls"),
    ],
)
def test_a_client_that_closes_early(data: bytes, expected: str) -> None:
    flight = FirstFlight()
    assert flight.feed(data) == NEED_MORE
    assert kind(flight.eof()) == expected


def test_what_is_held_is_bounded() -> None:
    flight = FirstFlight()
    tiny = records(message(), 1)
    assert flight.feed(b"\x16\3\1\0\4\1\0\xff\xff") == NEED_MORE
    told: Flight = NEED_MORE
    while isinstance(told, NeedMore):
        told = flight.feed(tiny)
    assert kind(told) == "malformed tls"
    assert len(flight.data) <= FLIGHT_MAX + len(tiny)
    flight = FirstFlight()
    told = flight.feed(b"FOO ")
    while isinstance(told, NeedMore):
        told = flight.feed(b"x" * 100)
    assert kind(told) == "malformed http"
    assert len(flight.data) <= LINE_MAX + 200


@given(st.binary(max_size=200), st.integers(0, 200))
def test_random_bytes(data: bytes, cut: int) -> None:
    for start in (b"", b"\x16\3", b"GET", b"\r\n", b"FOO ", b"PRI * ", b"SSH", b"\x80"):
        whole = start + data
        assert kind(seen(whole[:cut], whole[cut:])) in (
            kind(seen(whole)),
            *(["other text", "other binary"] if kind(seen(whole)).startswith("other") else []),
        )
        flight = FirstFlight()
        if flight.feed(whole) == NEED_MORE:
            assert not isinstance(flight.eof(), NeedMore)
