"""Who speaks with whom, from `initialize`, `server/discover` and the fields that requests of 2026-07-28 carry. Pure."""

from collections.abc import Callable

from agentwrap.events import Item, McpHello
from agentwrap.mcp.asked import SERVER_INFO, Answered, Asked
from agentwrap.mcp.rpc import read_members, string
from agentwrap.mcp.state import Call, Session

_TOLD_MAX = 16
_HANDSHAKES = frozenset({b"initialize", b"server/discover"})
_NAME_BYTES = 256


class Hellos:
    """What both sides of one session said of themselves so far."""

    def __init__(self, emit: Callable[[Item], None]) -> None:
        self._emit = emit
        self._asked: dict[Session, Asked] = {}
        self._told: dict[Session, list[McpHello]] = {}

    def asked(self, call: Call, asked: Asked) -> None:
        """A client's request."""
        if call.method in _HANDSHAKES or asked.modern:
            self._asked[call.session] = asked

    def answered(self, call: Call, answer: Answered, at_ns: int) -> None:
        """The server's answer to it."""
        session = call.session
        asked = self._asked.get(session)
        meta = read_members(answer.members.get("_meta", b""))
        info = answer.members.get("serverInfo", b"") if call.method in _HANDSHAKES else b""
        info = info or meta.get(SERVER_INFO, b"")
        if answer.ending == "error" or asked is None or not (call.method in _HANDSHAKES or asked.modern):
            return
        server_name, server_version = _name(info)
        client_name, client_version = _name(asked.client_info)
        told = self._told.setdefault(session, [])
        last = told[-1] if told else None
        if last is not None and not server_name:
            server_name, server_version = last.server_name, last.server_version
        hello = McpHello(
            **session.head(at_ns),
            protocol=string(answer.members.get("protocolVersion", b""))[:_NAME_BYTES] or asked.protocol[:_NAME_BYTES],
            client_name=client_name,
            client_version=client_version,
            server_name=server_name,
            server_version=server_version,
        )
        if len(told) < _TOLD_MAX and (last is None or _what(last) != _what(hello)):
            told.append(hello)
            self._emit(hello)

    def forget(self, session: Session) -> None:
        """The session is over."""
        self._asked.pop(session, None)
        self._told.pop(session, None)


def _name(info: bytes) -> tuple[bytes, bytes]:
    held = read_members(info)
    return string(held.get("name", b""))[:_NAME_BYTES], string(held.get("version", b""))[:_NAME_BYTES]


def _what(hello: McpHello) -> tuple[bytes, ...]:
    return (
        *(hello.protocol, hello.client_name, hello.client_version),
        *(hello.server_name, hello.server_version),
    )
