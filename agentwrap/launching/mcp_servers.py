"""The MCP servers that are declared for one run, while it goes on, and what is stated about them.

Refuses to know what is done with a server.
"""

import os
import posixpath
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from agentwrap.events import Coverage, Gap, Tier
from agentwrap.launching.mcp_files import Files, bytes_of
from agentwrap.launching.options import RunOptions
from agentwrap.mcp.configs import formats
from agentwrap.mcp.configs.formats import Found
from agentwrap.mcp.configs.matching import LOOK_AGAIN_NS, Matcher
from agentwrap.mcp.configs.placeholders import Known, expand
from agentwrap.mcp.configs.places import VARIABLES
from agentwrap.mcp.declared import Declared
from agentwrap.policy.layers import Layer

_HIDDEN = "servers that this configuration declares, and what is said to them"
_INLINE = b"OPENCODE_CONFIG_CONTENT"
_SHOWN = 300
_MAX_TOLD = 1000
_ENVIRONMENT_BYTES, _MOST_ELSEWHERE = 1 << 20, 32
_SHARE, _MOST_NS = 100, 50_000_000  # a look takes 0.2 ms, with many folders more
_LATE = "what is said to this MCP server: it was declared after the start, and TLS of its host is not ended"


class Servers:
    """All declared servers of one run: what the tracer asks at each exec, what the gateway is told of, what is stated.

    `more`: declared elsewhere (by the policy). `command`: the run's own, which may name servers itself. `losses`: what
    could not be read at the start. `intercepts`: TLS of their hosts is ended.
    """

    def __init__(
        self,
        environment: Mapping[bytes, bytes],
        cwd: bytes,
        command: tuple[bytes, ...] = (),
        more: Iterable[Declared] = (),
        *,
        intercepts: bool = True,
    ) -> None:
        self._environment = environment
        self._files = Files(environment)
        self._elsewhere: dict[tuple[tuple[bytes, bytes], ...], Files] = {}  # by what an environment says of places
        declared = [*more, *(self._files.look((cwd,)) or ()), *_inline(environment)]
        self._matcher = Matcher(declared, environment=environment, look=self._look, fetch=_fetch)
        if command:
            self._matcher.observe(command, cwd)
        self._matcher.start()
        self._told_of: set[tuple[bytes, str]] = set()
        self._tell: Callable[[list[Gap]], None] | None = None
        self._lead: Callable[[bytes], None] | None = None
        self._changed = True
        self._look_ns = 0
        self.losses = self._problems(0)
        self._urls = frozenset(self.urls)
        self._read_hosts = frozenset(self.tls_hosts) if intercepts else None

    @property
    def declared(self) -> tuple[Declared, ...]:
        """All of them so far."""
        return self._matcher.known

    @property
    def tls_hosts(self) -> tuple[str, ...]:
        """`host:port` of those behind https, for `policy.model_hosts`."""
        return tuple(dict.fromkeys(filter(None, (_tls_host(one.url) for one in self.urls))))

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
        self._changed |= self._matcher.observe(argv, cwd)
        found = self._matcher.match(path, argv, cwd)
        if found is None and self._look_again(time.monotonic_ns()):
            found = self._matcher.match(path, argv, cwd)
        if self._tell is not None and (self._changed or self._matcher.problems):
            self._changed = False
            now_ns = time.monotonic_ns()
            self._tell([*self._problems(now_ns), *self._new_urls(now_ns)])
        return found

    def begins(self, argv: tuple[bytes, ...], pid: int) -> None:
        """A program began as process `pid`: a client that is told of other places than the run reads those."""
        if not self._matcher.is_client(argv):
            return
        try:
            cwd = os.readlink(b"/proc/%d/cwd" % pid)
            with open(f"/proc/{pid}/environ", "rb") as file:
                entries = [entry.partition(b"=") for entry in file.read(_ENVIRONMENT_BYTES).split(b"\0")]
        except OSError:
            return  # gone by now, or nobody may look
        said = {name: value for name, _, value in entries if name in VARIABLES}
        said |= {name: posixpath.join(cwd, value) for name, value in said.items() if value and name != _INLINE}
        key = tuple(sorted(said.items()))
        own = {name: value for name, value in self._environment.items() if name in VARIABLES}
        if said == own or key in self._elsewhere or len(self._elsewhere) >= _MOST_ELSEWHERE:
            return
        others = {name: value for name, value in self._environment.items() if name not in VARIABLES}
        files = self._elsewhere[key] = Files(others | said)
        self._changed |= self._matcher.learn([*(files.look(()) or ()), *_inline(said)])

    def by_hand(self, argv: tuple[bytes, ...]) -> bytes | None:
        """As `Matcher.by_hand`."""
        return self._matcher.by_hand(argv)

    def _look_again(self, now_ns: int) -> bool:
        """Not so often that it would cost a run more than a hundredth of its time."""
        every_ns = min(max(LOOK_AGAIN_NS, _SHARE * self._look_ns), _MOST_NS)
        return self._matcher.look_again(now_ns, every_ns)

    def tell_to(self, sink: Callable[[Gap], None], start_ns: int) -> None:
        """What cannot be read from now on goes to `sink`. `start_ns`: CLOCK_MONOTONIC at the start of the run."""

        def tell(gaps: list[Gap]) -> None:
            for gap in gaps:
                at_ns = max(0, gap.at_ns - start_ns)
                sink(msgspec.structs.replace(gap, at_ns=at_ns, from_ns=at_ns))

        self._tell = tell

    def urls_to(self, lead: Callable[[bytes], None]) -> None:
        """URLs that are declared from now on go to `lead`, so that what goes there can be led to the gateway."""
        self._lead = lead

    def _new_urls(self, at_ns: int) -> list[Gap]:
        """Lead to those that were declared since; a gap for each that is not read all the same."""
        new = [one for one in self.urls if one not in self._urls]
        self._urls |= frozenset(new)
        gaps = []
        for one in new:
            if self._lead is not None:
                self._lead(one.url)
            host = _tls_host(one.url)
            if host and self._read_hosts is not None and host not in self._read_hosts:
                detail = b"%b %b" % (one.name, host.encode("utf-8", "replace"))
                gaps.append(
                    Gap(at_ns=at_ns, what="mcp-http", cause="not-intercepted", could_hide=_LATE, from_ns=at_ns,
                        detail=detail)
                )  # fmt: skip
        return gaps

    def _look(self, folders: tuple[bytes, ...], whole: bool) -> tuple[Declared, ...] | None:
        before = time.thread_time_ns()
        found = self._files.look(folders, whole)
        if whole:
            self._look_ns = time.thread_time_ns() - before
        more = [one for files in self._elsewhere.values() if whole for one in files.look(()) or ()]
        self._changed |= found is not None or bool(more)
        return (*(found or ()), *more) if more else found

    def _problems(self, at_ns: int) -> list[Gap]:
        """Those that were not told yet."""
        read = [self._files, *self._elsewhere.values()]
        problems = [(path, words) for files in read for path, found in files.found.items() for words in found.problems]
        problems += [(b"", words) for words in self._matcher.problems]
        self._matcher.problems.clear()
        room = _MAX_TOLD - len(self._told_of)
        new = [one for one in dict.fromkeys(problems) if one not in self._told_of][: max(0, room)]
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
    folder, intercepts = os.path.realpath(cwd), not options.no_intercept
    return Servers(options.environment, folder, options.command, patterns, intercepts=intercepts)


