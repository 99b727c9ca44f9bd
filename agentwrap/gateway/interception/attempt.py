"""One connection for a host that is to be read: the server's TLS first, then the client's; or it is passed through.

Knows the order of things. Refuses to judge: the connection, and the name its client asks for, are allowed already.
"""

import re
import socket
from functools import cached_property

import msgspec
import trio

from agentwrap.gateway.client_hello import Hello
from agentwrap.gateway.dialling import Failed, dial
from agentwrap.gateway.interception.interceptor import Client, Host, Interceptor, Passed, program_of
from agentwrap.gateway.interception.plain import PlainPassage
from agentwrap.gateway.interception.tls import TlsError, TlsSide
from agentwrap.gateway.interception.upstream import NotOurs
from agentwrap.gateway.relay import Passage, abort, receive, send
from agentwrap.policy.hosts import Address

_CLIENT_S, _TUNNEL_S = 30.0, 30.0
_ANSWER_MAX = 0x10000  # bytes of a proxy's head
_AGREES = re.compile(rb"HTTP/1\.[01] 2[0-9][0-9][ \r]")


class Way(msgspec.Struct, frozen=True):
    """How the server was reached. `tunnels`: what proxies on the way were asked for, the outermost first."""

    address: Address
    port: int
    tunnels: tuple[bytes, ...] = ()


class Attempt:
    """What becomes of `passage`, whose client has said `held` so far, a whole hello. `passed`: why it is not read."""

    def __init__(
        self, interceptor: Interceptor, passage: Passage, nursery: trio.Nursery, span: str, pid: int
    ) -> None:
        self._interceptor = interceptor
        self._passage = passage
        self._nursery = nursery
        self._span, self._pid = span, pid
        self.passed: Passed | None = None

    @cached_property
    def _client(self) -> Client:
        return Client(self._span, program_of(self._span, self._pid))

    async def make(self, hello: Hello, held: bytes, host: Host, way: Way) -> PlainPassage | None:
        """Both sessions, the server's side of it being carried already; or None, and the passage goes on as it is.

        Raises OSError where client or server have gone meanwhile; the passage is cut then.
        """
        objection = self._interceptor.objection(self._client, host, hello)
        if objection is None and not await self._passage.take():
            self._passage.resume(self._nursery)
            objection = Passed("server-first")
        if objection is not None:
            self._let_pass(host, objection)
            return None
        server = await self._session(self._passage.server, host)
        if isinstance(server, NotOurs):
            await self._again(way)
            self._let_pass(host, Passed(server.why, server.detail))
            return None
        client = await self._accept(held, host)
        plain = PlainPassage(client, server)
        self._nursery.start_soon(plain.down)
        return plain

    def _let_pass(self, host: Host, passed: Passed) -> None:
        self.passed = passed
        self._interceptor.tell(host, passed)

    async def _session(self, sock: socket.socket, host: Host) -> TlsSide | NotOurs:
        try:
            return await self._interceptor.upstream.session(sock, *host)
        except OSError as error:
            return NotOurs("upstream-tls", error.strerror or type(error).__name__)

    async def _again(self, way: Way) -> None:
        """A fresh connection for the client's own hello; the server has had ours on the first."""
        abort(self._passage.server)
        try:
            dialled = await dial([way.address], way.port)
            if isinstance(dialled, Failed):
                raise ConnectionResetError(dialled.ending)
            self._passage.replace_server(dialled.sock)
            with trio.fail_after(_TUNNEL_S):
                for request in way.tunnels:
                    await _ask_for_tunnel(dialled.sock, request)
        except (OSError, trio.TooSlowError) as error:
            self._passage.give_up(b"by the server")
            raise ConnectionResetError("the server, once more") from error
        self._passage.resume(self._nursery)

    async def _accept(self, held: bytes, host: Host) -> TlsSide:
        side = TlsSide(self._passage.client, self._interceptor.authority.context(host[0]), held=held)
        try:
            with trio.fail_after(_CLIENT_S):
                await side.handshake()
        except (OSError, trio.TooSlowError) as error:
            reason = error.reason if isinstance(error, TlsError) else "it broke off during the handshake"
            self._interceptor.refused(self._client, host, reason)
            self.passed = Passed("client-refused", reason)
            self._passage.give_up(b"by the client")
            raise ConnectionResetError(reason) from error
        return side

    def over(self, plain: PlainPassage, host: Host) -> None:
        """What its client made of our certificate, now that it has ended."""
        if plain.refusal:
            self._interceptor.refused(self._client, host, plain.refusal)
            self.passed = Passed("client-refused", plain.refusal)

    def heard(self, host: Host) -> None:
        """The client has said its first word inside."""
        self._interceptor.accepted(self._client, host)


async def _ask_for_tunnel(sock: socket.socket, request: bytes) -> None:
    """The same CONNECT again. Raises OSError where the proxy does not agree this time."""
    await send(sock, request)
    answer = b""
    while b"\r\n\r\n" not in answer:
        more = await receive(sock)
        answer += more
        if not more or len(answer) > _ANSWER_MAX:
            raise ConnectionResetError("a proxy's answer without end")
    if not _AGREES.match(answer) or not answer.endswith(b"\r\n\r\n"):
        raise ConnectionResetError("a proxy that does not agree again")
