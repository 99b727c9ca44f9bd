"""The keys of the filter language: what each compares, and with which part of a row.

A key makes a test out of a value, or raises ValueError with the reason. Knows nothing of the language's signs.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from agentwrap.rows import Row, Span, number
from agentwrap.views.source import foreign_text, mapping, texts

if TYPE_CHECKING:
    from agentwrap.evidence.linking import Linker

# The kinds of events (a test compares them with the vocabulary).
KINDS = (
    "run.start", "run.end", "coverage", "gap",
    "process.start", "process.exec", "process.exit", "process.denied", "process.isolation", "process.reach",
    "file.edit", "file.rename", "file.directory", "file.mode", "file.link", "file.special", "file.read",
    "net.connect", "net.bind", "net.listen", "net.send", "dns.server",
    "policy", "net.decision", "net.closed", "net.refused", "dns.query", "act.denied", "ask.waiting", "ask.answered",
    "model.request", "model.response", "tool.call", "tool.result", "http.exchange", "claim", "session.file",
    "mcp.session", "mcp.message", "mcp.hello", "mcp.call", "mcp.joined", "mcp.result", "mcp.decision", "mcp.tool",
    "mcp.finding", "mcp.ended",
)  # fmt: skip
CLASSES = {
    "file": ("file",),
    "network": ("net", "dns"),
    "process": ("process",),
    "gap": ("gap",),
    "policy": ("policy", "net.decision", "net.refused", "dns.query", "act", "ask", "mcp.decision"),
    "model": ("model", "tool", "http"),
    "mcp": ("mcp",),
}
VERDICTS = ("allow", "deny", "would-deny", "ask", "hold", "redact", "none")
FILE_CLASSES = ("work", "temporary", "cache", "agent-state", "version-control", "device", "system", "stdio")

ENDINGS = ("complete", "incomplete", "error", "cancelled", "unread")

Spans = Callable[[str], Span | None]


class Surroundings:
    """Finds spans by id, as every test may ask, and knows which tool call a row belongs to."""

    def __init__(self, find: Spans, story: "Linker | None") -> None:
        self._find = find
        self.story = story

    def __call__(self, span_id: str) -> Span | None:
        """A span by id."""
        return self._find(span_id)


Test = Callable[[Row, Spans], bool]

_UNITS_NS = {
    "": 10**9, "ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}  # fmt: skip
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h|d|)")
_COMPARISON = re.compile(r"(>=|<=|!=|>|<|=)?(.*)", re.DOTALL)


def kinds_named(key: str, value: str) -> list[str]:
    """Every kind that `kind:VALUE` or `%VALUE` names. Raises ValueError."""
    if key == "%":
        if value not in CLASSES:
            raise ValueError(f"there is no class `%{value}`; classes: {', '.join('%' + name for name in CLASSES)}")
        prefixes: Iterable[str] = CLASSES[value]
    else:
        prefixes = value.split(",")
    found: list[str] = []
    for prefix in prefixes:
        wanted = prefix.removesuffix(".*")
        matching = [kind for kind in KINDS if kind == wanted or kind.startswith(wanted + ".")]
        if not matching:
            raise ValueError(f"there is no kind `{prefix}`; kinds: {', '.join(KINDS)}")
        found += matching
    return found


def _one_of(field: Callable[[Row], str], allowed: tuple[str, ...], what: str) -> Callable[[str], Test]:
    def make(value: str) -> Test:
        wanted = value.split(",")
        for word in wanted:
            if word not in allowed:
                raise ValueError(f"`{what}` is one of {', '.join(allowed)}")
        return lambda row, _spans: field(row) in wanted

    return make


def _span_test(value: str) -> Test:
    wanted = value.split(",")
    return lambda row, _spans: row.span in wanted


def _under_test(value: str) -> Test:
    """Rows of a span or of anything that descends from it."""

    def test(row: Row, spans: Spans) -> bool:
        span_id: str | None = row.span
        steps = 0
        while span_id is not None and steps < 10_000:  # a file made by hand may hold a loop
            if span_id == value:
                return True
            span = spans(span_id)
            span_id, steps = (span.parent if span else None), steps + 1
        return False

    return test


def parse_duration(value: str) -> int:
    """`2m`, `1.5s`, `1h30m`, `250ms`; a bare number is seconds. Nanoseconds. Raises ValueError."""
    total, at = 0.0, 0
    while at < len(value):
        part = _DURATION.match(value, at)
        if part is None:
            break
        total += float(part[1]) * _UNITS_NS[part[2]]
        at = part.end()
    if at < len(value) or not value or total > 2**63:
        raise ValueError(f"`{value}` is not a time such as `2m`, `1.5s` or `1h30m` since the start of the run")
    return round(total)


def _integer(value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 20):
        raise ValueError(f"`{value}` is not a whole number")
    return int(value)


def _compare(value: str, read: Callable[[str], int], field: Callable[[Row], int | None]) -> Test:
    """A comparison (`>2s`, `!=0`, `12`, `10..20`) of a number of the row."""
    if ".." in value:
        low_text, high_text = value.split("..", 1)
        low, high = read(low_text), read(high_text)
        return lambda row, _spans: (found := field(row)) is not None and low <= found <= high
    matched = _COMPARISON.fullmatch(value)
    assert matched is not None
    sign, wanted = matched[1] or "=", read(matched[2])
    compare: Callable[[int], bool] = {
        "=": lambda found: found == wanted,
        "!=": lambda found: found != wanted,
        ">": lambda found: found > wanted,
        "<": lambda found: found < wanted,
        ">=": lambda found: found >= wanted,
        "<=": lambda found: found <= wanted,
    }[sign]
    return lambda row, _spans: (found := field(row)) is not None and compare(found)


def _exit_status(row: Row) -> int | None:
    if row.kind not in ("process.exit", "run.end"):
        return None
    signal = number(row.data.get("signal"))
    return 128 + signal if signal else number(row.data.get("status"))


def _paths(row: Row) -> Iterator[str]:
    if row.kind.startswith(("file.", "process.exec", "net.", "act.", "session.")):
        for key in ("path", "target", "temporary", "exe"):
            if key in row.data:
                yield foreign_text(row.data[key])


def _path_test(value: str) -> Test:
    """A glob over whole paths or their last parts; without `*`, `?`, `[`: a name, a path, or a folder above it."""
    if not value:
        raise ValueError("a path is needed")
    if not any(sign in value for sign in "*?["):
        wanted = "/" + value.strip("/") + "/"
        if value.startswith("/"):
            return lambda row, _spans: any((path + "/").startswith(wanted) for path in _paths(row))
        return lambda row, _spans: any(wanted in "/" + path + "/" for path in _paths(row))
    matches = _glob(value if value.startswith(("/", "*")) else "*/" + value)
    return lambda row, _spans: any(matches("/" + path if path[:1] != "/" else path) for path in _paths(row))


def _glob(pattern: str) -> Callable[[str], bool]:
    from fnmatch import translate

    compiled = re.compile(translate(pattern))
    return lambda text: compiled.match(text) is not None


def _hosts(row: Row) -> Iterator[str]:
    if row.kind.startswith(("net.", "dns.", "model.", "http.")):
        for key in ("host", "name", "address", "sni"):
            if key in row.data:
                yield foreign_text(row.data[key])
        yield from texts(row.data.get("names"))


def _host_test(value: str) -> Test:
    """A name, `*.suffix` (by labels), an address, or a network such as `10.0.0.0/8`."""
    wanted = value.lower().rstrip(".")
    if not wanted:
        raise ValueError("a host is needed")
    if "/" in wanted:
        from ipaddress import ip_address, ip_network

        try:
            network = ip_network(wanted, strict=False)
        except ValueError:
            raise ValueError(f"`{value}` is not a network such as `10.0.0.0/8`") from None

        def inside(host: str) -> bool:
            try:
                return ip_address(host) in network
            except ValueError:
                return False

        return lambda row, _spans: any(map(inside, _hosts(row)))
    if wanted.startswith("*."):
        return lambda row, _spans: any(host.lower().rstrip(".").endswith(wanted[1:]) for host in _hosts(row))
    if "*" in wanted:
        matches = _glob(wanted)
        return lambda row, _spans: any(matches(host.lower().rstrip(".")) for host in _hosts(row))
    return lambda row, _spans: any(host.lower().rstrip(".") == wanted for host in _hosts(row))


def _name_test(value: str) -> Test:
    """The name of the process a row belongs to (a glob)."""
    matches = _glob(value)

    def test(row: Row, spans: Spans) -> bool:
        span = spans(row.span) if row.span else None
        return span is not None and span.kind == "process" and matches(span.name)

    return test


def _owner(row: Row, spans: Spans, field: str) -> str:
    """`turn`, `agent`, `call` or `tool` of a row: its own word, or that of the tool call that caused it."""
    of_mcp = row.kind.startswith("mcp.")  # its `tool` and `agent` are other things
    if field in row.data and (not of_mcp or field == "call"):
        return str(row.data[field])
    story = spans.story if isinstance(spans, Surroundings) else None
    if story is None:
        return ""
    link = None if of_mcp else story.link_of(row)
    tool = story.mcp.tool_of(row) if of_mcp else link.tool if link is not None else ""
    use = story.turns.tools.get(tool)
    return "" if use is None else str(getattr(use, "id" if field == "tool" else field))


def _owner_test(field: str) -> Callable[[str], Test]:
    def make(value: str) -> Test:
        wanted = value.split(",")
        return lambda row, spans: _owner(row, spans, field) in wanted

    return make


def _tool_test(value: str) -> Test:
    """A tool's name (a glob, case does not matter) or the id of a call of one; also what the call caused."""
    matches = _glob(value.casefold())

    def test(row: Row, spans: Spans) -> bool:
        if row.kind not in ("tool.call", "tool.result") and not isinstance(spans, Surroundings):
            return False
        tool = _owner(row, spans, "tool")
        name = foreign_text(row.data.get("name")) if row.kind.startswith("tool.") else ""
        if row.kind.startswith("mcp.") and matches(foreign_text(row.data.get("tool")).casefold()):
            return True
        story = spans.story if isinstance(spans, Surroundings) else None
        use = story.turns.tools.get(tool) if story is not None else None
        name = name or (foreign_text(use.asked.data.get("name")) if use is not None else "")
        return bool(tool) and (tool == value or matches(name.casefold()))

    return test


