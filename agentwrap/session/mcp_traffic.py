"""The decoder of MCP as the supervisor runs it: two threads hear of sessions (relay, gateway), one decoder knows all.

What it makes is put while the lock is held: a body that one thread tells is named by an event of the other.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from agentwrap.events import ExchangeNews, Gap, Item, McpNews, ToolCall, ToolResult
from agentwrap.policy.layers import Layer, attribution, pinned_digest

if TYPE_CHECKING:
    from agentwrap.mcp.decoder import McpDecoder


class McpTraffic:
    """Makes items of what relay and gateway tell, and gives them to `put`. `now`: ns since the start.

    `layers`: policies, which may pin tools. `arguments`: what is kept of those of calls.
    """

    def __init__(
        self,
        put: Callable[[list[Item]], None],
        now: Callable[[], int],
        layers: Sequence[Layer] = (),
        arguments: Literal["digest", "redacted", "full"] = "redacted",
    ) -> None:
        self._put = put
        self._now = now
        self._layers = layers
        self._arguments = arguments
        self._lock = threading.Lock()
        self._items: list[Item] = []
        self._decoder: McpDecoder | None = None
        self._broken = self._lost = False

    def feed(self, news: McpNews) -> list[Item]:
        """The next news of the relay, or a judgement of the gateway. Everything made is put already."""
        self._do(lambda decoder: decoder.feed(news))
        return []

    def exchange(self, news: ExchangeNews) -> None:
        """The next news of an exchange."""
        self._do(lambda decoder: decoder.exchange(news))

    def see(self, items: Iterable[Item]) -> None:
        """What else the run tells, already put. Only tools say something to a decoder, which takes 40 ms to load."""
        tools = [item for item in items if isinstance(item, (ToolCall, ToolResult))]
        if tools:
            self._do(lambda decoder: decoder.see(tools))

    def finish(self, *, lost: bool) -> list[Item]:
        """Nothing more will come from the relay; the gateway may have more."""
        self._lost = lost
        return []

    def close(self) -> None:
        """Nothing more will come from anybody."""
        if self._decoder is not None:
            self._do(lambda decoder: decoder.finish(self._now(), lost=self._lost))

    def _pinned(self, server: bytes, tool: bytes) -> str:
        return pinned_digest(self._layers, server.decode("utf-8", "replace"), tool.decode("utf-8", "replace"))

    def _do(self, act: "Callable[[McpDecoder], object]") -> None:
        with self._lock:
            if self._broken:
                return
            try:
                if self._decoder is None:
                    from agentwrap.mcp.decoder import McpDecoder

                    agent, person = (name.encode("utf-8", "surrogateescape") for name in attribution(self._layers))
                    self._decoder = McpDecoder(self._items.append, self._pinned, self._arguments, (agent, person))
                act(self._decoder)
            except Exception as error:  # foreign bytes found a fault of ours: the run goes on, and the file says so
                self._fail(error)
            if self._items:
                self._put(self._items[:])
                self._items.clear()

    def _fail(self, error: Exception) -> None:
        self._broken = True
        now = self._now()
        told = repr(error).encode("utf-8", "backslashreplace")[:400]
        could_hide = "calls of MCP servers from then on: what passed was not read"
        for what in ("mcp-stdio", "mcp-http"):
            self._items.append(
                Gap(at_ns=now, what=what, cause="internal-fault", could_hide=could_hide, from_ns=now, detail=told)
            )
