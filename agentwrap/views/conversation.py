"""What a model was told: messages that a call added, sent again and dropped, and when the dropped were last told."""

from collections.abc import Iterator

from agentwrap import text
from agentwrap.evidence.contexts import Comparison, Said
from agentwrap.evidence.turns import Call, Turns
from agentwrap.rows import number
from agentwrap.views.context import brief
from agentwrap.views.styled import Line, Role, line

_SHOWN_REPEATED = 3


def context_lines(found: Comparison, turns: Turns, columns: int | None, find: str = "") -> Iterator[Line]:
    """The whole of `show --context`. With `find`, only messages that hold that text, wherever they are."""
    turn = turns.calls[found.call].turn
    before = turns.calls.get(found.before)
    against = f"against {before.id} ({before.turn})" if before is not None else "in its agent's first call"
    heading = f"{found.call} ({turn}), agent {turns.calls[found.call].agent}: "
    yield line((heading, "title"), (f"what the model was told, {against}", ""))
    if found.problem:
        yield line((found.problem, "gap"))
        yield from counted(turns.calls[found.call])
        return
    if found.kept:
        yield line(("it goes on from an answer: what was told before is kept by the provider, not sent again", "dim"))
    yield line()
    if find:
        yield from _found(found, turns, columns, find)
        return
    yield from group("added", "add", found.added, turns, columns)
    yield from group("sent again", "dim", found.repeated, turns, columns, most=_SHOWN_REPEATED)
    yield from group("dropped", "remove", found.dropped, turns, columns, ago=True)
    yield from group("dropped earlier, and not told since", "remove", found.earlier, turns, columns, ago=True)
    yield from _members(found)


def counted(call: Call) -> Iterator[Line]:
    """How many messages there were, as they were counted while the request passed."""
    data = call.request.data if call.request is not None else {}
    total, repeated, dropped = (number(data.get(name)) for name in ("messages", "repeated", "dropped"))
    if total:
        told = f"{text.count(total, 'message')}, {repeated:,} of them sent again, {dropped:,} dropped"
        yield line((f"  {told}, as counted when it was sent", "dim"))


def group(
    title: str, role: Role, said: list[Said], turns: Turns, columns: int | None, *, most: int = 0, ago: bool = False
) -> Iterator[Line]:
    """Messages under a title; of many the last `most`. `ago`: also when each was told."""
    if not said:
        return
    size = text.size(sum(one.size for one in said))
    yield line((f"{title}: {text.count(len(said), 'message')}, {size}", role))
    shown = said if not most or len(said) <= most + 1 else said[-most:]
    if len(shown) < len(said):
        yield line((f"  … {text.count(len(said) - len(shown), 'message')} before", "dim"))
    wide = min(max(9, *(text.width(text.escape(one.role)) for one in shown)), 24)
    for one in shown:
        yield _message(one, turns, columns, wide, ago=ago)


def _message(one: Said, turns: Turns, columns: int | None, wide: int, *, ago: bool = False) -> Line:
    """Place, role, size, when, and the message in a line."""
    when = f"  {span_of(one, turns)}" if ago or one.first != one.last else ""
    head = f"  #{one.index + 1:<3} {text.pad(text.clip(one.role or '?', wide), wide)} {text.size(one.size):>6}{when}  "
    room = 4000 if columns is None else max(columns - text.width(head), 20)
    return line((head, "dim"), (text.clip(brief(one.preview), room), ""))


def span_of(one: Said, turns: Turns) -> str:
    """`t3` or `t3 to t7`: the turns in which a message was told."""
    first, last = (turns.calls[call].turn if call in turns.calls else "?" for call in (one.first, one.last))
    return first if first == last else f"{first} to {last}"


def _found(found: Comparison, turns: Turns, columns: int | None, find: str) -> Iterator[Line]:
    """Where a text is, or was."""
    here = [one for one in (*found.repeated, *found.added) if one.found]
    gone = [one for one in (*found.dropped, *found.earlier) if one.found]
    yield from group(f"told in {found.call}, with `{text.escape(find)}`", "add", here, turns, columns, ago=True)
    for one in gone:
        last = turns.calls.get(one.last)
        told = f"last told in {last.turn} ({last.id})" if last is not None else "told before"
        yield line((f"no longer told: first in {span_of(one, turns).split(' ')[0]}, {told}", "remove"))
        yield _message(one, turns, columns, 9)
    if not here and not gone:
        yield line((f"no message up to {found.call} has `{text.escape(find)}` in it", "dim"))
    elif not here:
        yield line((f"so in {found.call} the model was not told it any more", "title"))


def _members(found: Comparison) -> Iterator[Line]:
    """Other parts of the request that changed."""
    for name, old, new in found.members:
        sizes = " → ".join("none" if size is None else text.size(size) for size in (old, new))
        yield line((f"changed: {text.escape(brief(name))}", "name"), (f"  {sizes}", "dim"))
