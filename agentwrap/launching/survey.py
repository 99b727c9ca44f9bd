"""Which places on a disk a policy opens, and which it closes inside of them: rules and what is there, put together.

Pure: what is there comes from a `Disk`. A rule is about names, also of what does not exist; a mount needs something to
lie on. So this finds what exists, and says which names only the stop can hold.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

import msgspec

from agentwrap.policy import defaults
from agentwrap.policy.layers import Layer, decide_layers
from agentwrap.policy.paths import PathPattern, Places, compiled, holders, parse_pattern
from agentwrap.policy.questions import Answer, Question, Read, Unix, Write
from agentwrap.policy.rules import PathRule

Kind = Literal["", "file", "folder", "link", "socket", "other"]
_WILD = re.compile(r"[*?\[]")
# No rule names it: what is said about it is the default.
NOBODYS = "/\x01 no rule names this"
MAX_BINDS = 400
_WALK_ENTRIES, _WALK_DEPTH, _GLOB_ENTRIES = 5_000, 6, 500
_OTHER_ENTRIES, _OTHER_DEPTH = 500, 2
# Large, and made by tools: what is protected by name in there is left to the stop.
_NOT_WALKED = frozenset({"node_modules", "__pycache__", ".venv", "venv", "site-packages"})


class Disk(Protocol):
    """What is there. Paths are absolute; errors are told as nothing."""

    def kind(self, path: str) -> Kind:
        """What stands under a name, a link not followed."""

    def real(self, path: str) -> str:
        """The path without links, as far as it exists."""

    def entries(self, folder: str) -> Sequence[tuple[str, Kind]]:
        """Names in a folder and what they are; empty for what is none or cannot be read."""


class Closed(msgspec.Struct, frozen=True):
    """Something that exists and that the policy closes, and the answer that does."""

    path: str
    answer: Answer
    kind: Kind = "file"


class Opened(msgspec.Struct, frozen=True):
    """What may be written.

    `whole`: folders with all below. `files`: single ones. `loose`: folders in which new names may be made by some
    pattern, so that they cannot be read-only, though not all in them may be changed.
    """

    whole: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()

    @property
    def everywhere(self) -> bool:
        """Whether a pattern may fit anywhere: then nothing can be read-only."""
        return "/" in self.whole or "/" in self.loose

    def around(self, path: str) -> bool:
        """Whether a path lies in a place that is opened (and so may have to be closed again)."""
        return any(defaults.is_under(path, places) for places in (self.whole, self.loose))


def join(folder: str, name: str) -> str:
    """A name in a folder."""
    return f"{folder.rstrip('/')}/{name}"


def head_of(pattern: PathPattern) -> tuple[str, bool]:
    """The folder below which a pattern fits, free of wildcards, and whether it fits all of that."""
    if pattern.literal:
        return pattern.expanded, False
    segments = pattern.expanded.strip("/").split("/")
    fixed = next(index for index, one in enumerate(segments) if _WILD.search(_unquoted(one)))
    head = "/" + "/".join(_plain(one) for one in segments[:fixed])
    return head, segments[fixed:] == ["**"]


def _unquoted(segment: str) -> str:
    return re.sub(r"\[[*?\[]\]", "", segment)


def _plain(segment: str) -> str:
    return re.sub(r"\[([*?\[])\]", r"\1", segment)


class Survey:
    """The layers of a policy over a disk. Every method looks at the disk as little as it can."""

    def __init__(self, layers: Sequence[Layer], disk: Disk) -> None:
        self.layers = layers
        self.disk = disk
        self.places: Places = layers[0].policy.places
        self.binds_left = MAX_BINDS
        self.left: list[str] = []

    def ask(self, question: Question) -> Answer:
        """What the layers say."""
        return decide_layers(self.layers, question)

    def may_write(self, path: str) -> bool:
        """Whether a file of that name may be written."""
        return self.ask(Write(path)).verdict == "allow"

    def exists(self, path: str) -> str:
        """The real path of something that exists, else empty."""
        real = self.disk.real(path)
        return real if self.disk.kind(real) else ""

    def _deepest(self, path: str) -> str:
        real = self.disk.real(path)
        while real != "/" and self.disk.kind(real) != "folder":
            real = posixpath.dirname(real)
        return real

    def _write_allows(self) -> Iterator[PathRule]:
        for layer in self.layers:
            yield from layer.policy.write.allow.literal.values()
            yield from layer.policy.write.allow.wild

    # What is opened

    def opened(self) -> Opened:
        """The writable places, where writing is closed unless a rule opens it."""
        whole: set[str] = set()
        files: set[str] = set()
        loose: set[str] = set()
        for rule in self._write_allows():
            head, is_whole = head_of(rule.pattern)
            if rule.pattern.literal or is_whole:
                if not self.may_write(head):
                    continue
                real = self.disk.real(head)
                kind = self.disk.kind(real)
                if kind == "folder":
                    (whole if is_whole else loose).add(real)
                elif kind:
                    files.add(real)
                else:
                    loose.add(self._deepest(head))
            else:
                loose.add(self._deepest(head))
        outer = tuple(sorted(one for one in whole if not _inside(one, whole)))
        left = {one for one in loose if not defaults.is_under(one, outer)}
        apart = {one for one in files if not defaults.is_under(one, outer) and posixpath.dirname(one) not in left}
        return Opened(outer, tuple(sorted(apart)), tuple(sorted(left)))

    # What is closed inside

    def closed_in_loose(self, opened: Opened) -> list[Closed]:
        """What exists in a folder that had to be opened for names to come, and may not be changed."""
        found: list[Closed] = []
        for folder in opened.loose:
            if not any(folder != other and defaults.is_under(folder, (other,)) for other in opened.loose):
                self._close_loose(folder, opened, found)
        return found

    def _close_loose(self, folder: str, opened: Opened, found: list[Closed]) -> None:
        kept = (*opened.whole, *opened.files, *opened.loose)
        for name, kind in self.disk.entries(folder):
            path = join(folder, name)
            if path in opened.whole or path in opened.files:
                continue
            holds = any(one == path or one.startswith(path + "/") for one in kept)
            if kind == "folder" and (holds or self._pattern_below(path)):
                self._close_loose(path, opened, found)
            elif (answer := self.ask(Write(path))).verdict != "allow" and not self._full(path, found):
                found.append(Closed(path, answer, kind))

    def _pattern_below(self, path: str) -> bool:
        return any(
            not rule.pattern.literal and any(compiled(holder).match(path) for holder in holders(rule.pattern.expanded))
            for rule in self._write_allows()
        )

    def _full(self, path: str, found: Sequence[Closed]) -> bool:
        if len(found) < self.binds_left:
            return False
        told = f"writes: more than {MAX_BINDS} names next to what may be written, from {path} on"
        if not any(one.startswith("writes: more than") for one in self.left):
            self.left.append(told)
        return True

    def closed_writes(self, opened: Opened | None) -> list[Closed]:
        """What exists, may not be written, and lies where things may be; `opened` None: everywhere."""
        found: dict[str, Closed] = {}
        for path in self._named_for_writes():
            if opened is None or opened.around(path):
                self._close(path, found)
        patterns = _anywhere(self.places)
        patterns += [one.pattern for one in self._denials("write") if one.pattern.expanded.startswith("/**")]
        for path in self.walk(opened, patterns):
            self._close(path, found)
        return list(found.values())

    def _close(self, path: str, found: dict[str, Closed]) -> None:
        """The path, if it is closed; what is in it one by one where a rule lifts one of them."""
        real = self.exists(path)
        is_link = self.disk.kind(path) == "link"
        if (not real and not is_link) or any(defaults.is_under(real or path, (one,)) for one in found):
            return
        answer = self.ask(Write(path))
        if answer.verdict == "allow" or len(found) >= self.binds_left:
            return
        if is_link:
            found[path] = Closed(path, answer, "link")
            if not real:
                return
        kind = self.disk.kind(real)
        if kind == "folder" and any(rule.pattern.may_lie_below(path) for rule in self._literal_allows()):
            for name, _ in self.disk.entries(real):
                self._close(join(path, name), found)
            return
        found[real] = Closed(real, answer, kind)

    def _literal_allows(self) -> Iterator[PathRule]:
        return (rule for layer in self.layers for rule in layer.policy.write.allow.literal.values())

    def _named_for_writes(self) -> Iterator[str]:
        """Paths that are closed by a pattern with a fixed beginning: written out, or found by its wildcards."""
        own = [parse_pattern(path, self.places) for group in defaults.WRITES for path in group.paths]
        for pattern in (*own, *(rule.pattern for rule in self._denials("write"))):
            if not pattern.expanded.startswith("/**"):
                yield from self.matches(pattern)

    def _denials(self, section: Literal["write", "read", "exec"]) -> Iterator[PathRule]:
        for layer in self.layers:
            rules = getattr(layer.policy, section)
            yield from rules.deny.literal.values()
            yield from rules.deny.wild

    def closed_reads(self, opened: Opened | None) -> list[Closed]:
        """What exists and may not be read, by rules that name it."""
        found: dict[str, Closed] = {}
        paths = [path for rule in self._denials("read") for path in self._anchored(rule.pattern)]
        everywhere = [one.pattern for one in self._denials("read") if one.pattern.expanded.startswith("/**")]
        if everywhere:
            paths += self.walk(opened, everywhere)
        for path in (*self.places.secret, *paths):
            real = self.exists(path)
            if real and not any(defaults.is_under(real, (one,)) for one in found):
                answer = self.ask(Read(path))
                if answer.verdict != "allow":
                    found[real] = Closed(real, answer, self.disk.kind(real))
        return list(found.values())

    def _anchored(self, pattern: PathPattern) -> Iterator[str]:
        if not pattern.expanded.startswith("/**"):
            yield from self.matches(pattern)

    def denied_programs(self) -> list[Closed]:
        """Single programs that exist and may not be run."""
        found = []
        for rule in self._denials("exec"):
            path = rule.pattern.expanded
            # Behind a link may be a program with many names, of which one is denied.
            real = self.exists(path) if rule.pattern.literal and self.disk.kind(path) != "link" else ""
            if real and self.disk.kind(real) == "file":
                found.append(Closed(real, Answer("deny", rule.rule, "deny is asked first", f"remove {rule.rule}")))
        return found

    def other_names(self) -> tuple[tuple[str, str], ...]:
        """(real path, path in a rule) where they differ: calls are judged by the real one, rules have been written."""
        named = [self.places.cwd, self.places.home, self.places.tmp, *self.places.own, *self.places.secret]
        for layer in self.layers:
            policy = layer.policy
            for rules in (policy.write, policy.read, policy.exec):
                for rule in (
                    *rules.allow.literal.values(),
                    *rules.allow.wild,
                    *rules.deny.literal.values(),
                    *rules.deny.wild,
                ):
                    head = head_of(rule.pattern)[0]
                    # A link to a program is another program's name, not another name for it.
                    named.append(posixpath.dirname(head) if rules is policy.exec and rule.pattern.literal else head)
            named += [one.pattern.expanded for one in policy.unix.literal.values() if one.pattern.expanded[:1] == "/"]
        found = ((self.disk.real(path), path) for path in dict.fromkeys(named))
        return tuple((real, path) for real, path in found if real != path and "/" not in (real, path))

    # Sockets

    def ways_out(self) -> list[Closed]:
        """Unix sockets that exist and no rule names; folders under /run that hold nothing else, as a whole."""
        found: dict[str, Closed] = {}
        for path in self.places.sockets:
            for socket, answer in self._sockets(self.disk.real(path), [1]):
                found.setdefault(socket, Closed(socket, answer, "socket"))
        for text in defaults.WAYS_OUT.paths:
            pattern = parse_pattern(text, self.places)
            head, is_whole = head_of(pattern)
            if is_whole and head.startswith("/run/") and (real := self.exists(head)):
                self._socket_folder(real, found)
                continue
            for path in self.matches(pattern):
                for socket, answer in self._sockets(self.disk.real(path), [_GLOB_ENTRIES]):
                    found.setdefault(socket, Closed(socket, answer, "socket"))
        return [one for one in found.values() if not any(_inside(one.path, (other,)) for other in found)]

    def _socket_folder(self, folder: str, found: dict[str, Closed]) -> None:
        budget = [_GLOB_ENTRIES]
        sockets = list(self._sockets(folder, budget))
        answer = self.ask(Unix(join(folder, "new")))
        alone = all(kind in ("socket", "folder") for kind in self._kinds(folder, [_GLOB_ENTRIES]))
        if alone and budget[0] > 0 and answer.verdict != "allow" and not self._allows_socket_below(folder):
            found[folder] = Closed(folder, answer, "folder")
            return
        for path, one in sockets:
            found.setdefault(path, Closed(path, one, "socket"))

    def _allows_socket_below(self, folder: str) -> bool:
        return any(layer.policy.unix.below(folder) is not None for layer in self.layers)

    def _kinds(self, folder: str, budget: list[int]) -> Iterator[Kind]:
        for name, kind in self.disk.entries(folder):
            budget[0] -= 1
            if budget[0] <= 0:
                return
            yield kind
            if kind == "folder":
                yield from self._kinds(join(folder, name), budget)

    def _sockets(self, path: str, budget: list[int]) -> Iterator[tuple[str, Answer]]:
        kind = self.disk.kind(path)
        if kind == "socket":
            answer = self.ask(Unix(path))
            if answer.verdict != "allow":
                yield path, answer
        elif kind == "folder":
            for name, _ in self.disk.entries(path):
                budget[0] -= 1
                if budget[0] > 0:
                    yield from self._sockets(join(path, name), budget)

    # Looking

    def matches(self, pattern: PathPattern) -> list[str]:
        """Paths that exist and fit a pattern; of `X/**`, X itself."""
        if pattern.literal:
            return [pattern.expanded] if self.exists(pattern.expanded) else []
        segments = pattern.expanded.strip("/").split("/")
        found = ["/"]
        budget = _GLOB_ENTRIES
        for segment in segments:
            if segment == "**":
                break
            nearer: list[str] = []
            for folder in found:
                if not _WILD.search(_unquoted(segment)):
                    nearer.append(join(folder, _plain(segment)))
                    continue
                fits = compiled("/" + segment)
                for name, _ in self.disk.entries(self.disk.real(folder)):
                    budget -= 1
                    if budget > 0 and fits.match("/" + name):
                        nearer.append(join(folder, name))
            found = nearer
        return [path for path in found if self.exists(path)]

    def walk(self, opened: Opened | None, patterns: Sequence[PathPattern]) -> list[str]:
        """Paths that may fit one of these patterns, by their last names; who asks the policy knows for sure.

        Looks below the working directory, and less far into what else is opened. Bounded in depth and number: what lies
        deeper or later is left to the stop.
        """
        names = _last_names(patterns)
        others = [root for root in (opened.whole if opened else ()) if not defaults.is_under(self.places.cwd, (root,))]
        found = self._walk(self.places.cwd, names, _WALK_ENTRIES, _WALK_DEPTH) if self.places.cwd != "/" else []
        for root in others:
            found += self._walk(root, names, _OTHER_ENTRIES, _OTHER_DEPTH)
        return found

    def _walk(self, root: str, names: re.Pattern[str], budget: int, deepest: int) -> list[str]:
        found: list[str] = []
        todo = [(self.disk.real(root), 0)]
        for folder, depth in todo:
            for name, kind in self.disk.entries(folder):
                budget -= 1
                if budget < 0:
                    self.left.append(f"what is protected in {root}: too much to look through, from {folder} on")
                    return found
                path = join(folder, name)
                if names.match(name):
                    found.append(path)
                if kind == "folder" and depth < deepest and not _is_store(path, name):
                    todo.append((path, depth + 1))
        return found


def _inside(path: str, folders: Sequence[str] | set[str]) -> bool:
    return any(path != folder and defaults.is_under(path, (folder,)) for folder in folders)


def _is_store(path: str, name: str) -> bool:
    return name in _NOT_WALKED or path.endswith("/.git/objects")


def _last_names(patterns: Sequence[PathPattern]) -> re.Pattern[str]:
    """One expression for the last names of patterns; a name that fits everything is not asked about."""
    last = {[one for one in pattern.expanded.split("/") if one != "**"][-1] for pattern in patterns}
    sources = [compiled("/" + one).pattern.removeprefix("/").removesuffix("\\Z") for one in sorted(last)]
    return re.compile("(?:" + "|".join(sources or ["(?!)"]) + r")\Z", re.DOTALL)


def _anywhere(places: Places) -> list[PathPattern]:
    """The patterns of protected files that may lie anywhere."""
    every = (path for group in defaults.WRITES for path in group.paths if path.startswith("**/"))
    return [parse_pattern(text, places) for text in every]
