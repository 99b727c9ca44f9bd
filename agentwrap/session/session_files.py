"""The logs that agents keep of themselves, read after the run: Claude Code's and Codex's session files.

What is read was written by the agent, and so was the folder around it: folders and files are opened one name at a time
without following links (openat(2), O_NOFOLLOW), only regular files of the run's own user count, and how much is looked
at and read is bounded. Knows where the files lie and which ids may stand in them; refuses to know what they say.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Literal

import msgspec

from agentwrap.events import Body, Content, FileEdit, Item, ModelRequest, ModelResponse, SessionFile, ToolCall

LARGEST_BYTES = 16 << 20
ALL_BYTES = 64 << 20
MOST_FILES = 100
MOST_ENTRIES = 20_000
DEEPEST = 6
PIECE_BYTES = 64 << 10
_MOST_IDS = 50_000
_MOST_JOINED = 1000
_ID = re.compile(rb'"([A-Za-z0-9_.:-]{8,200})(?=")')
_UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a fifo would wait for a writer (open(2)).
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY

Agent = Literal["claude-code", "codex"]


class _Place(msgspec.Struct, frozen=True):
    """Where an agent keeps its sessions: below `folder` of HOME, or below what `variable` names."""

    agent: Agent
    variable: bytes
    folder: bytes
    inner: bytes
    name: re.Pattern[bytes]


_PLACES = (
    _Place("claude-code", b"CLAUDE_CONFIG_DIR", b".claude", b"projects", re.compile(rb".+\.jsonl")),
    _Place("codex", b"CODEX_HOME", b".codex", b"sessions", re.compile(rb"rollout-.+\.jsonl")),
)


class OfTheRun:
    """What tells this run's files from those of others: ids that crossed the wire, and session files that it wrote.

    `ids`: each with our name for it (a call, a tool call, an agent).
    """

    def __init__(self) -> None:
        self.ids: dict[bytes, str] = {}
        self._written: set[bytes] = set()

    def __bool__(self) -> bool:
        return bool(self.ids or self._written)

    def see(self, items: "list[Item]") -> None:
        """Take note of events; others are let pass."""
        for item in items:
            step = _NOTED.get(type(item))
            if step is not None:
                step(self, item)

    def wrote(self, path: bytes) -> bool:
        """Whether the run wrote a file of that name in a folder of that name (the way there may be told otherwise)."""
        return _end(path) in self._written

    def _response(self, item: ModelResponse) -> None:
        self._add(item.response_id, item.call)
        self._add(item.request_id, item.call)

    def _edit(self, item: FileEdit) -> None:
        if item.path.endswith(b".jsonl") and len(self._written) < MOST_ENTRIES:
            self._written.add(_end(item.path))

    def _add(self, foreign: bytes, name: str) -> None:
        if foreign and len(self.ids) < _MOST_IDS:
            self.ids.setdefault(foreign, name)


_NOTED: dict[type, Callable[[OfTheRun, Any], None]] = {
    FileEdit: OfTheRun._edit,
    ModelRequest: lambda known, item: known._add(item.session, item.agent),
    ModelResponse: OfTheRun._response,
    ToolCall: lambda known, item: known._add(item.id, item.tool),
}


def _end(path: bytes) -> bytes:
    return b"/".join(path.rsplit(b"/", 2)[-2:])


class _Found(msgspec.Struct):
    """A file that was opened: `descriptor` is ours to close."""

    path: bytes
    descriptor: int
    size: int


def attach(
    environment: Mapping[bytes, bytes], since_unix_ns: int, known: OfTheRun, *, at_ns: int = 0
) -> Iterator[Item]:
    """Contents and one SessionFile for each session file that this run wrote.

    `environment`: of the command; `since_unix_ns`: when the run began; `at_ns`: time of the events. Another agent of
    the same user may be at work: a file counts if the run was seen to write it, or has an id of this run in it. A file
    over the cap is named without its content. Raises nothing for what cannot be opened.
    """
    if not known:
        return
    left, files = ALL_BYTES, 0
    for place in _PLACES:
        for found in _written(place, environment, since_unix_ns):
            try:
                data = _read(found, min(left, LARGEST_BYTES))
            finally:
                os.close(found.descriptor)
            ids = joined(data, known.ids) if data is not None else ()
            if not ids and not known.wrote(found.path):
                continue
            files += 1
            left -= len(data) if data is not None else 0
            yield from _told(place.agent, found, data, ids, at_ns)
            if files >= MOST_FILES:
                return


def _told(
    agent: Agent, found: _Found, data: bytes | None, ids: tuple[tuple[bytes, bytes], ...], at_ns: int
) -> Iterator[Item]:
    session = _UUID.search(found.path.rpartition(b"/")[2])
    told = session[0] if session else b""
    if data is None:
        content = Body(found.size, (), "over-cap")
        yield SessionFile(at_ns=at_ns, agent=agent, path=found.path, session=told, content=content)
        return
    digests = []
    for piece in pieces(data):
        digests.append(sha256(piece).digest())
        yield Content(digests[-1], piece, "body")
    content = Body(len(data), tuple(digests))
    yield SessionFile(at_ns=at_ns, agent=agent, path=found.path, session=told, joined=ids, content=content)


def pieces(data: bytes) -> Iterator[bytes]:
    """Whole lines, about PIECE_BYTES together: a secret stands in one line, so it is never cut."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start + PIECE_BYTES - 1) + 1 or len(data)
        yield data[start:end]
        start = end


