"""What `pending`, `approve` and `deny` share: which question an id means, sending an answer, why one did not count."""

import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from agentwrap import text
from agentwrap.approvals import client
from agentwrap.approvals.messages import ID, Failure, GiveAnswer, Pending, RunFacts, Taken, public_id, split_id
from agentwrap.approvals.registry import Answer, Given, Waiting
from agentwrap.errors import EXIT_FINDING, AgentwrapError
from agentwrap.recording.places import state_dir

if TYPE_CHECKING:
    from agentwrap.cli.output import Output
    from agentwrap.views.styled import Role

NAME_CHARACTERS = 200
REASON_CHARACTERS = 1000
OUTCOMES = {
    "once": "allowed once",
    "run": "allowed for the rest of the run",
    "always": "allowed always",
    "deny": "denied",
    "expired": "denied, as nobody answered in time",
    "unattended": "denied, as nobody is there to ask",
    "withdrawn": "given up by who asked",
}


class Run(msgspec.Struct, frozen=True):
    """A live run and what it waits for. `now_ns`: its time when it told."""

    path: Path
    facts: RunFacts
    now_ns: int
    waiting: tuple[Waiting, ...]


class Target(msgspec.Struct, frozen=True):
    """The question that an id means: the run, the question's id within it, and the question if it still waits."""

    run: Run
    ask: str
    waiting: Waiting | None

    @property
    def shown(self) -> str:
        """The id as people write it."""
        return public_id(self.ask, self.run.facts.run)


def runs(output: "Output", *, layers: bool = False) -> list[Run]:
    """Live runs of this user that can ask. Those that do not tell are noted on standard error."""
    found: list[Run] = []
    for path, reply in client.live(output.env, state_dir(output.env), layers=layers):
        if isinstance(reply, Pending):
            found.append(Run(path, reply.facts, reply.now_ns, reply.waiting))
        elif isinstance(reply, Failure):
            raise refused(reply.why)
        else:
            output.note(f"{reply.message}: {reply.hint}")
    return found


def find(output: "Output", shown: str, *, layers: bool = False) -> Target:
    """What an id means. Raises AgentwrapError `not-found`, or `usage` where it may mean several."""
    ask, run = split_id(shown)
    every = runs(output, layers=layers)
    if not ID.match(ask):
        raise nothing_called(shown, every)
    meant = [one for one in every if one.facts.run.startswith(run)]
    if not run:
        having = [one for one in every if any(waiting.ask == ask for waiting in one.waiting)]
        meant = having or meant
    if len(meant) > 1:
        told = [public_id(ask, one.facts.run) + f"  {one.facts.command}" for one in meant]
        raise AgentwrapError(
            "usage", f"`{shown}` may mean several questions", evidence="\n".join(told),
            hint="`agentwrap pending` lists what waits",
        )  # fmt: skip
    if not meant:
        raise nothing_called(shown, every)
    waiting = next((one for one in meant[0].waiting if one.ask == ask), None)
    return Target(meant[0], ask, waiting)


def nothing_called(shown: str, every: list[Run]) -> AgentwrapError:
    """The error for an id that means nothing."""
    there = [f"{public_id(w.ask, run.facts.run)}  {w.question}" for run in every for w in run.waiting]
    if not every:
        return AgentwrapError(
            "not-found", f"there is no question `{shown}`: no run that could ask is alive",
            hint='a run asks if its policy says mode = "ask"',
        )  # fmt: skip
    return AgentwrapError(
        "not-found", f"there is no question `{shown}`", evidence="\n".join(["waiting:", *there]) if there else "",
        hint="`agentwrap pending` lists what waits",
    )  # fmt: skip


def refused(why: str) -> AgentwrapError:
    """The error for a process that may not speak for a human."""
    return AgentwrapError("refused", "this process may not answer", evidence=why, exit_status=EXIT_FINDING)


def give(target: Target, answer: Answer, approver: str, reason: str) -> Given:
    """Send an answer. Raises AgentwrapError with what counts instead."""
    request = GiveAnswer(
        target.ask, answer, text.escape(approver)[:NAME_CHARACTERS], text.escape(reason)[:REASON_CHARACTERS]
    )
    reply = client.ask(target.run.path, request)
    if isinstance(reply, Taken):
        return reply.given
    if isinstance(reply, Failure):
        raise _failed(target, answer, reply)
    raise AgentwrapError(
        "not-found", f"the run of `{target.shown}` has ended", hint="`agentwrap show --denied` tells what was denied",
        exit_status=EXIT_FINDING,
    )  # fmt: skip


def _failed(target: Target, answer: Answer, failure: Failure) -> AgentwrapError:
    given = failure.given
    if failure.kind == "not-allowed":
        return refused(failure.why)
    if failure.kind == "unknown":
        return nothing_called(target.shown, [target.run])
    if failure.kind == "oneself":
        return AgentwrapError(
            "refused", f"`{target.shown}` is not yours to allow", evidence=failure.why,
            hint="it still waits for somebody else; `agentwrap deny` is open to you", exit_status=EXIT_FINDING,
        )  # fmt: skip
    if failure.kind == "not-offered":
        return not_offered(target, answer)
    if failure.kind == "answered" and given is not None:
        return AgentwrapError(
            "refused", f"`{target.shown}` is answered already: {OUTCOMES[given.outcome]}",
            evidence="\n".join(filter(None, (given.waiting.question, by_whom(given), given.reason))),
            hint="`agentwrap pending` lists what waits now", exit_status=EXIT_FINDING,
        )  # fmt: skip
    return AgentwrapError("busy", "the answer does not count", evidence=failure.why or failure.kind,
                          exit_status=EXIT_FINDING)  # fmt: skip


def not_offered(target: Target, answer: Answer) -> AgentwrapError:
    """The error for an answer that there is not for this question."""
    hint = f"agentwrap approve {target.shown} --once"
    return AgentwrapError("refused", f"`{target.shown}` cannot be answered with `{answer}`", hint=hint)


def by_whom(given: Given) -> str:
    """`by ann (user 1000, process 4130)`, or nothing."""
    if given.uid < 0:
        return ""
    return f"by {given.approver or 'somebody'} (user {given.uid}, process {given.pid})"


def default_approver(env: Mapping[str, str]) -> str:
    """Who is at the keyboard, as far as this process knows: under sudo, who called it."""
    if os.geteuid() == 0 and env.get("SUDO_USER"):
        return env["SUDO_USER"]
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def tell(output: "Output", target: Target, given: Given, more: Mapping[str, object]) -> None:
    """The answer that counts, for people or as JSON."""
    question = target.waiting.question if target.waiting else given.waiting.question
    if output.json:
        output.document(
            {
                "schema": "agentwrap.answer/1",
                "id": target.shown,
                "run": target.run.facts.run,
                "question": question,
                "answer": given.outcome,
                "approver": given.approver,
                "uid": given.uid,
                "reason": given.reason,
                **more,
            }
        )
        return
    role: Role = "deny" if given.outcome == "deny" else "good"
    output.line([(OUTCOMES[given.outcome], role), (f": {question}", "")])
