"""What the line of an event says, one small function for each kind. Knows the fields of `data`; not the layout."""

from agentwrap import text
from agentwrap.rows import Row, number
from agentwrap.views import diff
from agentwrap.views.context import Context, Lineage, brief, command_line, ending, outcome, process_name
from agentwrap.views.egress_parts import EGRESS
from agentwrap.views.parts_base import Maker, Parts, times, whom
from agentwrap.views.source import foreign_text, mapping, texts
from agentwrap.views.styled import Line, Role


def parts_of(row: Row, context: Context, lineage: Lineage) -> Parts:
    """What to say about `row`; a kind nobody here knows is told by its name and subject."""
    return (_MAKERS.get(row.kind) or _FAMILIES.get(row.kind.split(".", 1)[0], _other))(row, context, lineage)


def _exec(row: Row, context: Context, lineage: Lineage) -> Parts:
    data, span = row.data, lineage[0] if lineage else None
    words = texts(data.get("argv")) or [foreign_text(data.get("path"))]
    parts = Parts("exec", command_line(words), role="name")
    if omitted := number(data.get("argv_omitted_bytes")):
        parts.tail.append((f" …+{text.size(omitted)}", "dim"))
    if data.get("confirmed") is False:
        parts.tail.append((" (unconfirmed)", "gap"))
    if data.get("memfd"):
        parts.tail.append((" (from memory)", "bad"))
    if data.get("setuid"):
        parts.tail.append((" (set-id)", "bad"))
    # While the file grows, an end is told by its own line; a process that ran several programs ended as the last one.
    last = span is not None and (span.data.get("argv") == data.get("argv") or number(span.data.get("execs")) == 1)
    if span is not None and last and not context.live:
        ended = span.end_ns is not None
        parts.right = ending(span.status, span.end_ns - row.at_ns) if ended else [("end not seen", "gap")]  # type: ignore[operator]
    chain = whom(lineage)
    if parts.right and chain:
        parts.right.append(("  ", ""))
    parts.right += chain
    return parts


def _exit(row: Row, _context: Context, lineage: Lineage) -> Parts:
    span = lineage[0] if lineage else None
    signal = number(row.data.get("signal"))
    known = row.data.get("status") is not None  # not for every process where ptrace was left to others
    status = f"signal {signal}" if signal else f"exit {number(row.data.get('status'))}" if known else None
    words = texts(span.data.get("argv")) if span is not None else []
    what = command_line(words) if words else f"({process_name(lineage) or row.pid})"
    parts = Parts("exit", what, right=ending(status, row.at_ns - span.start_ns if span else None))
    if chain := whom(lineage):
        parts.right += [("  ", ""), *chain]
    if row.data.get("ended_by"):
        parts.tail.append((" ended by agentwrap", "bad"))
    return parts


def _start(row: Row, _context: Context, lineage: Lineage) -> Parts:
    return Parts("start", f"{row.data.get('how', '')} {row.subject}".strip(), right=whom(lineage))


def _denied(row: Row, _context: Context, lineage: Lineage) -> Parts:
    what = text.escape(str(row.data.get("what", "")))
    head: Line = [(f"{text.escape(row.verdict or 'deny')}  ", "deny"), (f"{what}  ", "")]
    tail: Line = [(f"  {text.escape(str(row.data.get('why', '')))}", "dim")]
    return Parts("proc", brief(row.subject), head=head, tail=tail, right=whom(lineage))


def _isolation(row: Row, _context: Context, lineage: Lineage) -> Parts:
    tail: Line = [("  " + " ".join(map(text.escape, texts(row.data.get("flags")))), "dim")]
    return Parts("proc", row.subject, tail=tail if row.data.get("flags") else [], right=whom(lineage))


def _reach(row: Row, _context: Context, lineage: Lineage) -> Parts:
    target = number(row.data.get("target"))
    return Parts("proc", f"{row.subject} -> {target}" if target else row.subject, right=whom(lineage))


