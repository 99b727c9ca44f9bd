"""What a run did to every file, told as "was there, is here": the rows of a recording replayed on an imaginary tree.

Pure: takes rows, gives `Trail`s. What can be put back, and in which order, is `evidence.undo_steps`' question; touching
the disk is `recording.restore`'s.
"""

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from dataclasses import field as field_of
from typing import Any

from agentwrap.recording.foreign import to_bytes
from agentwrap.rows import Row

KINDS = ("file.edit", "file.rename", "file.directory", "file.mode", "file.link", "file.special")


@dataclass(frozen=True, slots=True)
class State:
    """A recorded file state. `sha256` names the stored content; `redacted`: what is stored is not what was there.

    `keyed` (HMAC of the content under the run key, hex) and `raw_sha256` tell the content where it is not stored.
    """

    type: str = "file"
    size: int = 0
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    target: bytes = b""
    omitted: str = ""
    sha256: str = ""
    raw_sha256: str = ""
    keyed: str = ""
    redacted: bool = False

    @classmethod
    def of(cls, data: Any) -> "State":
        """From the JSON of a recorded state. Raises ValueError or TypeError for something else."""
        if not isinstance(data, dict):
            raise TypeError("a state is an object")
        told = {field.name: data[field.name] for field in fields(cls) if field.name in data}
        told["target"] = to_bytes(data.get("target"))
        for field in fields(cls):
            if type(told.get(field.name, field.default)) is not type(field.default):
                raise TypeError(f"{field.name} of a state is of another type")
        return cls(**told)


@dataclass(eq=False, slots=True)
class Trail:
    """One file, directory or link through the run.

    `was`: its path before the run, None if the run made it. `now`: its path after, None if it is gone. `first`: its
    content before the run, None if that did not change; `last`: as it was recorded last, None if never.
    `twin`: what it was made a hard link to; `names`: all the names of its inode that the run made or linked to.
    """

    was: bytes | None
    now: bytes | None
    type: str = "file"
    klass: str = "work"
    first: State | None = None
    last: State | None = None
    mode_first: int | None = None
    mode_last: int | None = None
    owner_first: tuple[int, int] | None = None
    owner_last: tuple[int, int] | None = None
    twin: "Trail | None" = None
    names: "list[Trail]" = field_of(default_factory=list)
    cannot: list[str] = field_of(default_factory=list)

    @property
    def passed(self) -> bool:
        """It came and went: nothing is left to undo."""
        return self.was is None and self.now is None

    @property
    def untouched(self) -> bool:
        """Where it was and as it was."""
        kept = self.mode_first == self.mode_last and self.owner_first == self.owner_last
        return self.was == self.now and self.first is None and kept and not self.cannot


