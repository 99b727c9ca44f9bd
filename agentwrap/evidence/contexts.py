"""What a model was told from call to call: which messages a turn added, sent again, and no longer sent.

Reads the stored requests of one agent in order, so it answers what `messages`, `repeated` and `dropped` of a call only
count: which message it was, and in which turn it was last told. A message is the same if it says the same
(`models.shape.Message.identity`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from agentwrap.evidence import messages
from agentwrap.evidence.turns import Call, Turns
from agentwrap.rows import Row, word

NOT_KEPT = "the request's body was not kept"
UNREADABLE = "the request's body cannot be read"
_MOST_SEEN = 100_000


class Bodies(Protocol):
    """Where bodies come from."""

    def body(self, seq: int, field: str) -> Iterable[bytes | None]:
        """The pieces of a body, in order."""
        ...


class Said(msgspec.Struct):
    """A message, and when it was told: `first` and `last` are calls, `index` its place in the last one."""

    role: str
    identity: bytes
    size: int
    preview: str
    first: str
    last: str
    index: int
    found: bool = False


class Comparison(msgspec.Struct):
    """What changed from one call of an agent to the next. `earlier`: dropped by a call before, and still not back.

    `members`: other parts of the request that changed, with their sizes before and now (None: not there). `kept`: the
    provider keeps what came before. `problem`: why nothing can be said.
    """

    call: str
    before: str = ""
    added: list[Said] = msgspec.field(default_factory=list)
    repeated: list[Said] = msgspec.field(default_factory=list)
    dropped: list[Said] = msgspec.field(default_factory=list)
    earlier: list[Said] = msgspec.field(default_factory=list)
    members: list[tuple[str, int | None, int | None]] = msgspec.field(default_factory=list)
    size: int = 0
    kept: bool = False
    problem: str = ""


class _Sent(msgspec.Struct):
    """One request taken apart."""

    said: list[Said]
    members: dict[str, tuple[int, int]]
    size: int
    kept: bool


def compare(source: Bodies, turns: Turns, wanted: Call, find: str = "") -> Comparison:
    """Compare a call with the same agent's call before, and with everything it was told until then.

    `find`: messages that hold this text are marked (`Said.found`).
    """
    agent = turns.agents.get(wanted.agent)
    earlier = turns.before(wanted)
    before: _Sent | None = None
    before_id = ""
    seen: dict[tuple[bytes, int], Said] = {}
    told: dict[bytes, tuple[str, bool]] = {}
    for call in _until(turns, agent.calls if agent is not None else [wanted.id], wanted):
        sent = _sent(source, call, find, told)
        if isinstance(sent, str):
            if call is wanted:
                return Comparison(wanted.id, earlier.id if earlier is not None else "", problem=sent)
            continue
        if sent.kept and before is not None:
            # The provider keeps them: they are told, though not sent.
            sent.said = [msgspec.structs.replace(one, index=at) for at, one in enumerate((*before.said, *sent.said))]
        if call is wanted:
            return _compared(wanted, before_id, before, sent, seen)
        _note(seen, sent, call)
        before, before_id = sent, call.id
    return Comparison(wanted.id, problem=NOT_KEPT)


def _until(turns: Turns, calls: list[str], wanted: Call) -> Iterator[Call]:
    """The agent's calls up to one, of several attempts of the same the last alone."""
    known = [turns.calls[one] for one in calls]
    upto = known[: known.index(wanted) + 1] if wanted in known else [wanted]
    for call, after in zip(upto, [*upto[1:], None], strict=True):
        if after is None or (after.retry_of or after.id) != (call.retry_of or call.id):
            yield call


def _compared(
    call: Call, before_id: str, before: _Sent | None, sent: _Sent, seen: dict[tuple[bytes, int], Said]
) -> Comparison:
    known = _keyed(before.said) if before is not None else {}
    now = _keyed(sent.said)
    found = Comparison(call.id, before_id, size=sent.size, kept=sent.kept)
    for key, said in now.items():
        if key in seen:
            said.first = seen[key].first
        said.last = call.id
        (found.repeated if key in known else found.added).append(said)
    found.dropped = [seen.get(key, said) for key, said in known.items() if key not in now]
    found.earlier = [said for key, said in seen.items() if key not in known and key not in now]
    if before is not None:
        found.members = _changed(before.members, sent.members)
    return found


def _changed(
    before: dict[str, tuple[int, int]], now: dict[str, tuple[int, int]]
) -> list[tuple[str, int | None, int | None]]:
    changed: list[tuple[str, int | None, int | None]] = []
    for name in dict.fromkeys((*before, *now)):
        old, new = before.get(name), now.get(name)
        if old != new:
            changed.append((name, old[0] if old else None, new[0] if new else None))
    return changed


def _note(seen: dict[tuple[bytes, int], Said], sent: _Sent, call: Call) -> None:
    for key, said in _keyed(sent.said).items():
        known = seen.get(key)
        if known is not None:
            known.last, known.index = call.id, said.index
        elif len(seen) < _MOST_SEEN:
            said.first = said.last = call.id
            seen[key] = said


def _keyed(said: list[Said]) -> dict[tuple[bytes, int], Said]:
    """Messages by what they say; of equal ones, by which of them."""
    counted = Counter[bytes]()
    keyed: dict[tuple[bytes, int], Said] = {}
    for one in said:
        keyed[one.identity, counted[one.identity]] = one
        counted[one.identity] += 1
    return keyed


def _sent(source: Bodies, call: Call, find: str, told: dict[bytes, tuple[str, bool]]) -> _Sent | str:
    """A stored request taken apart, or why it cannot be. `told`: what messages say, by their identity."""
    from agentwrap.models import shapes  # not for readers of recordings without model traffic

    row = call.request
    body = whole(source, row, "request") if row is not None else None
    if row is None or body is None:
        return NOT_KEPT
    try:
        facts = shapes.by_api(row.data["api"]).request(body, word(row.data.get("path")).encode())
    except KeyError:
        return "no reader of this API is here"
    if facts.problem and not facts.messages:
        return f"{UNREADABLE}: {facts.problem}"
    wanted = find.casefold()
    said: list[Said] = []
    for index, message in enumerate(facts.messages):
        if message.identity not in told:
            raw = body[message.start : message.end]
            told[message.identity] = messages.preview(raw), bool(wanted) and messages.holds(raw, wanted)
        size = message.end - message.start
        said.append(
            Said(message.role, message.identity, size, told[message.identity][0], call.id, call.id, index,
                 told[message.identity][1])
        )  # fmt: skip
    return _Sent(said, _members(body), len(body), bool(facts.previous))


def _members(body: bytes) -> dict[str, tuple[int, int]]:
    """What else a request holds, such as its system text and its tools: size and a digest of each."""
    from agentwrap.models.json_slices import members

    places = members(body) or {}
    left = ("messages", "input", "contents", "previous_response_id", "metadata", "client_metadata", "prompt_cache_key")
    return {
        name: (end - start, hash(body[start:end])) for name, (start, end) in places.items() if name not in left
    }


def whole(source: Bodies, row: Row, field: str) -> bytes | None:
    """A body of a row, None where it or a part of it was not kept."""
    pieces = list(source.body(row.seq, field))
    return b"".join(piece for piece in pieces if piece is not None) if pieces and None not in pieces else None
