import struct
import tracemalloc
import zlib

import pytest
from gateway.capture.listening import Listening
from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Message,
    Ping,
    Pong,
    Request,
    TextMessage,
)
from wsproto.extensions import PerMessageDeflate

from agentwrap.gateway.capture import websocket

ASK = b"GET /v1/responses HTTP/1.1\r\nHost: api.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
AGREE = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n%s\r\n"
DEFLATE = AGREE % b"Sec-WebSocket-Extensions: permessage-deflate\r\n"
MASK = b"\x12\x34\x56\x78"


def frame(first: int, data: bytes = b"", mask: bytes = b"") -> bytes:
    size = len(data)
    if size > 0xFFFF:
        length = b"\x7f" + struct.pack("!Q", size)
    else:
        length = bytes([size]) if size < 126 else b"\x7e" + struct.pack("!H", size)
    if mask:
        data = bytes(byte ^ mask[position % 4] for position, byte in enumerate(data))
    return bytes([first, length[0] | (0x80 if mask else 0)]) + length[1:] + mask + data


def deflated(data: bytes) -> bytes:
    coder = zlib.compressobj(wbits=-15)
    return (coder.compress(data) + coder.flush(zlib.Z_SYNC_FLUSH))[:-4]


def opened(answer: bytes = AGREE % b"") -> Listening:
    return Listening().step("up", ASK).step("down", answer)


class Peers:
    """A client and a server of wsproto, and everything that they say.

    They do not hear each other's messages: as a receiver it loses track when a ping comes between compressed fragments.
    """

    def __init__(self, offered: PerMessageDeflate | None, supported: PerMessageDeflate | None) -> None:
        self.client = WSConnection(ConnectionType.CLIENT)
        self.server = WSConnection(ConnectionType.SERVER)
        extensions = [offered] if offered is not None else []
        self.passed: list[tuple[str, bytes]] = []
        self.up(self.client.send(Request(host="api.example", target="/v1/responses", extensions=list(extensions))))
        list(self.server.events())
        supports = [supported] if supported is not None else []
        self.down(self.server.send(AcceptConnection(extensions=list(supports))))
        list(self.client.events())

    def up(self, data: bytes) -> None:
        self.passed.append(("up", data))
        self.server.receive_data(data)

    def down(self, data: bytes) -> None:
        self.passed.append(("down", data))
        self.client.receive_data(data)

    def say(self, up: bool, event: Message | Ping | Pong) -> None:
        self.passed.append(("up", self.client.send(event)) if up else ("down", self.server.send(event)))

    def close(self) -> None:
        self.passed.append(("up", self.client.send(CloseConnection(code=1000))))
        self.passed.append(("down", self.server.send(CloseConnection(code=1000))))


settings = st.none() | st.tuples(st.booleans(), st.integers(9, 15), st.booleans(), st.integers(9, 15))
words = st.text(max_size=50) | st.integers(1, 25_000).map(lambda count: "né " * count)
said = st.lists(
    st.tuples(
        st.booleans(),
        st.lists(words, min_size=1, max_size=3),
        st.booleans(),
        st.booleans(),
    ),
    max_size=6,
)


@given(agreed=settings, said=said, cuts=st.lists(st.integers(1, 3000), max_size=12))
def test_messages_of_another_implementation(
    agreed: tuple[bool, int, bool, int] | None, said: list[tuple[bool, list[str], bool, bool]], cuts: list[int]
) -> None:
    """With and without compression, all settings of it, fragments, pings between them; in any pieces."""
    offers = [PerMessageDeflate(*agreed) if agreed is not None else None for _ in range(2)]
    peers = Peers(*offers)
    expected = []
    for up, parts, binary, ping in said:
        expected.append(("up" if up else "down", not binary, "".join(parts).encode()))
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            peers.say(
                up,
                BytesMessage(part.encode(), message_finished=last)
                if binary
                else TextMessage(part, message_finished=last),
            )
            if ping:
                peers.say(up, Ping(b"are you there"))
    peers.close()
    listening = Listening()
    sizes = iter(cuts * 1000)
    for kind, data in peers.passed:
        position = 0
        while position < len(data):
            size = next(sizes, 100_000)
            listening.step(kind, data[position : position + size])
            position += size
    assert listening.only.status == 101
    assert listening.only.messages == expected
    assert (listening.only.ending, listening.only.detail) == ("complete", b"")
    assert not listening.tap.active


def test_what_comes_with_the_change_itself() -> None:
    """The server's first message in the same piece as its answer; the client's before it has heard that."""
    listening = Listening().step("up", ASK + frame(0x81, b"hi", MASK))
    listening.step("down", AGREE % b"" + frame(0x81, b"there"))
    assert listening.only.messages == [("up", True, b"hi"), ("down", True, b"there")]


