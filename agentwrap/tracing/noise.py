"""Which class a path belongs to: the work itself, or one of the kinds of noise. Pure: looks at names only.

A class hides nothing from the recording; it decides what views show by default and whether contents are kept.
Only unambiguous names count: a folder called `build` or `target` may be somebody's work.
"""

from collections.abc import Iterable
from typing import Final

from agentwrap.events.file import FileClass

VERSION_CONTROL: Final = frozenset((b".git", b".hg", b".svn", b".jj"))

CACHE_FOLDERS: Final = frozenset(
    (
        b"node_modules",
        b"__pycache__",
        b".pytest_cache",
        b".mypy_cache",
        b".ruff_cache",
        b".hypothesis",
        b".tox",
        b".nox",
        b".venv",
        b"site-packages",
        b".eslintcache",
        b".parcel-cache",
        b".turbo",
        b".gradle",
        b".ipynb_checkpoints",
    )
)

_SANDBOX_ROOTS: Final = (b"/newroot", b"/oldroot", b"/tmp/newroot", b"/tmp/oldroot")
_SANDBOX_ROOTS_BELOW: Final = tuple(root + b"/" for root in _SANDBOX_ROOTS)
"""Where bubblewrap builds the new root of a sandbox."""

_SYSTEM: Final = (b"/proc", b"/sys", b"/run", b"/var/run", b"/newroot", b"/oldroot")

_TEMPORARY: Final = (b"/tmp", b"/var/tmp", b"/dev/shm")

_CACHES: Final = (b"/var/cache", b"/var/lib/apt", b"/var/lib/dpkg", b"/var/log/apt")

_HOME_CACHES: Final = (
    b".cache",
    b".npm",
    b".yarn",
    b".bun/install/cache",
    b".cargo/registry",
    b".cargo/git",
    b".gradle",
    b".m2/repository",
    b".local/share/pnpm",
    b".node-gyp",
    b".rustup",
    b"go/pkg/mod",
)

_HOME_AGENTS: Final = (
    b".claude",
    b".codex",
    b".pi",
    b".gemini",
    b".qwen",
    b".aider",
    b".copilot",
    b".continue",
    b".config/claude",
    b".config/opencode",
    b".local/share/opencode",
    b".local/state/opencode",
    b".local/share/claude",
    b".local/state/claude",
    b".config/mini-swe-agent",
    b".config/goose",
    b".local/share/goose",
    b".config/github-copilot",
)

_AGENT_WORK: Final = (
    b"settings.json",
    b"settings.local.json",
    b"config.toml",
    b"config.json",
    b"mcp.json",
    b"mcp_config.json",
    b"opencode.json",
    b"CLAUDE.md",
    b"AGENTS.md",
    b"GEMINI.md",
    b"hooks",
    b"commands",
)
"""What lies right in an agent's folder and decides what a later run may do, or does unasked."""

_HOME_AGENT_PREFIXES: Final = (b".claude.json", b".claude-", b".aider.")

_TEMPORARY_AGENT_PREFIXES: Final = (b"claude-", b"codex-", b"opencode-", b"gemini-cli-", b"pi-bash-")

_GIT_WORK: Final = frozenset((b"hooks", b"config", b"config.worktree"))
"""Parts of `.git` that decide what runs later."""

_ODD_NAMES: Final = VERSION_CONTROL | CACHE_FOLDERS

_CACHED_FOLDERS: Final = 8192

_Folder = tuple[FileClass, frozenset[bytes], tuple[bytes, ...]]
"""Of a folder: the class of what is in it, and names and beginnings of names that may be of another class."""


