"""How long and how much of a client's first words is held; the rest is tried behind a real wall (`test_wall_*`)."""

import socket
from collections.abc import Awaitable, Callable
from ipaddress import ip_address

import trio
import trio.testing
from far_side import tcp_pair
from policy_texts import network

from agentwrap.events.egress import Protocol
from agentwrap.gateway.inspection import FIRST_FLIGHT_S, Inspection, Meant, Refusal
from agentwrap.gateway.judging import Judge, Verdict
from agentwrap.gateway.known_names import KnownNames
from agentwrap.gateway.relay import Passage, receive
from agentwrap.policy.layers import Layer

ADDRESS = ip_address("203.0.113.1")


class Held:
    """A client and a server with an inspection between them, on a clock that jumps over every wait."""

    def __init__(self) -> None:
        self.client, ours = tcp_pair()
        self.server, theirs = tcp_pair()
        for sock in (ours, theirs, self.client, self.server):
            sock.setblocking(False)
        judge = Judge([Layer("flags", network("a.example"))])
        known = KnownNames()
        known.learn("a.example", [ADDRESS])
        self.told: list[Verdict] = []
        self.passage = Passage(ours, theirs)
        self.inspection = Inspection(judge, known, self.passage, self._settle)
        self.meant = Meant(judge.destination(ADDRESS, 443, ["a.example"]), ADDRESS)

    async def _settle(self, verdict: Verdict, _protocol: Protocol) -> Verdict:
        self.told.append(verdict)
        return verdict

    async def carry(self) -> Refusal | None:
        with trio.fail_after(4000):
            return await self.inspection.carry(self.meant)

    async def arrived(self, data: bytes) -> None:
        """The server has this: a moment after it was sent, even on loopback."""
        got = b""
        while len(got) < len(data):
            got += await receive(self.server, len(data) - len(got))
        assert got == data

    def received(self) -> bytes:
        try:
            return self.server.recv(1 << 20)
        except (BlockingIOError, ConnectionResetError):
            return b""

    def close(self) -> None:
        self.client.close()
        self.server.close()


def run(body: Callable[[Held], Awaitable[None]], *, jumps: bool = True) -> None:
    async def main() -> None:
        held = Held()
        try:
            await body(held)
        finally:
            held.passage.cut(b"done")
            held.close()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.05 if jumps else float("inf")))


def test_a_hello_that_never_ends_is_refused_after_half_a_minute() -> None:
    async def body(held: Held) -> None:
        async def slowly() -> None:
            for byte in b"\x16\x03\x01\x02\x00\x01" + b"\x00" * 200:
                held.client.send(bytes([byte]))
                await trio.sleep(1)

        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(slowly)
            refusal = await held.carry()
            nursery.cancel_scope.cancel()
        assert refusal is not None
        assert refusal.verdict.answer.rule.where == "built-in.malformed"
        assert FIRST_FLIGHT_S - 1 <= trio.current_time() - start <= FIRST_FLIGHT_S + 1
        assert held.received() == b""

    run(body)


def test_a_head_that_never_ends_is_refused_the_first_and_any_later_one() -> None:
    async def body(held: Held) -> None:
        first = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
        held.client.send(first + b"GET /again HTTP/1.1\r\nHo")
        refusal = await held.carry()
        assert refusal is not None
        assert "took more than" in refusal.verdict.answer.why
        await held.arrived(first)
        assert held.received() == b""

    run(body)


def test_a_client_that_lets_the_server_speak_first_has_all_the_time() -> None:
    async def body(held: Held) -> None:
        async def late() -> None:
            await trio.sleep(3600)
            held.client.send(b"\x00\x01 some protocol")
            held.client.shutdown(socket.SHUT_WR)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(late)
            assert await held.carry() is None
        await held.arrived(b"\x00\x01 some protocol")
        assert held.inspection.protocol == "other"

    run(body)


def test_a_head_without_end_is_cut_at_its_bound() -> None:
    async def body(held: Held) -> None:
        async def pour() -> None:
            held.client.setblocking(False)
            sent = 0
            data = b"GET / HTTP/1.1\r\nHost: a.example\r\n" + b"X-A: b\r\n" * (1 << 17)
            while sent < len(data):
                try:
                    sent += held.client.send(data[sent : sent + 65536])
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(held.client)
                except OSError:
                    return

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pour)
            refusal = await held.carry()
            nursery.cancel_scope.cancel()
        assert refusal is not None
        assert b" 431 " in refusal.words.split(b"\r\n")[0]
        assert held.received() == b""

    run(body, jumps=False)


def test_a_client_that_ends_at_once_ends_the_server_half() -> None:
    async def body(held: Held) -> None:
        held.client.shutdown(socket.SHUT_WR)
        assert await held.carry() is None
        assert held.received() == b""

    run(body, jumps=False)


def test_what_could_not_be_judged_before_it_was_allowed_is_told_once() -> None:
    async def body(held: Held) -> None:
        held.client.send(b"\x16\x03\x01\x00\x00")
        refusal = await held.carry()
        assert refusal is not None
        assert [verdict.decision for verdict in held.told] == ["deny"]

    run(body, jumps=False)