def test_a_message_of_the_longest_form() -> None:
    large = bytes(range(256)) * 300
    listening = opened().step("up", frame(0x82, large, MASK))
    assert listening.only.messages == [("up", False, large)]


def test_the_window_goes_on_behind_a_last_block() -> None:
    """RFC 7692, 7.2.3.4: a sender may end its data with a last block in every message, and still refer back."""
    first = zlib.compressobj(wbits=-15)
    one = first.compress(b"Hello, hello, hello") + first.flush(zlib.Z_FINISH) + b"\0"
    second = zlib.compressobj(wbits=-15, zdict=b"Hello, hello, hello")
    two = second.compress(b"Hello, hello, hello") + second.flush(zlib.Z_FINISH) + b"\0"
    assert len(two) < len(one) - 5
    listening = opened(DEFLATE).step("down", frame(0xC1, one) + frame(0xC1, two))
    assert [data for _, _, data in listening.only.messages] == [b"Hello, hello, hello"] * 2


def test_the_rfc_s_own_examples() -> None:
    """RFC 7692, 7.2.3: compressed in one and in two frames, with the window kept, stored, and with a last block."""
    for hexes in (
        ["c1 07 f2 48 cd c9 c9 07 00"],
        ["41 03 f2 48 cd", "80 04 c9 c9 07 00"],
        ["c1 07 f2 48 cd c9 c9 07 00", "c1 05 f2 00 11 00 00"],
        ["c1 0b 00 05 00 fa ff 48 65 6c 6c 6f 00"],
        ["c1 08 f3 48 cd c9 c9 07 00 00"],
        ["c1 0d f2 48 05 00 00 00 ff ff ca c9 c9 07 00"],
    ):
        listening = opened(DEFLATE)
        for one in hexes:
            listening.step("down", bytes.fromhex(one))
        assert {data for _, _, data in listening.only.messages} == {b"Hello"}
        assert listening.only.ending == ""


@pytest.mark.parametrize(
    ("answer", "up", "down", "detail"),
    [
        (AGREE, b"", frame(0x91, b"x"), b"a WebSocket frame with a bit that no agreed extension knows"),
        (AGREE, b"", frame(0xC1, b"x"), b"a WebSocket frame with a bit that no agreed extension knows"),
        (DEFLATE, b"", frame(0xE1, b"x"), b"a WebSocket frame with a bit that no agreed extension knows"),
        (DEFLATE, b"", frame(0x01) + frame(0xC0), b"a WebSocket frame with a bit that no agreed extension knows"),
        (DEFLATE, b"", frame(0xC9, b"x"), b"a WebSocket frame with a bit that no agreed extension knows"),
        (AGREE, frame(0x81, b"x"), b"", b"a client's WebSocket frame without a mask"),
        (AGREE, b"", frame(0x81, b"x", MASK), b"a server's WebSocket frame that is masked"),
        (AGREE, b"", frame(0x83, b"x"), b"a WebSocket frame of an unknown kind"),
        (AGREE, b"", frame(0x8B, b"x"), b"a WebSocket frame of an unknown kind"),
        (AGREE, b"", frame(0x80, b"x"), b"a WebSocket message inside of another, or the rest of none"),
        (AGREE, b"", frame(0x01) + frame(0x81), b"a WebSocket message inside of another, or the rest of none"),
        (AGREE, b"", frame(0x09, b"x"), b"a WebSocket control frame that is too long or in pieces"),
        (AGREE, b"", frame(0x89, bytes(126)), b"a WebSocket control frame that is too long or in pieces"),
        (AGREE, b"", b"\x82\x7f" + b"\xff" * 8, b"a WebSocket frame of an impossible length"),
        (DEFLATE, b"", frame(0xC1, b"\xff\xff\xff"), b"a WebSocket message that cannot be inflated"),
        (AGREE, ASK, b"", b"a WebSocket frame with a bit that no agreed extension knows"),
        (AGREE, b"", b"HTTP/1.1 200 OK\r\n\r\n", b"a WebSocket frame with a bit that no agreed extension knows"),
    ],
)  # fmt: skip
def test_what_no_peer_accepts(answer: bytes, up: bytes, down: bytes, detail: bytes) -> None:
    for size in (1 << 20, 1):
        listening = opened(answer % b"" if b"%" in answer else answer)
        for kind, data in (("up", up), ("down", down)):
            for start in range(0, len(data), size):
                listening.step(kind, data[start : start + size])
        assert (listening.only.ending, listening.only.detail) == ("unreadable", detail)
        assert not listening.tap.active


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        (b"permessage-deflate", b""),
        (b"Permessage-Deflate; server_no_context_takeover ;client_max_window_bits=8", b""),
        (b'permessage-deflate; server_max_window_bits="10"; client_no_context_takeover', b""),
        (b"", b""),
        (b"x-webkit-deflate-frame", b"a WebSocket extension that is not known: x-webkit-deflate-frame"),
        (b"bbf-usp-protocol", b"a WebSocket extension that is not known: bbf-usp-protocol"),
        (b"permessage-deflate, permessage-deflate", b"a WebSocket extension that is not known: "),
        (b"permessage-deflate; x=1", b"a parameter of permessage-deflate that is not known: x=1"),
        (b"permessage-deflate; server_max_window_bits=7", b"a parameter of permessage-deflate that is not known: "),
        (b"permessage-deflate; server_max_window_bits", b"a parameter of permessage-deflate that is not known: "),
        (b"permessage-deflate; client_no_context_takeover=1", b"a parameter of permessage-deflate that is not known: "),
    ],
)
def test_extensions(stated: bytes, problem: bytes) -> None:
    listening = opened(AGREE % (b"Sec-WebSocket-Extensions: " + stated + b"\r\n"))
    listening.step("down", frame(0x81, b"x"))
    assert listening.only.detail.startswith(problem)
    assert listening.only.ending == ("unreadable" if problem else "")
    assert len(listening.only.messages) == (0 if problem else 1)


