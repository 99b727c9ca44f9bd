"""Tracees of our own: each tells the tracker before a call, as the kernel would, and makes the call for real."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

from agentwrap.events import Content, Event, FileClass, FileEdit, Gap, Item
from agentwrap.tracing.files import FileSettings, FileTracker, Place, Who

_tids = itertools.count(900_000_000)  # above pid_max: nobody has these


class Bench:
    def __init__(self, folder: Path, settings: FileSettings, classify: Callable[[bytes], FileClass]) -> None:
        self.folder = os.fsencode(folder)
        self.items: list[Item] = []
        self.clock_ns = 1
        self.tracker = FileTracker(self.items.append, settings, self.now, classify)

    def now(self) -> int:
        self.clock_ns += 1000
        return self.clock_ns

    def pass_time(self, seconds: float) -> None:
        self.clock_ns += int(seconds * 1e9)

    def process(self, span: str = "p1", pid: int | None = None) -> "Tracee":
        tid = next(_tids)
        return Tracee(self, Who(tid, tid if pid is None else pid, span))

    def at(self, name: str | bytes) -> Place:
        folder, last = os.path.split(os.path.join(self.folder, os.fsencode(name)))
        path = os.path.join(os.path.realpath(folder), last)  # as the tracer finds it: links in the folder resolved
        return Place(path, path)

    @property
    def events(self) -> list[Event]:
        return [item for item in self.items if isinstance(item, Event)]

    @property
    def edits(self) -> list[FileEdit]:
        return [item for item in self.items if isinstance(item, FileEdit)]

    @property
    def gaps(self) -> list[Gap]:
        return [item for item in self.items if isinstance(item, Gap)]

    def content(self, raw: bytes, role: str | None = None) -> bytes | None:
        for item in self.items:
            if isinstance(item, Content) and item.sha == raw and role in (None, item.role):
                return item.data
        return None

    def told(self) -> list[tuple[str, ...]]:
        """The events in short: kind, what changed, names below the folder."""
        found = []
        for event in self.events:
            words = [type(event).__name__.removeprefix("File")]
            for field in ("change", "via", "link", "type", "cause"):
                value = getattr(event, field, None)
                if isinstance(value, str) and not (field == "type" and value == "file"):
                    words.append(value)
            for field in ("path", "target", "temporary"):
                value = getattr(event, field, b"")
                if value:
                    words.append(os.fsdecode(value.removeprefix(self.folder + b"/")))
            found.append(tuple(words))
        return found


class Tracee:
    def __init__(self, bench: Bench, who: Who) -> None:
        self.bench = bench
        self.tracker = bench.tracker
        self.who = who

    def open(self, name: str | bytes, flags: int, mode: int = 0o644) -> int | OSError:
        place = self.bench.at(name)
        self.tracker.opening(self.who, place, flags, mode)
        try:
            return os.open(place.path, flags, mode)
        except OSError as error:
            return error

    def write(self, name: str | bytes, data: bytes, flags: int = os.O_WRONLY | os.O_CREAT | os.O_TRUNC) -> None:
        fd = self.open(name, flags)
        assert isinstance(fd, int)
        os.write(fd, data)
        os.close(fd)

    def _try(self, call: Callable[..., object], *arguments: object) -> bool:
        try:
            call(*arguments)
        except OSError:
            return False
        return True

    def unlink(self, name: str | bytes) -> bool:
        place = self.bench.at(name)
        self.tracker.unlinking(self.who, place)
        return self._try(os.unlink, place.path)

    def rename(self, old: str | bytes, new: str | bytes) -> bool:
        one, two = self.bench.at(old), self.bench.at(new)
        self.tracker.renaming(self.who, one, two, 0)
        return self._try(os.rename, one.path, two.path)

    def mkdir(self, name: str | bytes) -> bool:
        self.tracker.making_directory(self.who, self.bench.at(name), 0o755)
        return self._try(os.mkdir, self.bench.at(name).path, 0o755)

    def rmdir(self, name: str | bytes) -> bool:
        self.tracker.removing_directory(self.who, self.bench.at(name))
        return self._try(os.rmdir, self.bench.at(name).path)

    def link(self, old: str | bytes, new: str | bytes) -> bool:
        self.tracker.linking(self.who, self.bench.at(old), self.bench.at(new))
        return self._try(os.link, self.bench.at(old).path, self.bench.at(new).path)

    def symlink(self, target: str, name: str) -> bool:
        self.tracker.symlinking(self.who, os.fsencode(target), self.bench.at(name))
        return self._try(os.symlink, os.fsencode(target), self.bench.at(name).path)

    def truncate(self, name: str, size: int) -> bool:
        self.tracker.truncating(self.who, self.bench.at(name))
        return self._try(os.truncate, self.bench.at(name).path, size)

    def chmod(self, name: str, mode: int) -> bool:
        self.tracker.changing_mode(self.who, self.bench.at(name), mode)
        return self._try(os.chmod, self.bench.at(name).path, mode)

    def seen(self) -> None:
        self.tracker.thread_stopped(self.who)

    def end(self) -> None:
        self.tracker.process_ended(self.who.pid, self.who.span)