def joined(data: bytes, known: Mapping[bytes, str]) -> tuple[tuple[bytes, bytes], ...]:
    """Ids in the file that crossed the wire as well, each with our name for it."""
    found: dict[bytes, bytes] = {}
    for match in _ID.finditer(data) if known else ():
        if match[1] in known and len(found) < _MOST_JOINED:
            found[match[1]] = known[match[1]].encode()
    return tuple(found.items())


def _written(place: _Place, environment: Mapping[bytes, bytes], since_unix_ns: int) -> Iterator[_Found]:
    """Files of one agent written since then, opened. Each is to be closed by whoever takes it."""
    named, home = environment.get(place.variable, b""), environment.get(b"HOME", b"")
    steps = [place.inner] if named else [place.folder, place.inner]
    base = named or home
    if not base.startswith(b"/"):
        return
    try:
        # HOME, or the folder that the user named, may be a link; what is in it may not.
        folder = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    path = base.rstrip(b"/")
    for step in steps:
        above = folder
        try:
            folder = os.open(step, _FOLDER, dir_fd=above)
        except OSError:
            return
        finally:
            os.close(above)
        path += b"/" + step
    yield from _Walk(place.name, since_unix_ns).below(folder, path, 0)


class _Walk:
    """One look through a folder and those in it, up to a number of entries."""

    def __init__(self, name: re.Pattern[bytes], since_unix_ns: int) -> None:
        self._name = name
        self._since_ns = since_unix_ns
        self._left = MOST_ENTRIES

    def below(self, folder: int, path: bytes, depth: int) -> Iterator[_Found]:
        """Files below an open folder, which is closed."""
        try:
            for name in self._names(folder):
                yield from self._entry(folder, name, path + b"/" + name, depth)
        finally:
            os.close(folder)

    def _names(self, folder: int) -> list[bytes]:
        try:
            names = os.listdir(folder)[: max(self._left, 0)]
        except OSError:
            return []
        self._left -= len(names)
        return sorted(map(os.fsencode, names))

    def _entry(self, folder: int, name: bytes, path: bytes, depth: int) -> Iterator[_Found]:
        try:
            state = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(state.st_mode):
                if depth < DEEPEST:
                    yield from self.below(os.open(name, _FOLDER, dir_fd=folder), path, depth + 1)
                return
            if not self._name.fullmatch(name) or not self._counts(state):
                return
            descriptor = os.open(name, _FILE, dir_fd=folder)
        except OSError:
            return
        state = os.fstat(descriptor)  # the name may lead elsewhere by now
        if self._counts(state):
            yield _Found(path, descriptor, state.st_size)
        else:
            os.close(descriptor)

    def _counts(self, state: os.stat_result) -> bool:
        own = stat.S_ISREG(state.st_mode) and state.st_uid == os.geteuid()
        return own and state.st_mtime_ns >= self._since_ns


def _read(found: _Found, most: int) -> bytes | None:
    """The whole file, None if it is longer than that or cannot be read."""
    if found.size > most:
        return None
    parts: list[bytes] = []
    size = 0
    try:
        while part := os.read(found.descriptor, 1 << 20):
            size += len(part)
            if size > most:
                return None
            parts.append(part)
    except OSError:
        return None
    return b"".join(parts)