class Classifier:
    """Answers for one run. Called for every file call that is reported: folders are remembered.

    `cwd`: where the command was started; what lies below it is work, except for caches and version control nested in
    it. `home`, `tmp` ($TMPDIR or nothing) and `agent_folders` (CLAUDE_CONFIG_DIR, CODEX_HOME, ...) are absolute.
    """

    def __init__(self, cwd: bytes, home: bytes = b"", tmp: bytes = b"", agent_folders: Iterable[bytes] = ()) -> None:
        self._cwd = _tidy(cwd)
        self._home = _tidy(home)
        self._temporary = tuple(dict.fromkeys(filter(None, (*_TEMPORARY, _tidy(tmp)))))
        self._places: list[tuple[bytes, FileClass]] = []
        agents = [self._home + b"/" + name for name in _HOME_AGENTS] if self._home else []
        agents += [_tidy(folder) for folder in agent_folders if _tidy(folder)]
        self._places += [(folder + b"/" + name, "work") for folder in agents for name in _AGENT_WORK]
        self._places += [(folder, "agent-state") for folder in agents]
        if self._home:
            self._places += [(self._home + b"/" + name, "cache") for name in _HOME_CACHES]
        self._places += [(name, "temporary") for name in self._temporary]
        self._places += [(name, "cache") for name in _CACHES]
        self._places += [(name, "system") for name in _SYSTEM]
        self._places.append((b"/dev", "device"))
        self._odd_names: dict[bytes, set[bytes]] = {}
        for place in (*(place for place, _ in self._places), self._cwd, *_SANDBOX_ROOTS):
            folder, _, name = place.rpartition(b"/")
            self._odd_names.setdefault(folder, set()).add(name)
        self._folders: dict[bytes, _Folder] = {}

    def __call__(self, path: bytes) -> FileClass:
        """The class of an absolute path."""
        folder, _, name = path.rpartition(b"/")
        try:
            plain, odd, prefixes = self._folders[folder]
        except KeyError:
            plain, odd, prefixes = self._remember(folder)
        if name in odd or name.startswith(prefixes):
            return self._classify(path)
        return plain

    def _remember(self, folder: bytes) -> "_Folder":
        """The class of what is in `folder`, and which names in it need a closer look."""
        odd = _ODD_NAMES | self._odd_names.get(folder, set())
        if not VERSION_CONTROL.isdisjoint(folder.split(b"/")):
            odd |= _GIT_WORK
        prefixes: tuple[bytes, ...] = ()
        if folder in self._temporary:
            prefixes += _TEMPORARY_AGENT_PREFIXES
        if folder == self._home:
            prefixes += _HOME_AGENT_PREFIXES
        if len(self._folders) >= _CACHED_FOLDERS:
            self._folders.clear()
        found = self._folders[folder] = (self._classify(folder + b"/\0"), odd, prefixes)  # no name has a NUL
        return found

    def _classify(self, path: bytes) -> FileClass:
        if path.startswith(_SANDBOX_ROOTS_BELOW) or path in _SANDBOX_ROOTS:
            return "system"  # before what names inside it say: an empty .git/config is made there to mount on
        own = _below(path, self._cwd)
        nested = _by_components(path[len(self._cwd) :] if own else path)
        if nested is not None:
            return nested
        for place in () if own else self._temporary:
            if _below(path, place) and path[len(place) + 1 :].startswith(_TEMPORARY_AGENT_PREFIXES):
                return "agent-state"
        for place, klass in self._places:
            # A command started inside such a place works there: /tmp/checkout is not temporary for it.
            if _below(path, place) and not (own and _below(self._cwd, place)):
                return klass
        return self._by_name(path, own)

    def _by_name(self, path: bytes, own: bool) -> FileClass:
        if self._home and path.startswith(self._home + b"/") and not (own and self._cwd != self._home):
            rest = path[len(self._home) + 1 :]
            if rest.startswith(_HOME_AGENT_PREFIXES):
                return "agent-state"
        return "work"


def _by_components(path: bytes) -> FileClass | None:
    """What the names inside the path say, whatever it lies under."""
    parts = path.split(b"/")
    for index, part in enumerate(parts):
        if part in VERSION_CONTROL:
            return "work" if part == b".git" and _decides(parts[index + 1 :]) else "version-control"
        if part in CACHE_FOLDERS:
            return "cache"
    return None


def _decides(inside: list[bytes]) -> bool:
    """Whether a path inside `.git` is a hook or a configuration (of the repository, a submodule or a worktree)."""
    if inside and inside[0] in (b"modules", b"worktrees"):
        return any(part in _GIT_WORK for part in inside[2:])
    return bool(inside) and inside[0] in _GIT_WORK


def _below(path: bytes, folder: bytes) -> bool:
    return bool(folder) and path.startswith(folder) and path[len(folder) : len(folder) + 1] in (b"", b"/")


def _tidy(folder: bytes) -> bytes:
    return folder.rstrip(b"/")
