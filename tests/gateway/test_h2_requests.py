import struct
from itertools import pairwise

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.gateway.first_flight import H2_PREFACE
from agentwrap.gateway.h2_requests import TABLE_MAX, H2RequestStream
from agentwrap.gateway.http_head import HEAD_MAX, Forward, HttpError, Item, Request

HEADERS, CONTINUATION, DATA, SETTINGS = 1, 9, 0, 4
END, PADDED, PRIORITY = 4, 8, 0x20


def frame(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + struct.pack("!I", stream) + payload


class Client:
    """What a client sends, with one compression table."""

    def __init__(self) -> None:
        self.encoder = hpack.Encoder()

    def block(self, *fields: tuple[str, str], **pseudo: str) -> bytes:
        whole = {"method": "GET", "scheme": "http", "path": "/", "authority": "a.example"} | pseudo
        return self.encoder.encode([*((f":{name}", value) for name, value in whole.items() if value), *fields])

    def get(self, stream: int, *fields: tuple[str, str], **pseudo: str) -> bytes:
        return frame(HEADERS, self.block(*fields, **pseudo), flags=END, stream=stream)


START = H2_PREFACE + frame(SETTINGS, b"\0\3\0\0\0\x64")


def run(*pieces: bytes) -> tuple[list[str], bytes]:
    """Everything accepted: the hosts, and what went on."""
    stream = H2RequestStream()
    hosts: list[str] = []
    sent = b""
    for piece in pieces:
        items: list[Item] = stream.feed(piece)
        while items:
            item = items.pop(0)
            if isinstance(item, Forward):
                sent += item.data
                continue
            hosts.append(item.host)
            sent += item.raw
            items += stream.accept()
    return hosts, sent


def conversation() -> bytes:
    client = Client()
    first, second = client.get(1), client.get(3, ("te", "trailers"), authority="B.Example")
    trailers = frame(HEADERS, client.encoder.encode([("grpc-status", "0")]), flags=END | 1, stream=3)
    block = client.block(("x", "y" * 50), authority="c.example:8080")
    return b"".join(
        [
            START,
            first,
            frame(DATA, b"z" * 100, stream=1),
            second,
            trailers,
            frame(HEADERS, b"\3\0\0\0\1\x10" + block[:7] + bytes(3), flags=PADDED | PRIORITY, stream=5),
            frame(CONTINUATION, block[7:30], stream=5),
            frame(CONTINUATION, block[30:], flags=END, stream=5),
            frame(6, bytes(8)),
            frame(99, b"unknown", stream=7),
            client.get(7),
        ]
    )


def test_every_request_is_judged_wherever_it_is_split() -> None:
    data = conversation()
    whole = run(data)
    assert whole == (["a.example", "b.example", "c.example", "a.example"], data)
    for cut in range(len(data)):
        assert run(data[:cut], data[cut:]) == whole, cut
    assert run(*(data[at : at + 1] for at in range(len(data)))) == whole


def test_nothing_of_a_request_goes_on_before_it_is_accepted() -> None:
    stream = H2RequestStream()
    before, request = stream.feed(conversation())
    assert before == Forward(START)
    assert isinstance(request, Request)
    assert (request.method, request.target, request.host, request.port) == (b"GET", b"/", "a.example", None)
    assert not stream.wants_data
    with pytest.raises(ValueError, match="judging"):
        stream.feed(b"x")
    data, second = stream.accept()
    assert data == Forward(frame(DATA, b"z" * 100, stream=1))
    assert isinstance(second, Request)
    assert second.host == "b.example"


def test_accept_without_a_request() -> None:
    with pytest.raises(ValueError, match="no request"):
        H2RequestStream().accept()


def test_a_large_frame_is_not_kept() -> None:
    stream = H2RequestStream()
    stream.feed(START + frame(DATA, bytes(0xFFFFFF), stream=1)[:9])
    piece = bytes(1 << 16)
    for _ in range(255):
        (item,) = stream.feed(piece)
        assert isinstance(item, Forward)
        assert item.data is piece


def test_other_kinds_of_requests() -> None:
    stream = H2RequestStream()
    client = Client()
    _, item = stream.feed(START + client.get(1, method="CONNECT", authority="b.example:22", path="", scheme=""))
    assert isinstance(item, Request)
    assert (item.host, item.port, item.is_connect, item.upgrade) == ("b.example", 22, True, b"")
    stream.accept()
    block = client.encoder.encode(
        [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":path", "/x"), (":authority", "c")]
    )
    (item,) = stream.feed(frame(HEADERS, block, flags=END, stream=3))
    assert isinstance(item, Request)
    assert (item.host, item.is_connect, item.upgrade) == ("c", False, b"websocket")
    stream.accept()
    (item,) = stream.feed(client.get(5, ("host", "d.example:80"), authority=""))
    assert isinstance(item, Request)
    assert (item.host, item.port) == ("d.example", 80)


