"""What was refused, and what would have been: each kind of thing once, with who, by which rule, and how to allow it.

Holds one small record for each kind of denial, up to a bound; what comes after that is counted.
"""

from collections.abc import Iterable, Iterator

import msgspec

from agentwrap import text
from agentwrap.rows import Row, number
from agentwrap.views.context import Context, brief
from agentwrap.views.source import foreign_text
from agentwrap.views.styled import Line, line

MOST_KINDS = 10_000
REFUSED = ("deny", "would-deny")
_VERBS = {
    "net.decision": "connect", "dns.query": "lookup", "net.refused": "send", "net.connect": "connect",
    "net.send": "send", "net.bind": "bind", "net.listen": "listen", "file.edit": "write", "file.rename": "write",
    "file.read": "read", "process.exec": "exec", "mcp.decision": "mcp",
}  # fmt: skip


class Denial(msgspec.Struct):
    """One kind of denial. `first`: its first row, `count`: how often in all of them."""

    first: Row
    count: int


class Denials(msgspec.Struct):
    """All of them in the order in which they began, and how many found no room."""

    kinds: dict[tuple[str, ...], Denial] = {}
    beyond: int = 0


def collect(rows: Iterable[Row]) -> Denials:
    """Put rows that say the same of the same process together."""
    found = Denials({})
    for row in rows:
        if row.verdict not in REFUSED:
            continue
        count = number(row.data.get("count"), 1)
        key = (row.verdict, verb(row), row.subject, row.span, foreign_text(row.data.get("rule")))
        known = found.kinds.get(key)
        if known is not None:
            known.count += count
        elif len(found.kinds) < MOST_KINDS:
            found.kinds[key] = Denial(row, count)
        else:
            found.beyond += count
    return found


def verb(row: Row) -> str:
    """What was tried, in a word."""
    data = row.data
    if row.kind == "act.denied":
        return str(data.get("act", ""))
    if row.kind == "process.denied":
        return str(data.get("what", ""))
    if row.kind == "net.refused" and data.get("transport") == "tcp":
        return "connect"
    return _VERBS.get(row.kind, row.kind)


def denial_lines(found: Denials, context: Context, limit: int | None = None) -> Iterator[Line]:
    """Each denial: what and how often, then who, the rule and why, what a human would change."""
    for index, denial in enumerate(found.kinds.values()):
        if limit is not None and index >= limit:
            yield line((f"stopped after {text.count(limit, 'denial')} (`-n`); there are more", "dim"))
            return
        yield from _denial(denial, context)
    if found.beyond:
        yield line((f"and {text.count(found.beyond, 'more denial')}, of other kinds", "deny"))


def _denial(denial: Denial, context: Context) -> Iterator[Line]:
    row, data = denial.first, denial.first.data
    times = f"  {denial.count:,} times" if denial.count > 1 else ""
    by = f"  ({text.escape(str(data['by']))})" if data.get("by") else ""
    head: Line = [(f"{context.clock(row.at_ns):>7} ", "dim"), (f"{text.escape(row.verdict)}  ", "deny")]
    what = text.escape(brief(row.subject))
    yield [*head, (f"{text.escape(verb(row))} ", ""), (what, "name"), (times, ""), (by, "dim")]
    chain = context.lineage(row.span).chain()
    if chain:
        yield line(("        who     ", "dim"), (chain, "who"))
    rule, why = foreign_text(data.get("rule")), foreign_text(data.get("why"))
    if rule or why:
        told = ": ".join(part for part in (rule, why) if part)
        yield line((f"        {'rule' if rule else 'why ':<7} ", "dim"), (text.escape(told), ""))
    if data.get("mechanism") or data.get("errno"):
        how = " ".join(str(data[key]) for key in ("mechanism", "call", "errno") if data.get(key))
        yield line(("        told    ", "dim"), (text.escape(how), ""))
    if data.get("change"):
        yield line(("        change  ", "dim"), (text.escape(foreign_text(data["change"])), "good"))
