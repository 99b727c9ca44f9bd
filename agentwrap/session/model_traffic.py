"""The decoder of model traffic as the supervisor runs it: loaded when it is needed, never a reason to fail."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentwrap.events import MCP_NEWS, ExchangeNews, Gap, Item, McpNews

if TYPE_CHECKING:
    from agentwrap.models.decoder import Decoder
    from agentwrap.session.mcp_traffic import McpTraffic


class ModelTraffic:
    """Makes items of what the gateway tells. Used by the one thread that hears it; `now`: ns since the start.

    `mcp` hears of every exchange, too, and of what was judged about MCP messages.
    """

    def __init__(self, now: Callable[[], int], mcp: "McpTraffic | None" = None) -> None:
        self._now = now
        self._mcp = mcp
        self._items: list[Item] = []
        self._decoder: Decoder | None = None
        self._broken = False

    def read(self, news: ExchangeNews | McpNews) -> list[Item]:
        """What the next news make."""
        if isinstance(news, MCP_NEWS):
            return self._mcp.feed(news) if self._mcp is not None else []
        if self._mcp is not None:
            self._mcp.exchange(news)
        if not self._broken:
            try:
                if self._decoder is None:
                    self._decoder = self._load()
                self._decoder.feed(news)
            except Exception as error:  # foreign bytes found a fault of ours: the run goes on, and the file says so
                self._fail(error)
        return self._taken()

    def finish(self, *, lost: bool) -> list[Item]:
        """What is left at the end. `lost`: whoever saw the bytes died, so that what is open went on unseen."""
        if self._decoder is not None and not self._broken:
            try:
                self._decoder.finish(self._now(), lost=lost)
            except Exception as error:
                self._fail(error)
        return self._taken()

    def _load(self) -> "Decoder":
        from agentwrap.models import prices
        from agentwrap.models.decoder import Decoder

        # Takes a fifth of a second, which is there while a model thinks: denials wait for this thread's answers.
        threading.Thread(target=prices.load, name="agentwrap-prices", daemon=True).start()
        return Decoder(self._items.append, prices.estimate)

    def _fail(self, error: Exception) -> None:
        self._broken = True
        now = self._now()
        told = repr(error).encode("utf-8", "backslashreplace")[:400]
        could_hide = "model calls from then on: what passed was not read"
        self._items.append(
            Gap(at_ns=now, what="model", cause="internal-fault", could_hide=could_hide, from_ns=now, detail=told)
        )

    def _taken(self) -> list[Item]:
        items = self._items[:]
        self._items.clear()
        return items