class Replay:
    """The imaginary tree. Feed it every row in order, then take `trails`."""

    def __init__(self) -> None:
        self._at: dict[bytes, Trail] = {}
        self._all: dict[Trail, None] = {}

    def trails(self) -> list[Trail]:
        """Everything that is not as it was, in the order in which it was first touched."""
        for trail in self._all:
            _settle(trail)
        return [trail for trail in self._all if not trail.passed and not trail.untouched]

    def add(self, row: Row) -> None:
        """Replay one event. Raises ValueError, TypeError or KeyError for a row that is not what it says."""
        data = row.data
        path = to_bytes(data["path"])
        klass = str(data.get("klass", "work"))
        if row.kind == "file.edit":
            self._edit(path, klass, data)
        elif row.kind == "file.rename":
            self._rename(path, to_bytes(data["target"]), klass, data)
        elif row.kind == "file.directory":
            self._directory(path, klass, data)
        elif row.kind == "file.mode":
            self._mode(path, klass, data)
        elif row.kind == "file.link":
            self._link(path, klass, data)
        elif row.kind == "file.special":
            self._make(path, Trail(None, path, "other", klass, last=State(type="other")))

    # -- events

    def _edit(self, path: bytes, klass: str, data: dict[str, Any]) -> None:
        before, after = State.of(data["before"]), State.of(data["after"])
        change = data["change"]
        temporary = to_bytes(data.get("temporary"))
        moved = self._at.pop(temporary, None) if temporary else None
        names = moved.names if moved is not None else []
        if moved is not None and moved.was is not None:
            self._at[temporary] = moved  # older than the run: a deletion of its own tells what became of it
            moved = None
        if change == "create":
            trail = moved or Trail(None, path, klass=klass)
            trail.now, trail.type, trail.last = path, after.type, after
            self._make(path, trail)
            return
        if moved is not None:
            moved.now = None
        trail = self._find(path, before.type, klass)
        if trail.names:
            self._edit_all_names(trail, before, after, in_place=data.get("via", "write") in ("write", "unknown"))
        if names:  # the file that came here has other names
            trail.names = names
            names.append(trail)
        if trail.was is not None and trail.first is None:
            trail.first = before
        trail.klass, trail.type = klass, after.type if change == "modify" else before.type
        trail.last = after
        if change in ("delete", "transient"):
            trail.now = None
            self._at.pop(path, None)
            if change == "transient" and trail.first is before:
                trail.was = None  # made by the run, though its making was not recorded

    @staticmethod
    def _edit_all_names(trail: Trail, before: State, after: State, *, in_place: bool) -> None:
        """A write through one name of an inode changes what is seen by all; anything else parts that name."""
        names = trail.names
        if not in_place or after.type == "absent":
            names.remove(trail)
            trail.names = []
            return
        for other in names:
            if other.was is not None and other.first is None:
                other.first = before
            if other.first is not None or other.was is None:
                other.last = after

    def _rename(self, path: bytes, target: bytes, klass: str, data: dict[str, Any]) -> None:
        kind = str(data.get("type", "file"))
        trail = self._find(path, kind, klass)
        trail.klass = klass
        if data.get("exchange"):
            other = self._find(target, kind, klass)
            moving, coming = self._lift(path), self._lift(target)
            self._lay(moving, path, target)
            self._lay(coming, target, path)
            other.klass = klass
            return
        replaced = self._at.pop(target, None)
        if replaced is not None:
            replaced.now = None
        self._lay(self._lift(path), path, target)

    def _directory(self, path: bytes, klass: str, data: dict[str, Any]) -> None:
        mode = int(data.get("mode", 0))
        if data["change"] == "create":
            self._make(path, Trail(None, path, "directory", klass, last=State(type="directory", mode=mode)))
            return
        trail = self._find(path, "directory", klass)
        trail.first = trail.first or State(type="directory", mode=mode)
        trail.now = None
        self._at.pop(path, None)

    def _mode(self, path: bytes, klass: str, data: dict[str, Any]) -> None:
        trail = self._find(path, "file", klass)
        for one in trail.names or [trail]:
            self._attribute(one, data)

    @staticmethod
    def _attribute(trail: Trail, data: dict[str, Any]) -> None:
        change = data["change"]
        if change == "mode":
            if trail.mode_first is None:
                trail.mode_first = int(data.get("before", 0))
            trail.mode_last = int(data.get("after", 0))
        elif change == "owner":
            before, after = (tuple(data.get(name, (0, 0))) for name in ("before_owner", "after_owner"))
            if trail.owner_first is None:
                trail.owner_first = (int(before[0]), int(before[1]))
            trail.owner_last = (int(after[0]), int(after[1]))
        elif trail.was is not None:
            trail.cannot.append("an extended attribute was changed; its value was not kept")

    def _link(self, path: bytes, klass: str, data: dict[str, Any]) -> None:
        target = to_bytes(data["target"])
        if data["link"] == "symbolic":
            self._make(path, Trail(None, path, "symlink", klass, last=State(type="symlink", target=target)))
        else:
            twin = self._find(target, "file", klass)
            trail = Trail(None, path, twin.type, klass, last=twin.last, twin=twin)
            twin.names = twin.names or [twin]
            twin.names.append(trail)
            trail.names = twin.names
            self._make(path, trail)

    # -- the tree

    def _make(self, path: bytes, trail: Trail) -> None:
        old = self._at.get(path)
        if old is not None and old is not trail:
            old.now = None  # it must have gone unseen, or the new one could not have been made
        self._at[path] = trail
        self._all[trail] = None

    def _find(self, path: bytes, kind: str, klass: str) -> Trail:
        """What is at `path` now; if nothing is known of it, it is older than the run."""
        trail = self._at.get(path)
        if trail is None:
            trail = self._at[path] = Trail(self._origin(path), path, kind, klass)
            self._all[trail] = None
        return trail

    def _origin(self, path: bytes) -> bytes | None:
        """Where something unknown at `path` was before the run: folders above it may have moved."""
        folder, rest = posixpath.dirname(path), b""
        above = path
        while folder != above:
            rest = above[len(folder) :] + rest
            known = self._at.get(folder)
            if known is not None:
                return None if known.was is None else known.was + rest
            above, folder = folder, posixpath.dirname(folder)
        return path

    def _lift(self, path: bytes) -> list[Trail]:
        """Take what is at `path` and below out of the tree."""
        below = path + b"/"
        keys = [key for key in self._at if key == path or key.startswith(below)]
        return [self._at.pop(key) for key in keys]

    def _lay(self, trails: Iterable[Trail], old: bytes, new: bytes) -> None:
        for trail in trails:
            assert trail.now is not None
            trail.now = new + trail.now[len(old) :]
            self._at[trail.now] = trail


def _settle(trail: Trail) -> None:
    """What was changed and changed back is not changed; the mode before the run is that of the first change of it."""
    first, last = trail.first, trail.last
    if first is None:
        return
    if last is not None and trail.was == trail.now and _same_content(first, last):
        trail.first = None
        return
    if trail.mode_first is not None:
        first = replace(first, mode=trail.mode_first)
    if trail.owner_first is not None:
        first = replace(first, uid=trail.owner_first[0], gid=trail.owner_first[1])
    trail.first = first


def _same_content(one: State, two: State) -> bool:
    if one.type != two.type:
        return False
    if one.type == "symlink":
        return one.target == two.target
    pairs = ((one.keyed, two.keyed), (one.raw_sha256, two.raw_sha256))
    return any(left and left == right for left, right in pairs) or (
        bool(one.sha256) and one.sha256 == two.sha256 and not one.redacted and not two.redacted
    )


def replay(rows: Iterable[Row]) -> list[Trail]:
    """All trails of a recording. Rows that make no sense (a damaged or foreign file) are passed over."""
    tree = Replay()
    for row in rows:
        try:
            tree.add(row)
        except (KeyError, ValueError, TypeError, IndexError):
            continue
    return tree.trails()


def paths_of(trail: Trail) -> Iterator[bytes]:
    """The names a person may mean it by."""
    if trail.now is not None:
        yield trail.now
    if trail.was is not None and trail.was != trail.now:
        yield trail.was
