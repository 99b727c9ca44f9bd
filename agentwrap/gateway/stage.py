"""What the parts of the gateway share: one run's judge, known names, events, clock. Wiring only, no logic."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec

from agentwrap.events import Gap
from agentwrap.events.egress import NetClosed, NetDecision
from agentwrap.events.repeats import Teller, Told
from agentwrap.gateway.asking import Asks
from agentwrap.gateway.attribution import Attribution
from agentwrap.gateway.callers import Caller
from agentwrap.gateway.capture.about import About
from agentwrap.gateway.capture.tap import Tap
from agentwrap.gateway.judging import Judge, Verdict
from agentwrap.gateway.known_names import KnownNames
from agentwrap.gateway.link import Link
from agentwrap.gateway.lookup import Resolver
from agentwrap.gateway.placeholders import Placeholders
from agentwrap.policy.hosts import Address

if TYPE_CHECKING:
    from agentwrap.gateway.gating.gates import Gates
    from agentwrap.gateway.interception.interceptor import Interceptor


class Stage(msgspec.Struct, kw_only=True):
    """One run's gateway. `by`: how strong its statements are; `admit` makes addresses reachable that a name led to.

    `taps` makes what looks at the HTTP of a connection; `interceptor` ends TLS, if any is to be read; `gates` judges
    messages of MCP, if any rules are about them.

    A `witness` judges nothing, and so tells no judgements.
    """

    by: Literal["wall", "guard", "witness"]
    now: Callable[[], int]
    judge: Judge
    known: KnownNames
    placeholders: Placeholders
    link: Link
    teller: Teller[Told]
    attribution: Attribution
    resolver: Resolver
    asks: Asks
    admit: Callable[[tuple[Address, ...]], None]
    taps: Callable[[About], Tap]
    interceptor: "Interceptor | None" = None
    gates: "Gates | None" = None
    connections: int = 0
    live: int = 0
    gaps: set[tuple[str, bytes]] = msgspec.field(default_factory=set)

    def next_connection(self) -> str:
        """The id of a new connection."""
        self.connections += 1
        return f"c{self.connections}"

    async def tell(self, event: Told) -> None:
        """Tell a judgement, or count it. A first denial is on disk when this returns."""
        if self.by == "witness":
            return
        if self.teller.tell(event) and event.decision == "deny":
            await self.link.on_disk()

    def put(self, event: NetDecision | NetClosed) -> None:
        """Tell something that has no repeats."""
        if self.by != "witness" or not isinstance(event, NetDecision):
            self.link.put(event)

    def gap_once(self, gap: Gap) -> None:
        """Tell a gap, once for each cause and detail; some thousand details at most."""
        key = (gap.cause, gap.detail)
        if key not in self.gaps and len(self.gaps) < 1000:
            self.gaps.add(key)
            self.link.put(gap)

    async def settled(self, verdict: Verdict, address: str, caller: Caller | None) -> Verdict:
        """A verdict without open question: in mode `ask` a human answers, and the caller waits."""
        if verdict.decision != "ask":
            return verdict
        span, pid = (caller.span, caller.pid) if caller else ("run", 0)
        answer = await self.asks.ask(verdict, address, span, pid)
        return self.judge.answered(verdict, address, answer)
