"""Recorded rows as short words, for tests: `modify f 'old\\n' -> 'new\\n'`. Reads plain SQLite, none of our readers."""

import base64
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wrapping import Event, events

MODES = [(), ("--debuggable",), ("--follow", "trace"), ("--follow", "calls")]
"""Every way of following, by the options that ask for it."""

TRACED = [options for options in MODES if options != ("--debuggable",)]


LONG_OPEN_NS = 1_000_000_000
"""A file that stays open for so long is looked at while it is: two rows then tell what one tells on a quick machine."""


def mode_name(options: tuple[str, ...]) -> str:
    return options[-1].lstrip("-") if options else "default"


def raw(value: Any) -> bytes:
    """A foreign value as it is stored: a string where it is UTF-8, else base64."""
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value.encode()


class Rows:
    """All rows of one recording; file rows told relative to `base`."""

    def __init__(self, recording: Path, base: Path | None = None) -> None:
        self.events = events(recording)
        self.base = b"" if base is None else bytes(base) + b"/"
        db = sqlite3.connect(f"file:{recording}?mode=ro", uri=True)
        try:
            self._blobs = {sha.hex(): data for sha, data in db.execute("select sha256, data from blob")}
        finally:
            db.close()

    def of(self, *kinds: str) -> list[Event]:
        return [event for event in self.events if event.kind in kinds]

    def _content(self, state: dict[str, Any]) -> str:
        if state.get("type", "file") != "file":
            return str(state["type"])
        if state.get("omitted"):
            return f"({state['omitted']})"
        data = self._blobs.get(state.get("sha256", ""))
        return "(none)" if data is None else repr(data)[1:]

    def _name(self, event: Event, key: str = "path") -> str:
        return raw(event.data[key]).removeprefix(self.base).decode("utf-8", "backslashreplace")

    def word(self, event: Event) -> str:
        """One row about a file."""
        data, name = event.data, self._name(event)
        match event.kind:
            case "file.edit":
                before, after = self._content(data["before"]), self._content(data["after"])
                told = {"create": after, "delete": before, "transient": "", "modify": f"{before} -> {after}"}
                return f"{data['change']} {name} {told[data['change']]}".strip()
            case "file.rename":
                return f"{'exchange' if data.get('exchange') else 'rename'} {name} {self._name(event, 'target')}"
            case "file.directory":
                return f"{'mkdir' if data['change'] == 'create' else 'rmdir'} {name}"
            case "file.mode":
                if data["change"] == "xattr":
                    return f"xattr {name} {data['xattr']}"
                if data["change"] == "owner":
                    old, new = (tuple(data.get(key, (0, 0))) for key in ("before_owner", "after_owner"))
                    return f"owner {name} {old} -> {new}"
                return f"mode {name} {data['before']:o} -> {data['after']:o}"
            case "file.link":
                return f"{data['link']} {name} {self._name(event, 'target')}"
            case "file.read":
                return f"read {name} {data.get('count', 1)}"
        return f"{data['type']} {name}"

    def files(self, below: str = "", *, reads: bool = False) -> list[str]:
        """In order of time, every row about a file whose path, relative to the base, is below `below`."""
        prefix = self.base + below.encode()
        found = [event for event in self._file_events(reads=reads) if raw(event.data["path"]).startswith(prefix)]
        # What a call did may be noticed a moment later than what another process did since.
        return [self.word(event) for event in self.joined(sorted(found, key=lambda event: event.at_ns))]

    def joined(self, events: Sequence[Event]) -> list[Event]:
        """Without the looks at files that were open for long: where one row ends, the next one about it begins."""
        started = {event.span: event.at_ns for event in self.of("process.start")}
        out: dict[int, Event] = {}
        newest: dict[bytes, Event] = {}
        for event in events:
            path, told, before = raw(event.data["path"]), event, newest.pop(raw(event.data["path"]), None)
            if before and self._goes_on(before, event) and before.at_ns - started.get(before.span, 0) >= LONG_OPEN_NS:
                del out[before.seq]
                told = replace(event, data={**before.data, "after": event.data["after"]})
                if told.data["change"] == "modify" and self._is_state(told.data["before"], told.data["after"]):
                    continue  # what it was at first
            out[told.seq] = newest[path] = told
        return list(out.values())

    def _goes_on(self, before: Event, event: Event) -> bool:
        """Whether the one found what the other left."""
        changes = [one.data["change"] for one in (before, event) if one.kind == "file.edit"]
        if changes not in (["create", "modify"], ["modify", "modify"]):
            return False
        return self._is_state(before.data["after"], event.data["before"])

    def _is_state(self, one: dict[str, Any], other: dict[str, Any]) -> bool:
        return self._content(one) == self._content(other)

    def _file_events(self, *, reads: bool) -> Iterator[Event]:
        return (e for e in self.events if e.kind.startswith("file.") and (reads or e.kind != "file.read"))

    def spans(self) -> dict[str, dict[str, Any]]:
        """Span to what is known of its process: `parent`, `how`, `argv` of every exec, `exit`."""
        out: dict[str, dict[str, Any]] = {}
        for event in self.events:
            if event.kind == "process.start":
                out[event.span] = {"span": event.span, "pid": event.pid, "argv": [], "exit": None, **event.data}
            elif event.kind == "process.exec":
                out[event.span]["argv"].append(tuple(raw(word) for word in event.data["argv"]))
                out[event.span]["exec"] = event.data
            elif event.kind == "process.exit":
                out[event.span]["exit"] = event.data
        return out

    def named(self, word: bytes) -> list[dict[str, Any]]:
        """Processes that ever ran a program with `word` among its arguments."""
        return [span for span in self.spans().values() if any(word in argv for argv in span["argv"])]
