"""The MCP servers that are declared on this machine for one run: finds the files, reads them, notices when they change.

Knows paths and bytes; what is in them is read by `mcp.configs`. Refuses to know what is done with a server.
"""

import os
import posixpath
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from agentwrap.events import Coverage, Gap, Tier
from agentwrap.launching.options import RunOptions
from agentwrap.mcp.configs import formats, places
from agentwrap.mcp.configs.formats import Found
from agentwrap.mcp.configs.matching import Matcher
from agentwrap.mcp.configs.placeholders import Known, expand
from agentwrap.mcp.configs.places import Place
from agentwrap.mcp.declared import Declared
from agentwrap.policy.layers import Layer

MAX_BYTES = 8 << 20
_MAX_LISTED = 256
_HIDDEN = "servers that this configuration declares, and what is said to them"
_INLINE = b"OPENCODE_CONFIG_CONTENT"
_SHOWN = 300

Stamp = tuple[int, int, int]


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

    def look(self, folders: Iterable[bytes]) -> tuple[Declared, ...] | None:
        """All that is declared now, for programs in these folders; None if nothing changed since the last look."""
        changed = False
        for place in dict.fromkeys(self._places(folders)):
            changed |= self._look_at(place)
        return self._all() if changed else None

    @property
    def found(self) -> dict[bytes, Found]:
        """By file, what is in those that are there and say something of servers."""
        read = {place.source.config: one.found for place, one in self._read.items()}
        return {path: found for path, found in read.items() if found.servers or found.problems}

    def _all(self) -> tuple[Declared, ...]:
        return tuple(one for read in self._read.values() for one in read.found.servers)

    def _places(self, folders: Iterable[bytes]) -> Iterable[Place]:
        yield from self._everywhere
        for listing in self._listings:
            yield from self._in(listing)
        yield from self._of_plugins()
        for folder in folders:
            for one in self._projects(folder):
                yield from places.of_project(one)

    def _projects(self, folder: bytes) -> tuple[bytes, ...]:
        if folder not in self._roots:
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
            try:
                names = sorted(os.listdir(listing.folder))[:_MAX_LISTED]
            except OSError:
                return ()
            before = stamp, tuple(listing.places(names))
            self._listed[listing.folder] = before
        return before[1]

    def _of_plugins(self) -> tuple[Place, ...]:
        stamp = _stamp(self._plugins) if self._plugins else None
        if stamp is None:
            return ()
        before = self._listed.get(self._plugins)
        if before is None or before[0] != stamp:
            data, _why = _bytes_of(self._plugins)
            folders = formats.plugin_folders(data or b"")[:_MAX_LISTED]
            before = stamp, tuple(one for folder in folders for one in places.of_plugin(folder))
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
        data, why = _bytes_of(path)
        if data is None:
            found = Found((), (why,)) if why else Found()
        else:
            found = formats.read(place.form, data, place.source)
        self._read[place] = _Read(stamp, found)
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


def _bytes_of(path: bytes) -> tuple[bytes | None, str]:
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
            data = file.read(MAX_BYTES + 1)
        except OSError as error:
            return None, str(error.strerror)
    return (data, "") if len(data) <= MAX_BYTES else (None, f"larger than {MAX_BYTES >> 20} MiB")


