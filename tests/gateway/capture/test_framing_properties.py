"""Random exchanges in random pieces, random nonsense, and the same bytes read by h11."""

import random
import tracemalloc

import h11
import msgspec
from gateway.capture.listening import Heard, Listening
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.gateway.capture.heads import HEAD_MAX

TOKEN = st.text("abcXYZ-_!019", min_size=1, max_size=8).map(str.encode)
VALUE = st.text("abc :;,/\t\"'=é0", max_size=20).map(lambda text: text.encode("latin-1").strip(b" \t"))
TAKEN = (b"content-length", b"transfer-encoding", b"upgrade", b"connection", b"host", b"expect")
FIELDS = st.lists(st.tuples(TOKEN.filter(lambda name: name.lower() not in TAKEN), VALUE), max_size=4)
BODY = st.binary(max_size=40) | st.integers(0, 20_000).map(lambda size: bytes([size % 251]) * size)


class Whole(msgspec.Struct):
    """An exchange as bytes, and what is said in it."""

    up: bytes
    down: bytes
    method: bytes
    sent: bytes
    status: int
    received: bytes


@st.composite
def chunked(draw: st.DrawFn, body: bytes) -> bytes:
    out, position = b"", 0
    while position < len(body):
        piece = body[position : position + draw(st.integers(1, 5000))]
        extension = draw(st.sampled_from([b"", b";a=1", b';name="x y"']))
        zeros = draw(st.sampled_from([b"", b"00"]))
        out += zeros + b"%X" % len(piece) + extension + b"\r\n" + piece + b"\r\n"
        position += len(piece)
    return out + b"0\r\n" + draw(st.sampled_from([b"", b"Trailer: x\r\n"])) + b"\r\n"


@st.composite
def framed(draw: st.DrawFn, body: bytes, ways: tuple[str, ...]) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Fields that announce a body, and the body as it is sent."""
    way = draw(st.sampled_from(ways))
    if way == "chunked":
        return [(b"Transfer-Encoding", b"Chunked")], draw(chunked(body))
    if way == "length":
        return [(b"Content-length", b"%d" % len(body))], body
    return [], body


def head(first: bytes, fields: list[tuple[bytes, bytes]], draw: st.DrawFn) -> bytes:
    blank = draw(st.sampled_from([b"", b" ", b" \t"]))
    return first + b"\r\n" + b"".join(name + b":" + blank + value + b"\r\n" for name, value in fields) + b"\r\n"


@st.composite
def exchange(draw: st.DrawFn, *, last: bool) -> Whole:
    method = draw(st.sampled_from([b"GET", b"HEAD", b"POST", b"PUT", b"OPTIONS", b"M-SEARCH"]))
    sent = draw(BODY) if method in (b"POST", b"PUT") else b""
    announced, coded = draw(framed(sent, ("chunked", "length")))
    if not sent:
        announced, coded = [], b""
    fields = [(b"Host", b"api.example"), *draw(FIELDS), *announced]
    target = b"/" + draw(TOKEN)
    up = head(b"%s %s HTTP/1.1" % (method, target), fields, draw) + coded
    status = draw(st.sampled_from([200, 201, 204, 304, 404, 429, 529]))
    received = b"" if method == b"HEAD" or status in (204, 304) else draw(BODY)
    ways = ("chunked", "length", "close") if last else ("chunked", "length")
    if status == 204:
        announced, coded = [], b""
    else:
        announced, coded = draw(framed(received, ways))
        if method == b"HEAD" or status == 304:
            coded = b""
    early = draw(st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 \r\nA: b\r\n\r\n" * 2]))
    down = early + head(b"HTTP/1.1 %d %s" % (status, draw(VALUE)), [*draw(FIELDS), *announced], draw) + coded
    return Whole(up, down, method, sent, status, received)


@st.composite
def exchanges(draw: st.DrawFn) -> list[Whole]:
    count = draw(st.integers(1, 4))
    return [draw(exchange(last=number == count - 1)) for number in range(count)]


def pieces(data: bytes, rng: random.Random) -> list[bytes]:
    cuts = sorted(rng.sample(range(len(data) + 1), min(len(data) + 1, rng.choice((0, 1, 3, 30)))))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def bend(data: bytearray, position: int, rng: random.Random) -> None:
    bends = (b"", b"\n", b"\r", b"\0", b" ", b":", b"x", b"0", b"\r\n")
    data[position : position + rng.choice((0, 1, 1, 9))] = rng.choice(bends)


def heard(talk: list[Whole], rng: random.Random | None, *, pipelined: bool) -> list[Heard]:
    listening = Listening()
    ups = [b"".join(one.up for one in talk)] if pipelined else [one.up for one in talk]
    downs = [b"".join(one.down for one in talk)] if pipelined else [one.down for one in talk]
    for up, down in zip(ups, downs, strict=True):
        for kind, data in (("up", up), ("down", down)):
            for piece in [data] if rng is None else pieces(data, rng):
                listening.step(kind, piece)
    listening.step("down_ended")
    return listening.heard


@given(talk=exchanges(), seed=st.integers(0, 1 << 30), pipelined=st.booleans())
def test_any_pieces_give_the_same_news(talk: list[Whole], seed: int, pipelined: bool) -> None:
    found = heard(talk, random.Random(seed), pipelined=pipelined)
    assert found == heard(talk, None, pipelined=pipelined)
    said = [(one.method, one.sent, one.status, one.received) for one in found]
    assert said == [(one.method, one.sent, one.status, one.received) for one in talk]
    assert {(one.ending, one.detail) for one in found} == {("complete", b"")}
    assert [one.sizes for one in found] == [(len(one.sent), len(one.received)) for one in talk]


@given(talk=exchanges(), seed=st.integers(0, 1 << 30))
def test_bent_bytes_never_raise_and_every_exchange_ends_once(talk: list[Whole], seed: int) -> None:
    rng = random.Random(seed)
    listening = Listening()
    for one in talk:
        for kind, data in (("up", one.up), ("down", one.down)):
            bent = bytearray(data)
            for _ in range(rng.choice((0, 1, 3))):
                bend(bent, rng.randrange(len(bent) + 1), rng)  # nothing may be left of it
            for piece in pieces(bytes(bent), rng):
                listening.step(kind, piece)
    listening.step(rng.choice(("up_ended", "client", "server", "down_ended"))).step("down_ended")
    assert not listening.tap.active
    assert all(one.ending for one in listening.heard)


STEP = st.tuples(st.sampled_from(["up", "down", "up_ended", "client"]), st.binary(max_size=60))


@given(steps=st.lists(STEP, max_size=12))
def test_nonsense_never_raises(steps: list[tuple[str, bytes]]) -> None:
    listening = Listening()
    for kind, data in steps:
        listening.step(kind, data)
    listening.step("down_ended")
    assert all(one.ending for one in listening.heard)


def requests_of_h11(data: bytes) -> tuple[list[Whole], bool]:
    """Every whole request, and whether something behind them is broken."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX)
    found: list[Whole] = []
    connection.receive_data(data)
    try:
        while True:
            body = b""
            request = connection.next_event()
            if not isinstance(request, h11.Request):
                return found, False
            while isinstance(event := connection.next_event(), h11.Data):
                body += event.data
            if not isinstance(event, h11.EndOfMessage):
                return found, False
            found.append(Whole(b"", b"", request.method, body, 0, b""))
            connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
            connection.send(h11.EndOfMessage())
            connection.start_next_cycle()
    except (h11.RemoteProtocolError, h11.LocalProtocolError):  # the latter: nothing is read behind HTTP/1.0
        return found, True


