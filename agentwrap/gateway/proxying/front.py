"""A proxy on loopback: tunnels, whole URLs, and base URLs that stand for other ones. One client connection at a time.

Knows HTTP/1 requests and their servers. What goes through a tunnel is a connection like any other (`connection`). A
server that cannot be reached is a 502 of ours, since HTTP is all that a proxy can say it in.
"""

import ipaddress
import os
import socket
from typing import TYPE_CHECKING

import msgspec
import trio

from agentwrap.events import Gap
from agentwrap.gateway.callers import Caller
from agentwrap.gateway.capture.about import About
from agentwrap.gateway.connection import Connection
from agentwrap.gateway.dialling import Dialled, Failed, dial
from agentwrap.gateway.http_head import Forward, HttpError, Item, Request, RequestStream
from agentwrap.gateway.interception.upstream import NotOurs, Upstream
from agentwrap.gateway.proxying.leg import Leg, ready
from agentwrap.gateway.proxying.requests import NotForUsError, Server, meant_by, refusal
from agentwrap.gateway.proxying.sides import BareSide, Side
from agentwrap.gateway.relay import abort, close, last_words, receive
from agentwrap.gateway.stage import Stage
from agentwrap.policy.hosts import Address

if TYPE_CHECKING:
    from agentwrap.gateway.gating.gatekeeper import Gatekeeper

_DIALLED_MAX = 8
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_NOWHERE = Failed("unreachable", b"the name leads nowhere")


