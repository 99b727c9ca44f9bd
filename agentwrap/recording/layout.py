"""How each event class is taken apart, compiled once: functions without loops over fields, written from the structs.

Interpreting the list of fields for every event costs as much as hashing and storing it; a generated function does the
same in a third of the time. What it does is what `fields_of` says it does (a test compares the two).
"""

import typing
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from agentwrap.events import AnyEvent, Body, Event, FileState
from agentwrap.recording.foreign import to_json

_HEAD = frozenset({"at_ns", "span", "pid"})
_REQUIRED = object()
"""Stands for "no default": equal to nothing."""

StateToJson = Callable[[FileState], tuple[dict[str, Any], bytes]]
BodyToJson = Callable[[Body, str], tuple[dict[str, Any], Sequence[tuple[str, int, bytes]]]]


class Layout(msgspec.Struct, frozen=True):
    """One class: its `kind`, its fields as (name, default) by what they hold, and the compiled functions.

    `fields(event, state, body)` makes the JSON object and the parts, in the order of their keys; `joined(event)` puts
    all foreign bytes but those in pairs into one string, NUL between them.
    """

    kind: str
    plain: tuple[tuple[str, Any], ...]
    foreign: tuple[tuple[str, Any], ...]
    many: tuple[tuple[str, Any], ...]
    pairs: tuple[tuple[str, Any], ...]
    states: tuple[tuple[str, Any], ...]
    bodies: tuple[tuple[str, Any], ...]
    fields: Callable[[Any, StateToJson, BodyToJson], tuple[dict[str, Any], list[tuple[str, int, bytes]]]]
    joined: Callable[[Any], bytes]


def _holds(hint: Any) -> str:
    if hint is FileState:
        return "states"
    if hint is Body:
        return "bodies"
    if hint is bytes:
        return "foreign"
    if hint == tuple[bytes, ...]:
        return "many"
    return "pairs" if hint in (tuple[tuple[bytes, bytes], ...], tuple[tuple[str, str], ...]) else "plain"


def _loose(value: bytes | str) -> Any:
    return value if isinstance(value, str) else to_json(value)


def strings(values: tuple[bytes, ...]) -> list[Any]:
    """Foreign byte strings as JSON."""
    try:
        return [value.decode() for value in values]
    except UnicodeDecodeError:
        return [to_json(value) for value in values]


def pairs(values: tuple[tuple[Any, Any], ...]) -> list[list[Any]]:
    """Pairs of foreign byte strings, or of our own words, as JSON."""
    return [[_loose(left), _loose(right)] for left, right in values]


_CONVERT = {"plain": "v", "foreign": "to_json(v)", "many": "strings(v)", "pairs": "pairs(v)"}


def _compile(groups: dict[str, list[tuple[str, Any]]]) -> dict[str, Any]:
    """The two functions of a class."""
    scope: dict[str, Any] = {"to_json": to_json, "strings": strings, "pairs": pairs}
    lines = ["def fields(e, state, body):", "    d = {}", "    parts = []"]
    for group, convert in _CONVERT.items():
        for name, default in groups.get(group, ()):
            lines.append(f"    v = e.{name}")
            if default is _REQUIRED:
                lines.append(f"    d['{name}'] = {convert}")
            else:
                scope[f"default_{name}"] = default
                lines += [f"    if v != default_{name}:", f"        d['{name}'] = {convert}"]
    for name, _ in sorted(groups.get("states", ())):
        lines += [f"    d['{name}'], digest = state(e.{name})", "    if digest:"]
        lines.append(f"        parts.append(('{name}', 0, digest))")
    for name, _ in sorted(groups.get("bodies", ())):
        lines += [f"    if e.{name}.size:", f"        d['{name}'], found = body(e.{name}, '{name}')"]
        lines.append("        parts += found")
    lines += ["    return d, parts", "def joined(e):"]
    foreign = [f"e.{name}" for name, _ in groups.get("foreign", ())]
    foreign += [f"e.{name}.target" for name, _ in groups.get("states", ())]
    foreign += [f"*e.{name}" for name, _ in groups.get("many", ())]
    lines.append(f"    return b'\\0'.join(({''.join(item + ', ' for item in foreign)}))")
    exec("\n".join(lines), scope)  # the text holds nothing but names of our own struct fields
    return {"fields": scope["fields"], "joined": scope["joined"]}


def layout_of(event_class: type[Event]) -> Layout:
    """The layout of an event class, from the types of its fields."""
    groups: dict[str, list[tuple[str, Any]]] = {}
    hints = typing.get_type_hints(event_class)
    for info in msgspec.structs.fields(event_class):
        if info.name not in _HEAD:
            default = _REQUIRED if info.default is msgspec.NODEFAULT else info.default
            groups.setdefault(_holds(hints[info.name]), []).append((info.name, default))
    told: dict[str, Any] = {
        name: tuple(groups.get(name, ())) for name in ("plain", "foreign", "many", "pairs", "states", "bodies")
    }
    return Layout(str(event_class.__struct_config__.tag), **told, **_compile(groups))


_STATE_FIELDS = _compile(
    {
        "plain": [
            (info.name, info.default)
            for info in msgspec.structs.fields(FileState)
            if info.name not in ("raw", "target")
        ]
    }
)["fields"]


def state_fields(state: FileState) -> dict[str, Any]:
    """The fields of a FileState that are our own words and numbers, without those that have their default."""
    fields: dict[str, Any] = _STATE_FIELDS(state, None, None)[0]
    return fields


class _Layouts(dict[type[Event], Layout]):
    """Each is made when it is first needed: all of them take 40 ms, for which every command would wait."""

    def __missing__(self, event_class: type[Event]) -> Layout:
        if event_class not in typing.get_args(AnyEvent):
            raise KeyError(event_class)
        made = self[event_class] = layout_of(event_class)
        return made


LAYOUTS = _Layouts()


def every_layout() -> dict[type[Event], Layout]:
    """Those of all events."""
    return {event_class: LAYOUTS[event_class] for event_class in typing.get_args(AnyEvent)}
