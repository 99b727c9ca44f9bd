"""A connection that the tracer led here in a run that is only watched: dialled where the program meant, nothing judged.

The program believes that it is connected before it is. Where its address does not answer, it cannot go on to the next
one of the name, as it would have (RFC 8305): so we do, by the name in its TLS hello.
"""

from ipaddress import ip_address

import trio

from agentwrap.events.egress import Ending
from agentwrap.gateway import first_flight as flights
from agentwrap.gateway.client_hello import NeedMore
from agentwrap.gateway.connection import Connection
from agentwrap.gateway.dialling import STAGGER_S, Dialled, Failed, dial
from agentwrap.gateway.relay import abort, receive
from agentwrap.policy.hosts import Address

_HELLO_S = 2.0
_OTHERS_MAX = 7


class Captured(Connection):
    """One of them, to its end."""

    async def run(self, nursery: trio.Nursery) -> None:
        """To its end. `nursery` carries the other direction."""
        self._verdict = verdict = self._stage.judge.destination(self._address, self._port, ())
        ending: Ending = "ended"
        detail = b""
        try:
            outcome, held = await self._reach()
            if isinstance(outcome, Failed):
                ending, detail = outcome.ending, outcome.detail
                abort(self._client)
                return
            ending, detail = await self._carry(outcome, verdict, nursery, held)
        finally:
            self._closed(ending, detail)

    async def _reach(self) -> tuple[Dialled | Failed, bytes]:
        """The server, and what the client said while it was looked for."""
        first: list[Dialled | Failed] = []
        done = trio.Event()

        async def straight() -> None:
            first.append(await dial([self._address], self._port))
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(straight)
            with trio.move_on_after(STAGGER_S):
                await done.wait()
            if first and isinstance(first[0], Dialled):
                return first[0], b""
            other, held = await self._elsewhere()
            if other is None:
                await done.wait()
                return first[0], held
            nursery.cancel_scope.cancel()
        if first and isinstance(first[0], Dialled):  # both at the same moment
            first[0].sock.close()
        return other, held

    async def _elsewhere(self) -> tuple[Dialled | None, bytes]:
        """Another address of the name that the client asks for, if it asks for one."""
        flight = flights.FirstFlight()
        kind: flights.Flight = NeedMore()
        with trio.move_on_after(_HELLO_S):
            while isinstance(kind, NeedMore):
                data = await receive(self._client)
                kind = flight.feed(data) if data else flight.eof()
        held = bytes(flight.data)
        name = kind.hello.sni if isinstance(kind, flights.Tls) else None
        if not name or _is_address(name):
            return None, held
        found = await self._stage.resolver.find(name.lower().removesuffix("."))
        others: list[Address] = [one for one in found.addresses if one != self._address][:_OTHERS_MAX]
        outcome = await dial(others, self._port) if others else None
        return (outcome if isinstance(outcome, Dialled) else None), held


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
