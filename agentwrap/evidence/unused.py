"""Which rules of a run's policy decided nothing in it: candidates for removal. Reads a recording, changes nothing.

The gateway's rows name the rule of every connection and lookup, also of those that passed. Changes of files, programs
and sockets are asked again, by the same decision.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from agentwrap.evidence.asked import Recording, asked
from agentwrap.policy.document import load
from agentwrap.policy.flags import leave_unsaid
from agentwrap.policy.layers import ORDER, Layer, Name, decide_layers
from agentwrap.policy.paths import Places
from agentwrap.policy.questions import Call, Question
from agentwrap.policy.rules import COMMAND_LINE, Policy, Rule
from agentwrap.policy.suggest import Asked
from agentwrap.recording.foreign import to_bytes

_JUDGED = ("net.decision", "dns.query", "net.refused", "act.denied", "mcp.decision")
_REMEMBERED = 200_000


class Idle(msgspec.Struct, frozen=True):
    """A rule that decided nothing, and whose layer it is."""

    layer: Name
    rule: Rule


class Unused(msgspec.Struct, frozen=True):
    """What came out. `complete`: false where there were more acts than were looked at.

    `unread`: there are lists about reads that cannot be judged, as the run recorded none.
    """

    idle: tuple[Idle, ...]
    complete: bool = True
    unread: bool = False


def rules_of(policy: Policy) -> Iterator[Rule]:
    """Every entry of every list."""
    yield from (one.rule for one in (*policy.network.allow, *policy.network.deny))
    for paths in (policy.unix, policy.write.allow, policy.write.deny, policy.read.allow, policy.read.deny,
                  policy.exec.allow, policy.exec.deny):  # fmt: skip
        yield from (one.rule for one in (*paths.literal.values(), *paths.wild))
    yield from (one.rule for one in policy.mcp.rules)


def unused(recording: Recording, layers: Sequence[Layer], most_acts: int | None = None) -> Unused:
    """The rules of `layers` that decided nothing, after a look at `most_acts` acts at most."""
    waiting = {str(rule): Idle(layer.name, rule) for layer in layers for rule in rules_of(layer.policy)}
    reads = _reads_are_seen(recording)
    unread = [key for key, one in waiting.items() if one.rule.where.startswith("files.read") and not reads]
    for key in unread:
        del waiting[key]
    for row in recording.rows(kinds=_JUDGED):
        waiting.pop(_text(row.data.get("rule")), None)
    complete = _ask_again(recording, layers, waiting, most_acts)
    order = {name: index for index, name in enumerate(ORDER)}
    idle = sorted(waiting.values(), key=lambda one: (order[one.layer], one.rule.file, one.rule.line))
    return Unused(tuple(idle), complete, bool(unread))


def _ask_again(recording: Recording, layers: Sequence[Layer], waiting: dict[str, Idle], most_acts: int | None) -> bool:
    """Strike what files, programs and sockets needed. False where the acts were too many."""
    done: set[Question] = set()
    for number, act in enumerate(asked(recording)):
        if not waiting:
            return True
        if most_acts is not None and number >= most_acts:
            return False
        if not isinstance(act, Asked) or act.question in done:
            continue
        if len(done) > _REMEMBERED:
            done.clear()
        if not isinstance(act.question, Call):
            done.add(act.question)
        waiting.pop(str(decide_layers(layers, act.question).rule), None)
    return True


def _reads_are_seen(recording: Recording) -> bool:
    said = (row.data for row in recording.rows(kinds=("coverage",)) if row.data.get("what") == "file-read")
    return any(data.get("tier", "none") != "none" for data in said)


def recorded_layers(recording: Recording, places: Places, configs: Mapping[str, tuple[str, ...]]) -> tuple[Layer, ...]:
    """The layers of the run as its recording has them; none where it had no policy.

    Raises AgentwrapError where the recorded text is no policy any more (a secret in it was hidden).
    """
    row = next(iter(recording.rows(kinds=("policy",), limit=1)), None)
    if row is None:
        return ()
    named = row.data.get("layers")
    whole = [one for one in named if isinstance(one, list) and len(one) == 2] if isinstance(named, list) else []
    pairs = [(_text(name), _text(file)) for name, file in whole]
    found: list[Layer] = []
    for (name, file), (text, trusted) in zip(pairs, _sections(_text(row.data.get("text")), pairs), strict=False):
        policy = load(text.encode("utf-8", "surrogateescape"), file, places, configs)
        policy = leave_unsaid(policy) if file == COMMAND_LINE else policy
        layer = next((one for one in ORDER if one == name), ORDER[0])
        found.append(Layer(layer, policy, trusted=trusted))
    return tuple(found)


def _sections(text: str, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, bool]]:
    """The text of each layer, and whether it was trusted (`policy.loaded` writes it)."""
    heads: list[re.Match[str]] = []
    at = 0
    for name, file in pairs:
        line = re.escape(f"# {name}: " + file.replace("\n", " "))
        head = re.compile(rf"^{line}(, not trusted: it only narrows)?\n", re.MULTILINE).search(text, at)
        if head is None:
            return
        heads.append(head)
        at = head.end()
    for index, head in enumerate(heads):
        end = heads[index + 1].start() if index + 1 < len(heads) else len(text)
        yield text[head.end() : end], head[1] is None


def _text(value: Any) -> str:
    try:
        return to_bytes(value).decode("utf-8", "surrogateescape")
    except ValueError:
        return ""
