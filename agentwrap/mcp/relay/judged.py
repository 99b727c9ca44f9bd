r"""A session where the policy has a say: whole lines are judged before they go on, byte for byte, or do not.

Judgements are told before the bytes that they are about, and both before anything goes on. What is `\n`-ended is a
line; what follows the last one counts as a line at the end of its side, for many servers read it.
"""

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from agentwrap.events import AskWaiting, McpBytes, McpSaid
from agentwrap.events.mcp_news import McpVerdict
from agentwrap.mcp.framing import Lines
from agentwrap.mcp.gate import Gate, Verdict
from agentwrap.mcp.relay.asks import Answered, Asks, Held
from agentwrap.mcp.relay.way import Way
from agentwrap.tracing.wire import Message

LINE_MAX_BYTES = 64 << 20
_TOGETHER = 64  # lines that are judged before their bytes are told: whoever reads both keeps so much in mind
TOO_LONG = b"a line of more than 64 MB cannot be judged"
_WAITS = b"waiting for a human to allow it"
_TOLD: dict[Answered, McpVerdict] = {
    "once": "approved", "run": "approved", "always": "approved", "deny": "refused", "expired": "expired"
}  # fmt: skip


class Telling(Protocol):
    """Who takes what is told."""

    def put(self, item: Message) -> None:
        """The next news."""
        ...

    def send(self) -> None:
        """What was put is to be out of this process, as far as there is room for it."""
        ...


class About(msgspec.Struct, frozen=True):
    """The session that is judged. `now`: ns of the run; `too_long`: a side cannot be judged any more."""

    number: int
    span: str
    pid: int
    up: Way
    down: Way
    now: Callable[[], int]
    too_long: Callable[[], None]


class _Act(msgspec.Struct):
    """What is to be done about one line."""

    kind: Literal["pass", "refuse", "hold", "drop"]
    data: bytes = b""  # what passes, or what the sender is answered
    instead: bytes = b""
    held: Held | None = None