def _server_test(value: str) -> Test:
    """The name of an MCP server (a glob, case does not matter)."""
    matches = _glob(value.casefold())

    def test(row: Row, spans: Spans) -> bool:
        if not row.kind.startswith("mcp."):
            return False
        told = row.data.get("server")
        if told is None:  # a message says only of which session it is
            session = spans(str(row.data.get("session", "")))
            told = session.data.get("server") if session is not None else ""
        return matches(foreign_text(told).casefold())

    return test


def _model_test(value: str) -> Test:
    """The name of a model (a glob, or a part of it)."""
    matches = _glob(value.casefold() if any(sign in value for sign in "*?[") else f"*{value.casefold()}*")
    return lambda row, _spans: row.kind.startswith("model.") and matches(foreign_text(row.data.get("model")).casefold())


def _status_test(value: str) -> Test:
    """An HTTP status of an answer (a comparison), or how a model's answer ended (a word)."""
    if value[:1].isalpha():
        words = value.split(",")
        if unknown := [word for word in words if word not in ENDINGS]:
            raise ValueError(f"`{unknown[0]}` is no status; words: {', '.join(ENDINGS)}")
        return lambda row, _spans: row.kind == "model.response" and row.data.get("ending") in words
    return _compare(value, _integer, _http_status)


