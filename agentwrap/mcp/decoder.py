"""News of MCP sessions in, events for the recorder out. Pure. Nothing foreign makes it raise.

What the relay of stdio servers tells is cut into messages here; what HTTP exchanges carry, in `mcp.http_exchanges`.
Both put whole messages into the same `Sessions`.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from agentwrap.events import (
    ExchangeNews,
    Item,
    McpBytes,
    McpClosed,
    McpJudged,
    McpNews,
    McpOpened,
    McpSaid,
)
from agentwrap.mcp.lines import Line, Lines
from agentwrap.mcp.listings import Pinned, unpinned
from agentwrap.mcp.over_http import OverHttp
from agentwrap.mcp.sessions import Acting, Arguments, Session, Sessions, Told

HELD_MAX_BYTES = 192 << 20
_RECENT_MAX = 256

LineKey = tuple[bool, int]
"""Side (up) and number of a line."""


_ENDS_BYTES = 4096


class _Ends:
    """Beginning, end and size of a line that is told in pieces."""

    __slots__ = ("head", "size", "tail")

    def __init__(self) -> None:
        self.head = self.tail = b""
        self.size = 0

    def add(self, data: bytes) -> None:
        """The next piece."""
        if len(self.head) < _ENDS_BYTES:
            self.head = (self.head + data[:_ENDS_BYTES])[:_ENDS_BYTES]
        self.tail = (self.tail + data[-_ENDS_BYTES:])[-_ENDS_BYTES:]
        self.size += len(data)


class _Stdio:
    """A session of the relay. `early`: verdicts on lines that have not come whole; `recent`: lines that were told."""

    __slots__ = ("early", "ends", "held", "lines", "recent", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.lines = {True: Lines(), False: Lines()}
        self.ends = {True: _Ends(), False: _Ends()}
        self.early: dict[LineKey, list[McpJudged]] = {}
        self.held: dict[LineKey, Told] = {}
        self.recent: OrderedDict[LineKey, Told] = OrderedDict()


class McpDecoder:
    """All MCP sessions of one run. `emit` takes what is made, in order.

    `pinned`: the digest that the policy holds a tool to. `arguments`: what is told of those of calls.
    `acting`: the agent, and for whom it acts, by the policy; also where no rule spoke.
    """

    def __init__(
        self,
        emit: Callable[[Item], None],
        pinned: Pinned = unpinned,
        arguments: Arguments = "redacted",
        acting: Acting = (b"", b""),
    ) -> None:
        self.sessions = Sessions(emit, pinned, arguments, acting)
        self._http = OverHttp(self.sessions)
        self._open: dict[int, _Stdio] = {}
        self._held_bytes = 0

    def feed(self, news: McpNews) -> None:
        """Take the next news of the relay, or a judgement of the gateway."""
        if isinstance(news, McpOpened):
            self._begin(news)
            return
        one = self._open.get(news.session)
        match news:
            case McpJudged() if news.exchange:
                self._http.judged(news)
            case McpSaid() if news.exchange:
                self._http.said(news)
            case _ if one is None:
                return
            case McpBytes():
                self._bytes(one, news)
            case McpJudged():
                self._judged(one, news)
            case McpSaid():
                self.sessions.said(one.session, news.at_ns, news.up, news.data)
            case McpClosed():
                del self._open[news.session]
                self._rest(one, news.at_ns)
                self.sessions.close(one.session, news.at_ns, news.ending, news.detail)

    def exchange(self, news: ExchangeNews) -> bool:
        """Take the next news of an HTTP exchange; whether it belongs to MCP (then it is no plain exchange)."""
        return self._http.feed(news)

    def see(self, items: Iterable[Item]) -> None:
        """What else the run tells (the model's tool calls), to join calls with."""
        self.sessions.see(items)

    def finish(self, at_ns: int, *, lost: bool = False) -> None:
        """Nothing more will come. `lost`: who told the news died, so that what is open went on unseen."""
        for one in self._open.values():
            self._rest(one, at_ns)
        self._open.clear()
        self._http.finish(at_ns, lost=lost)
        self.sessions.finish(at_ns, lost=lost)

    def _begin(self, news: McpOpened) -> None:
        if news.session in self._open:
            return
        session = self.sessions.open(
            at_ns=news.at_ns,
            server=news.server,
            span=news.span,
            pid=news.pid,
            how=news.how,
            config=news.config,
            command=news.command,
        )
        self._open[news.session] = _Stdio(session)

    def _bytes(self, one: _Stdio, news: McpBytes) -> None:
        lines = one.lines[news.up]
        self.sessions.count(one.session, news.up, len(news.data))
        before = lines.held_bytes
        self._lines(one, lines.feed(news.data), news.at_ns, news.up)
        self._held_bytes += lines.held_bytes - before
        while self._held_bytes > HELD_MAX_BYTES:
            self._make_room(news.at_ns)

    def _make_room(self, at_ns: int) -> None:
        """Lines that are under way cost no more than HELD_MAX_BYTES: the largest is told in pieces."""
        sides = [(one, up, one.lines[up]) for one in self._open.values() for up in (True, False)]
        one, up, lines = max(sides, key=lambda side: side[2].held_bytes)
        before = lines.held_bytes
        self._lines(one, lines.give_up(), at_ns, up)
        self._held_bytes += lines.held_bytes - before

    def _lines(self, one: _Stdio, lines: Iterable[Line] | Iterator[Line], at_ns: int, up: bool) -> None:
        for line in lines:
            key = (up, line.number)
            judged = one.early.pop(key, []) if line.last else one.early.get(key, [])
            told = self.sessions.message(one.session, at_ns, up, line.data, judged=judged, piece=line.piece)
            if line.piece:
                self._piece(one, line, at_ns, up)
            if any(verdict.verdict == "hold" for verdict in judged):
                one.held[key] = told
            one.recent[key] = told
            if len(one.recent) > _RECENT_MAX:
                one.recent.popitem(last=False)

    def _piece(self, one: _Stdio, line: Line, at_ns: int, up: bool) -> None:
        ends = one.ends[up]
        ends.add(line.data)
        if line.last:
            self.sessions.long_answer(one.session, at_ns, up, ends.head, ends.tail, ends.size)
            one.ends[up] = _Ends()

    def _judged(self, one: _Stdio, news: McpJudged) -> None:
        key = (news.up, news.line)
        told = one.held.get(key) or one.recent.get(key)
        if told is None:
            if len(one.early) < _RECENT_MAX:
                one.early.setdefault(key, []).append(news)
            return
        if news.verdict == "hold":
            one.held[key] = told
        else:
            one.held.pop(key, None)
        self.sessions.judged(one.session, told, news)

    def _rest(self, one: _Stdio, at_ns: int) -> None:
        """The last line of a side may have no end."""
        for up, lines in one.lines.items():
            self._held_bytes -= lines.held_bytes
            self._lines(one, lines.finish(), at_ns, up)
