"""One TLS session over a socket, against Python's own TLS on the other end: pieces, pressure, and every sort of end."""

import socket
import ssl
from collections.abc import Awaitable, Callable

import pytest
import trio
from far_side import tcp_pair
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.gateway.interception.authority import Authority
from agentwrap.gateway.interception.tls import TlsError, TlsSide
from agentwrap.gateway.relay import abort

AUTHORITY = Authority("t")
SERVER = AUTHORITY.context("a.example")
TRUSTING = ssl.create_default_context(cadata=AUTHORITY.pem.decode())


class Both:
    """The two sides of one session."""

    def __init__(self, client: TlsSide, server: TlsSide) -> None:
        self.client, self.server = client, server


def run(body: Callable[[Both], Awaitable[None]], trusted: ssl.SSLContext = TRUSTING, *, shaken: bool = True) -> None:
    async def main() -> None:
        near, far = tcp_pair()
        near.setblocking(False)
        far.setblocking(False)
        both = Both(TlsSide(near, trusted, server_name="a.example"), TlsSide(far, SERVER))
        try:
            with trio.fail_after(300):
                if shaken:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(both.client.handshake)
                        nursery.start_soon(both.server.handshake)
                await body(both)
        finally:
            near.close()
            far.close()

    trio.run(main)


async def everything(side: TlsSide) -> list[bytes]:
    pieces: list[bytes] = []
    while more := await side.read():
        pieces += more
    return pieces


def test_pieces_arrive_as_they_were_sent() -> None:
    async def body(both: Both) -> None:
        await both.client.send([b"one", b"two"])
        await both.client.send([b"x" * 40_000])
        await both.client.end()
        pieces = await everything(both.server)
        assert pieces[:2] == [b"one", b"two"]
        assert pieces[2:] == [b"x" * 16384, b"x" * 16384, b"x" * 7232]
        assert not both.server.cut_short

    run(body)


def test_half_of_it_ends_while_the_other_half_goes_on_unread_data_included() -> None:
    async def body(both: Both) -> None:
        await both.client.send([b"unread " * 1000])
        await both.client.end()
        assert await both.server.read()
        await both.server.send([b"answer"])
        await both.server.end()
        await both.client.read()
        assert sum(map(len, await everything(both.server))) == 0
        assert await both.client.read() == []
        assert not both.client.cut_short

    run(body)


def test_ending_with_data_on_its_way_loses_nothing() -> None:
    """`unwrap` would read the other's records and throw them away."""

    async def body(both: Both) -> None:
        await both.client.send([b"first"])
        await both.client.send([b"later " * 3000])
        await trio.lowlevel.wait_readable(both.server.sock)
        assert (await both.server.read())[0] == b"first"
        await both.server.end()
        await both.client.send([b"last"])
        await both.client.end()
        assert (await everything(both.server))[-1] == b"last"

    run(body)


def test_a_bare_end_is_told_from_an_announced_one() -> None:
    async def body(both: Both) -> None:
        await both.client.send([b"half"])
        both.client.shut()
        assert await both.server.read() == [b"half"]
        assert await both.server.read() == []
        assert both.server.cut_short

    run(body)


def test_a_reset_is_an_error() -> None:
    async def body(both: Both) -> None:
        abort(both.client.sock)
        with pytest.raises(ConnectionResetError):
            await everything(both.server)

    run(body)


def test_a_client_that_does_not_know_the_authority_says_so() -> None:
    reasons: list[TlsError] = []

    async def shake(side: TlsSide) -> None:
        try:
            await side.handshake()
        except TlsError as error:
            reasons.append(error)

    async def body(both: Both) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shake, both.client)
            nursery.start_soon(shake, both.server)
        client, server = sorted(reasons, key=lambda one: not one.untrusted)
        assert (client.untrusted, server.untrusted) == (True, False)
        assert "UNKNOWN_CA" in server.reason

    run(body, ssl.create_default_context(), shaken=False)


def test_an_alert_in_the_middle_is_told_after_what_came_before_it() -> None:
    async def body(both: Both) -> None:
        await both.client.send([b"whole"])
        both.client.sock.send(b"\x17\x03\x03\x00\x20" + b"no record of this session".ljust(32))
        assert await both.server.read() == [b"whole"]
        for _ in range(2):
            with pytest.raises(TlsError, match=r"BAD_RECORD|DECRYPTION"):
                await both.server.read()

    run(body)


def test_garbage_instead_of_a_hello_ends_the_handshake() -> None:
    @given(st.binary(min_size=1, max_size=400))
    def each(data: bytes) -> None:
        async def main() -> None:
            near, far = socket.socketpair()
            with near, far:
                far.setblocking(False)
                near.sendall(data)
                near.shutdown(socket.SHUT_WR)
                with trio.fail_after(300), pytest.raises(TlsError):
                    await TlsSide(far, SERVER).handshake()

        trio.run(main)

    each()


def test_what_was_read_before_the_session_began_belongs_to_it() -> None:
    async def main() -> None:
        near, far = tcp_pair()
        near.setblocking(False)
        far.setblocking(False)
        client = TlsSide(near, TRUSTING, server_name="a.example")
        with near, far:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.handshake)
                await trio.lowlevel.wait_readable(far)
                held = far.recv(100)
                nursery.start_soon(TlsSide(far, SERVER, held=held).handshake)
            assert client.protocol == ""

    trio.run(main)


def test_a_reader_that_does_not_read_holds_the_writer_up() -> None:
    """What is on its way is bounded by the sockets' own buffers and one record."""

    async def body(both: Both) -> None:
        sent = 0
        with trio.move_on_after(0.5) as scope:
            while True:
                await both.client.send([b"x" * 16384])
                sent += 16384
        assert scope.cancelled_caught
        kernel = sum(
            sock.getsockopt(socket.SOL_SOCKET, option)
            for sock, option in ((both.client.sock, socket.SO_SNDBUF), (both.server.sock, socket.SO_RCVBUF))
        )
        assert sent < 4 * kernel + 1_000_000

    run(body)


def test_two_tasks_that_write_do_not_mix_their_records() -> None:
    async def body(both: Both) -> None:
        got = bytearray()

        async def write(byte: bytes) -> None:
            for _ in range(300):
                await both.client.send([byte * 1000])

        async def read() -> None:
            while len(got) < 600_000:
                for piece in await both.server.read():
                    assert len(set(piece)) == 1
                    got.extend(piece)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            nursery.start_soon(write, b"a")
            nursery.start_soon(write, b"b")
        assert sorted(set(got)) == [97, 98]

    run(body)


def test_last_words_reach_a_client_that_is_still_talking() -> None:
    async def body(both: Both) -> None:
        await both.client.send([b"more than anybody reads " * 1000])

        async def hear() -> None:
            assert b"".join(await everything(both.client)) == b"no"
            both.client.sock.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear)
            await both.server.say_last([b"no"])

    run(body)


