"""News of MCP sessions in, events for the recorder out. Pure. Nothing foreign makes it raise."""

from collections.abc import Callable, Iterable

from agentwrap.events import ExchangeNews, Item, McpNews


class McpDecoder:
    """All MCP sessions of one run. `emit` takes what is made, in order."""

    def __init__(self, emit: Callable[[Item], None]) -> None:
        self._emit = emit

    def feed(self, news: McpNews) -> None:
        """Take the next news of the relay, or a judgement of the gateway."""

    def exchange(self, news: ExchangeNews) -> bool:  # noqa: ARG002
        """Take the next news of an HTTP exchange; whether it belongs to MCP (then it is no plain exchange)."""
        return False

    def see(self, items: Iterable[Item]) -> None:
        """What else the run tells (the model's tool calls), to join calls with."""

    def finish(self, at_ns: int, *, lost: bool = False) -> None:
        """Nothing more will come. `lost`: who told the news died, so that what is open went on unseen."""
