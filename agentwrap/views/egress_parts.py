"""What the lines of judgements say: connections, names, packets, other acts, and questions to a human."""

from agentwrap import text
from agentwrap.rows import Row, number
from agentwrap.views.context import Context, Lineage, brief
from agentwrap.views.parts_base import Maker, Parts, times, whom
from agentwrap.views.source import foreign_text, texts
from agentwrap.views.styled import Line, Piece

_ACT_WORDS = {
    "write": "file", "read": "file", "exec": "exec", "unix": "net", "family": "net", "bind": "net", "listen": "net",
}  # fmt: skip
_ANSWERS = {"once": "approved once", "run": "approved for this run", "always": "approved for always", "deny": "denied",
            "expired": "denied: nobody answered in time", "unattended": "denied: nobody is there to ask",
            "withdrawn": "given up by whoever asked"}  # fmt: skip
_ARGUMENT_COLUMNS = 60


def short_rule(rule: str) -> str:
    """A rule without its file and line, a default without its text: what a line has room for."""
    place = rule.rpartition(" (")[0] if rule.endswith(")") else rule
    where = place.partition(" ")[0]
    return where if where.endswith(".default") else place or rule


def _verdict(row: Row) -> Piece:
    return (f"{text.escape(row.verdict)}  ", "deny" if row.verdict in ("deny", "would-deny") else "")


def _judged_tail(row: Row) -> Line:
    """How often and by which rule; of what passed the rule is no news."""
    tail = times(row)
    if row.data.get("rule") and row.verdict != "allow":
        tail.append((f"  rule {text.escape(brief(short_rule(foreign_text(row.data['rule']))))}", "dim"))
    return tail


def _volume(up: object, down: object) -> str:
    return f"↑{text.size(number(up))} ↓{text.size(number(down))}"


def _decision(row: Row, context: Context, lineage: Lineage) -> Parts:
    data = row.data
    sort = str(data.get("protocol") or data.get("transport") or "tcp")
    parts = Parts("net", brief(row.subject), head=[_verdict(row), (text.escape(sort) + "  ", "dim")])
    parts.tail = _judged_tail(row)
    span = context.span(str(data["connection"])) if data.get("connection") and not context.live else None
    once = number(data.get("count"), 1) == 1
    if span is not None and once and span.kind == "connection" and row.verdict != "deny" and span.end_ns is not None:
        if span.status not in ("closed", "ended"):
            parts.right.append((f"{text.escape(span.status or '?')}  ", "bad"))
        told = _volume(span.data.get("up_bytes"), span.data.get("down_bytes"))
        parts.right.append((f"{told}  {text.duration(span.end_ns - row.at_ns)}", "dim"))
    return _with_chain(parts, lineage)


def _with_chain(parts: Parts, lineage: Lineage) -> Parts:
    chain = whom(lineage)
    if parts.right and chain:
        parts.right.append(("  ", ""))
    parts.right += chain
    return parts


def _closed(row: Row, _context: Context, lineage: Lineage) -> Parts:
    data = row.data
    ending = str(data.get("ending", ""))
    head: Line = [(text.escape(ending) + "  ", "dim" if ending in ("closed", "ended") else "bad")]
    parts = Parts("net", brief(row.subject), head=head)
    if data.get("detail"):
        parts.tail.append((f"  {text.escape(foreign_text(data['detail']))}", "dim"))
    parts.right = [(_volume(data.get("up_bytes"), data.get("down_bytes")), "dim")]
    return _with_chain(parts, lineage)


def _query(row: Row, _context: Context, lineage: Lineage) -> Parts:
    data = row.data
    parts = Parts(
        "dns", brief(row.subject), head=[_verdict(row), (text.escape(str(data.get("qtype", ""))) + "  ", "dim")]
    )
    parts.tail = _judged_tail(row)
    if row.verdict == "allow":
        answers = texts(data.get("answers"))
        told = " ".join(map(brief, answers)) or str(data.get("rcode", ""))
        parts.tail.append((f"  {text.escape(told)}", "dim"))
    return _with_chain(parts, lineage)


def _refused(row: Row, _context: Context, lineage: Lineage) -> Parts:
    sort = text.escape(str(row.data.get("transport") or "udp"))
    protocol = number(row.data.get("protocol_number"), 17)
    sort = {1: "icmp", 58: "icmp"}.get(protocol, sort)
    parts = Parts("net", brief(row.subject), head=[_verdict(row), (sort + "  ", "dim")], tail=_judged_tail(row))
    return _with_chain(parts, lineage)


def _act(row: Row, context: Context, lineage: Lineage) -> Parts:
    act = str(row.data.get("act", ""))
    what = context.path(foreign_text(row.data.get("target")))
    head: Line = [_verdict(row), (text.escape(act) + "  ", "dim")]
    is_path = act in ("write", "read", "exec", "unix", "mount")
    parts = Parts(_ACT_WORDS.get(act, "proc"), what, head=head, tail=_judged_tail(row), keep_end=is_path)
    return _with_chain(parts, lineage)


def _policy(row: Row, _context: Context, _lineage: Lineage) -> Parts:
    data = row.data
    pairs = data.get("layers")
    layers = (
        [foreign_text(pair[0]) for pair in pairs if isinstance(pair, list) and pair] if isinstance(pairs, list) else []
    )
    tail: Line = [(f"  mode {text.escape(str(data.get('mode', '')))}", "")]
    if layers:
        tail.append((f"  from {text.escape(text.words(layers))}", "dim"))
    return Parts("policy", brief(row.subject), tail=tail, role="name")


def _waiting(row: Row, context: Context, lineage: Lineage) -> Parts:
    until = context.clock(number(row.data.get("until_ns"))).strip()
    head: Line = [(f"waits  {text.escape(str(row.data.get('ask', '')))}  ", "gap")]
    arguments = foreign_text(row.data.get("arguments"))
    question = brief(row.subject) + (f" with {text.clip(brief(arguments), _ARGUMENT_COLUMNS)}" if arguments else "")
    parts = Parts("ask", question, head=head, tail=[(f"  until {until}", "dim")])
    return _with_chain(parts, lineage)


def _answered(row: Row, _context: Context, _lineage: Lineage) -> Parts:
    data = row.data
    answer = str(data.get("answer", ""))
    good = answer in ("once", "run", "always")
    parts = Parts("ask", _ANSWERS.get(answer, answer), head=[(f"{text.escape(str(data.get('ask', '')))}  ", "dim")],
                  role="good" if good else "deny")  # fmt: skip
    by = foreign_text(data.get("approver"))
    if by or number(data.get("uid"), -1) >= 0:
        parts.tail.append((f"  by {text.escape(by or '?')} (uid {number(data.get('uid'), -1)})", "dim"))
    if data.get("reason"):
        parts.tail.append((f"  {text.escape(foreign_text(data['reason']))}", "dim"))
    return parts


EGRESS: dict[str, Maker] = {
    "act.denied": _act,
    "ask.answered": _answered,
    "ask.waiting": _waiting,
    "dns.query": _query,
    "net.closed": _closed,
    "net.decision": _decision,
    "net.refused": _refused,
    "policy": _policy,
}
