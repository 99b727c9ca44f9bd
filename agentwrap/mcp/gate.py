"""What the policy says of one MCP message. Pure: bytes in, a verdict out; who forwards, holds and answers is elsewhere.

A message is judged by its body alone, read strictly; the bytes that go on are never ours. What a server lists is
remembered, as far as tools of it are pinned: use one Gate for all that is said with a server of one name.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import msgspec

from agentwrap.events import McpJudged
from agentwrap.events.egress import AskWaiting
from agentwrap.events.mcp_news import McpVerdict
from agentwrap.mcp import answers
from agentwrap.mcp.normal_form import tool_digest
from agentwrap.mcp.strict import CANCELLED, Message, listed_tools, loose, read
from agentwrap.policy import calls
from agentwrap.policy.exact_json import Ambiguous, parse
from agentwrap.policy.layers import ORDER, Layer, attribution, mode_of
from agentwrap.policy.mcp_rules import TOOL_CALL, WITH_ARGUMENTS, McpPin, McpRule
from agentwrap.policy.questions import Answer, Call
from agentwrap.policy.rule import Rule
from agentwrap.policy.rules import Policy

_NAME_BYTES, _ARGUMENT_BYTES = 1024, 4096
_REMEMBERED = 1024
# What a message of a server has to hold before it can ask for something or list a tool, for whatever reader.
# An object has a brace, but in UTF-7 and EBCDIC, as which a program may be told to read its input (PYTHONIOENCODING).
_OTHER_LETTERS = re.compile(rb"[+\x80-\xff]")
_NOT_ASCII = Ambiguous("malformed", "it is no JSON, unless it is read in other letters than UTF-8")
_MAY_MATTER = re.compile(rb"(?i)method|inputrequests|tool(?:s|\xc5\xbf)|\\u|\0")


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of a message (of one member of a batch: `part`).

    `deny`: it does not go on; `answer` is the whole JSON text to give to its sender (empty: none, as a notification or
    a response gets none), `instead` is what its receiver is given in its place (a response that is kept back: whoever
    waits for it would wait for ever). `hold`: it waits for a human; `Gate.asking` is what they are asked,
    `Gate.refused` the answer for the case that it does not go on. `would-deny`: mode `observe`; it passes.

    `id`: as JSON text, empty for a notification. `cancels`: the id (JSON text) of a request that this message cancels.
    `progress_token`: as JSON text, empty if none was given. `modern`: the request says that it is of 2026-07-28.
    `digest`: SHA-256 of the arguments, hex, as in `mcp.call`. `arguments`: what was judged, clipped (`hold` alone).
    """

    decision: Literal["pass", "deny", "hold", "would-deny"] = "pass"
    part: int = 0
    rule: bytes = b""
    why: bytes = b""
    change: bytes = b""
    method: bytes = b""
    tool: bytes = b""
    digest: str = ""
    id: bytes = b""
    cancels: bytes = b""
    progress_token: bytes = b""
    modern: bool = False
    answer: bytes = b""
    instead: bytes = b""
    question: bytes = b""
    arguments: bytes = b""
    ruled: bool = False  # a rule spoke, so that it is told (`McpJudged`) also where it passes

    def because(self, why: bytes) -> "Verdict":
        """The same with one more reason."""
        return msgspec.structs.replace(self, why=b"; ".join(filter(None, (self.why, why))))

    def judged(
        self, what: McpVerdict, *, by: "Gate", at_ns: int, up: bool, ask: str, session: int = 0, line: int = 0,
        exchange: int = 0,
    ) -> McpJudged:  # fmt: skip
        """As the supervisor is told of it. `by`: the gate that said it, or one with the same layers."""
        return McpJudged(
            session=session,
            line=line,
            exchange=exchange,
            at_ns=at_ns,
            up=up,
            part=self.part,
            verdict=what,
            rule=self.rule,
            why=self.why,
            change=self.change,
            method=self.method,
            tool=self.tool,
            digest=self.digest,
            ask=ask,
            agent=by.agent,
            on_behalf_of=by.on_behalf_of,
        )


_PASSED = Verdict()


class _Words(NamedTuple):
    """What a verdict says beside what its message brings. `text`: of the refusal, `question`: what a human is asked."""

    decision: Literal["pass", "deny", "hold", "would-deny"]
    rule: bytes
    why: bytes
    change: bytes
    method: bytes
    tool: bytes
    text: str
    question: bytes


class _Judged(msgspec.Struct, frozen=True):
    """One request and what all layers say to it."""

    message: Message
    tool: str
    arguments: bytes
    answer: Answer