class Servers:
    """All declared servers of one run: what the tracer asks at each exec, what the gateway is told of, what is stated.

    `more`: declared elsewhere (by the policy). `command`: the run's own, which may name servers itself. `losses`: what
    could not be read at the start.
    """

    def __init__(
        self,
        environment: Mapping[bytes, bytes],
        cwd: bytes,
        command: tuple[bytes, ...] = (),
        more: Iterable[Declared] = (),
    ) -> None:
        self._environment = environment
        self._files = Files(environment)
        declared = [*more, *(self._files.look((cwd,)) or ()), *_inline(environment)]
        self._matcher = Matcher(declared, environment=environment, look=self._look, fetch=_fetch)
        if command:
            self._matcher.observe(command, cwd)
        self._told_of: set[tuple[bytes, str]] = set()
        self._tell: Callable[[list[Gap]], None] | None = None
        self._changed = True
        self.losses = self._problems(0)

    @property
    def declared(self) -> tuple[Declared, ...]:
        """All of them so far."""
        return self._matcher.known

    @property
    def tls_hosts(self) -> tuple[str, ...]:
        """`host:port` of those behind https, for `policy.model_hosts`."""
        from agentwrap.mcp.http import place_of_url

        found = []
        for one in self.urls:
            place = place_of_url(one.url) if one.url[:6].lower() == b"https:" else None
            if place is not None and not set(place.host) & set(b"*?[]"):
                host = place.host.decode("utf-8", "replace")
                found.append(f"[{host}]:{place.port}" if ":" in host else f"{host}:{place.port}")
        return tuple(dict.fromkeys(found))

    @property
    def urls(self) -> tuple[Declared, ...]:
        """Those behind a URL, with what is known put in for placeholders; of others the URL is left out."""
        found = []
        for one in self._matcher.known:
            if one.url:
                pieces = expand(one.url, Known(self._environment, self._environment.get(b"HOME", b""), one.folder))
                if len(pieces) == 1:
                    found.append(msgspec.structs.replace(one, url=pieces[0]))
        return tuple(found)

    def match(self, path: bytes, argv: tuple[bytes, ...], cwd: bytes) -> Declared | None:
        """As `Matcher.match`. What the words name is learned first; files that changed are looked at before a no."""
        self._matcher.observe(argv, cwd)
        found = self._matcher.match(path, argv, cwd)
        if found is None and self._matcher.look_again(time.monotonic_ns()):
            found = self._matcher.match(path, argv, cwd)
        if self._tell is not None and (self._changed or self._matcher.problems):
            self._changed = False
            self._tell(self._problems(time.monotonic_ns()))
        return found

    def by_hand(self, argv: tuple[bytes, ...]) -> bytes | None:
        """As `Matcher.by_hand`."""
        return self._matcher.by_hand(argv)

    def tell_to(self, sink: Callable[[Gap], None], start_ns: int) -> None:
        """What cannot be read from now on goes to `sink`. `start_ns`: CLOCK_MONOTONIC at the start of the run."""

        def tell(gaps: list[Gap]) -> None:
            for gap in gaps:
                at_ns = max(0, gap.at_ns - start_ns)
                sink(msgspec.structs.replace(gap, at_ns=at_ns, from_ns=at_ns))

        self._tell = tell

    def _look(self, folders: tuple[bytes, ...]) -> tuple[Declared, ...] | None:
        found = self._files.look(folders)
        self._changed |= found is not None
        return found

    def _problems(self, at_ns: int) -> list[Gap]:
        """Those that were not told yet."""
        problems = [(path, words) for path, found in self._files.found.items() for words in found.problems]
        problems += [(b"", words) for words in self._matcher.problems]
        self._matcher.problems.clear()
        new = [one for one in dict.fromkeys(problems) if one not in self._told_of]
        self._told_of.update(new)
        return [
            Gap(
                at_ns=at_ns,
                what="mcp-stdio",
                cause="config-unreadable",
                could_hide=_HIDDEN,
                from_ns=at_ns,
                detail=(path + b": " if path else b"") + words.encode("utf-8", "backslashreplace")[:_SHOWN],
            )
            for path, words in new
        ]

    def words(self) -> str:
        """What was read, for a statement: `2 servers declared (codex 1, cursor 1) in 2 configurations`."""
        return words_of(self.declared, len(self._files.found))

    def files(self) -> dict[bytes, Found]:
        """By configuration that is there: its servers and problems."""
        return self._files.found


def of_run(options: RunOptions, cwd: bytes) -> Servers:
    """The servers of a run that begins in `cwd`: declared in configurations, by its command line, by its policy."""
    patterns: list[Declared] = []
    if options.layers:
        from agentwrap.policy.layers import stdio_patterns

        patterns = [
            Declared(b"", "policy", b"record.mcp_stdio", "command", pattern=os.fsencode(one.text))
            for one in stdio_patterns(options.layers)
        ]
    return Servers(options.environment, os.path.realpath(cwd), options.command, patterns)


def are_gated(layers: Sequence[Layer]) -> bool:
    """Whether rules may refuse or hold what is said to servers, so that none may go past the relay."""
    if not layers:
        return False
    from agentwrap.policy.layers import mode_of

    return mode_of(layers) != "observe" and any(layer.policy.mcp.restricts() for layer in layers)


def _fetch(folder: bytes, name: bytes) -> bytes | None:
    return _bytes_of(posixpath.join(folder, name))[0]


def _inline(environment: Mapping[bytes, bytes]) -> tuple[Declared, ...]:
    text = environment.get(_INLINE)
    source = formats.Source("opencode", _INLINE, "command")
    return formats.read("opencode", text, source).servers if text else ()


def words_of(declared: Sequence[Declared], files: int) -> str:
    """How many servers are declared, by whose configuration."""
    count = len(declared)
    if not count:
        return "no server is declared"
    clients = Counter(one.client for one in declared)
    told = ", ".join(f"{client} {number}" for client, number in sorted(clients.items()))
    places_told = "one configuration" if files == 1 else f"{files} configurations"
    return f"{count} {'server' if count == 1 else 'servers'} declared ({told}) in {places_told}"


def coverage(servers: Servers, *, relayed: str, gated: bool, model: Coverage) -> list[Coverage]:
    """The statements about MCP. `relayed`: by which mechanism servers' descriptors are swapped, empty if by none.

    `gated`: rules speak of servers, so none may go past the relay. `model`: the statement about model traffic: what is
    read of HTTP is read in the same way.
    """
    by_stdio: Tier = "none" if not relayed else "guard" if gated else "witness"
    stdio = Coverage(at_ns=0, what="mcp-stdio", tier=by_stdio, mechanism=relayed, note=servers.words())
    named = len(servers.urls)
    by_url = f"{named} declared by URL; others are" if named else "servers are"
    note = f"{by_url} known by what is said; read where model traffic is"
    seen = model.tier != "none" and model.mechanism != "base-url"
    if not seen:
        return [stdio, Coverage(at_ns=0, what="mcp-http", tier="none", mechanism="", note=model.note)]
    http = Coverage(at_ns=0, what="mcp-http", tier=model.tier, mechanism=model.mechanism, note=note)
    return [stdio, http]