def are_gated(layers: Sequence[Layer]) -> bool:
    """Whether rules may refuse or hold what is said to servers, so that none may go past the relay."""
    if not layers:
        return False
    from agentwrap.policy.layers import mode_of

    return mode_of(layers) != "observe" and any(layer.policy.mcp.restricts() for layer in layers)


def rules_reach_http(layers: Sequence[Layer], servers: Servers) -> bool:
    """Whether rules may refuse or hold what is said to servers over HTTP.

    Those are called `host:port`, or as a configuration with a URL says; a rule that spells another name is about stdio.
    """
    if not are_gated(layers):
        return False
    urls = {one.name.decode("utf-8", "replace") for one in servers.urls}
    names = [rule.server for layer in layers for rule in layer.policy.mcp.rules if rule.decision != "allow"]
    pinned = {pin.server for layer in layers for pin in layer.policy.mcp.pins}
    return bool(urls & pinned) or any(not one.literal or ":" in one.text or one.text in urls for one in names)


def _tls_host(url: bytes) -> str:
    """`host:port` of an https URL, empty for another one and for what is no host."""
    if url[:6].lower() != b"https:":
        return ""
    from agentwrap.mcp.http import place_of_url

    place = place_of_url(url)
    if place is None or set(place.host) & set(b"*?[]"):
        return ""
    host = place.host.decode("utf-8", "replace")
    return f"[{host}]:{place.port}" if ":" in host else f"{host}:{place.port}"


def _fetch(folder: bytes, name: bytes) -> bytes | None:
    return bytes_of(posixpath.join(folder, name))[0]


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
    places_told = "in one configuration" if files == 1 else f"in {files} configurations"
    if not files:
        places_told = "on a command line"
    return f"{count} {'server' if count == 1 else 'servers'} declared ({told}) {places_told}"


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
    note += "" if model.tier == "witness" else ", and not what the run itself serves"
    seen = model.tier != "none" and model.mechanism != "base-url"
    if not seen:
        return [stdio, Coverage(at_ns=0, what="mcp-http", tier="none", mechanism="", note=model.note)]
    http = Coverage(at_ns=0, what="mcp-http", tier=model.tier, mechanism=model.mechanism, note=note)
    return [stdio, http]