def _http_status(row: Row) -> int | None:
    return number(row.data.get("status")) if row.kind in ("model.response", "http.exchange") else None


def _tokens(row: Row) -> int | None:
    counts = [row.data.get(f"{sort}_tokens") for sort in ("input", "output")]
    told = [count for count in counts if isinstance(count, int)]
    return sum(told) if row.kind == "model.response" and told else None


def _rule_test(value: str) -> Test:
    """A part of the rule that decided: its place, its text, its file."""
    wanted = value.casefold()
    return lambda row, _spans: "rule" in row.data and wanted in foreign_text(row.data["rule"]).casefold()


def _text_test(value: str) -> Test:
    """Case does not matter; looks in the subject and in every text of the row's data."""
    wanted = value.casefold()

    def found(item: Any) -> bool:
        if isinstance(item, str):
            return wanted in item.casefold()
        if isinstance(item, Mapping):
            return any(map(found, item.values()))
        return isinstance(item, list) and any(map(found, item))

    return lambda row, _spans: wanted in row.subject.casefold() or found(row.data)


def _since(value: str) -> Test:
    start_ns = parse_duration(value)
    return lambda row, _spans: row.at_ns >= start_ns


def _until(value: str) -> Test:
    end_ns = parse_duration(value)
    return lambda row, _spans: row.at_ns <= end_ns