class Front:
    """What all connections to the proxy of one run share."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._upstream = stage.interceptor.upstream if stage.interceptor is not None else Upstream(os.environ)

    def begin(self, client: socket.socket, caller: Caller | None, nursery: trio.Nursery) -> None:
        """Serve one client to its end, in a task of `nursery`."""
        self._stage.live += 1
        nursery.start_soon(self._serve, client, caller, nursery)

    async def _serve(self, client: socket.socket, caller: Caller | None, nursery: trio.Nursery) -> None:
        """Raises nothing of the client's or of a server's doing."""
        conversation = _Conversation(self._stage, self._upstream, client, caller, nursery)
        try:
            await conversation.run()
        except (OSError, trio.ClosedResourceError):
            conversation.client_cut()
        except Exception as error:  # one client's fault must not end the others
            conversation.client_cut()
            self._stage.gap_once(_fault(self._stage.now(), error))
        finally:
            await conversation.leave()
            close(client)
            self._stage.live -= 1


class _Conversation:
    def __init__(
        self, stage: Stage, upstream: Upstream, client: socket.socket, caller: Caller | None, nursery: trio.Nursery
    ) -> None:
        self._stage = stage
        self._upstream = upstream
        self._client = client
        self._caller = caller
        self._span, self._pid = (caller.span, caller.pid) if caller else ("run", 0)
        self._nursery = nursery
        self._stream = RequestStream()
        self._news = trio.Event()
        self._freed: list[Item] = []
        self._lost = False
        self._pushed = b""
        self._keeper: Gatekeeper | None = None
        self._leg: Leg | None = None
        self._opened_ns = 0
        self._id = ""

    async def run(self) -> None:
        """Every request in turn."""
        items: list[Item] = []
        try:
            while True:
                while items:
                    item = items.pop(0)
                    if isinstance(item, Request):
                        more = await self._asked(item)
                        if more is None:
                            return
                        items = more + items
                    elif self._leg is None or not await self._leg.send(item.data):
                        return
                news = await self.more()
                if news is None:
                    break
                items = news
        except HttpError as error:
            await self._say(refusal(error.status, str(error)))
            return
        if self._leg is not None:
            await self._leg.end()

    @property
    def stream(self) -> RequestStream:
        """What the client asks for."""
        return self._stream

    async def quiet(self) -> bool:
        """Wait until the server has answered all that went on. False: it has gone."""
        while not self._stream.answered and not self._lost:
            await self._wait()
        return self._stream.answered and not self._lost

    async def hear(self) -> bytes:
        """What the client says while a request of its is held; nothing at its end. Raises OSError."""
        return await receive(self._client)

    def push(self, data: bytes) -> None:
        """What was heard, to be read in its turn."""
        self._pushed += data

    async def more(self) -> list[Item] | None:
        """What may go on next; None at the client's end, or when the server has gone. Raises HttpError, OSError."""
        while not self._stream.wants_data and not self._freed and not self._lost:
            await self._wait()
        if self._freed:
            items, self._freed = self._freed, []
            return items
        if not self._stream.wants_data:
            return None
        data, self._pushed = self._pushed or await receive(self._client), b""
        return self._stream.feed(data) if data else None

    async def _wait(self) -> None:
        self._news = trio.Event()
        await self._news.wait()

    def _observe(self, data: bytes) -> None:
        if not data:
            self._lost = True
        else:
            try:
                self._freed += self._stream.observe(data)
            except HttpError:
                self._lost = True  # what the client said behind an answer that changes the protocol
        self._news.set()

    async def _asked(self, request: Request) -> list[Item] | None:
        """One request is on its way to its server; what came behind its head. None: nothing more is read here."""
        try:
            meant = meant_by(request)
        except NotForUsError as error:
            await self._say(refusal(error.status, str(error), head=request.method == b"HEAD"))
            return None
        if self._leg is None or self._leg.server != meant.server or meant.tunnel:
            await self._turn_away()
            if meant.tunnel:
                await self._tunnel(meant.server)
                return None
            failure = await self._open(meant.server)
            if failure:
                await self._say(refusal(502, failure, head=request.method == b"HEAD"))
                return None
        assert self._leg is not None
        if self._keeper is not None:
            outcome, more = await self._keeper.carry(msgspec.structs.replace(request, raw=meant.head), self)
            if outcome == "unread":
                await self._say(refusal(403, "rules are about what would be said there, and nobody could read it"))
            return more if outcome == "on" else None
        return self._stream.accept() if await self._leg.send(meant.head) else None

    async def _turn_away(self) -> None:
        """From the server so far, once it has answered everything."""
        while self._leg is not None and not self._lost and not self._stream.answered:
            await self._wait()
        await self.leave()

    async def _open(self, server: Server) -> str:
        """A leg to the server; why there is none."""
        self._opened_ns, self._id = self._stage.now(), self._stage.next_connection()
        side = await self._reach(server)
        if isinstance(side, str):
            return side
        about = About(
            connection=self._id, span=self._span, pid=self._pid, scheme=server.scheme, host=server.host.encode(),
            port=server.port, intercepted=server.scheme == "https",
        )  # fmt: skip
        link = self._stage.link
        self._lost = False
        self._leg = Leg(server, side, BareSide(self._client), self._stage.taps(about), link.room, self._observe)
        self._keeper = self._gatekeeper(server, self._leg)
        self._nursery.start_soon(self._leg.carry_back)
        return ""

    def _gatekeeper(self, server: Server, leg: Leg) -> "Gatekeeper | None":
        """Who judges messages of MCP on the way to a server, where rules are about any."""
        if self._stage.gates is None:
            return None
        from agentwrap.gateway.gating.gatekeeper import Gatekeeper

        async def another() -> Side | None:
            side = await self._reach(server)
            return None if isinstance(side, str) else side

        keeper = Gatekeeper(self._stage.gates, leg, server.host.encode(), server.port, self._span, self._pid, another)
        leg.gate = keeper.down
        return keeper

    async def _reach(self, server: Server) -> Side | str:
        """A way to the server, or why there is none."""
        dialled = await self._dial(server)
        if isinstance(dialled, Failed):
            return f"{server.host}:{server.port}: {dialled.ending} {dialled.detail.decode('utf-8', 'replace')}".rstrip()
        side: Side | NotOurs = BareSide(ready(dialled.sock))
        if server.scheme == "https":
            try:
                side = await self._upstream.session(dialled.sock, server.host, server.port)
            except OSError as error:
                side = NotOurs("upstream-tls", error.strerror or type(error).__name__)
        if isinstance(side, NotOurs):
            abort(dialled.sock)
            return f"{server.host}:{server.port}: {side.why}: {side.detail}"
        return side

    async def _dial(self, server: Server) -> Dialled | Failed:
        addresses = await self._addresses(server.host)
        return await dial(addresses[:_DIALLED_MAX], server.port) if addresses else _NOWHERE

    async def _addresses(self, host: str) -> tuple[Address, ...]:
        try:
            return (ipaddress.ip_address(host),)
        except ValueError:
            return (await self._stage.resolver.find(host)).addresses

    async def _tunnel(self, server: Server) -> None:
        """From here on it is a connection like any other, made on the client's behalf."""
        dialled = await self._dial(server)
        if isinstance(dialled, Failed):
            await self._say(refusal(502, f"{server.host}:{server.port}: {dialled.ending}"))
            return
        await BareSide(self._client).send([_ESTABLISHED])
        held = b"".join(item.data for item in self._opened() if isinstance(item, Forward))
        caller = self._caller or Caller(0, 0, 0, "run", "tcp", server.host, server.port)
        connection = Connection(self._stage, self._client, dialled.address, server.port, caller)
        await connection.tunnel(dialled, server.host, held, self._nursery)

    def _opened(self) -> list[Item]:
        """What the client said behind its CONNECT already."""
        self._stream.accept()
        return self._stream.observe(_ESTABLISHED)

    async def _say(self, words: bytes) -> None:
        await last_words(self._client, words)

    def client_cut(self) -> None:
        """The client is gone, or was cut."""
        if self._leg is not None and not self._leg.over.is_set():
            self._leg.client_cut()
        abort(self._client)

    async def leave(self) -> None:
        """Nothing more goes to the server so far."""
        if self._leg is None:
            return
        leg, self._leg = self._leg, None
        if self._keeper is not None:
            self._keeper.over()
        with trio.CancelScope(shield=True):
            await leg.leave()
        self._stage.put(leg.closed(self._stage.now(), self._opened_ns, self._id, self._span, self._pid))



def _fault(at_ns: int, error: Exception) -> Gap:
    could_hide = "how one connection to the proxy ended: the gateway failed on it and cut it"
    detail = repr(error).encode("utf-8", "backslashreplace")[:400]
    return Gap(
        at_ns=at_ns, what="model", cause="gateway-fault", could_hide=could_hide, from_ns=at_ns, to_ns=at_ns,
        detail=detail,
    )  # fmt: skip