CHANGE_LETTERS: dict[str, tuple[str, Role]] = {
    "create": ("A", "add"),
    "modify": ("M", "name"),
    "delete": ("D", "remove"),
    "transient": ("T", "dim"),
    "remove": ("D", "remove"),
}


def change_tail(context: Context, row: Row) -> Line:
    """`+3 -1`, or sizes where lines cannot be compared, and a change of mode."""
    data = row.data
    before, after = mapping(data.get("before")), mapping(data.get("after"))
    tail: Line = []
    counted = diff.counts_of_edit(context.source, data) if context.counts else None
    if counted is not None:
        added, removed = counted
        if added or not removed:
            tail.append((f"  +{added}", "add" if added else "dim"))
        if removed or not added:
            tail.append((f"{' ' if tail else '  '}-{removed}", "remove" if removed else "dim"))
    elif not diff.is_absent(after):
        tail.append((f"  {text.size(number(after.get('size')))}", "dim"))
    modes = number(before.get("mode")), number(after.get("mode"))
    if data.get("change") == "modify" and modes[0] != modes[1]:
        tail.append((f"  mode {modes[0]:04o} → {modes[1]:04o}", ""))
    return tail


def _edit(row: Row, context: Context, lineage: Lineage) -> Parts:
    letter, role = CHANGE_LETTERS.get(str(row.data.get("change")), ("?", ""))
    parts = Parts("file", context.path(foreign_text(row.data.get("path"))), keep_end=True, role="name")
    parts.head, parts.tail, parts.right = [(f"{letter} ", role)], change_tail(context, row), whom(lineage)
    return parts


def _rename(row: Row, context: Context, lineage: Lineage) -> Parts:
    data = row.data
    source, target = (context.path(foreign_text(data.get(key))) for key in ("path", "target"))
    arrow = "<->" if data.get("exchange") else "->"
    slash = "/" if data.get("type") == "directory" else ""
    return Parts("file", f"{source}{slash} {arrow} {target}{slash}", head=[("R ", "name")], right=whom(lineage))


def _directory(row: Row, context: Context, lineage: Lineage) -> Parts:
    letter, role = CHANGE_LETTERS.get(str(row.data.get("change")), ("?", ""))
    path = context.path(foreign_text(row.data.get("path"))).rstrip("/") + "/"
    return Parts("file", path, head=[(f"{letter} ", role)], right=whom(lineage), keep_end=True)


def _mode(row: Row, context: Context, lineage: Lineage) -> Parts:
    data = row.data
    change = str(data.get("change", ""))
    if change == "mode":
        told = f"{number(data.get('before')):04o} → {number(data.get('after')):04o}"
    elif change == "owner":
        told = " → ".join(":".join(texts_of_numbers(data.get(key))) for key in ("before_owner", "after_owner"))
    else:
        told = text.escape(foreign_text(data.get("xattr")))
    path = context.path(foreign_text(data.get("path")))
    tail: Line = [(f"  {text.escape(change)} {told}", "")]
    return Parts("file", path, head=[("P ", "")], tail=tail, right=whom(lineage), keep_end=True)


def texts_of_numbers(value: object) -> list[str]:
    """Two ids as texts; an absent pair is root's."""
    return [str(number(item)) for item in value] if isinstance(value, list) else ["0", "0"]


def _link(row: Row, context: Context, lineage: Lineage) -> Parts:
    data = row.data
    path, target = context.path(foreign_text(data.get("path"))), foreign_text(data.get("target"))
    sign = "=" if data.get("link") == "hard" else "->"
    return Parts("file", f"{path} {sign} {target}", head=[("L ", "add")], right=whom(lineage))


def _special(row: Row, context: Context, lineage: Lineage) -> Parts:
    path = context.path(foreign_text(row.data.get("path")))
    tail: Line = [(f"  {text.escape(str(row.data.get('type', '')))}", "dim")]
    return Parts("file", path, head=[("S ", "add")], tail=tail, right=whom(lineage), keep_end=True)


def _read(row: Row, context: Context, lineage: Lineage) -> Parts:
    path = context.path(foreign_text(row.data.get("path")))
    parts = Parts("file", path, head=[("r ", "dim")], right=whom(lineage), keep_end=True)
    parts.tail = times(row)
    return parts


