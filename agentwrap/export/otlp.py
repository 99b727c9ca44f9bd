"""Spans for OpenTelemetry: rows as `ExportTraceServiceRequest` messages (opentelemetry-proto, trace/v1), serialised.

One trace for a run; ids are hashes of the run's id and of the span's, so that the same recording always gives the same
trace, and parts of it that are sent apart fit together. Messages one after the other are one message too
(protobuf.dev, "Encoding": repeated fields of both are kept), so a file of them is one. Needs `opentelemetry-proto`.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from agentwrap import __version__
from agentwrap.errors import AgentwrapError
from agentwrap.evidence import linking
from agentwrap.export import otlp_attributes as attributes
from agentwrap.export.otlp_attributes import Attributes
from agentwrap.export.spans import Ended, Ending
from agentwrap.rows import Row
from agentwrap.views.source import Source, foreign_text, texts

MEDIA = "application/x-protobuf"
BATCH_SPANS = 500
BATCH_BYTES = 2 << 20
_LONGEST = 16 << 10
_LONGEST_NAME = 200
_MOST_ITEMS = 1000
_MOST_NS = (1 << 64) - 1
_INTERNAL, _CLIENT = 1, 3
_OK, _ERROR = 0, 2
# Content is bounded where it is made.
_LONG = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions")


def export(source: Source, rows: Iterable[Row], started_unix_ns: int) -> Iterator[bytes]:
    """The export, with content."""
    yield from requests(source, rows, started_unix_ns)


def requests(source: Source, rows: Iterable[Row], started_unix_ns: int, *, content: bool = True) -> Iterator[bytes]:
    """Serialised requests of bounded size. `content`: also what was said to models and tools, and by them.

    Raises AgentwrapError `unsupported` where `opentelemetry-proto` is not installed.
    """
    batches = Batches(source, linking.of_recording(source, source.meta), started_unix_ns, content=content)
    for row in rows:
        yield from batches.take(row)
    yield from batches.finish()


class Batches:
    """Requests of rows, as they fill. `story` is fed by whoever owns it, before the row comes here."""

    def __init__(self, source: Source, story: linking.Linker, started_unix_ns: int, *, content: bool = True) -> None:
        self._spans = _Spans(source, story, started_unix_ns, content=content)
        self._ending = Ending(source, story)
        self.count = 0
        self._size = 0
        self._request, self._into = self._spans.request()

    def take(self, row: Row) -> Iterator[bytes]:
        """The requests that are full with a row."""
        for ended in self._ending.take(row):
            yield from self._add(ended)

    def flush(self) -> Iterator[bytes]:
        """What is there, though it is not full."""
        if self.count:
            yield self._request.SerializeToString()
            self.count = self._size = 0
            self._request, self._into = self._spans.request()

    def finish(self) -> Iterator[bytes]:
        """What is left."""
        for ended in self._ending.finish():
            yield from self._add(ended)
        yield from self.flush()

    def _add(self, ended: Ended) -> Iterator[bytes]:
        span = self._spans.span(ended)
        size = span.ByteSize()
        if self.count >= BATCH_SPANS or (self.count and self._size + size > BATCH_BYTES):
            yield from self.flush()
        self._into.append(span)
        self.count += 1
        self._size += size


class _Spans:
    """Span messages of one recording."""

    def __init__(self, source: Source, story: linking.Linker, started_unix_ns: int, *, content: bool) -> None:
        self._trace, self._service = messages()
        self._source, self._story, self._content = source, story, content
        self._started_ns = started_unix_ns
        meta = source.meta
        self._run = meta.get("run_id", "")
        self._trace_id = _digest(f"trace {self._run}", 16)
        self._resource = _resource(source)

    def request(self) -> tuple[Any, Any]:
        """An empty request, and its list of spans."""
        made = self._service.ExportTraceServiceRequest()
        spans = made.resource_spans.add()
        _fill(spans.resource.attributes, self._resource)
        scope = spans.scope_spans.add()
        scope.scope.name, scope.scope.version = "agentwrap", __version__
        return made, scope.spans

    def span(self, ended: Ended) -> Any:
        """One span."""
        name, kind, told = self._told(ended)
        if ended.link is not None:
            link = ended.link
            told |= {"agentwrap.link.tool": link.tool, "agentwrap.link.how": link.how,
                     "agentwrap.link.evidence": link.evidence}  # fmt: skip
        if not ended.ended:
            told["agentwrap.end_not_seen"] = True
        made = self._trace.Span(
            trace_id=self._trace_id,
            span_id=self._id(ended.id),
            parent_span_id=self._id(ended.parent) if ended.parent else b"",
            name=_clean(name.strip(), _LONGEST_NAME) or ended.kind,
            kind=kind,
            start_time_unix_nano=self._time(ended.start_ns),
            end_time_unix_nano=self._time(ended.end_ns),
            dropped_events_count=min(ended.lost, (1 << 32) - 1),
            flags=0x100,  # W3C trace flags follow; the parent is of this process (trace.proto, SpanFlags)
        )
        _fill(made.attributes, told)
        self._status(made, ended, told)
        for note in ended.notes:
            self._event(made, note.row, note.span if note.span != ended.id else "")
        if ended.link is not None and ended.parent not in (ended.link.tool, ended.link.call):
            made.links.add(trace_id=self._trace_id, span_id=self._id(ended.link.tool))
        return made

    def _told(self, ended: Ended) -> tuple[str, int, Attributes]:
        """Name, kind and attributes."""
        row, source, content = ended.row, self._source, self._content
        if ended.kind == "moment" and row is not None:
            return f"{_verb(row)} {_last(row)}", _INTERNAL, attributes.moment(row)
        if ended.kind == "exchange" and row is not None:
            return foreign_text(row.data.get("method")) or "HTTP", _CLIENT, attributes.exchange(row)
        if ended.kind == "model":
            told = attributes.model(ended, source, content=content)
            return f"{told['gen_ai.operation.name']} {told['gen_ai.request.model']}".rstrip(), _CLIENT, told
        if ended.kind == "tool":
            told = attributes.tool(ended, content=content)
            return f"execute_tool {told['gen_ai.tool.name']}", _INTERNAL, told
        if ended.kind == "mcp":
            told = attributes.mcp(ended, self._talk(ended), content=content)
            named = told.get("gen_ai.tool.name") or told.get("gen_ai.prompt.name") or ""
            return f"{told['mcp.method.name']} {named}".rstrip(), _CLIENT, told
        if ended.kind == "session":
            return f"mcp {ended.name}", _INTERNAL, attributes.session(ended)
        if ended.kind == "agent":
            process = source.span(str(ended.data.get("process", "")))
            told = attributes.agent(ended, process.name if process is not None else "")
            return f"invoke_agent {told['gen_ai.agent.name']}".rstrip(), _INTERNAL, told | self._said(ended.id)
        if ended.kind == "connection":
            return f"connect {ended.name}", _CLIENT, attributes.connection(ended)
        if ended.kind == "turn":
            return f"turn {ended.id}", _INTERNAL, {"agentwrap.turn": ended.id}
        if ended.kind == "run":
            told = {"agentwrap.run.id": self._run, "agentwrap.run.command": ended.name}
            told |= {"agentwrap.run.reason": ended.data.get("reason")} | attributes.exit_of(ended.status)
            said = self._said("")
            if said:
                # By this, backends tell what has messages and is no call of a model.
                told |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": self._resource["service.name"]}
            return f"run {self._resource['service.name']}", _INTERNAL, told | said
        return f"process {ended.name}", _INTERNAL, attributes.process(ended)

    def _talk(self, ended: Ended) -> Attributes:
        """What is known of the session of an MCP call."""
        span = self._source.span(str(ended.data.get("session", "")))
        return span.data if span is not None else {}

    def _said(self, agent: str) -> Attributes:
        """The first request and the last answer of an agent, of the busiest one for the run."""
        turns = self._story.turns
        if not agent:
            agent = max(turns.agents, key=lambda one: len(turns.agents[one].calls), default="")
        known = turns.agents.get(agent)
        calls = [turns.calls[one] for one in known.calls] if known is not None else []
        if not calls or not self._content:
            return {}
        last = next((call.response for call in reversed(calls) if call.response is not None), None)
        return attributes.conversation(self._source, calls[0].request, last)

    def _status(self, made: Any, ended: Ended, told: Attributes) -> None:
        failed, row = str(told.get("error.type", "")), ended.row
        if row is not None and row.verdict == "deny":
            failed = f"denied: {foreign_text(row.data.get('rule') or row.data.get('why'))}"
        elif ended.kind == "connection" and ended.status not in ("closed", "ended", ""):
            failed = ended.status
        elif ended.kind == "model" and failed:
            failed = foreign_text(ended.answered.data.get("error") if ended.answered is not None else "") or failed
        elif ended.kind in ("process", "run") and failed:
            failed = ended.status
        if failed:
            made.status.code, made.status.message = _ERROR, _clean(failed, 1000)

    def _event(self, made: Any, row: Row, span: str) -> None:
        name = f"agentwrap.policy.{row.verdict}" if row.verdict else f"agentwrap.{row.kind}"
        event = made.events.add(time_unix_nano=self._time(row.at_ns), name=_clean(name, _LONGEST_NAME))
        _fill(event.attributes, attributes.note(row) | ({"agentwrap.span": span} if span else {}))

    def _id(self, span: str) -> bytes:
        return _digest(f"span {self._run} {span}", 8)

    def _time(self, at_ns: int) -> int:
        return min(max(self._started_ns + at_ns, 0), _MOST_NS)


def messages() -> tuple[Any, Any]:
    """The generated modules of trace/v1 and its service. Raises AgentwrapError `unsupported`."""
    try:
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
        from opentelemetry.proto.trace.v1 import trace_pb2
    except ImportError as error:
        raise AgentwrapError(
            "unsupported",
            "spans need the package opentelemetry-proto",
            evidence=str(error),
            hint="pip install 'agentwrap-cli[otlp]'",
        ) from error
    return trace_pb2, trace_service_pb2


def _resource(source: Source) -> Attributes:
    meta = source.meta
    command = next((texts(row.data.get("command")) for row in source.rows(kinds=("run.start",), limit=1)), [])
    first = command[0] if command else ""
    return {
        "service.name": first.rstrip("/").rpartition("/")[2] or "agentwrap",
        "service.instance.id": meta.get("run_id"),
        "host.arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(meta.get("arch", ""), meta.get("arch")),
        "os.type": "linux",
        "os.description": meta.get("kernel"),
        "process.working_directory": meta.get("cwd"),
        "agentwrap.version": meta.get("tool_version"),
    }


def _verb(row: Row) -> str:
    # A judgement has a `change`, too: what a human would write.
    did = row.data.get("change" if row.kind.startswith("file.") else "act")
    return f"{row.kind} {did}" if isinstance(did, str) else row.kind


def _last(row: Row) -> str:
    """What a moment is about, short: the last name of a path, a host and port."""
    return row.subject.rstrip("/").rpartition("/")[2] if row.kind.startswith("file.") else row.subject


def _fill(into: Any, told: Attributes) -> None:
    """Attributes as key and value; what is not there is left out."""
    for name, value in told.items():
        if value is None or value == "" or value == []:
            continue
        _value(into.add(key=_clean(name, _LONGEST_NAME)).value, value, _MOST_NS if name in _LONG else _LONGEST)


def _value(into: Any, value: Any, longest: int) -> None:
    if isinstance(value, bool):
        into.bool_value = value
    elif isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        into.int_value = value
    elif isinstance(value, float):
        into.double_value = value
    elif isinstance(value, list):
        into.array_value.SetInParent()
        for one in value[:_MOST_ITEMS]:
            _value(into.array_value.values.add(), one, longest)
    else:
        into.string_value = _clean(str(value), longest)


def _clean(value: str, longest: int) -> str:
    """Text that protobuf takes: valid UTF-8 (other bytes in hex), without NUL, clipped."""
    if len(value) > longest:
        value = f"{value[:longest]}…"
    told = value.replace("\0", "\\x00")
    if told.isascii():
        return told
    try:
        return told.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return told.encode("utf-8", "backslashreplace").decode()


def _digest(text: str, size: int) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:size]
