"""A timeline for ui.perfetto.dev and chrome://tracing: the Trace Event Format of the Chromium project, in JSON.

Every process of the run is one there, with a track of its life, of its files and sockets, and of its connections; every
agent is one, too, with turns, calls of models and tools; arrows lead from a tool call to the processes that it caused.
Their ids are ours, for the kernel gives its own to one after the other. Pure.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from agentwrap.evidence import linking
from agentwrap.export.spans import Ended, Ending, Note
from agentwrap.rows import Row, number
from agentwrap.views.source import Source, foreign_text, texts

MEDIA = "application/json"
_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode
_RUN, _PROCESSES, _AGENTS = 1, 1000, 1_000_000
"""Process ids there: the run is 1, process `p7` is 1007, agent `a2` is 1000002."""
_META = ("run_id", "started_unix_ns", "tool_version", "cwd", "kernel")
_TRACKS = {
    "run": "lifetime", "process": "lifetime", "moment": "files and sockets", "agent": "conversation", "turn": "turns",
    "model": "model calls", "tool": "tool calls", "session": "MCP sessions", "mcp": "MCP calls",
    "connection": "connections", "exchange": "requests",
}  # fmt: skip
_ORDER = tuple(dict.fromkeys(_TRACKS.values()))
_LANES = 1000
_LONGEST = 300
_MOST_NS = 1 << 62

Event = dict[str, Any]


def export(source: Source, rows: Iterable[Row], started_unix_ns: int) -> Iterator[bytes]:  # noqa: ARG001
    """One document. Times are microseconds since the start of the run."""
    yield b'{"displayTimeUnit":"ms","traceEvents":['
    separator = b"\n"
    for event in events(source, rows):
        yield separator + _encode(event).encode("ascii")
        separator = b",\n"
    meta = {name: _clip(str(value)) for name, value in source.meta.items() if name in _META}
    yield b'\n],"otherData":' + _encode(meta).encode("ascii") + b"}\n"


def events(source: Source, rows: Iterable[Row]) -> Iterator[Event]:
    """The trace events of rows, in no order."""
    tracks = _Tracks(linking.of_recording(source, source.meta))
    ending = Ending(source, tracks.story)
    for row in rows:
        for ended in ending.take(row):
            yield from tracks.told(ended)
    for ended in ending.finish():
        yield from tracks.told(ended)


class _Tracks:
    """Where spans are drawn. A track holds slices that do not overlap: what may, gets lanes."""

    def __init__(self, story: linking.Linker) -> None:
        self.story = story
        self._lanes: dict[tuple[int, str], list[int]] = {}
        self._named: set[tuple[int, int]] = set()
        self._caused: dict[str, list[Event]] = {}

    def told(self, ended: Ended) -> Iterator[Event]:
        """The events of one span."""
        process = self._process(ended)
        if ended.kind in ("run", "process", "agent"):
            yield _metadata("process_name", process, 0, name=_process_name(ended))
            yield _metadata("process_sort_index", process, 0, sort_index=process if process < _AGENTS else 2)
        track = _TRACKS[ended.kind]
        thread = (_ORDER.index(track) + 1) * _LANES + self._lane(process, track, ended)
        if (process, thread) not in self._named:
            self._named.add((process, thread))
            yield _metadata("thread_name", process, thread, name=track)
            yield _metadata("thread_sort_index", process, thread, sort_index=thread)
        yield {
            "ph": "X", "name": _clip(_title(ended)), "cat": ended.kind, "pid": process, "tid": thread,
            "ts": _us(ended.start_ns), "dur": _us(ended.end_ns - ended.start_ns), "args": _arguments(ended),
        }  # fmt: skip
        for note in ended.notes:
            yield _instant(note, process, thread)
        yield from self._arrows(ended, process, thread)

    def _process(self, ended: Ended) -> int:
        if ended.kind == "process":
            return _PROCESSES + _number(ended.id)
        if ended.kind == "agent":
            return _AGENTS + _number(ended.id)
        if ended.kind == "turn":
            return _AGENTS + _number(ended.parent)
        if ended.kind in ("model", "tool"):
            data = ended.asked.data if ended.asked is not None else ended.data
            return _AGENTS + _number(str(data.get("agent", "")))
        owner = ended.row.span if ended.row is not None else ended.data.get("process", ended.parent)
        if ended.kind == "connection" and ended.link is not None and ended.link.tool in self.story.turns.tools:
            owner = self.story.turns.tools[ended.link.tool].span
        return _PROCESSES + _number(owner) if str(owner).startswith("p") else _RUN

    def _lane(self, process: int, track: str, ended: Ended) -> int:
        """The first lane that is free: spans come in the order of their ends, so the last end of a lane tells."""
        lanes = self._lanes.setdefault((process, track), [])
        for lane, until_ns in enumerate(lanes):
            if until_ns <= ended.start_ns or lane == _LANES - 1:
                lanes[lane] = ended.end_ns
                return lane
        lanes.append(ended.end_ns)
        return len(lanes) - 1

    def _arrows(self, ended: Ended, process: int, thread: int) -> Iterator[Event]:
        """From a tool call to the processes it caused. They end before it does, as a rule."""
        if ended.kind == "process" and ended.link is not None:
            head = {"ph": "f", "bp": "e", "pid": process, "tid": thread, "ts": _us(ended.start_ns)}
            self._caused.setdefault(ended.link.tool, []).append({**head, "id": _number(ended.id)})
        elif ended.kind == "mcp" and ended.data.get("tool_call"):
            head = {"ph": "f", "bp": "e", "pid": process, "tid": thread, "ts": _us(ended.start_ns)}
            made = {**head, "id": _AGENTS + _number(ended.id)}
            self._caused.setdefault(str(ended.data["tool_call"]), []).append(made)
        elif ended.kind == "tool":
            for head in self._caused.pop(ended.id, []):
                same = {"name": "caused", "cat": "caused"}
                yield {"ph": "s", "pid": process, "tid": thread, "ts": _us(ended.start_ns), "id": head["id"], **same}
                yield {**head, **same}


def _process_name(ended: Ended) -> str:
    if ended.kind == "run":
        return "agentwrap"
    if ended.kind == "agent":
        return _clip(f"agent {ended.id} {ended.name}")
    return _clip(f"{ended.name or ended.id} ({number(ended.data.get('pid'))})")


def _title(ended: Ended) -> str:
    if ended.row is not None:
        change = ended.row.data.get("change") if ended.row.kind.startswith("file.") else None
        return f"{change if isinstance(change, str) else ended.row.kind} {ended.row.subject}"
    if ended.kind == "turn":
        return ended.id
    return ended.name or ended.id


def _arguments(ended: Ended) -> dict[str, Any]:
    """What is shown of a slice when it is chosen."""
    made: dict[str, Any] = {"id": ended.id, "parent": ended.parent}
    if ended.status:
        made["status"] = ended.status
    if not ended.ended:
        made["end_not_seen"] = True
    for data in (ended.data, ended.asked.data if ended.asked is not None else {}, _answer(ended), _row(ended)):
        for name, value in data.items():
            if isinstance(value, bool | int | float | str) and value != "":
                made[name] = _clip(value) if isinstance(value, str) else value
            elif isinstance(value, list | dict) and (name == "argv" or "b64" in value):
                made[name] = [_clip(one) for one in texts(value)] if name == "argv" else _clip(foreign_text(value))
    if ended.link is not None:
        made |= {"caused_by": ended.link.tool, "how": ended.link.how, "evidence": ended.link.evidence}
    return made


def _answer(ended: Ended) -> dict[str, Any]:
    return ended.answered.data if ended.answered is not None else {}


def _row(ended: Ended) -> dict[str, Any]:
    row = ended.row
    return {} if row is None else {"verdict": row.verdict, "event": row.kind, "subject": row.subject, **row.data}


def _instant(note: Note, process: int, thread: int) -> Event:
    row = note.row
    name = _clip(f"{row.verdict or row.kind} {row.subject}")
    told = {key: _clip(value) for key, value in row.data.items() if isinstance(value, str)}
    return {
        "ph": "i", "s": "t", "name": name, "cat": "note", "pid": process, "tid": thread, "ts": _us(row.at_ns),
        "args": {"event": row.kind, **told},
    }  # fmt: skip


def _metadata(kind: str, process: int, thread: int, **told: str | int) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": told}


def _number(span: object) -> int:
    """The number of an id, 0 for one that has none."""
    digits = str(span)[1:]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 7 else 0


def _us(at_ns: int) -> float:
    return min(max(at_ns, 0), _MOST_NS) / 1000


def _clip(value: str) -> str:
    return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
