"""The supervisor's side of the relay: forks it; what its news make, and what its death hides."""

import os
import socket
from typing import TYPE_CHECKING, Protocol

from agentwrap.events import MCP_NEWS, ExchangeNews, Gap, Item, McpNews
from agentwrap.launching.sidecar import Sidecar, channel_pair
from agentwrap.mcp.relay import process

if TYPE_CHECKING:
    from agentwrap.tracing.wire import Failed


class Traffic(Protocol):
    """Who makes items of what passes between clients and servers."""

    def feed(self, news: McpNews) -> list[Item]:
        """What the next news make."""
        ...

    def finish(self, *, lost: bool) -> list[Item]:
        """What is left when there are no more. `lost`: who told them died, so what is open went on unseen."""
        ...


class StartedRelay(Sidecar):
    """The run's relay, from `fork` to `close`.

    `channel_for_tracer`: SEQPACKET, servers are handed over there (`mcp.handover`); to be closed here once the tracer
    has it. `traffic`: makes items of what passed; without one that is dropped.
    """

    channel_for_tracer: socket.socket
    traffic: Traffic | None = None

    def close_in_tracer(self) -> None:
        """In the tracer, right after the fork: what only the supervisor may hold."""
        self.channel.close()

    def forked_all(self) -> None:
        """In the supervisor, when the tracer has its copy: with the tracer its end of the channel is gone."""
        self.channel_for_tracer.close()

    def _made_of(self, news: ExchangeNews | McpNews) -> list[Item]:
        return self.traffic.feed(news) if self.traffic is not None and isinstance(news, MCP_NEWS) else []

    def _left_over(self, *, lost: bool) -> list[Item]:
        return self.traffic.finish(lost=lost) if self.traffic is not None else []

    def _failure_of(self, message: "Failed") -> str:
        return f"{message.step}: {super()._failure_of(message)}"

    def _loss(self, at_ns: int) -> tuple[Gap, str]:
        could_hide = "messages of MCP sessions that were open; they ended with it"
        gap = Gap(at_ns=at_ns, what="mcp-stdio", cause="relay-lost", could_hide=could_hide, from_ns=at_ns)
        return gap, "the relay of MCP servers died, and their sessions with it"

    def _end(self) -> None:
        super()._end()
        self.channel_for_tracer.close()


def fork(settings: process.Settings) -> StartedRelay:
    """Fork the relay, which sleeps until a server is handed over. Before any thread and before the tracer is forked."""
    ours, theirs = channel_pair(socket.SOCK_STREAM)
    for_tracer, channel = channel_pair(socket.SOCK_SEQPACKET)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        for_tracer.close()
        process.become(channel, theirs, settings, parent)
    theirs.close()
    channel.close()
    return StartedRelay(for_tracer, pid=pid, channel=ours)