@given(talk=exchanges(), seed=st.integers(0, 1 << 30))
def test_h11_reads_the_same_requests(talk: list[Whole], seed: int) -> None:
    """Whole ones and bent ones: what is read here h11 reads in the same way, or refuses."""
    rng = random.Random(seed)
    for bends in (0, 1, 2):
        data = bytearray(b"".join(one.up for one in talk))
        for _ in range(bends):
            bend(data, rng.randrange(min(len(data), 200)), rng)
        theirs, broken = requests_of_h11(bytes(data))
        listening = Listening().step("up", bytes(data))
        ours = [one for one in listening.heard if one.ending == ""]
        if listening.tap.active:
            assert [(one.method, one.sent) for one in ours][: len(theirs)] == [(one.method, one.sent) for one in theirs]
            # One may have begun whose body is not whole; h11 also insists on exactly one Host.
            assert len(ours) - len(theirs) in (0, 1) or broken
        assert bends or (listening.tap.active and not broken)


@given(whole=exchange(last=True), seed=st.integers(0, 1 << 30))
def test_h11_reads_the_same_answers(whole: Whole, seed: int) -> None:
    rng = random.Random(seed)
    for bends in (0, 1):
        data = bytearray(whole.down)
        for _ in range(bends):
            bend(data, rng.randrange(min(len(data), 200)), rng)
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_MAX)
        connection.send(h11.Request(method=whole.method, target="/", headers=[("Host", "x")]))
        connection.send(h11.EndOfMessage())
        listening = Listening().step("up", whole.up).step("down", bytes(data)).step("down_ended")
        ours = listening.heard[0]
        status, body = 0, b""
        try:
            connection.receive_data(bytes(data))
            connection.receive_data(b"")
            while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    body += event.data
        except h11.RemoteProtocolError:
            assert bends
            continue  # ours may have read it: it takes what clients take
        if ours.ending == "complete":
            assert (ours.status, ours.received) == (status, body)
        else:
            assert bends


def test_memory_is_bounded_by_the_heads() -> None:
    """Endless streams, whatever is wanted: what is held does not grow."""
    for up, down in (
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b""),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ):
        listening = Listening(lambda *_: False).step("up", up).step("down", down)
        piece = b"10000\r\n" + bytes(0x10000) + b"\r\n"
        kind = "down" if down else "up"
        listening.step(kind, piece)
        tracemalloc.start()
        try:
            for _ in range(200):
                listening.step(kind, piece)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()
        assert listening.tap.active
