"""Files that declare MCP servers, on this machine: found, read once, looked at again.

Knows paths and bytes; what is in them is read by `mcp.configs`. Nothing is waited for, and no file is read without end.
"""

import os
import posixpath
import stat
import time
from collections.abc import Iterable, Mapping

import msgspec

from agentwrap.mcp.configs import formats, places
from agentwrap.mcp.configs.formats import Found
from agentwrap.mcp.configs.places import Place
from agentwrap.mcp.declared import Declared

MAX_BYTES = 8 << 20
_MAX_LISTED = 256

Stamp = tuple[int, int, int]
_NO_STAMP: Stamp = (-1, -1, -1)
_TICK_NS = 10_000_000  # at most


class _Read(msgspec.Struct):
    """A file as it was read last."""

    stamp: Stamp
    found: Found


class Files:
    """The configurations of one run. `environment`: the agent's. What did not change is not read again."""

    def __init__(self, environment: Mapping[bytes, bytes]) -> None:
        self._environment = environment
        self._everywhere = places.of_user_and_system(environment)
        self._listings = places.listings(environment)
        self._plugins = places.plugins_file(environment)
        self._listed: dict[bytes, tuple[Stamp, tuple[Place, ...]]] = {}
        self._read: dict[Place, _Read] = {}
        self._roots: dict[bytes, tuple[bytes, ...]] = {}

    def look(self, folders: Iterable[bytes], whole: bool = True) -> tuple[Declared, ...] | None:
        """All that is declared now, for programs in these folders; None if nothing changed since the last look.

        `whole`: look at the files of the user and the machine, too.
        """
        looked_at = {place: None for folder in folders for place in self._of_folder(folder)}
        if whole:
            looked_at |= dict.fromkeys(self._of_every_folder())
        changed = False
        for place in looked_at:
            changed |= self._look_at(place)
        return self._all() if changed else None

    @property
    def found(self) -> dict[bytes, Found]:
        """By file, what is in those that are there and say something of servers."""
        read = {place.source.config: one.found for place, one in self._read.items()}
        return {path: found for path, found in read.items() if found.servers or found.problems}

    def _all(self) -> tuple[Declared, ...]:
        return tuple(one for read in self._read.values() for one in read.found.servers)

    def _of_every_folder(self) -> Iterable[Place]:
        yield from self._everywhere
        for listing in self._listings:
            yield from self._in(listing)
        yield from self._of_plugins()

    def _of_folder(self, folder: bytes) -> Iterable[Place]:
        for one in self._projects(folder):
            yield from places.of_project(one)

    def _projects(self, folder: bytes) -> tuple[bytes, ...]:
        if folder not in self._roots:
            if len(self._roots) >= _MAX_LISTED:
                self._roots.clear()
            above = places.parents(folder)
            repository = next((one for one in above if os.path.lexists(posixpath.join(one, b".git"))), b"")
            home = self._environment.get(b"HOME", b"")
            self._roots[folder] = places.project_folders(folder, [repository], home) if above else ()
        return self._roots[folder]

    def _in(self, listing: places.Listing) -> tuple[Place, ...]:
        stamp = _stamp(listing.folder, folder=True)
        if stamp is None:
            return ()
        before = self._listed.get(listing.folder)
        if before is None or before[0] != stamp:
            kept = _lasting(stamp)
            try:
                names = sorted(os.listdir(listing.folder))[:_MAX_LISTED]
            except OSError:
                return ()
            before = kept, tuple(listing.places(names))
            self._listed[listing.folder] = before
        return before[1]

    def _of_plugins(self) -> tuple[Place, ...]:
        stamp = _stamp(self._plugins) if self._plugins else None
        if stamp is None:
            return ()
        before = self._listed.get(self._plugins)
        if before is None or before[0] != stamp:
            kept = _lasting(stamp)
            data, _why = bytes_of(self._plugins)
            folders = formats.plugin_folders(data or b"")[:_MAX_LISTED]
            before = kept, tuple(one for folder in folders for one in places.of_plugin(folder))
            self._listed[self._plugins] = before
        return before[1]

    def _look_at(self, place: Place) -> bool:
        """Whether it says something else than before."""
        path = place.source.config
        before = self._read.get(place)
        stamp = _stamp(path)
        if stamp is None:
            return self._read.pop(place, None) is not None
        if before is not None and before.stamp == stamp:
            return False
        kept = _lasting(stamp)
        data, why = bytes_of(path)
        if data is None:
            found = Found((), (why,)) if why else Found()
        else:
            found = formats.read(place.form, data, place.source)
        self._read[place] = _Read(kept, found)
        return before is None or before.found != found


def _stamp(path: bytes, *, folder: bool = False) -> Stamp | None:
    """What changes when a file does; None where there is none, or where it is hidden from us."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    if stat.S_ISDIR(found.st_mode) != folder:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _lasting(stamp: Stamp) -> Stamp:
    """The stamp, or none at all while a change may leave it as it is: the time is that of the last tick.

    To be asked before what is stamped is read (current_time(), fs/inode.c).
    """
    return _NO_STAMP if 0 <= time.time_ns() - stamp[0] <= _TICK_NS else stamp


def bytes_of(path: bytes) -> tuple[bytes | None, str]:
    """A file's bytes, or why there are none; not even that where an agent cannot read it either."""
    try:
        # Without waiting: a pipe of that name would keep us for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError):
        return None, ""
    except OSError as error:
        return None, str(error.strerror)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None, "no regular file"
        try:
            data = file.read(MAX_BYTES + 1) or b""  # None where reading would wait (some of /proc)
        except OSError as error:
            return None, str(error.strerror)
    return (data, "") if len(data) <= MAX_BYTES else (None, f"larger than {MAX_BYTES >> 20} MiB")