def _socket(row: Row, _context: Context, lineage: Lineage) -> Parts:
    data, call = row.data, row.kind.split(".", 1)[1]
    family, transport = str(data.get("family", "")), str(data.get("transport", "unknown"))
    sort = transport if transport != "unknown" and family in ("inet", "inet6") else family
    words = [sort] if call == "connect" else [call, sort]
    parts = Parts("net", brief(row.subject), right=whom(lineage))
    if row.verdict:
        parts.head.append((f"{text.escape(row.verdict)}  ", "deny" if row.verdict == "deny" else ""))
    parts.head.append((" ".join(map(text.escape, words)) + "  ", "dim"))
    parts.tail = times(row)
    return parts


def _dns(row: Row, _context: Context, lineage: Lineage) -> Parts:
    names = texts(row.data.get("names"))
    server = f"{foreign_text(row.data.get('host'))}:{number(row.data.get('port'), 53)}"
    what = " ".join(map(brief, names)) if names else "(names not read)"
    return Parts("dns", what, tail=[(f"  asked {text.escape(brief(server))}", "dim")], right=whom(lineage))


def _gap(row: Row, _context: Context, lineage: Lineage) -> Parts:
    data = row.data
    detail = brief(foreign_text(data.get("detail")))
    what = f"{data.get('cause', '')}{'  ' + detail if detail else ''}  ({data.get('could_hide', '')})"
    head: Line = [(text.escape(str(data.get("what", ""))) + "  ", "gap")]
    return Parts("gap", what, head=head, right=whom(lineage), role="gap")


def _coverage(row: Row, _context: Context, _lineage: Lineage) -> Parts:
    data = row.data
    note = f"  {data['note']}" if data.get("note") else ""
    what = f"{data.get('what', '')!s:<11} {data.get('tier', '')!s:<8} {data.get('mechanism', '')}{note}"
    return Parts("covers", what)


def _run(row: Row, _context: Context, _lineage: Lineage) -> Parts:
    if row.kind == "run.start":
        return Parts("run", command_line(texts(row.data.get("command"))), role="name")
    signal = number(row.data.get("signal"))
    status = f"signal {signal}" if signal else f"exit {number(row.data.get('status'))}"
    reason = str(row.data.get("reason", "exit"))
    return Parts("end", outcome(status) + (f" ({reason})" if reason not in ("exit", "signal") else ""))


def _model(row: Row, context: Context, lineage: Lineage) -> Parts:
    from agentwrap.views.model_parts import MODEL  # most recordings have none of it

    return MODEL.get(row.kind, _other)(row, context, lineage)


def _mcp(row: Row, context: Context, lineage: Lineage) -> Parts:
    from agentwrap.views.mcp_parts import MCP

    return MCP.get(row.kind, _other)(row, context, lineage)


def _other(row: Row, _context: Context, lineage: Lineage) -> Parts:
    word, _, rest = row.kind.partition(".")
    head: Line = [(f"{text.escape(row.verdict)}  ", "deny" if row.verdict == "deny" else "")] if row.verdict else []
    return Parts(word, f"{rest}  {row.subject}" if rest else row.subject, head=head, right=whom(lineage))


_MAKERS: dict[str, Maker] = {
    **EGRESS,
    "coverage": _coverage,
    "file.directory": _directory,
    "file.edit": _edit,
    "file.link": _link,
    "file.mode": _mode,
    "file.read": _read,
    "file.rename": _rename,
    "file.special": _special,
    "gap": _gap,
    "process.denied": _denied,
    "process.exec": _exec,
    "process.exit": _exit,
    "process.isolation": _isolation,
    "process.reach": _reach,
    "process.start": _start,
}
_FAMILIES: dict[str, Maker] = {
    "net": _socket,
    "dns": _dns,
    "run": _run,
    **dict.fromkeys(("model", "tool", "http", "claim", "session"), _model),
    "mcp": _mcp,
}
