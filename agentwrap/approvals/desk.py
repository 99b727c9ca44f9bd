"""What a session uses to ask a human: one object between the gateway's questions, the socket and the recording.

Knows the events of asking. An answer is on disk before the gateway hears of it, so that nothing is let through on a
word that no record holds. Where nobody can be asked, the answer is no, at once.
"""

import os
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentwrap import text
from agentwrap.approvals import ancestry, folder
from agentwrap.approvals.messages import GiveAnswer, LayerText, RunFacts, public_id
from agentwrap.approvals.oneself import is_oneself
from agentwrap.approvals.registry import ANSWERS, Answer, Given, Registry, Waiting
from agentwrap.approvals.server import ControlServer
from agentwrap.errors import AgentwrapError
from agentwrap.events import ActDenied, AskAnswered, AskWaiting, Item, McpFinding
from agentwrap.policy.layers import Layer, attribution, may_approve_self, mode_of

_SHOWN_CHARACTERS = 500
_TOLD_PEERS = 100
_FOR_A_CALL: tuple[Answer, ...] = ("once", "run", "deny")
_REASON_BYTES, _QUESTION_COLUMNS = 1000, 300
_REMEMBERED = 10_000  # calls that were allowed for the rest of the run


def nobody_to_ask(*, waits_anyway: bool) -> str:
    """Why there is no human to ask; empty where there may be one.

    `waits_anyway`: a time to wait was asked for, so somebody is going to answer from elsewhere. Otherwise there has to
    be a terminal: in a CI job nobody looks, and waiting would only delay the denial.
    """
    if waits_anyway or os.isatty(0) or os.isatty(2):
        return ""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return "the run has no terminal, and no --ask-timeout"
    return ""


def may_speak() -> bool:
    """Whether a line on our standard error disturbs nobody: not where the agent draws on a terminal."""
    return not (os.isatty(1) and os.isatty(2))


def facts_of(run: str, command: Sequence[bytes], recording: Path, cwd: bytes, layers: Sequence[Layer]) -> RunFacts:
    """The run as approvers are told of it. Files of policies are named from here, where the run was started."""
    return RunFacts(
        run,
        text.clip(" ".join(shlex.quote(os.fsdecode(word)) for word in command), _SHOWN_CHARACTERS),
        os.path.abspath(recording),
        text.escape(cwd),
        mode_of(layers),
        tuple(LayerText(layer.name, _named(layer.policy.file), layer.trusted, layer.policy.source) for layer in layers),
    )


def _named(file: str) -> str:
    """A file by its whole path; a preset, or the command line, as it is called."""
    return os.path.abspath(file) if os.path.lexists(file) else file


def open_desk(env: Mapping[str, str], state: Path, facts: RunFacts, **others: Any) -> "Desk":
    """A desk with its socket in the folder for them. Where there can be none, all is denied as unattended."""
    try:
        path = folder.prepare(env, state) / facts.run
    except AgentwrapError as error:
        desk = Desk(None, facts, **others)
        desk.failure = f"{error.message}: {error.evidence}"
        return desk
    return Desk(path, facts, **others)


