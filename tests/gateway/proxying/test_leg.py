"""Who is told to have cut a connection of the proxy's: of real sockets, one of which nobody reads any more."""

import socket
from collections.abc import Iterator

import pytest
import trio

from agentwrap.gateway.proxying.leg import Leg
from agentwrap.gateway.proxying.requests import Server
from agentwrap.gateway.proxying.sides import BareSide


class Heard:
    """What a tap is told."""

    active = True

    def __init__(self) -> None:
        self.told: list[str] = []

    def down(self, data: bytes) -> None:
        self.told.append(data.decode())

    def down_ended(self) -> None:
        self.told.append("ended")

    def cut(self, by: str) -> None:
        self.told.append(f"cut by the {by}")


@pytest.fixture
def sockets() -> Iterator[list[socket.socket]]:
    made = [*socket.socketpair(), *socket.socketpair()]
    for sock in made:
        sock.setblocking(False)
    yield made
    for sock in made:
        sock.close()


def carried(side: socket.socket, client: socket.socket) -> tuple[Leg, Heard]:
    heard = Heard()

    async def room() -> None:
        pass

    async def carry() -> Leg:
        leg = Leg(Server("http", "there.example", 80), BareSide(side), BareSide(client), heard, room, lambda _: None)  # type: ignore[arg-type]
        await leg.carry_back()
        return leg

    return trio.run(carry), heard


def test_a_client_that_is_gone_when_the_server_says_something(sockets: list[socket.socket]) -> None:
    server, server_end, client, client_end = sockets
    client_end.close()
    server_end.send(b"more")
    leg, heard = carried(server, client)
    assert (leg.ending, leg.detail) == ("reset", b"by the client")
    assert heard.told == ["cut by the client"]


def test_a_server_that_cuts(sockets: list[socket.socket]) -> None:
    server, server_end, client, _client_end = sockets
    server.send(b"unread")  # unix(7): whoever closes with something unread resets
    server_end.close()
    leg, heard = carried(server, client)
    assert (leg.ending, leg.detail) == ("reset", b"by the server")
    assert heard.told == ["cut by the server"]


def test_a_server_that_ends(sockets: list[socket.socket]) -> None:
    server, server_end, client, client_end = sockets
    server_end.send(b"all")
    server_end.close()
    leg, heard = carried(server, client)
    assert (leg.ending, heard.told, client_end.recv(100)) == ("closed", ["all", "ended"], b"all")
