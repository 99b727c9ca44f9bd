"""Two sockets joined into one connection: ends, resets, pressure and counts go both ways."""

import resource
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
import trio
from far_side import tcp_pair

from agentwrap.gateway import relay
from agentwrap.gateway.dialling import Dialled, Failed, dial
from agentwrap.gateway.relay import Passage


class Joined:
    """`client` and `server` are the outer ends; `passage` carries between them in a thread of its own."""

    def __init__(self) -> None:
        self.client, ours = tcp_pair()
        self.server, theirs = tcp_pair()
        for sock in (ours, theirs):
            sock.setblocking(False)
        self.passage: Passage | None = None
        self._thread = threading.Thread(target=trio.run, args=(self._carry, ours, theirs))
        self._thread.start()

    async def _carry(self, client: socket.socket, server: socket.socket) -> None:
        self.passage = Passage(client, server)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.passage.up)
            nursery.start_soon(self.passage.down)

    def ended(self) -> Passage:
        self._thread.join(300)
        assert not self._thread.is_alive()
        assert self.passage is not None
        self.client.close()
        self.server.close()
        return self.passage


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def everything(sock: socket.socket) -> bytes:
    return b"".join(iter(lambda: sock.recv(1 << 20), b""))


def test_bytes_and_ends_go_both_ways_and_are_counted() -> None:
    joined = Joined()
    joined.client.sendall(b"question")
    joined.client.shutdown(socket.SHUT_WR)
    assert everything(joined.server) == b"question"
    # half of the connection is over, the other half is not
    joined.server.sendall(b"answer")
    assert joined.client.recv(100) == b"answer"
    joined.server.shutdown(socket.SHUT_WR)
    assert everything(joined.client) == b""
    passage = joined.ended()
    assert (passage.up_bytes, passage.down_bytes, passage.ending) == (8, 6, "closed")


def test_the_server_may_end_its_half_first() -> None:
    joined = Joined()
    joined.server.shutdown(socket.SHUT_WR)
    assert everything(joined.client) == b""
    joined.client.sendall(b"still talking")
    joined.client.close()
    assert everything(joined.server) == b"still talking"
    assert joined.ended().ending == "closed"


@pytest.mark.parametrize("who", ["client", "server"])
def test_a_reset_is_carried_as_a_reset(who: str) -> None:
    joined = Joined()
    one, other = (joined.client, joined.server) if who == "client" else (joined.server, joined.client)
    one.sendall(b"x")
    assert other.recv(1) == b"x"
    reset(one)
    with pytest.raises(ConnectionResetError):
        other.recv(1)
    passage = joined.ended()
    assert (passage.ending, passage.detail) == ("reset", b"by the " + who.encode())


def test_what_the_server_said_before_it_reset_still_arrives() -> None:
    joined = Joined()
    joined.server.sendall(b"a" * 300_000)
    got = b""
    while len(got) < 300_000:
        got += joined.client.recv(65536)
    reset(joined.server)
    with pytest.raises(ConnectionResetError):
        joined.client.recv(1)
    assert joined.ended().down_bytes == 300_000


def test_an_answer_to_an_upload_that_the_server_cuts_off_arrives() -> None:
    """The server answers and goes while the client still sends: the client hears the answer, then the reset."""
    joined = Joined()
    assert joined.client.send(b"u" * 1000)
    assert joined.server.recv(10)
    joined.server.sendall(b"too large")
    joined.server.close()  # with unread input: a reset
    assert joined.client.recv(100) == b"too large"
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        joined.client.sendall(b"u" * 100_000_000)
    assert joined.ended().ending == "reset"


def test_a_slow_reader_slows_the_writer_and_memory_stays_flat() -> None:
    joined = Joined()
    joined.client.setblocking(False)
    sent = 0
    try:
        while True:
            sent += joined.client.send(b"z" * (1 << 20))
    except BlockingIOError:
        pass
    held = sent
    joined.client.settimeout(300)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    total = 200 << 20
    reader = threading.Thread(
        target=lambda: read.append(sum(len(one) for one in iter(lambda: joined.server.recv(1 << 20), b"")))
    )
    read: list[int] = []
    reader.start()
    block = b"z" * (1 << 20)
    while sent < total:
        joined.client.sendall(block)
        sent += len(block)
    joined.client.close()
    reader.join(300)
    assert read == [sent]
    assert held < 64 << 20  # what two kernels and a buffer hold, not what was offered
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10
    joined.server.shutdown(socket.SHUT_WR)
    assert joined.ended().up_bytes == sent


def run(body: Callable[[], Awaitable[object]]) -> object:
    async def main() -> object:
        with trio.fail_after(300):
            return await body()

    return trio.run(main)


class TestLastWords:
    def test_they_arrive_although_input_was_never_read(self) -> None:
        near, far = tcp_pair()
        near.sendall(b"unread")

        async def body() -> None:
            far.setblocking(False)
            await relay.last_words(far, b"goodbye")

        thread = threading.Thread(target=run, args=(body,))
        thread.start()
        with near:
            assert everything(near) == b"goodbye"
        thread.join(300)

    def test_nobody_can_hold_them_up_for_long(self) -> None:
        near, far = tcp_pair()

        async def body() -> None:
            far.setblocking(False)
            await relay.last_words(far, b"x" * (64 << 20), linger_s=0.05)

        run(body)
        assert far.fileno() == -1
        near.close()


class TestDial:
    @contextmanager
    def silent_port(self) -> Iterator[int]:
        """One that nobody listens on: taken, so that nobody else gets it meanwhile."""
        with socket.socket() as taken:
            taken.bind(("", 0))
            yield taken.getsockname()[1]

    def dialled(self, port: int, *addresses: str) -> Dialled | Failed:
        from ipaddress import ip_address

        async def body() -> Dialled | Failed:
            return await dial([ip_address(one) for one in addresses], port)

        outcome = run(body)
        assert isinstance(outcome, Dialled | Failed)
        return outcome

    def test_who_listens_answers(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            outcome = self.dialled(listener.getsockname()[1], "127.0.0.1")
            assert isinstance(outcome, Dialled)
            assert not outcome.sock.getblocking()
            outcome.sock.close()

    def test_nobody_listens(self) -> None:
        with self.silent_port() as port:
            assert self.dialled(port, "127.0.0.1") == Failed("refused", b"ECONNREFUSED")

    def test_the_next_address_is_tried(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            outcome = self.dialled(listener.getsockname()[1], "127.0.0.2", "127.0.0.3", "127.0.0.1")
            assert isinstance(outcome, Dialled)
            assert str(outcome.address) == "127.0.0.1"
            outcome.sock.close()

    def test_the_first_failure_is_told_when_all_fail(self) -> None:
        with self.silent_port() as port:
            outcome = self.dialled(port, "127.0.0.1", "127.0.0.2")
        assert outcome == Failed("refused", b"ECONNREFUSED")
