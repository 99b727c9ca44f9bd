"""Sessions over HTTP: what `mcp.http_exchanges` makes of exchanges, put into the run's sessions. Pure."""

from collections import OrderedDict

from agentwrap.events import ExchangeNews, McpJudged, McpSaid
from agentwrap.mcp.http_exchanges import HttpClosed, HttpExchanges, HttpMessage, HttpNews, HttpOpened, HttpOver
from agentwrap.mcp.sessions import Session, Sessions, Told

_EXCHANGES_MAX = 4096
_ERROR = 400
_ENDS = ("approved", "refused", "expired", "cancelled")


class _Exchange:
    """`early`: verdicts on what was not told yet. `asked`: the request's message, `answered`: the last other one."""

    __slots__ = ("answered", "asked", "early", "session")

    def __init__(self) -> None:
        self.early: list[McpJudged] = []
        self.asked: Told | None = None
        self.answered: Told | None = None
        self.session: Session | None = None


class OverHttp:
    """All sessions over HTTP of one run."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._exchanges = HttpExchanges()
        self._open: dict[int, Session] = {}
        self._known: OrderedDict[int, _Exchange] = OrderedDict()

    def feed(self, news: ExchangeNews) -> bool:
        """Take the next news of any exchange; whether it is one of MCP's."""
        belonged = self._exchanges.belongs(news.exchange)
        self._take(self._exchanges.feed(news))
        return belonged or self._exchanges.belongs(news.exchange)

    def judged(self, news: McpJudged) -> None:
        """A verdict about a message of an exchange: mostly before that is told."""
        one = self._exchange(news.exchange)
        # Of a stream's messages each is judged before it is told; only a hold's end is heard of afterwards.
        told = one.asked if news.up else one.answered if news.verdict in _ENDS else None
        if one.session is None or told is None:
            one.early.append(news)
        else:
            self._sessions.judged(one.session, told, news)

    def said(self, news: McpSaid) -> None:
        """Something that agentwrap itself said in an exchange."""
        self._take(self._exchanges.said(news))

    def finish(self, at_ns: int, *, lost: bool = False) -> None:
        """Nothing more will come."""
        self._take(self._exchanges.finish(at_ns, lost=lost))
        self._known.clear()

    def _exchange(self, number: int) -> _Exchange:
        one = self._known.get(number)
        if one is None:
            one = self._known[number] = _Exchange()
            if len(self._known) > _EXCHANGES_MAX:
                self._known.popitem(last=False)
        return one

    def _take(self, told: list[HttpNews]) -> None:
        for news in told:
            match news:
                case HttpOpened():
                    self._open[news.session] = self._sessions.open(
                        at_ns=news.at_ns,
                        server=news.server,
                        span=news.span,
                        pid=news.pid,
                        transport=news.transport,
                        how=news.how,
                        config=news.config,
                        url=news.url,
                    )
                case HttpMessage():
                    self._message(news)
                case HttpOver():
                    self._over(news)
                case HttpClosed():
                    session = self._open.pop(news.session, None)
                    if session is not None:
                        session.up_bytes, session.down_bytes = news.up_bytes, news.down_bytes
                        self._sessions.close(session, news.at_ns, news.ending, news.detail)

    def _message(self, news: HttpMessage) -> None:
        session = self._open.get(news.session)
        if session is None:
            return
        one = self._exchange(news.exchange)
        one.session = session
        number = f"h{news.exchange}"  # as `http.exchange` has it
        if news.ours:
            self._sessions.said(session, news.at_ns, news.up, news.data, exchange=number, of=one.asked)
            return
        judged: list[McpJudged] = []
        if news.last:
            judged = [verdict for verdict in one.early if verdict.up is news.up]
            one.early = [verdict for verdict in one.early if verdict.up is not news.up]
        of = None if news.up else one.asked
        told = self._sessions.message(
            session, news.at_ns, news.up, news.data, exchange=number, judged=judged, of=of, piece=news.piece
        )
        if news.up:
            one.asked = told
        else:
            one.answered = told

    def _over(self, news: HttpOver) -> None:
        one = self._known.pop(news.exchange, None)
        if one is None or one.asked is None or news.resumable:
            return
        if news.status >= _ERROR:
            self._sessions.gone(one.asked, news.at_ns, "error", b"HTTP %d" % news.status)
        else:
            cut = news.ending == "cut-by-client"
            self._sessions.gone(one.asked, news.at_ns, "cancelled" if cut else "unanswered", news.detail)