class Judged:
    """Judges the lines of those sides that its gate reads; bytes of the other side go on as they come."""

    def __init__(self, about: About, gate: Gate, asks: Asks, link: Telling) -> None:
        self._about, self._gate, self._asks, self._link = about, gate, asks, link
        self._lines: dict[bool, Lines] = {}
        self._count = {True: 0, False: 0}
        self._held: list[Held] = []
        self._untold = b""
        for way in (about.up, about.down):
            if gate.reads(up=way.up):
                self._lines[way.up] = Lines(LINE_MAX_BYTES)
                way.answers, self._other(way).answered = self._other(way), way

    def received(self, way: Way, data: bytes) -> None:
        """Bytes came from one side."""
        lines = self._lines.get(way.up)
        if lines is None:
            self._tell_bytes(way, data)
            self._told_said(way, way.send(data))
            return
        begun = lines.begun
        over = lines.over
        whole = lines.feed(data)
        self._untold = data
        try:
            while len(whole) > _TOGETHER:
                some, whole = whole[:_TOGETHER], whole[_TOGETHER:]
                size = sum(map(len, some)) - begun
                self._work(way, some, data[:size], over=False)
                data, begun = data[size:], 0
            self._work(way, whole, data, over=lines.over and not over)
        except Exception:
            self._tell_bytes(way, self._untold)  # they came; what is to become of them nobody knows: they stay here
            raise

    def ended(self, way: Way) -> None:
        """No more comes from one side: nothing that waits can be answered and carried out as it was meant."""
        lines = self._lines.get(way.up)
        if lines is not None and (rest := lines.rest()):
            self._work(way, [rest], b"", over=False)
        self.give_up(b"the client has left" if way.up else b"the server has left")

    def give_up(self, reason: bytes) -> None:
        """Nothing waits any more."""
        for held in self._held[:]:
            self._withdraw(held, reason)
            self._say(self._other(self._way(held.up)), self._gate.refused(held.verdict, reason))

    def _work(self, way: Way, lines: list[bytes], data: bytes, *, over: bool) -> None:
        acts = [self._judge(way, line) for line in lines]
        if over:
            why = Verdict(decision="deny", rule=b"built-in.too-long", why=TOO_LONG)
            self._tell(way.up, self._count[way.up] + 1, why, "deny")
        if data:
            self._tell_bytes(way, data)
            self._untold = self._untold[len(data) :]
        if acts:
            self._link.send()
        passing: list[bytes] = []
        for act in acts:
            if act.kind == "pass":
                passing.append(act.data)
            elif act.kind == "refuse":
                # In its place: what came before it has gone on by now.
                self._pass(way, passing)
                self._say(self._other(way), act.data)
                self._say(way, act.instead)
            elif act.held is not None and not act.held.gone:
                self._ask(act.held)
        self._pass(way, passing)
        if over:
            self._about.too_long()

    def _pass(self, way: Way, passing: list[bytes]) -> None:
        if passing:
            self._told_said(way, way.send(passing[0] if len(passing) == 1 else b"".join(passing)))
            passing.clear()

    def _judge(self, way: Way, line: bytes) -> _Act:
        self._count[way.up] += 1
        number = self._count[way.up]
        message = line.removesuffix(b"\n")
        if not message.strip():
            return _Act("pass", line)
        verdicts = self._gate.judge(message, up=way.up)
        if len(verdicts) == 1:
            return self._judge_one(way, number, line, verdicts[0])
        refused = any(verdict.decision in ("deny", "hold") for verdict in verdicts)
        for verdict in verdicts:
            if refused:
                self._tell(way.up, number, verdict, "deny")
            else:
                self._tell_passing(way, number, verdict)
        return _Act("refuse", verdicts[0].answer) if refused else _Act("pass", line)

    def _judge_one(self, way: Way, number: int, line: bytes, verdict: Verdict) -> _Act:
        if verdict.cancels and (held := self._waiting(way.up, verdict.cancels)) is not None:
            self._withdraw(held, b"the sender cancelled it")
            self._tell(way.up, number, msgspec.structs.replace(verdict, rule=held.verdict.rule), "cancelled")
            return _Act("drop")
        if verdict.decision == "deny":
            self._tell(way.up, number, verdict, "deny")
            return _Act("refuse", verdict.answer, verdict.instead)
        if verdict.decision != "hold":
            self._tell_passing(way, number, verdict)
            return _Act("pass", line)
        held = Held(way.up, number, line, verdict, self._progress, self._settle)
        if refusal := self._asks.begin(held).encode():
            self._tell(way.up, number, verdict.because(refusal), "deny")
            return _Act("refuse", self._gate.refused(verdict, refusal))
        self._held.append(held)
        self._tell(way.up, number, verdict, "hold", held.ask)
        return _Act("hold", held=held)

    def _tell_passing(self, way: Way, number: int, verdict: Verdict) -> None:
        if verdict.decision == "would-deny":
            self._tell(way.up, number, verdict, "would-deny")
        elif verdict.ruled:
            self._tell(way.up, number, verdict, "allow")

    def _ask(self, held: Held) -> None:
        about = self._about

        def asking(at_ns: int, until_ns: int) -> AskWaiting:
            return self._gate.asking(held.verdict, held.ask, at_ns, until_ns, span=about.span, pid=about.pid)

        self._asks.put_to_human(held, asking)

    def _progress(self, held: Held) -> None:
        self._say(self._other(self._way(held.up)), self._gate.progress(held.verdict, held.count, _WAITS))

    def _settle(self, held: Held, answered: Answered) -> None:
        """A human answered, or time is up."""
        if held not in self._held:
            return
        self._held.remove(held)
        way, told = self._way(held.up), _TOLD[answered]
        denied = b"a human denied it" + (b": " + held.reason if held.reason else b"")
        why = {"approved": b"", "refused": denied, "expired": b"nobody answered in time"}[told]
        self._tell(held.up, held.line, held.verdict.because(why), told, held.ask)
        self._link.send()
        if told == "approved":
            self._told_said(way, way.send(held.data))
        else:
            self._say(self._other(way), self._gate.refused(held.verdict, why))

    def _withdraw(self, held: Held, reason: bytes) -> None:
        self._held.remove(held)
        self._asks.withdraw(held, reason)
        self._tell(held.up, held.line, held.verdict.because(reason), "cancelled", held.ask)

    def _waiting(self, up: bool, identity: bytes) -> Held | None:
        fitting = (held for held in self._held if held.up is up and held.verdict.id == identity)
        return next(fitting, None)

    def _way(self, up: bool) -> Way:
        return self._about.up if up else self._about.down

    def _other(self, way: Way) -> Way:
        return self._about.down if way.up else self._about.up

    def _say(self, way: Way, message: bytes) -> None:
        if message:
            self._told_said(way, way.say(message.removesuffix(b"\n") + b"\n"))

    def _told_said(self, way: Way, said: tuple[bytes, ...]) -> None:
        about = self._about
        for line in said:
            self._link.put(McpSaid(session=about.number, at_ns=about.now(), up=way.up, data=line[:-1]))

    def _tell_bytes(self, way: Way, data: bytes) -> None:
        self._link.put(McpBytes(self._about.number, self._about.now(), way.up, data))

    def _tell(self, up: bool, line: int, verdict: Verdict, what: McpVerdict, ask: str = "") -> None:
        about = self._about
        where = {"session": about.number, "line": line}
        self._link.put(verdict.judged(what, by=self._gate, at_ns=about.now(), up=up, ask=ask, **where))
