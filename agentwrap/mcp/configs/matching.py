"""Which program's start is that of an MCP server: the servers declared so far, asked at every exec of a run. Pure.

What it learns during a run (files that changed, servers that an agent's own command line names) comes through two
functions that it is given. Nothing once declared is forgotten: an agent may remove a file as soon as it has read it.
"""

import re
from collections.abc import Callable, Iterable, Mapping

from agentwrap.mcp.configs.lines import Line, Start, lines_of, scripts
from agentwrap.mcp.configs.named import by_hand, names_servers, observed
from agentwrap.mcp.configs.placeholders import Known
from agentwrap.mcp.declared import Client, Declared

LOOK_AGAIN_NS = 5_000_000
"""How long a look at the files holds, at least."""
_MAX_SERVERS = 10_000
_MAX_FOLDERS = 64
_AGENTS: Mapping[bytes, Client] = {
    b"claude": "claude-code", b"codex": "codex", b"gemini": "gemini", b"opencode": "opencode", b"cursor": "cursor",
    b"cursor-agent": "cursor", b"code": "vscode", b"copilot": "copilot", b"windsurf": "windsurf",
}  # fmt: skip
_SCOPES = ("command", "project", "user", "system")

Look = Callable[[tuple[bytes, ...], bool], Iterable[Declared] | None]
"""Given folders in which programs began, and whether the files of the user and the machine are to be looked at, too:
what all files declare now; None: nothing changed."""
Fetch = Callable[[bytes, bytes], bytes | None]
"""Given a folder and a file's name in it: the file's bytes; None: it cannot be read."""


class Matcher:
    """The declared servers of one run. `look`, `fetch`: see above; without them it stays with what it was given.

    `problems`: what could not be read of what command lines name, in words; whoever tells them empties it.
    """

    def __init__(
        self,
        declared: Iterable[Declared] = (),
        *,
        environment: Mapping[bytes, bytes] | None = None,
        look: Look | None = None,
        fetch: Fetch | None = None,
    ) -> None:
        self._environment = environment or {}
        self._home = self._environment.get(b"HOME", b"")
        self._look = look
        self._fetch = fetch
        # By the last part of the command's name (empty: any) and the number of arguments.
        self._shapes: dict[tuple[bytes, int], list[Line]] = {}
        self._globs: list[tuple[re.Pattern[bytes], Declared]] = []
        self._known: dict[Declared, bool] = {}  # whether it was declared from the start
        self._started = False
        self._lines = 0
        self._folders: dict[bytes, None] = {}
        self._looked_ns = -LOOK_AGAIN_NS
        self._new_folder = False
        self._clients: set[Client] = set()
        self.problems: list[str] = []
        self.learn(declared)

    def start(self) -> None:
        """The run begins: what is declared from now on may be the agent's own doing."""
        self._started = True

    @property
    def known(self) -> tuple[Declared, ...]:
        """All servers declared so far."""
        return tuple(self._known)

    def learn(self, declared: Iterable[Declared]) -> bool:
        """Take more of them; whether any is new."""
        count = len(self._known)
        for one in declared:
            if one in self._known or len(self._known) >= _MAX_SERVERS:
                continue
            self._known[one] = not self._started
            if one.pattern:
                self._globs.append((_glob(one.pattern), one))
            for line in lines_of(one, Known(self._environment, self._home, one.folder)):
                self._lines += 1
                self._shapes.setdefault((line.base, len(line.arguments)), []).append(line)
        return len(self._known) > count

    def match(self, path: bytes, argv: tuple[bytes, ...], cwd: bytes) -> Declared | None:
        """The server that begins here. `path`: the file asked for (AT_EXECFN), or the image.

        The nearest declaration wins: of the agent's command line, of the project that `cwd` is in, of the user, of the
        machine; last those of agents that were not seen in this run. But what was declared before the run began comes
        first: an agent gives a server no other name by writing a file.
        """
        if not argv:
            return None
        found: list[Declared] = []
        start = Start(path, argv, cwd)
        if self._lines:
            self._fitting(start, 0, found)
            for script in scripts(start):
                self._fitting(start, script, found)
        if not found and self._globs:
            found = self._by_glob(start)
        if cwd not in self._folders:
            if len(self._folders) >= _MAX_FOLDERS:
                del self._folders[next(iter(self._folders))]
            self._folders[cwd] = None
            self._new_folder = True
        return min(found, key=lambda one: self._distance(one, cwd)) if found else None

    def _fitting(self, start: Start, script: int, found: list[Declared]) -> None:
        bases = {start.argv[script].rpartition(b"/")[2], b""}
        if not script:
            bases.add(start.path.rpartition(b"/")[2])
        count = len(start.argv) - script - 1
        lines = [line for base in bases for line in self._shapes.get((base, count), ())]
        if lines:
            given = start.argv[script + 1 :]
            found += [line.declared for line in lines if line.fits(start, script, given)]

    def _by_glob(self, start: Start) -> list[Declared]:
        ways = [start.argv, *(start.argv[script:] for script in scripts(start))]
        texts = {b" ".join((head, *argv[1:])) for argv in ways for head in (argv[0], argv[0].rpartition(b"/")[2])}
        return [one for glob, one in self._globs if any(glob.match(text) for text in texts)]

    def _distance(self, declared: Declared, cwd: bytes) -> tuple[bool, bool, bool, int, int]:
        elsewhere = bool(declared.folder) and not (cwd + b"/").startswith(declared.folder.rstrip(b"/") + b"/")
        unseen = bool(self._clients) and declared.client not in self._clients and declared.client != "mcp.json"
        late = not self._known.get(declared, False)
        return late, elsewhere, unseen, _SCOPES.index(declared.scope), -len(declared.folder)

    @staticmethod
    def is_client(argv: tuple[bytes, ...]) -> bool:
        """Whether a known agent begins here."""
        return any(word.rpartition(b"/")[2] in _AGENTS for word in argv[:3])

    def observe(self, argv: tuple[bytes, ...], cwd: bytes) -> bool:
        """A program began: note which agent it is, and the servers that its command line names; whether any is new."""
        for word in argv[:3]:
            client = _AGENTS.get(word.rpartition(b"/")[2])
            if client is not None:
                self._clients.add(client)
        if not names_servers(argv):
            return False
        found = observed(argv, self._known, lambda file: self._fetch(cwd, file) if self._fetch else None)
        self.problems += found.problems
        return self.learn(found.servers)

    def look_again(self, now_ns: int, every_ns: int = LOOK_AGAIN_NS) -> bool:
        """Look whether files declare more than before, if the last look is longer ago than `every_ns`.

        Else only in the folder that was not looked at yet, if the last program began in one. Whether anything is new;
        then it is worth to `match` again.
        """
        whole = now_ns - self._looked_ns >= every_ns
        if self._look is None or not (whole or self._new_folder):
            return False
        self._new_folder = False
        folders = tuple(self._folders)
        if whole:
            self._looked_ns = now_ns
            found = self._look(folders, True)
        else:
            found = self._look(folders[-1:], False)
        return found is not None and self.learn(found)

    @staticmethod
    def by_hand(argv: tuple[bytes, ...]) -> bytes | None:
        """The server's name, if this is `agentwrap mcp`."""
        return by_hand(argv)


def _glob(pattern: bytes) -> re.Pattern[bytes]:
    """A glob over bytes, whatever they are."""
    import fnmatch

    return re.compile(fnmatch.translate(pattern.decode("latin-1")).encode("latin-1"))