class Desk:
    """Asks for one run. Make it after the last fork (the socket must not live on in a child).

    `path`: where the control socket goes, None for none. `roots`: tracer and supervisor, whose descendants may not
    answer. `record`: writes events and returns when they are on disk. `tell`: one line to whoever asked, the gateway or
    the relay of MCP servers (`route`). `say`: one line to the human at the run's terminal. `layers`: who acts for whom.
    """

    def __init__(
        self,
        path: Path | None,
        facts: RunFacts,
        *,
        roots: Collection[int],
        now: Callable[[], int],
        record: Callable[[list[Item]], None],
        tell: Callable[[bytes], None],
        say: Callable[[str], None] = lambda _line: None,
        layers: Sequence[Layer] = (),
    ) -> None:
        self.failure = "" if path is not None else "there is no control socket"
        self._facts, self._roots = facts, frozenset(roots)
        self._now, self._record, self._tell, self._say = now, record, tell, say
        self._registry = Registry()
        self._tries: Counter[tuple[int, int, str]] = Counter()
        self._acting, self._self_allowed = attribution(layers), may_approve_self(layers)
        self._calls: dict[str, AskWaiting] = {}
        self._granted: dict[tuple[bytes, bytes, str], Given] = {}
        self._objected: set[str] = set()
        self._server: ControlServer | None = None
        if path is not None:
            self._open(path)

    def _open(self, path: Path) -> None:
        server = ControlServer(
            path,
            self._registry,
            lambda pid: ancestry.descends(pid, self._roots),
            self._settle,
            facts=self._facts,
            now=self._now,
            on_refused=self._tried,
            objection=self._objection,
        )
        self._server = server  # its thread may need us at once
        try:
            server.start()
        except OSError as error:
            self.failure = f"there is no control socket: {error}"
            self._server = None

    def hear(self, items: Iterable[Item]) -> None:
        """What the gateway told, already recorded: questions that begin, and those that it gave up by itself."""
        for item in items:
            if isinstance(item, AskWaiting):
                self._begin(item)
            elif isinstance(item, AskAnswered) and self._server is not None:
                with self._server.lock:
                    self._registry.withdraw(item.ask, item.at_ns, reason=item.answer)
                    self._calls.pop(item.ask, None)

    def _begin(self, asked: AskWaiting) -> None:
        waiting = self._waiting(asked)
        if self._server is None:
            self._settle(Given(waiting, "unattended", self._now(), reason=self.failure))
            return
        with self._server.lock:
            if asked.digest:
                self._calls[asked.ask] = asked
            ended = self._registry.add(waiting) or self._granted_before(asked)
            if ended is not None:
                self._settle(ended)
                return
        self._server.look()
        shown = public_id(waiting.ask, self._facts.run)
        self._say(f"agentwrap: waiting for a human: {waiting.question} (agentwrap approve {shown})")

    def _waiting(self, asked: AskWaiting) -> Waiting:
        """The question as approvers are shown it. What a call's answer is bound to is shown, too."""
        agent, on_behalf_of = self._acting
        question, arguments = text.escape(asked.question), text.escape(asked.arguments)
        if arguments:
            question = f"{text.clip(question, _SHOWN_CHARACTERS)} with {text.clip(arguments, _QUESTION_COLUMNS)}"
        names = (("server", asked.server), ("tool", asked.tool), ("SHA-256", asked.digest.encode()))
        return Waiting(
            asked.ask,
            text.clip(question, _SHOWN_CHARACTERS),
            text.clip(ancestry.told(asked.pid, self._roots), _SHOWN_CHARACTERS),
            asked.at_ns,
            asked.until_ns,
            tuple((name, text.clip(text.escape(value), _SHOWN_CHARACTERS)) for name, value in names if asked.digest),
            _FOR_A_CALL if asked.digest else ANSWERS,
            text.clip(text.escape(asked.agent) or text.escape(agent), _SHOWN_CHARACTERS),
            text.clip(text.escape(asked.on_behalf_of) or text.escape(on_behalf_of), _SHOWN_CHARACTERS),
            arguments,
        )

    def _granted_before(self, asked: AskWaiting) -> Given | None:
        """The same server, tool and arguments were allowed for the rest of the run: this one is, by the same human."""
        first = self._granted.get((asked.server, asked.tool, asked.digest)) if asked.digest else None
        if first is None:
            return None
        reason = f"allowed for the run as {first.waiting.ask}" + (f": {first.reason}" if first.reason else "")
        ended = self._registry.answer(
            asked.ask, "once", self._now(), approver=first.approver, uid=first.uid, pid=first.pid, reason=reason
        )
        return ended if isinstance(ended, Given) else None

    def close(self) -> None:
        """The run is over: nothing can be answered any more."""
        if self._server is not None:
            self._server.close()
            for one in self._registry.waiting():
                self._record([_event(Given(one, "expired", self._now(), reason="the run ended"), self._now())])
            more = {who: count - 1 for who, count in self._tries.items() if count > 1}
            if more:
                self._tell_tries(more)

    def _settle(self, given: Given) -> None:
        """Record how it ended, then tell whoever asked."""
        word = given.outcome if given.outcome in (*ANSWERS, "expired") else "deny"
        call = self._calls.pop(given.waiting.ask, None)
        told: list[Item] = [_event(given, given.at_ns)]  # later, it might seem to have come too late
        if call is not None and word not in ("deny", "expired") and self._is_self(given):
            told.append(self._self_approval(call, given.approver, given.uid, "allowed"))
        try:
            self._record(told)
            if call is not None and word == "run" and len(self._granted) < _REMEMBERED:
                self._granted[call.server, call.tool, call.digest] = given
        except BaseException:
            word = "deny"  # what is not on disk was not allowed
            raise
        finally:
            if call is not None and word == "deny" and given.reason:
                # A line of its own, before the answer: whoever asked tells the model. Lines have a bound there.
                reason = text.escape(given.reason).encode("utf-8", "replace")[:_REASON_BYTES].decode("utf-8", "ignore")
                self._tell(f"W{given.waiting.ask} {reason}".encode())
            self._tell(f"Y{given.waiting.ask} {word}".encode())

    def _objection(self, waiting: Waiting, answer: GiveAnswer, uid: int) -> str:
        """Why an answer may not be given: whom the agent acts for would allow it, and a policy denies that."""
        if self._self_allowed or answer.answer == "deny" or not self._names_self(waiting, answer.approver, uid):
            return ""
        call = self._calls.get(waiting.ask)
        if call is not None and waiting.ask not in self._objected:
            self._objected.add(waiting.ask)
            self._record([self._self_approval(call, answer.approver, uid, "refused")])
        return f"the agent acts for {waiting.on_behalf_of or waiting.agent}, and the policy wants somebody else's word"

    def _is_self(self, given: Given) -> bool:
        return self._names_self(given.waiting, given.approver, given.uid)

    @staticmethod
    def _names_self(waiting: Waiting, approver: str, uid: int) -> bool:
        return is_oneself(approver, uid, (waiting.agent, waiting.on_behalf_of))

    def _self_approval(self, call: AskWaiting, approver: str, uid: int, what: str) -> McpFinding:
        detail = f"{call.ask} {what}: approved by {approver or 'somebody'} (user {uid}), for whom it was asked"
        return McpFinding(
            at_ns=self._now(), span=call.span, pid=call.pid, what="self-approval", session="", server=call.server,
            tool=call.tool, detail=detail.encode("utf-8", "replace"),
        )  # fmt: skip

    def _tried(self, pid: int, uid: int, why: str) -> None:
        """Somebody asked who may not: the first try of a process is told at once, how often in all at the end."""
        who = (pid, uid, why)
        if who not in self._tries and len(self._tries) >= _TOLD_PEERS:
            who = (0, uid, why)
        self._tries[who] += 1
        if self._tries[who] == 1:
            self._tell_tries({who: 1})

    def _tell_tries(self, tries: Mapping[tuple[int, int, str], int]) -> None:
        assert self._server is not None
        target = os.fsencode(self._server.path)
        self._record(
            [
                ActDenied(
                    at_ns=self._now(), pid=pid, decision="deny", by="guard", rule=b"built-in.self-approval",
                    why=f"{why} (user {uid})".encode(), act="reach", target=target, call="connect", mechanism="peer",
                    count=count,
                )
                for (pid, uid, why), count in tries.items()
            ]
        )  # fmt: skip


def route(gateway: Callable[[bytes], None] | None, relay: Callable[[bytes], None] | None) -> Callable[[bytes], None]:
    """Lines to whoever asked: the relay's questions begin with `r`, the gateway's with `a`."""

    def tell(line: bytes) -> None:
        whom = relay if line[1:2] == b"r" else gateway
        if whom is not None:
            whom(line)

    return tell


def _event(given: Given, at_ns: int) -> AskAnswered:
    return AskAnswered(
        at_ns=at_ns,
        ask=given.waiting.ask,
        answer=given.outcome,
        approver=given.approver.encode("utf-8", "replace"),
        uid=given.uid,
        approver_pid=given.pid,
        reason=given.reason.encode("utf-8", "replace"),
    )