class Gate:
    """The rules for one server. `server`: its name as in `mcp.session`. `agent`, `on_behalf_of`: who acts for whom."""

    def __init__(self, layers: Sequence[Layer], server: bytes) -> None:
        self.server = server
        self._name = server.decode("utf-8", "surrogateescape")
        ordered = sorted(layers, key=lambda layer: ORDER.index(layer.name))
        self._policies = [layer.policy for layer in ordered]
        self._rules = [[one for one in policy.mcp.rules if one.server.fits(self._name)] for policy in self._policies]
        every = [pin for policy in self._policies for pin in policy.mcp.pins if pin.server == self._name]
        self._pins: dict[str, list[McpPin]] = {}
        for pin in every:
            self._pins.setdefault(pin.tool, []).append(pin)
        self._observes = not layers or mode_of(layers) == "observe"
        flat = [one for rules in self._rules for one in rules]
        self._sides = {up: any(one.may_concern(up=up) for one in flat) for up in (True, False)}
        self._listed: dict[str, str] = {}
        self._fitting: dict[tuple[str, str], list[tuple[Policy, tuple[McpRule, ...]]]] = {}
        self._said: dict[tuple[Answer, str, str, bool], _Words] = {}
        agent, on_behalf_of = attribution(layers)
        self.agent, self.on_behalf_of = _bytes(agent), _bytes(on_behalf_of)

    def reads(self, *, up: bool) -> bool:
        """Whether messages of a side have to be judged at all; else its bytes go on unread."""
        return self._sides[up] or bool(self._pins)

    def judge(self, message: bytes, *, up: bool) -> tuple[Verdict, ...]:
        """One verdict for a message, one for each member of a batch. Never raises for foreign bytes.

        A batch goes on whole or not at all: where one member is refused all are, and the first verdict has the answer
        to all of them. A batch is never held.
        """
        if not self.reads(up=up) or not (message.find(b"{") >= 0 if up else _MAY_MATTER.search(message)):
            odd = up and self.reads(up=True) and _OTHER_LETTERS.search(message)
            return (self._ambiguous(message, _NOT_ASCII),) if odd else (_PASSED,)
        try:
            messages, batch = read(message)
        except Ambiguous as error:
            unjudged = self._beyond_numbers(message, up=up) if error.kind == "number" else None
            return unjudged or (self._ambiguous(message, error),)
        if not batch:
            return (self._judge(messages[0], up=up),)
        return self._whole(messages, [self._judge(one, up=up) for one in messages])

    def refused(self, verdict: Verdict, why: bytes) -> bytes:
        """The answer for a held message that does not go on: denied by a human, expired."""
        rule, method = _text(verdict.rule), _text(verdict.method)
        text = answers.unapproved_text(rule, self._what(method, _text(verdict.tool)), _text(why))
        return answers.refusal(verdict.id, method, text, rule, modern=verdict.modern)

    def progress(self, verdict: Verdict, count: int, text: bytes) -> bytes:
        """A `notifications/progress` for a held call that gave a token; empty where it gave none. `count`: from 1."""
        return answers.progress(verdict.progress_token, count, text) if verdict.progress_token else b""

    def asking(
        self, verdict: Verdict, ask: str, at_ns: int, until_ns: int, *, span: str = "", pid: int = 0
    ) -> AskWaiting:
        """What a human is asked about a held message, as it is told to the supervisor."""
        return AskWaiting(
            at_ns=at_ns, span=span, pid=pid, ask=ask, question=verdict.question, until_ns=until_ns, server=self.server,
            tool=verdict.tool or verdict.method, digest=verdict.digest, arguments=verdict.arguments, agent=self.agent,
            on_behalf_of=self.on_behalf_of,
        )  # fmt: skip

    # One message

    def _judge(self, message: Message, *, up: bool) -> Verdict:
        if not message.method:
            return _PASSED if up else self._response(message)
        if message.method == CANCELLED:
            return Verdict(method=CANCELLED.encode(), cancels=message.cancels)
        tool = message.params.get("name") or message.params.get("uri") or ""
        judged = self._decide(message, tool if isinstance(tool, str) else "")
        return self._verdict(judged) if judged is not None else _PASSED

    def _decide(self, message: Message, tool: str) -> _Judged | None:
        """What all layers say; None where no rule is about it."""
        fitting = self._fitting.get((message.method, tool))
        if fitting is None:
            fitting = self._find(message.method, tool)
        pins = self._pins.get(tool, ()) if message.method == TOOL_CALL and self._pins else ()
        if not fitting and not pins:
            return None
        if message.method in WITH_ARGUMENTS:
            raw, value = message.arguments, message.params.get("arguments")
        else:
            raw, value = message.raw_params, message.params
        call = Call(self._name, message.method, tool, raw, self._listed.get(tool, ""))
        said = [calls.pin_answer(pin, call.listed or "") for pin in pins if pin.digest != call.listed]
        said += [self._ask(policy, rules, call, value) for policy, rules in fitting]
        return _Judged(message, tool, raw, calls.strictest(said)) if said else None

    def _find(self, method: str, tool: str) -> list[tuple[Policy, tuple[McpRule, ...]]]:
        pairs = zip(self._policies, self._rules, strict=True)
        found = [(policy, calls.concerning(rules, self._name, method, tool)) for policy, rules in pairs]
        kept = [(policy, rules) for policy, rules in found if rules]
        if len(self._fitting) >= _REMEMBERED:
            self._fitting.clear()
        self._fitting[method, tool] = kept
        return kept

    @staticmethod
    def _ask(policy: Policy, rules: Sequence[McpRule], call: Call, value: Any) -> Answer:
        try:
            rule = calls.first(rules, value, len(call.arguments or b""), policy.places)
        except Ambiguous as error:
            return calls.ambiguous(error)
        return calls.rule_answer(rule, policy.file, call) if rule is not None else calls.NOTHING

    def _verdict(self, judged: _Judged) -> Verdict:
        answer, message = judged.answer, judged.message
        if answer is calls.NOTHING:
            return _PASSED
        said = self._words(answer, message.method, judged.tool, bool(message.id))
        refusal = b""
        if said.decision == "deny":
            refusal = answers.refusal(message.id, message.method, said.text, _text(said.rule), modern=message.modern)
        return Verdict(
            decision=said.decision,
            rule=said.rule,
            why=said.why,
            change=said.change,
            method=said.method,
            tool=said.tool,
            digest=sha256(judged.arguments).hexdigest(),
            id=message.id,
            progress_token=message.token,
            modern=message.modern,
            answer=refusal,
            question=said.question,
            arguments=judged.arguments[:_ARGUMENT_BYTES] if said.decision == "hold" else b"",
            ruled=True,
        )

    def _words(self, answer: Answer, method: str, tool: str, answerable: bool) -> _Words:
        """The words for an answer; an agent that is refused tries again, and the same calls are allowed all day."""
        key = (answer, method, tool, answerable)
        known = self._said.get(key)
        if known is not None:
            return known
        decision = self._decision(answer, answerable)
        if decision == "deny" and answer.verdict == "approve":
            answer = msgspec.structs.replace(answer, verdict="deny", why="without an id nobody could wait for it")
        odd = answers.oddness(tool) if answer.verdict != "allow" else ""
        if odd:
            answer = msgspec.structs.replace(answer, why="; ".join(filter(None, (answer.why, odd))))
        what = self._what(method, tool)
        said = _Words(
            decision, _bytes(str(answer.rule)), _bytes(answer.why), _bytes(answer.change), _bytes(method),
            _bytes(tool)[:_NAME_BYTES], answers.denial_text(answer, what) if decision == "deny" else "",
            _bytes(what) if decision == "hold" else b"",
        )  # fmt: skip
        if len(self._said) >= _REMEMBERED:
            self._said.clear()
        if len(tool) <= _NAME_BYTES and len(method) <= _NAME_BYTES:
            self._said[key] = said
        return said

    def _decision(self, answer: Answer, answerable: bool) -> Literal["pass", "deny", "hold", "would-deny"]:
        if answer.verdict == "allow":
            return "pass"
        if self._observes:
            return "would-deny"
        return "hold" if answer.verdict == "approve" and answerable else "deny"

    def _what(self, method: str, tool: str) -> str:
        named = f"call {tool}" if method == TOOL_CALL else " ".join(filter(None, (method, tool)))
        return f"{named} of {self._name}"

    # Others

    def _response(self, message: Message) -> Verdict:
        """What a server answers: a listing is remembered, questions in it (2026-07-28) are judged as its requests."""
        result = message.result
        if not isinstance(result, dict):
            return _PASSED
        if self._pins and isinstance(result.get("tools"), list):
            self._remember(message)
        asked = result.get("inputRequests")
        if not isinstance(asked, dict) or not self._sides[False]:
            return _PASSED
        for one in asked.values():
            if isinstance(one, dict) and isinstance(one.get("method"), str):
                verdict = self._asked_in_result(message, one)
                if verdict is not None:
                    return verdict
        return _PASSED

    def _asked_in_result(self, message: Message, one: dict[str, Any]) -> Verdict | None:
        params = one.get("params")
        params = params if isinstance(params, dict) else {}
        raw = msgspec.json.encode(params)
        judged = self._decide(Message(message.id, one["method"], params, raw, modern=True), "")
        if judged is None or judged.answer.verdict == "allow":
            return None
        answer = judged.answer
        if answer.verdict == "approve":
            answer = msgspec.structs.replace(answer, why="a question within an answer cannot wait for a human")
        text = answers.denial_text(answer, self._what(one["method"], ""), received=True)
        return Verdict(
            decision="would-deny" if self._observes else "deny", rule=_bytes(str(answer.rule)), why=_bytes(answer.why),
            change=_bytes(answer.change), method=_bytes(one["method"]), digest=sha256(raw).hexdigest(), id=message.id,
            modern=True, instead=answers.error(message.id, text, str(answer.rule)), ruled=True,
        )  # fmt: skip

    def _remember(self, message: Message) -> None:
        """A tool that was listed with another definition than the pinned one stays another one."""
        for definition in listed_tools(message.raw_result):
            try:
                tool = parse(definition, huge=True)
            except Ambiguous:
                names = list(self._pins)  # it may be any of them
            else:
                named = tool.get("name") if isinstance(tool, dict) else None
                names = [named] if isinstance(named, str) and named in self._pins else []
            for name in names:
                before = self._listed.get(name)
                if before is None or all(pin.digest == before for pin in self._pins[name]):
                    self._listed[name] = tool_digest(definition)

    def _whole(self, messages: Sequence[Message], verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
        """A batch: what is wrong with one member is wrong with all."""
        numbered = [msgspec.structs.replace(one, part=part) for part, one in enumerate(verdicts)]
        bad = next((one for one in numbered if one.decision in ("deny", "hold")), None)
        if bad is None:
            return tuple(numbered) or (_PASSED,)
        told: list[Verdict] = []
        said: list[bytes] = []
        for message, one in zip(messages, numbered, strict=True):
            own = one if one.decision in ("deny", "hold") else bad
            why = own.why
            if own is not one:
                why = b"another message of its batch is refused: " + own.why
            elif one.decision == "hold":
                why = b"a message in a batch cannot wait for a human: send it by itself"
            answer = Answer("deny", Rule(_text(own.rule)), _text(why), _text(own.change))
            method = message.method
            text = answers.denial_text(answer, self._what(method, _text(one.tool)))
            if method and message.id:
                rule = _text(own.rule)
                said.append(answers.refusal(message.id, method, text, rule, modern=message.modern))
            told.append(
                msgspec.structs.replace(
                    one, decision="deny", rule=own.rule, why=why, change=own.change, answer=b"", question=b"",
                    arguments=b"", ruled=True, id=message.id, method=_bytes(method),
                )
            )  # fmt: skip
        whole = b"[" + b",".join(said) + b"]" if said else b""
        return (msgspec.structs.replace(told[0], answer=whole), *told[1:])

    def _beyond_numbers(self, text: bytes, *, up: bool) -> tuple[Verdict, ...] | None:
        """Numbers beyond a double matter only where arguments are judged: None if they may be."""
        try:
            messages, batch = read(text, huge=True)
        except Ambiguous:
            return None
        if any(self._is_about(one.method) for one in messages):
            return None
        verdicts = [self._judge(one, up=up) for one in messages]
        return self._whole(messages, verdicts) if batch else (verdicts[0],)

    def _ambiguous(self, text: bytes, error: Ambiguous) -> Verdict:
        """What has no single meaning does not go on."""
        found = loose(text)
        raw_id, method = found if found is not None else (b"", "")
        answer = calls.ambiguous(error)
        told = answers.error(raw_id, answers.denial_text(answer, f"a message to {self._name}"), str(answer.rule))
        response = found is not None and bool(raw_id) and not method
        return Verdict(
            decision="would-deny" if self._observes else "deny", rule=_bytes(str(answer.rule)), why=_bytes(answer.why),
            change=_bytes(answer.change), method=_bytes(method)[:_NAME_BYTES], id=raw_id, ruled=True,
            answer=b"" if response else told, instead=told if response else b"",
        )  # fmt: skip

    def _is_about(self, method: str) -> bool:
        """Whether some rule may be about requests of a method."""
        rules = [one for each in self._rules for one in each]
        if method == TOOL_CALL and (self._pins or any(one.tools for one in rules)):
            return True
        return bool(method) and bool(calls.concerning(rules, self._name, method, ""))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
