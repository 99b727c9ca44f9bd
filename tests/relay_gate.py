"""A gate that tests of the relay put in place of the policy's: the tool's name says what becomes of a call."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from agentwrap.events import AskWaiting
from agentwrap.mcp.gate import Gate, Verdict


class ByName(Gate):
    """`deny`, `hold`, `watch` (would be denied) as tools; everything else passes. Reads both sides, or one."""

    sides = frozenset({True, False})

    def __init__(self, _layers: Sequence[Any], server: bytes) -> None:
        super().__init__((), server)

    def reads(self, *, up: bool) -> bool:
        return up in self.sides

    def judge(self, message: bytes, *, up: bool) -> tuple[Verdict, ...]:  # noqa: ARG002
        try:
            told = json.loads(message)
        except (ValueError, RecursionError):
            return (Verdict(),)
        if isinstance(told, list):
            return _whole([_one(member, part) for part, member in enumerate(told)])
        return (_one(told, 0),)

    def refused(self, verdict: Verdict, why: bytes) -> bytes:
        return answer(verdict.id, why.decode()) if verdict.id else b""

    def asking(
        self, verdict: Verdict, ask: str, at_ns: int, until_ns: int, *, span: str = "", pid: int = 0
    ) -> AskWaiting:
        question = b"may it? " + verdict.tool
        return AskWaiting(at_ns=at_ns, span=span, pid=pid, ask=ask, question=question, until_ns=until_ns)

    def progress(self, verdict: Verdict, count: int, text: bytes) -> bytes:  # noqa: ARG002
        if not verdict.progress_token:
            return b""
        return b'{"progress":%d,"token":%s}' % (count, verdict.progress_token)


class UpOnly(ByName):
    sides = frozenset({True})


def _whole(verdicts: list[Verdict]) -> tuple[Verdict, ...]:
    if all(one.decision in ("pass", "would-deny") for one in verdicts):
        return tuple(verdicts) or (Verdict(),)
    said = b",".join(answer(one.id, "batch") for one in verdicts if one.id and one.method)
    first, *others = (msgspec.structs.replace(one, decision="deny", answer=b"") for one in verdicts)
    return (msgspec.structs.replace(first, answer=b"[" + said + b"]" if said else b""), *others)


def _one(told: Any, part: int) -> Verdict:
    if not isinstance(told, dict):
        return Verdict(part=part)
    identity = json.dumps(told["id"]).encode() if "id" in told else b""
    tool, method = str(told.get("tool", "")), str(told.get("method", "")).encode()
    if method == b"cancel":
        return Verdict(part=part, method=method, cancels=json.dumps(told["of"]).encode())
    if tool == "fault":
        raise RuntimeError("a fault of ours")
    if tool == "instead":
        return Verdict(decision="deny", method=method, id=identity, instead=answer(identity, "kept back"))
    decision: Any = {"deny": "deny", "hold": "hold", "watch": "would-deny"}.get(tool, "pass")
    return Verdict(
        decision=decision, part=part, rule=b"rule 1" if decision != "pass" else b"", method=method, tool=tool.encode(),
        digest=str(told.get("arguments", "")), id=identity, question=b"may it?",
        progress_token=json.dumps(told["token"]).encode() if "token" in told else b"",
        answer=answer(identity, "denied") if decision == "deny" and identity else b"",
    )  # fmt: skip


def answer(identity: bytes, why: str) -> bytes:
    return b'{"id":%s,"refused":"%s"}' % (identity, why.encode())


def call(identity: object, tool: str, **more: object) -> bytes:
    return json.dumps({"id": identity, "method": "call", "tool": tool, **more}).encode() + b"\n"