def one(*fields: tuple[str, str], **pseudo: str) -> bytes:
    return Client().get(1, *fields, **pseudo)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (one(authority=""), "without its"),
        (one(method=""), "without its"),
        (one(path=""), "without its"),
        (one(method="CONNECT", authority="a:1"), "without its"),
        (one(method="CONNECT", path="", authority="a"), "without a port"),
        (one(("host", "b.example")), "another host"),
        (one(("host", "a.example:81")), "another host"),
        (one(("host", "a.example"), ("Host", "a.example")), "with several"),
        (one(("host ", "b.example")), "another host"),
        (one(authority="good@b.example"), "broken host"),
        (one(authority="a b"), "broken host"),
        (one(authority="b\u00fccher.example"), "broken host"),
        (one((":authority", "b.example")), "twice, late"),
        (one(("x", "y"), (":path", "/")), "twice, late"),
        (one((":status", "200")), "twice, late"),
        (one() + one(), "second head"),
        (frame(HEADERS, b"\x80", flags=END, stream=1), "broken header block"),
        (frame(HEADERS, b"\x40\x05abc", flags=END, stream=1), "broken header block"),
        (frame(HEADERS, b"\x3f\xe2\xff\x03", flags=END, stream=1), "broken header block"),  # a table of TABLE_MAX + 1
        (frame(HEADERS, b"", flags=END | PADDED, stream=1), "broken header frame"),
        (frame(HEADERS, b"\5abc", flags=END | PADDED, stream=1), "broken header frame"),
        (frame(HEADERS, b"abc", flags=END | PRIORITY, stream=1), "broken header frame"),
        (frame(HEADERS, b"\x82", flags=END, stream=0), "where none may be"),
        (frame(CONTINUATION, b"\x82", flags=END, stream=1), "where none may be"),
        (frame(HEADERS, b"\x82", stream=1) + frame(CONTINUATION, b"", flags=END, stream=3), "where none may be"),
        (frame(HEADERS, b"\x82", stream=1) * 2, "where none may be"),
        (frame(HEADERS, b"\x82", stream=1) + frame(DATA, b"", stream=1), "interrupted"),
        (frame(HEADERS, b"\x82", stream=1) + frame(CONTINUATION, b"", stream=1) * 8000, "65,536"),
        (frame(HEADERS, bytes(HEAD_MAX + 1), stream=1)[:9], "65,536"),
        (one(("x", "y" * HEAD_MAX)), "larger than"),
        (frame(HEADERS, b"\x40\1a\x7f\x81\x0f" + b"b" * 2048 + b"\xbe" * 60, flags=END, stream=1), "larger than"),
    ],
)
def test_what_cannot_be_judged(data: bytes, why: str) -> None:
    with pytest.raises(HttpError, match=why):
        run(START + data)


def test_a_larger_table_may_be_used() -> None:
    client = Client()
    client.encoder.header_table_size = TABLE_MAX
    data = START + client.get(1, ("x", "y" * 5000)) + client.get(3, ("x", "y" * 5000))
    assert run(data) == (["a.example"] * 2, data)


def test_no_preface() -> None:
    with pytest.raises(HttpError, match="preface"):
        run(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n")


@given(st.binary(max_size=200), st.integers(0, 300))
def test_random_bytes(data: bytes, cut: int) -> None:
    for start in (b"", START, START + b"\0\0\x20\1\4\0\0\0\1", START + Client().get(1)):
        told: list[object] = []
        for pieces in ((start + data,), (start + data[:cut], data[cut:])):
            try:
                told.append(run(*pieces))
            except HttpError as error:
                told.append(error.status)
        assert told[0] == told[1]


@given(st.data())
def test_bent_conversations(draw: st.DataObject) -> None:
    whole = bytearray(conversation())
    for _ in range(draw.draw(st.integers(1, 3))):
        whole[draw.draw(st.integers(0, len(whole) - 1))] = draw.draw(st.integers(0, 255))
    data = bytes(whole)
    edges = [0, *sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=5))), len(data)]
    try:
        _, sent = run(*(data[start:end] for start, end in pairwise(edges)))
    except HttpError:
        return
    assert data.startswith(sent)
