"""From an event struct to the columns of its row: redact, then JSON. Pure (the contents seen are told from outside).

The clean path is the common one: every foreign byte string of an event is joined and looked at once; only an event in
which something is suspicious is taken apart field by field.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from agentwrap.events import (
    AnyEvent,
    AskWaiting,
    Body,
    Claim,
    FileDirectory,
    FileEdit,
    FileLink,
    FileMode,
    FileRead,
    FileRename,
    FileSpecial,
    FileState,
    HttpExchange,
    McpCall,
    McpDecision,
    McpEnded,
    McpFinding,
    McpHello,
    McpMessage,
    McpResult,
    McpSession,
    McpTool,
    ModelRequest,
    ModelResponse,
    NetBind,
    NetConnect,
    NetListen,
    NetSend,
    PolicyLoaded,
    ProcessExec,
    ProcessStart,
    RunStart,
    SessionFile,
    ToolCall,
    ToolResult,
)
from agentwrap.recording.envelope import Part
from agentwrap.recording.foreign import to_json, to_subject
from agentwrap.recording.layout import LAYOUTS, Layout, state_fields
from agentwrap.recording.lists import fold, role_of
from agentwrap.recording.redact import Redactor

_encode = msgspec.json.Encoder().encode
_ARGUMENTS = {(RunStart, "command"), (ProcessExec, "argv"), (McpSession, "command")}
# Rare events whose pairs are looked at, too: `joined` leaves pairs out.
ALWAYS = frozenset({RunStart, PolicyLoaded, ModelRequest, ModelResponse, HttpExchange, SessionFile, McpSession})
# Paths, addresses and names alone: no assignments are expected in them.
WORDLESS = frozenset(
    {
        *(ProcessStart, FileEdit, FileRename, FileDirectory, FileMode, FileLink, FileSpecial, FileRead),
        *(NetConnect, NetBind, NetListen, NetSend, McpMessage),
    }
)
_HEADERS = frozenset({"headers", "request_headers", "response_headers"})
_TARGETS = frozenset({(ModelRequest, "path"), (HttpExchange, "path"), (McpSession, "url")})
_OF_SERVERS = (McpSession, McpHello, McpCall, McpResult, McpDecision, McpTool, McpFinding, McpEnded)
_SELVES = ("protocol", "client_name", "client_version", "server_name", "server_version")
# Foreign words that a shape-only recording keeps, if they look like names.
_NAMES = frozenset(
    {
        *((ModelRequest, name) for name in ("method", "model", "encoding")),
        *((ModelResponse, name) for name in ("model", "stop", "retry_after", "encoding", "unknown")),
        *((ToolCall, "name"), (ToolResult, "name"), (HttpExchange, "method")),
        *((one, "server") for one in (*_OF_SERVERS, AskWaiting)),
        *((one, "method") for one in (McpMessage, McpCall, McpResult, McpDecision)),
        *((McpTool, "name"), (McpTool, "shadows")),
        *((McpHello, name) for name in _SELVES),
    }
)
# Hashes of what one could guess: a shape-only recording has them under its key.
_KEYED: dict[type, tuple[str, ...]] = {
    **dict.fromkeys((McpCall, McpResult, McpDecision), ("digest",)),
    McpTool: ("digest", "before", "pinned"),
    AskWaiting: ("digest",),
}
_ABSENT = {"type": "absent"}
_CLIPPED_BYTES = 4096
_MCP_LONGEST = (
    *(("text", 4096), ("error", 4096), ("description", 4096), ("method", 1024), ("tool", 1024), ("id", 256)),
    *(("name", 256), ("detail", 200)),
)
"""Where `mcp.decoder` cuts off what it tells."""
_MCP_CLIPPED: dict[type, tuple[tuple[str, int], ...]] = {
    one: tuple((name, most) for name, most in _MCP_LONGEST if name in one.__struct_fields__)
    for one in (McpMessage, McpCall, McpResult, McpDecision, McpTool, McpFinding)
} | {AskWaiting: (("arguments", 4096), ("tool", 1024))}


class Stored(NamedTuple):
    """What became of a content: SHA-256 of the stored (redacted) bytes, whether redaction changed it, keyed hash.

    `joined`: texts that lie in pieces in it were looked at as a whole.
    """

    sha256: bytes
    redacted: bool
    keyed: str
    joined: bool = False


Below = dict[bytes, bytes | None]
"""What a row names through lists: SHA-256 of contents (None), and of the lists (their bytes)."""

Columns = tuple[int, str, str, int | None, str | None, str | None, bytes, list[Part], dict[str, Any], Below]
"""(at_ns, kind, span, pid, subject, verdict, data, parts, fields, below): a row of `event` without `seq` and `leaf`,
`data` as bytes; its parts; the object that `data` is the JSON of; and what lies below the parts. A plain tuple: one is
made for every event.
"""


class Encoder:
    """Makes columns of events for one recording. `lookup(raw SHA-256)` says what became of a content seen before."""

    def __init__(
        self,
        redactor: Redactor,
        lookup: Callable[[bytes], Stored | None],
        shape_only: bool,
        harmless: Callable[[AnyEvent], bool] | None = None,
    ) -> None:
        """`harmless`: says of an event that no secret is in it, where somebody knows."""
        self._redactor = redactor
        self._harmless = harmless or (lambda _event: False)
        self._suspicious = redactor.suspicious
        self._lookup = lookup
        self._shape_only = shape_only
        self._below: Below = {}

    def columns(self, event: AnyEvent) -> Columns:
        """Redact `event` and lay it out as a row."""
        event_class = type(event)
        layout = LAYOUTS[event_class]
        harmless = self._harmless(event)
        if event_class in _CLIPPED:
            event = _CLIPPED[event_class](event, self._redactor)
        if (
            self._shape_only
            or event_class in ALWAYS
            or not (harmless or not self._suspicious(layout.joined(event), event_class not in WORDLESS))
        ):
            event = self._redacted(event, layout)
        fields, parts = layout.fields(event, self._state, self._body)
        subject = event.subject
        below = self._below
        if below:
            self._below = {}
        return (
            event.at_ns,
            layout.kind,
            event.span,
            event.pid or None,
            to_subject(subject) if subject else None,
            event.verdict or None,
            _encode(fields),
            parts,
            fields,
            below,
        )

    def _state(self, state: FileState) -> tuple[dict[str, Any], bytes]:
        """A FileState as JSON, and the SHA-256 of the stored content if there is one."""
        if state == _NOTHING:
            return _ABSENT, b""
        told = state_fields(state)
        if state.target:
            told["target"] = to_json(state.target)
        return (told, self._name_content(state.raw, told)) if state.raw else (told, b"")

    def _body(self, body: Body, role: str) -> tuple[dict[str, Any], list[Part]]:
        """A Body as JSON, and its parts."""
        told: dict[str, Any] = {"size": body.size}
        found = [self._lookup(piece) for piece in body.pieces]
        stored = [one for one in found if one is not None]
        if any(one.redacted for one in stored):
            told["redacted"] = True
        if body.omitted or len(stored) < len(found) or self._shape_only:
            told["omitted"] = body.omitted or "not-kept"
            if self._shape_only and body.pieces:
                told["keyed"] = self._redactor.keyed(b"".join(body.pieces))
            return told, []
        folded = fold([one.sha256 for one in stored])
        if folded.depth:
            self._below.update(dict.fromkeys(one.sha256 for one in stored))
            self._below.update(folded.lists)
        role = role_of(role, folded.depth)
        return told, [(role, ordinal, digest) for ordinal, digest in enumerate(folded.top)]

    def _name_content(self, raw: bytes, told: dict[str, Any]) -> bytes:
        """Say in `told` what is known of the content with this raw hash."""
        stored = self._lookup(raw)
        if stored is None:
            # The content was never here (over the cap) or came too long ago: its hash is all there is.
            told.setdefault("omitted", "not-kept")
            if self._shape_only:
                told["keyed"] = self._redactor.keyed(raw)
            else:
                told["raw_sha256"] = raw.hex()
            return b""
        told["keyed"] = stored.keyed
        if stored.redacted:
            told["redacted"] = True
        if self._shape_only:
            return b""
        told["sha256"] = stored.sha256.hex()
        return stored.sha256

    def _redacted(self, event: AnyEvent, layout: Layout) -> AnyEvent:
        """The same event with every foreign byte string cleaned (or, in a shape-only recording, replaced)."""
        event_class = type(event)
        changes: dict[str, Any] = {}
        if self._shape_only:
            keyed, digests = self._redactor.keyed, _KEYED.get(event_class, ())
            changes = {name: keyed(value.encode()) for name in digests if (value := getattr(event, name))}
        plain = isinstance(event, McpCall) and event.unredacted and not self._shape_only
        for name, _ in layout.foreign:
            if plain and name == "arguments":
                continue
            changes[name] = self._cleaner(event_class, name)(getattr(event, name))
        for name, _ in layout.many:
            value = getattr(event, name)
            if (event_class, name) in _ARGUMENTS and not self._shape_only:
                changes[name] = self._redactor.arguments(value)
            else:
                changes[name] = tuple(map(self._cleaner(event_class, name), value))
        for name, _ in layout.pairs:
            changes[name] = self._pairs(name, getattr(event, name))
        for name, _ in layout.states:
            state = getattr(event, name)
            changes[name] = msgspec.structs.replace(state, target=self._cleaner(event_class, name)(state.target))
        return msgspec.structs.replace(event, **changes)

    def _cleaner(self, event_class: type[AnyEvent], name: str) -> Callable[[bytes], bytes]:
        redactor = self._redactor
        if self._shape_only:
            if name == "tool":  # or a resource, which is no name
                return lambda value: redactor.shape(value) if b":" in value else redactor.shape_of_name(value)
            return redactor.shape_of_name if (event_class, name) in _NAMES else redactor.shape
        if (event_class, name) in _TARGETS:
            return lambda value: redactor.clean(redactor.target(value))
        return redactor.clean

    def _pairs(self, name: str, pairs: tuple[tuple[Any, Any], ...]) -> tuple[tuple[Any, Any], ...]:
        redactor, shape_only = self._redactor, self._shape_only
        clean = redactor.shape if shape_only else redactor.clean
        if name in _HEADERS:
            if not shape_only:
                return redactor.headers(pairs)
            return tuple((redactor.shape_of_name(left), clean(right)) for left, right in pairs)
        if name == "joined":
            ours = redactor.shape_of_name if shape_only else clean
            return tuple((clean(left), ours(right)) for left, right in pairs)
        if name == "environment" and not shape_only:
            return redactor.environment(pairs)
        # The left side is a name that says what it is about: of a variable, of an option of ours.
        return tuple((left, _clean_loose(right, clean)) for left, right in pairs)


def _clip_arguments(event: ToolCall | McpCall, redactor: Redactor) -> ToolCall | McpCall:
    if not event.omitted_bytes or (isinstance(event, McpCall) and event.unredacted):
        return event
    kept = redactor.cut_tail(event.arguments)
    omitted = event.omitted_bytes + len(event.arguments) - len(kept)
    return msgspec.structs.replace(event, arguments=kept, omitted_bytes=omitted)


def _clip_text(event: ToolResult, redactor: Redactor) -> ToolResult:
    if event.size <= len(event.text) or len(event.text) < _CLIPPED_BYTES:
        return event
    return msgspec.structs.replace(event, text=redactor.cut_tail(event.text))


def _clip_mcp(event: Any, redactor: Redactor) -> Any:
    """A field that is as long as it may be was cut off."""
    for name, most in _MCP_CLIPPED[type(event)]:
        if len(getattr(event, name)) == most:
            event = msgspec.structs.replace(event, **{name: redactor.cut_tail(getattr(event, name))})
    return _clip_arguments(event, redactor) if isinstance(event, McpCall) else event


def _clip_data(event: Claim, redactor: Redactor) -> Claim:
    if not event.omitted_bytes:
        return event
    kept = redactor.cut_tail(event.data)
    return msgspec.structs.replace(event, data=kept, omitted_bytes=event.omitted_bytes + len(event.data) - len(kept))


# What somebody cut off may end in half a secret, which no pattern knows.
_CLIPPED: dict[type, Callable[[Any, Redactor], Any]] = {
    ToolCall: _clip_arguments,
    ToolResult: _clip_text,
    **dict.fromkeys(_MCP_CLIPPED, _clip_mcp),
    Claim: _clip_data,
}


_NOTHING = FileState(type="absent")


def _clean_loose(value: bytes | str, clean: Callable[[bytes], bytes]) -> bytes | str:
    if isinstance(value, str):
        return clean(value.encode(errors="surrogatepass")).decode(errors="replace")
    return clean(value)