def test_a_message_that_inflates_to_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MESSAGE_MAX_BYTES", 1 << 20)
    bomb = frame(0xC2, deflated(bytes(64 << 20)))
    fits = frame(0xC2, deflated(bytes(1 << 20)))
    tracemalloc.start()
    try:
        listening = opened(DEFLATE).step("down", fits).step("down", bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [data for _, _, data in listening.only.messages] == [bytes(1 << 20)]
    assert listening.only.detail == b"a WebSocket message that inflates to too much"
    assert peak < 16 << 20


def test_a_message_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MESSAGE_MAX_BYTES", 100)
    for answer in (AGREE % b"", DEFLATE):
        listening = opened(answer).step("down", frame(0x02, b"x"))
        for _ in range(100):
            listening.step("down", frame(0x00, b"x"))
        assert listening.only.detail == b"a WebSocket message of more than 100 bytes"


CLOSE = struct.pack("!H", 1000)


@pytest.mark.parametrize(
    ("steps", "ending", "detail"),
    [
        ([("up", frame(0x88, CLOSE, MASK)), ("down", frame(0x88, CLOSE))], "complete", b""),
        ([("down", frame(0x88)), ("up", frame(0x88, b"", MASK))], "complete", b""),
        (
            [("down", frame(0x88, b"\x03\xf3oops")), ("up", frame(0x88, b"\x03\xf3", MASK))],
            "complete",
            b"closed by the client: 1011 ",
        ),
        ([("down", frame(0x88, b"\x03\xf3oops")), ("down_ended", b"")], "complete", b"closed by the server: 1011 oops"),
        ([("up", frame(0x88, CLOSE, MASK)), ("client", b"")], "complete", b""),
        ([("up_ended", b""), ("down_ended", b"")], "cut-by-client", b"without a WebSocket close"),
        ([("down_ended", b"")], "cut-by-server", b"without a WebSocket close"),
        ([("client", b"")], "cut-by-client", b"without a WebSocket close"),
        ([("down", b"\x81\x05he"), ("server", b"")], "cut-by-server", b"inside of a WebSocket message"),
        ([("down", b"\x81"), ("server", b"")], "cut-by-server", b"inside of a WebSocket message"),
    ],
)
def test_how_it_ends(steps: list[tuple[str, bytes]], ending: str, detail: bytes) -> None:
    listening = opened()
    for kind, data in steps:
        listening.step(kind, data)
    assert (listening.only.ending, listening.only.detail) == (ending, detail)
    assert not listening.tap.active


def test_one_that_nobody_wants_is_counted() -> None:
    listening = Listening(lambda *_: False).step("up", ASK).step("down", DEFLATE + b"\xff\xff")
    listening.step("up", b"nonsense").step("down", b"\xff").step("down_ended")
    assert (listening.only.ending, listening.only.sizes) == ("complete", (8, 3))


@given(answer=st.sampled_from([AGREE % b"", DEFLATE]), data=st.lists(st.tuples(st.booleans(), st.binary(max_size=300))))
def test_nonsense_never_raises(answer: bytes, data: list[tuple[bool, bytes]]) -> None:
    listening = opened(answer)
    for up, piece in data:
        listening.step("up" if up else "down", piece)
    listening.step("down_ended")
    assert listening.only.ending
