"""What all connections of a run share where rules speak of MCP: a gate for each server, and what waits for a human.

Knows which request is judged by which gate. Refuses to know sockets.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec
import trio

from agentwrap.events import McpSaid
from agentwrap.events.exchange import OfMcp
from agentwrap.events.mcp_news import McpVerdict
from agentwrap.gateway.asking import Asks
from agentwrap.gateway.gating.held_request import HeldRequest
from agentwrap.gateway.link import Link
from agentwrap.mcp.gate import Gate, Verdict
from agentwrap.mcp.http import Place, Recognition, asked_at, name_of, place_of, stated_at, value_of
from agentwrap.policy.layers import Layer, mode_of

_NO_MESSAGE = frozenset((b"HEAD", b"OPTIONS", b"DELETE", b"TRACE", b"CONNECT"))
_GATES_MAX = 1000
_STRICT = {"pass": 0, "would-deny": 1, "hold": 2, "deny": 3}
Tell = Callable[[bytes], Awaitable[None]]
Fate = Literal["approved", "refused", "expired", "cancelled"]


class Case(msgspec.Struct, frozen=True):
    """A request that is judged. `sure`: it is one of MCP's; else its body has to say so. `owner`: whose ids it has.

    `up`: its own body is judged; `down`: what its answer holds; `listens`: its answer may be a stream of the old
    transport, into which answers of ours to other requests go. `asked`: where it goes, with its query. `others`: of
    servers that it may be for as well.
    """

    gate: Gate
    place: Place
    of: OfMcp | None
    owner: bytes
    up: bool
    down: bool
    listens: bool = False
    asked: bytes = b""
    others: tuple[Gate, ...] = ()

    def judged(self, message: bytes, *, up: bool) -> tuple[Gate, tuple[Verdict, ...]]:
        """The strictest that all gates say, and whose it is."""
        said = [(gate, gate.judge(message, up=up)) for gate in (self.gate, *self.others)]
        return max(said, key=lambda one: max((_STRICT[verdict.decision] for verdict in one[1]), default=0))

    @property
    def sure(self) -> bool:
        """Whether its head says it."""
        return self.of is not None


class Waiting(msgspec.Struct, eq=False):
    """A call that is held. `over` is set when its client cancelled it."""

    owner: bytes
    id: bytes
    over: trio.Event


class Gates:
    """One run's. `layers`: its policies; `unattended`: there is no human to ask. `enforces`: something is refused."""

    def __init__(
        self,
        layers: Sequence[Layer],
        recognition: Recognition,
        link: Link,
        asks: Asks,
        now: Callable[[], int],
        *,
        unattended: bool,
    ) -> None:
        self.link, self.asks, self.now, self.unattended = link, asks, now, unattended
        self.recognition = recognition
        self._layers = tuple(layers)
        self._gates: dict[bytes, Gate] = {}
        self._waiting: list[Waiting] = []
        self._streams: dict[bytes, Tell] = {}
        rules = [rule for layer in self._layers for rule in layer.policy.mcp.rules]
        self._named = {rule.server.text.encode() for rule in rules if rule.server.literal}
        self.enforces = bool(self._layers) and mode_of(self._layers) != "observe"
        self._nobody = Gate(self._layers, b"")

    def of(self, server: bytes) -> Gate:
        """The rules for one server; the same object for all connections to it."""
        gate = self._gates.get(server)
        if gate is None:
            gate = Gate(self._layers, server)
            if len(self._gates) < _GATES_MAX:
                self._gates[server] = gate
        return gate

    def case(
        self, held: HeldRequest, host: bytes, port: int, span: str, also: tuple[bytes, ...] = ()
    ) -> Case | None:
        """Whether a request is judged, or its answer. `host`, `port`: whom its connection leads to.

        `also`: other names of that host.
        """
        method = held.head.method.upper()
        if method in _NO_MESSAGE:
            return None
        place = place_of(held.head.target, host, port)
        found = self.recognition.of_head(held.head.method, place, held.headers)
        of = found if isinstance(found, OfMcp) else None
        opens = bool(held.head.upgrade)
        if of is None and method == b"GET" and not opens:
            return None
        # A target may name another host than the connection leads to, and a declared server has more than one path.
        there = place_of(b"/" + place.path.lstrip(b"/"), host, port)
        others = self.recognition.every((place, there), held.headers, also)
        if opens and of is None and not others and not _speaks_mcp(held):
            return None
        names = [of.server] if of is not None else []
        names += [one.server for one in others]
        gates = [self.of(name) for name in dict.fromkeys(names or [name_of(place)])]
        reading = [one for one in gates if one.reads(up=True)]
        gate, *more = reading or gates
        get = method == b"GET" and not opens  # what follows an upgrade nobody reads
        up, down = not get and gate.reads(up=True), gate.reads(up=False)
        listens = get and gate.reads(up=True)
        if not up and not (of is not None and (down or listens)):
            return None
        session = value_of(held.headers, b"mcp-session-id")
        owner = b"%b:%d%b %b" % (place.host, place.port, place.path, session or span.encode())
        asked = asked_at(held.head.target, host, port)
        return Case(gate, place, of, owner, up, down, listens, asked, tuple(more))

    def listen(self, case: Case, stated: bytes, tell: Tell) -> None:
        """A stream of the old transport says where messages go: what we answer to those goes into it by `tell`."""
        if len(self._streams) < _GATES_MAX:
            self._streams[stated_at(case.place, stated.strip())] = tell

    def stream_of(self, case: Case) -> Tell | None:
        """Into which stream an answer to a request goes, if not into its own."""
        return self._streams.get(case.asked) if case.of is not None and case.of.endpoint else None

    def unlisten(self, tell: Tell) -> None:
        """A stream is over."""
        self._streams = {key: one for key, one in self._streams.items() if one != tell}

    def must_read(self, host: bytes, port: int) -> bool:
        """Whether there are rules for a server at this host and port, so that nothing may go there unread.

        Rules for every server there may be are about what is seen to be one.
        """
        if not self.enforces:
            return False
        place = place_of(b"/", host, port)
        names = {name_of(place)} & self._named
        names.update(one.server for one in self.recognition.every((msgspec.structs.replace(place, path=b"?"),)))
        return any(gate.reads(up=True) or gate.reads(up=False) for gate in map(self.of, names))

    def wait(self, case: Case, verdict: Verdict) -> Waiting:
        """A call begins to be held."""
        waiting = Waiting(case.owner, verdict.id, trio.Event())
        self._waiting.append(waiting)
        return waiting

    def waited(self, waiting: Waiting) -> None:
        """It is held no longer."""
        self._waiting.remove(waiting)

    def cancel(self, case: Case, verdict: Verdict) -> bool:
        """A message cancels a request: whether that is held here, and has not gone on."""
        found = [one for one in self._waiting if (one.owner, one.id) == (case.owner, verdict.cancels)]
        for one in found:
            one.over.set()
        return bool(found)

    def tell(
        self, exchange: int, verdict: Verdict, what: McpVerdict, *, up: bool, why: bytes = b"", ask: str = ""
    ) -> None:
        """A judgement."""
        verdict = verdict.because(why)
        self.link.put(verdict.judged(what, by=self._nobody, at_ns=self.now(), up=up, ask=ask, exchange=exchange))

    def tell_passing(self, exchange: int, verdicts: Sequence[Verdict], *, up: bool) -> None:
        """What rules say of a message that goes on."""
        for verdict in verdicts:
            if verdict.decision == "would-deny":
                self.tell(exchange, verdict, "would-deny", up=up)
            elif verdict.ruled:
                self.tell(exchange, verdict, "allow", up=up)

    def tell_denied(self, exchange: int, verdicts: Sequence[Verdict], *, up: bool) -> None:
        """What rules say of a message that does not."""
        for verdict in verdicts:
            self.tell(exchange, verdict, "deny", up=up)

    def said(self, exchange: int, message: bytes, *, up: bool) -> None:
        """Our own words."""
        if message:
            self.link.put(McpSaid(exchange=exchange, at_ns=self.now(), up=up, data=message))


def _speaks_mcp(held: HeldRequest) -> bool:
    """Whether a WebSocket is asked for to carry messages: some packages' own transport, which is in no revision."""
    words = value_of(held.headers, b"sec-websocket-protocol").lower().split(b",")
    return any(word.strip() == b"mcp" for word in words)
