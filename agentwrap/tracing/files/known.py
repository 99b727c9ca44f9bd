"""What the tree did to which path so far: was it made by the tree, and what did it look like when last recorded.

The book for "made and removed again" and for the last look at the end of the run. Pure: asks the file system nothing.
Its keys are host paths (see `settings.Place`): the same name in two mount namespaces is two files.
"""

from collections.abc import Iterator

from agentwrap.events.file import FileClass, FileState
from agentwrap.tracing.files.settings import Place
from agentwrap.tracing.files.snapshot import Key

MAX_KNOWN = 60_000
"""Paths remembered, about 840 bytes each; older ones are forgotten, with a gap if their contents were kept."""


class Known:
    """One path as last seen.

    `made`: the path was not there before the run. `recorded`: the recording has what it held before the run.
    `span`, `pid`: the last writer. `looks`, `due_ns`: how often it was looked at of late, and when it may be again.
    """

    __slots__ = ("due_ns", "key", "klass", "looks", "made", "path", "pid", "recorded", "signature", "span", "state")

    def __init__(
        self,
        path: bytes,
        state: FileState,
        key: Key | None,
        signature: tuple[int, int, int],
        *,
        made: bool,
        recorded: bool,
        span: str,
        pid: int,
        klass: FileClass,
    ) -> None:
        self.path = path
        self.state = state
        self.key = key
        self.signature = signature
        self.made = made
        self.recorded = recorded
        self.span = span
        self.pid = pid
        self.klass: FileClass = klass
        self.looks = 0
        self.due_ns = 0


class KnownPaths:
    """Paths by folder, so that a renamed folder costs as many steps as there are folders, not files."""

    def __init__(self, limit: int = MAX_KNOWN) -> None:
        self._folders: dict[bytes, dict[bytes, Known]] = {}
        self._limit = limit
        self._count = 0
        self.forgotten = 0

    def __len__(self) -> int:
        return self._count

    def get(self, host: bytes) -> Known | None:
        """What is known of a path."""
        if not self._folders:
            return None
        folder, _, name = host.rpartition(b"/")
        names = self._folders.get(folder)
        return names.get(name) if names is not None else None

    def put(self, host: bytes, known: Known) -> None:
        """Remember; the oldest folder's oldest path goes where there are too many."""
        folder, _, name = host.rpartition(b"/")
        names = self._folders.get(folder)
        if names is None:
            names = self._folders[folder] = {}
        if name not in names:
            if self._count >= self._limit:
                self._forget_one()
                names = self._folders.setdefault(folder, names)
            self._count += 1
        names[name] = known

    def pop(self, host: bytes) -> Known | None:
        """Forget a path that is gone or has moved."""
        if not self._folders:
            return None
        folder, _, name = host.rpartition(b"/")
        names = self._folders.get(folder)
        if names is None:
            return None
        known = names.pop(name, None)
        if known is not None:
            self._count -= 1
            if not names:
                del self._folders[folder]
        return known

    def move_tree(self, old: Place, new: Place) -> None:
        """A folder was renamed: everything known below it moves along."""
        below = old.host + b"/"
        for folder in [name for name in self._folders if name == old.host or name.startswith(below)]:
            names = self._folders.pop(folder)
            target = new.host + folder[len(old.host) :]
            for known in names.values():
                known.path = rebased(known.path, old.path, new.path)
            replaced = self._folders.get(target)
            if replaced is not None:
                self._count -= len(replaced.keys() & names.keys())
                names = replaced | names
            self._folders[target] = names

    def items(self) -> Iterator[tuple[bytes, Known]]:
        """All host paths, a copy: the book may change meanwhile."""
        for folder in list(self._folders):
            for name, known in list(self._folders.get(folder, {}).items()):
                yield folder + b"/" + name, known

    def _forget_one(self) -> None:
        folder, names = next(iter(self._folders.items()))
        known = names.pop(next(iter(names)))
        if not names:
            del self._folders[folder]
        self._count -= 1
        self.forgotten += known.klass in ("work", "temporary")


def rebased(path: bytes, old: bytes, new: bytes) -> bytes:
    """The path of something below `old` after that became `new`."""
    return new + path[len(old) :] if path.startswith(old + b"/") else path