def _port(row: Row) -> int | None:
    if not row.kind.startswith(("net.", "dns.", "model.", "http.")):
        return None
    found = row.data.get("port", 53 if row.kind == "dns.server" else None)
    return found if isinstance(found, int) else None


def _file_size(row: Row) -> int | None:
    return number(mapping(row.data.get("after")).get("size")) if row.kind == "file.edit" else None


def _file_class(row: Row) -> str:
    return str(row.data.get("klass", "work")) if row.kind.startswith("file.") else ""


def _kind_test(key: str, value: str) -> Test:
    kinds = frozenset(kinds_named(key, value))
    return lambda row, _spans: row.kind in kinds


KEYS: dict[str, Callable[[str], Test]] = {
    "kind": lambda value: _kind_test("kind", value),
    "%": lambda value: _kind_test("%", value),
    "class": _one_of(_file_class, FILE_CLASSES, "class"),
    "verdict": _one_of(lambda row: row.verdict or "none", VERDICTS, "verdict"),
    "rule": _rule_test,
    "pid": lambda value: _compare(value, _integer, lambda row: row.pid or None),
    "span": _span_test,
    "under": _under_test,
    "name": _name_test,
    "path": _path_test,
    "size": lambda value: _compare(value, _integer, _file_size),
    "host": _host_test,
    "port": lambda value: _compare(value, _integer, _port),
    "model": _model_test,
    "tool": _tool_test,
    "server": _server_test,
    "turn": _owner_test("turn"),
    "agent": _owner_test("agent"),
    "call": _owner_test("call"),
    "status": _status_test,
    "tokens": lambda value: _compare(value, _integer, _tokens),
    "exit": lambda value: _compare(value, _integer, _exit_status),
    "seq": lambda value: _compare(value, _integer, lambda row: row.seq),
    "at": lambda value: _compare(value, parse_duration, lambda row: row.at_ns),
    "since": _since,
    "until": _until,
    "text": _text_test,
}
HELP = (
    ("kind:file  kind:net.connect", "a kind of event, or all kinds that begin so"),
    ("%file %network %process %policy %model %mcp %gap", "classes of kinds"),
    ("verdict:deny", "what was decided: allow deny would-deny ask hold redact none"),
    ("rule:network.default", "a part of the rule that decided"),
    ("path:*.py  path:src", "a glob, a name, or a folder"),
    ("class:cache", "the sort of file: work temporary cache agent-state version-control device system stdio"),
    ("host:*.example.org  host:10.0.0.0/8  port:443", "where to"),
    ("pid:12  span:p3  under:p3  name:node", "who: a process, it and its descendants, its name"),
    ("model:claude*  status:>=400  status:incomplete  tokens:>10000", "model calls: name, answer, tokens in and out"),
    ("server:tickets", "what an MCP server was asked and said"),
    ("turn:t3  agent:a2  call:m7  tool:Bash", "what belongs to it, with what its tools caused"),
    ("since:2m  until:5s  at:>2s", "when, counted from the start of the run"),
    ("exit:>0  size:>1000  seq:10..20", "numbers compare: = != > >= < <= and ranges"),
    ('text  "two words"', "anywhere in the event"),
    ("-path:*.lock", "not"),
    ("kind:file,net", "either"),
)
