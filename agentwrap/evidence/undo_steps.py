"""From trails to steps: what is to be done to the disk so that files are as before the run, in an order that works.

Pure: the disk as it is now is asked through `Disk`, a protocol. A step that must not be done is there too, with the
reason in `why`. Nothing is guessed: where it cannot be told that a file is still as the run left it, it is refused;
what is already as it was before the run is passed over.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from agentwrap.evidence.undo import State, Trail, paths_of

Action = Literal["remove", "restore", "recreate", "move", "mkdir", "rmdir", "mode", "owner", "note"]

PARKED = b".agentwrap-undo"
"""Where one of two that change places waits."""

_REDACTED = "«redacted:".encode()


class Look(Protocol):
    """A name on the disk now."""

    @property
    def type(self) -> str: ...  # noqa: D102
    @property
    def key(self) -> tuple[int, int]: ...  # noqa: D102
    @property
    def mode(self) -> int: ...  # noqa: D102


class Disk(Protocol):
    """The disk as it is now, and the contents that are at hand."""

    def look(self, path: bytes) -> Look | None:
        """What is there, None for nothing. Raises ValueError with the reason why it may not be looked at."""
        ...

    def names(self, path: bytes) -> Sequence[bytes]:
        """What a directory holds."""
        ...

    def same(self, path: bytes, state: State) -> bool | None:
        """Whether the name still has this state; None where that cannot be told."""
        ...

    def missing(self, state: State) -> str:
        """Why the content of this state cannot be had; empty if it can."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do. `path` is where, `to` where a `move` goes; `why` says why it is refused, if it is.

    `expect` is what must still be there when it is done (None: nothing, or not compared). `keep_names`: further names
    of the file are older than the run and stay names of it. A `quiet` step only serves others and is not told.
    """

    action: Action
    path: bytes
    to: bytes = b""
    state: State | None = None
    expect: State | None = None
    owner: tuple[int, int] = (0, 0)
    keep_names: bool = False
    why: str = ""
    quiet: bool = False


def plan(trails: Iterable[Trail], wanted: Callable[[Trail], bool], disk: Disk) -> list[Step]:
    """The steps for all wanted trails."""
    return _Planner([trail for trail in trails if wanted(trail)], disk).steps()


class _Refused(Exception):  # noqa: N818  not an error: an answer
    pass


class _Planner:
    def __init__(self, trails: list[Trail], disk: Disk) -> None:
        self._trails = trails
        self._disk = disk
        self._steps: list[Step] = []
        self._moves: list[tuple[bytes, bytes]] = []
        self._gone: set[bytes] = set()
        self._come: set[bytes] = set()
        self._refused: set[Trail] = set()

    def steps(self) -> list[Step]:
        older = [trail for trail in self._trails if trail.was is not None]
        strayed = {trail.now for trail in older if trail.now != trail.was}
        back = {trail.was for trail in older if trail.was not in strayed and self._is_back(trail)}
        # Where something is back already, what the run had made there is gone, with all below.
        made = [
            trail
            for trail in self._trails
            if trail.was is None and trail.now is not None and not _within(trail.now, back)
        ]
        folders = sorted((t for t in older if t.type == "directory"), key=_depth_before)
        # What moved away frees the place of what is gone.
        files = sorted((t for t in older if t.type != "directory"), key=lambda t: (t.now is None, *_depth_before(t)))
        comes_back = {t.was for t in files if t.now is None}
        for trail in made:
            if trail.type != "directory" and trail.now not in comes_back:
                self._do(self._remove, trail)
        made_folders = sorted((t for t in made if t.type == "directory"), key=_depth_after, reverse=True)
        left = [trail for trail in made_folders if not self._remove_folder(trail, last=False)]
        for trail in folders:
            self._do(self._folder_back, trail)
        made_at = {trail.now: trail for trail in made if trail.type != "directory"}
        for trail in files:
            self._do(lambda one: self._file_back(one, made_at), trail)
        for trail in left:
            self._remove_folder(trail, last=True)
        for trail in (*folders, *files):
            if trail not in self._refused:
                self._do(self._attributes, trail)
        return self._steps

    def _is_back(self, trail: Trail) -> bool:
        """Whether something that was gone or elsewhere after the run is where it was before: undone already."""
        assert trail.was is not None
        try:
            there = self._disk.look(trail.was)
            if there is None or trail.was == trail.now:
                return False
            if trail.now is None:
                if trail.first is None:
                    return False
                return there.type == "directory" if trail.type == "directory" else self._same(trail.was, trail.first)
            return self._disk.look(trail.now) is None and there.type == trail.type
        except ValueError:
            return False

    def _same(self, path: bytes, state: State) -> bool:
        return self._disk.same(path, state) is True

    def _do(self, act: Callable[[Trail], None], trail: Trail) -> None:
        try:
            for path in paths_of(trail):
                if _REDACTED in path:
                    raise _Refused("its name was redacted: where it lies is not recorded")
            act(trail)
        except (_Refused, ValueError) as refusal:
            name = trail.was if trail.was is not None else trail.now
            assert name is not None
            self._steps.append(Step(_verb(trail), name, why=str(refusal)))
            self._gone.discard(name)
            self._refused.add(trail)

    # -- what the run made

    def _remove(self, trail: Trail) -> None:
        assert trail.now is not None
        look = self._disk.look(trail.now)
        if look is None:
            return  # gone already
        if trail.twin is not None:
            self._check_twin(trail, look)
        else:
            self._check_unchanged(trail.now, trail.last)
        self._steps.append(Step("remove", trail.now, expect=trail.last))
        self._gone.add(trail.now)

    def _check_twin(self, trail: Trail, look: Look) -> None:
        twin = trail.twin
        assert twin is not None
        if twin.now is not None:
            other = self._disk.look(twin.now)
            if other is not None and other.key == look.key:
                return
        if twin.last is None or trail.now is None:
            raise _Refused("it was a second name of a file that is not there any more: its content cannot be compared")
        self._check_unchanged(trail.now, twin.last)

    def _remove_folder(self, trail: Trail, *, last: bool) -> bool:
        """Remove a folder the run made, if it is empty by then. Returns whether it is settled."""
        assert trail.now is not None
        if _REDACTED in trail.now:
            return True
        path = self._present(trail.now)
        try:
            look = self._disk.look(trail.now)
            if look is None:
                return True
            if look.type != "directory":
                raise ValueError("something else is there now")
            kept = [name for name in self._disk.names(trail.now) if trail.now + b"/" + name not in self._gone]
        except ValueError as refusal:
            self._steps.append(Step("rmdir", path, why=str(refusal)))
            return True
        if kept or any(come.startswith(path + b"/") for come in self._come):
            if last:
                self._steps.append(Step("rmdir", path, why="it is not empty"))
            return last
        self._steps.append(Step("rmdir", path))
        self._gone.add(trail.now)
        return True

    # -- what was there before

    def _folder_back(self, trail: Trail) -> None:
        assert trail.was is not None
        if trail.now is None:
            there = None if trail.was in self._gone else self._disk.look(trail.was)
            if there is None:
                self._steps.append(Step("mkdir", trail.was, state=trail.first or State(type="directory", mode=0o755)))
                self._come.add(trail.was)
            elif there.type != "directory":
                raise _Refused("something else is there now")
        elif trail.now != trail.was:
            look = self._disk.look(trail.now)
            if look is not None and look.type == "directory":
                self._move(trail.now, trail.was)
            elif self._disk.look(trail.was) is None:
                raise _Refused("it is not where the run had left it")

    def _file_back(self, trail: Trail, made_at: dict[bytes | None, Trail]) -> None:
        assert trail.was is not None
        if trail.now is None:
            self._bring_back(trail, made_at.get(trail.was))
            return
        if self._disk.look(trail.now) is None:
            if trail.first is not None:
                self._bring_back(trail, None)
            elif self._disk.look(trail.was) is None:
                raise _Refused("it is not where the run had left it")
            return
        if trail.now == trail.was and trail.first is not None and self._same(trail.was, trail.first):
            return  # as it was already
        if trail.first is not None or trail.last is not None:
            self._check_unchanged(trail.now, trail.last)
        if trail.first is not None:
            self._check_source(trail.first)
        if trail.now != trail.was:
            self._move(trail.now, trail.was)
        if trail.first is not None:
            keep = not trail.names
            self._steps.append(Step("restore", trail.was, state=trail.first, expect=trail.last, keep_names=keep))
            self._come.add(trail.was)

    def _bring_back(self, trail: Trail, instead: Trail | None) -> None:
        """A file that is gone; `instead` is what the run made in its place."""
        assert trail.was is not None
        if trail.first is None:
            raise _Refused("what it contained was not recorded")
        there = None if trail.was in self._gone else self._disk.look(trail.was)
        if there is not None and self._same(trail.was, trail.first):
            return  # as it was already
        expect = None
        if instead is not None and self._disk.look(trail.was) is not None:
            expect = instead.last
            self._check_unchanged(trail.was, expect)
        else:
            self._check_free(trail.was)
        self._check_source(trail.first)
        action: Action = "restore" if expect is not None else "recreate"
        self._steps.append(Step(action, trail.was, state=trail.first, expect=expect))
        self._come.add(trail.was)

    def _attributes(self, trail: Trail) -> None:
        if trail.was is None or trail.now is None:
            return
        for reason in trail.cannot:
            self._steps.append(Step("note", trail.was, why=reason))
        if trail.first is not None:
            return  # restored with its content
        look = self._disk.look(trail.now)
        if look is None:
            return
        if trail.mode_first is not None and trail.mode_first != trail.mode_last:
            if look.mode == trail.mode_first:
                return
            if look.mode != trail.mode_last:
                raise _Refused("its mode was changed since")
            self._steps.append(Step("mode", trail.was, state=State(type=look.type, mode=trail.mode_first)))
        if trail.owner_first is not None and trail.owner_first != trail.owner_last:
            self._steps.append(Step("owner", trail.was, owner=trail.owner_first))

    # -- questions

    def _check_unchanged(self, path: bytes, state: State | None) -> None:
        same = None if state is None else self._disk.same(path, state)
        if same is None:
            raise _Refused("it cannot be told whether it was changed since: its content was not recorded")
        if not same:
            raise _Refused("it was changed since the recording")

    def _check_source(self, state: State) -> None:
        missing = self._disk.missing(state)
        if missing:
            raise _Refused(missing)

    def _check_free(self, path: bytes) -> None:
        if path in self._come or (self._disk.look(path) is not None and path not in self._gone):
            raise _Refused("something else is there now")

    def _present(self, path: bytes) -> bytes:
        """Where something is after the moves planned so far."""
        for old, new in self._moves:
            if path == old or path.startswith(old + b"/"):
                path = new + path[len(old) :]
        return path

    def _move(self, now: bytes, was: bytes) -> None:
        here = self._present(now)
        if here == was:
            return  # it came along with its folder
        if was not in self._gone and self._disk.look(was) is not None:
            waiting = next((t for t in self._trails if t.was not in (None, was) and t.now == was), None)
            if waiting is None:
                raise _Refused("something else is there now")
            aside = was + PARKED
            if self._disk.look(aside) is not None:
                raise _Refused("something else is there now")
            self._steps.append(Step("move", was, to=aside, quiet=True))
            self._moves.append((was, aside))
        self._steps.append(Step("move", here, to=was))
        self._moves.append((here, was))
        self._gone.add(now)
        self._gone.discard(was)
        self._come.add(was)


def _within(path: bytes, folders: set[bytes | None]) -> bool:
    while folders and path:
        if path in folders:
            return True
        path = path.rpartition(b"/")[0]
    return False


def _verb(trail: Trail) -> Action:
    if trail.was is None:
        return "rmdir" if trail.type == "directory" else "remove"
    if trail.now is None:
        return "mkdir" if trail.type == "directory" else "recreate"
    return "move" if trail.first is None and trail.now != trail.was else "restore"


def _depth_before(trail: Trail) -> tuple[int, bytes]:
    path = trail.was or b""
    return path.count(b"/"), path


def _depth_after(trail: Trail) -> tuple[int, bytes]:
    path = trail.now or b""
    return path.count(b"/"), path
