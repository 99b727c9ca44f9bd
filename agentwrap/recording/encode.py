"""From an event struct to the columns of its row: redact, then JSON. Pure (the contents seen are told from outside).

The clean path is the common one: every foreign byte string of an event is joined and looked at once; only an event in
which something is suspicious is taken apart field by field.
"""

import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from agentwrap.events import AnyEvent, Event, FileState, ProcessExec, RunStart
from agentwrap.recording.envelope import Part
from agentwrap.recording.foreign import to_json, to_subject
from agentwrap.recording.redact import Redactor

_encode = msgspec.json.Encoder().encode
_HEAD = frozenset({"at_ns", "span", "pid"})
_ARGUMENTS = {(RunStart, "command"), (ProcessExec, "argv")}
_REQUIRED = object()
"""Stands for "no default": equal to nothing."""

Clean = Callable[[bytes], bytes]


class Stored(NamedTuple):
    """What became of a content: SHA-256 of the stored (redacted) bytes, whether redaction changed it, keyed hash."""

    sha256: bytes
    redacted: bool
    keyed: str


class Columns(NamedTuple):
    """A row of `event` without `seq` and `leaf`, its parts, and the JSON object `data` was made of."""

    at_ns: int
    kind: str
    span: str
    pid: int | None
    subject: str | None
    verdict: str | None
    data: str
    parts: tuple[Part, ...]
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """How one event class is taken apart: its fields, as (name, default), by what they hold."""

    kind: str
    plain: tuple[tuple[str, Any], ...] = ()
    foreign: tuple[tuple[str, Any], ...] = ()
    many: tuple[tuple[str, Any], ...] = ()
    pairs: tuple[tuple[str, Any], ...] = ()
    states: tuple[tuple[str, Any], ...] = ()


def _holds(hint: Any) -> str:
    if hint is FileState:
        return "states"
    if hint is bytes:
        return "foreign"
    if hint == tuple[bytes, ...]:
        return "many"
    return "pairs" if hint in (tuple[tuple[bytes, bytes], ...], tuple[tuple[str, str], ...]) else "plain"


def plan_of(event_class: type[Event]) -> Plan:
    """The plan of an event class, from the types of its fields."""
    groups: dict[str, list[tuple[str, Any]]] = {}
    hints = typing.get_type_hints(event_class)
    for info in msgspec.structs.fields(event_class):
        if info.name not in _HEAD:
            default = _REQUIRED if info.default is msgspec.NODEFAULT else info.default
            groups.setdefault(_holds(hints[info.name]), []).append((info.name, default))
    kind = str(event_class.__struct_config__.tag)
    return Plan(kind, **{name: tuple(found) for name, found in groups.items()})


PLANS: dict[type[Event], Plan] = {event_class: plan_of(event_class) for event_class in typing.get_args(AnyEvent)}


class Encoder:
    """Makes columns of events for one recording. `lookup(raw SHA-256)` says what became of a content seen before."""

    def __init__(self, redactor: Redactor, lookup: Callable[[bytes], Stored | None], shape_only: bool) -> None:
        self._redactor = redactor
        self._lookup = lookup
        self._shape_only = shape_only

    def columns(self, event: AnyEvent) -> Columns:
        """Redact `event` and lay it out as a row."""
        event_class = type(event)
        plan = PLANS[event_class]
        if (
            self._shape_only
            or event_class is RunStart
            or self._redactor.suspicious(_joined(event, plan), words=bool(plan.many))
        ):
            event = self._redacted(event, plan)
        fields: dict[str, Any] = {}
        for name, default in plan.plain:
            value = getattr(event, name)
            if value != default:
                fields[name] = value
        for name, default in plan.foreign:
            value = getattr(event, name)
            if value != default:
                fields[name] = to_json(value)
        for name, default in plan.many:
            value = getattr(event, name)
            if value != default:
                fields[name] = [to_json(item) for item in value]
        for name, default in plan.pairs:
            value = getattr(event, name)
            if value != default:
                fields[name] = [[_loose(left), _loose(right)] for left, right in value]
        parts = self._states(event, plan, fields) if plan.states else ()
        subject = event.subject
        return Columns(
            event.at_ns,
            plan.kind,
            event.span,
            event.pid or None,
            to_subject(subject) if subject else None,
            event.verdict or None,
            _encode(fields).decode(),
            parts,
            fields,
        )

    def _states(self, event: AnyEvent, plan: Plan, fields: dict[str, Any]) -> tuple[Part, ...]:
        parts: list[Part] = []
        for name, _ in plan.states:
            fields[name], digest = self._state(getattr(event, name))
            if digest:
                parts.append((name, 0, digest))
        # The order of the table's key: role, then ordinal.
        return tuple(sorted(parts))

    def _state(self, state: FileState) -> tuple[dict[str, Any], bytes]:
        """A FileState as JSON, and the SHA-256 of the stored content if there is one."""
        told: dict[str, Any] = {}
        for name, default in _STATE_PLAIN:
            value = getattr(state, name)
            if value != default:
                told[name] = value
        if state.target:
            told["target"] = to_json(state.target)
        if not state.raw:
            return told, b""
        stored = self._lookup(state.raw)
        if stored is None:
            # The content was never here (over the cap) or came too long ago: its hash is all there is.
            told.setdefault("omitted", "not-kept")
            told["raw_sha256" if not self._shape_only else "keyed"] = (
                state.raw.hex() if not self._shape_only else self._redactor.keyed(state.raw)
            )
            return told, b""
        told["keyed"] = stored.keyed
        if stored.redacted:
            told["redacted"] = True
        if self._shape_only:
            return told, b""
        told["sha256"] = stored.sha256.hex()
        return told, stored.sha256

    def _redacted(self, event: AnyEvent, plan: Plan) -> AnyEvent:
        """The same event with every foreign byte string cleaned (or, in a shape-only recording, replaced)."""
        redactor, shape = self._redactor, self._shape_only
        clean = redactor.shape if shape else redactor.clean
        changes: dict[str, Any] = {}
        for name, _ in plan.foreign:
            changes[name] = clean(getattr(event, name))
        for name, _ in plan.many:
            value = getattr(event, name)
            arguments = not shape and (type(event), name) in _ARGUMENTS
            changes[name] = redactor.arguments(value) if arguments else tuple(map(clean, value))
        for name, _ in plan.pairs:
            value = getattr(event, name)
            if name == "environment" and not shape:
                changes[name] = redactor.environment(value)
            else:
                changes[name] = tuple((left, _clean_loose(right, clean)) for left, right in value)
        for name, _ in plan.states:
            state = getattr(event, name)
            changes[name] = msgspec.structs.replace(state, target=clean(state.target))
        return msgspec.structs.replace(event, **changes)


_STATE_PLAIN = tuple(
    (info.name, info.default) for info in msgspec.structs.fields(FileState) if info.name not in ("raw", "target")
)


def _joined(event: AnyEvent, plan: Plan) -> bytes:
    """Every foreign byte string of the event, NUL between them."""
    found = [getattr(event, name) for name, _ in plan.foreign]
    for name, _ in plan.many:
        found += getattr(event, name)
    for name, _ in plan.states:
        target = getattr(event, name).target
        if target:
            found.append(target)
    return b"\0".join(found)


def _loose(value: bytes | str) -> Any:
    return value if isinstance(value, str) else to_json(value)


def _clean_loose(value: bytes | str, clean: Clean) -> bytes | str:
    if isinstance(value, str):
        return clean(value.encode(errors="surrogatepass")).decode(errors="replace")
    return clean(value)
