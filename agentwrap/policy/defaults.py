"""What is refused without being asked, in the modes `ask` and `enforce`: files that decide what runs later, ways out.

Each entry is told like a lint rule: a name, what it protects, why. A policy lifts one by naming the very path, without
wildcards, in `files.write.allow` (or the socket in `network.unix`); ours (recordings, keys, the policy) are not lifted.
"""

import re
from functools import lru_cache

import msgspec

from agentwrap.policy.paths import PathPattern, Places, parse_pattern


class Protected(msgspec.Struct, frozen=True):
    """Paths that belong together. `but` names endings that are harmless."""

    name: str
    paths: tuple[str, ...]
    why: str
    but: tuple[str, ...] = ()


WRITES = (
    Protected(
        "git-hooks",
        ("**/.git/hooks/**", "**/.git/config", "**/.git/config.worktree", "**/.git/modules/**/hooks/**",
         "**/.git/modules/**/config", "**/.git/worktrees/*/config.worktree",
         "**/.git/commondir", "**/.git/modules/**/commondir", "**/.git/worktrees/*/commondir",
         "**/.husky/**", "**/.githooks/**", "~/.gitconfig", "~/.config/git/**", "/etc/gitconfig"),
        "git runs hooks, and commands its configuration names, when somebody commits, pulls or only looks",
        but=(".sample",),
    ),
    Protected(
        "shell-start",
        ("~/.bashrc", "~/.bash_profile", "~/.bash_login", "~/.bash_logout", "~/.bash_aliases", "~/.profile",
         "~/.zshrc", "~/.zshenv", "~/.zprofile", "~/.zlogin", "~/.zlogout", "~/.config/fish/**", "~/.xprofile",
         "/etc/profile", "/etc/profile.d/**", "/etc/bash.bashrc", "/etc/zsh/**", "**/.envrc"),
        "a shell runs it the next time somebody opens one",
    ),
    Protected(
        "login",
        ("~/.ssh/**", "~/.config/systemd/**", "~/.config/autostart/**", "~/.pam_environment", "/etc/cron*/**",
         "/etc/crontab", "/var/spool/cron/**", "/etc/systemd/**", "/etc/ld.so.preload", "/etc/sudoers*/**"),
        "it lets somebody in, or starts something, after the run",
    ),
    Protected(
        "agent-settings",
        ("**/.mcp.json", "**/mcp.json", "**/mcp_config.json", "~/.claude.json", "**/.claude/settings*.json",
         "**/.claude/hooks/**", "**/.claude/commands/**", "**/.claude/agents/**", "**/.claude/skills/**",
         "**/.codex/config.toml", "**/.codex/hooks*", "**/.gemini/settings.json", "**/.qwen/settings.json",
         "**/opencode.json", "**/opencode.jsonc", "~/.config/opencode/**", "**/.opencode/plugin*/**",
         "**/.cursor/**", "**/.vscode/**", "**/.idea/**"),
        "an agent or an editor reads it at its next start: permissions, hooks, the servers it launches",
    ),
    Protected(
        "ci",
        ("**/.github/workflows/**", "**/.github/actions/**", "**/.gitlab-ci.yml", "**/.circleci/**",
         "**/.buildkite/**", "**/.travis.yml", "**/azure-pipelines.yml", "**/bitbucket-pipelines.yml",
         "**/Jenkinsfile"),
        "a CI system runs it with its own secrets",
    ),
)  # fmt: skip

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts/*")

# Sockets behind which another program does what it is told, outside of the run.
WAYS_OUT = Protected(
    "sockets",
    ("/run/docker.sock", "/run/docker/**", "/run/containerd/**", "/run/podman/**", "/run/crio/**",
     "/run/user/*/docker.sock", "/run/user/*/podman/**", "/run/dbus/**", "/run/user/*/bus", "/run/user/*/dbus-1/**",
     "/run/systemd/**", "/run/user/*/systemd/**", "/run/user/*/keyring/**", "/run/user/*/gnupg/**", "~/.gnupg/**",
     "/tmp/ssh-*/**", "~/.ssh/**", "/tmp/.X11-unix/**", "/run/user/*/wayland-*", "/run/user/*/pipewire-*",
     "/run/user/*/pulse/**", "/tmp/tmux-*/**", "/run/nscd/**", "/run/avahi-daemon/**", "/run/snapd*",
     "/run/libvirt/**", "/run/lxd/**", "/var/lib/lxd/**", "/var/snap/lxd/**"),
    "behind it another program acts, outside of what is followed",
)  # fmt: skip
NAME_SERVICE_CACHE = ("/run/nscd/socket", "/var/run/nscd/socket")

_WILD = re.compile(r"[*?\[]")
FAMILIES = ("unix", "inet", "inet6", "netlink")


class Guarded(msgspec.Struct, frozen=True):
    """A pattern of a `Protected`, with its places filled in; `order`: where it stands in the tables."""

    of: Protected
    pattern: PathPattern
    order: int

    @property
    def in_repository(self) -> bool:
        """Whether it is about what lies in a `.git`."""
        return self.pattern.text.startswith("**/.git/")


@lru_cache(maxsize=16)
def _patterns(places: Places, *groups: Protected) -> tuple[Guarded, ...]:
    pairs = ((group, path) for group in groups for path in group.paths)
    return tuple(Guarded(group, parse_pattern(path, places), order) for order, (group, path) in enumerate(pairs))


@lru_cache(maxsize=16)
def _by_name(places: Places) -> dict[str, list[Guarded]]:
    """The patterns for writes by a name that every path they fit has: few paths have any of them."""
    found: dict[str, list[Guarded]] = {}
    for guarded in _patterns(places, *WRITES):
        names = [name for name in guarded.pattern.text.split("/") if name not in ("", "~") and not _WILD.search(name)]
        found.setdefault(names[-1], []).append(guarded)
    return found


def protected_write(path: str, places: Places, *, tree: bool = False, own_repository: bool = False) -> Protected | None:
    """The entry that protects a path in normal form, if any; with `tree` also what could lie below it.

    In a repository that the run made itself what protects others does not apply: it starts nothing of anybody's.
    """
    by_name = _by_name(places)
    names = by_name.keys() & path.split("/")
    if tree and (below := _protected_below(path, places, own_repository)) is not None:
        return below
    for guarded in sorted((one for name in names for one in by_name[name]), key=lambda one: one.order):
        if own_repository and guarded.in_repository:
            continue
        if guarded.pattern.fits(path) and not path.endswith(guarded.of.but or ("\0",)):
            return guarded.of
    return None


def _protected_below(path: str, places: Places, own_repository: bool) -> Protected | None:
    every = (one for one in _patterns(places, *WRITES) if not (own_repository and one.in_repository))
    return next((guarded.of for guarded in every if guarded.pattern.may_lie_below(path)), None)


def protected_socket(path: str, places: Places) -> bool:
    """Whether a unix socket, by its path in normal form, is a known way out."""
    if path.startswith("/var/run/"):  # a link to /run everywhere (FHS 3.0, 5.13)
        path = path.removeprefix("/var")
    return path in places.sockets or any(guarded.pattern.fits(path) for guarded in _patterns(places, WAYS_OUT))


@lru_cache(maxsize=16)
def _devices(places: Places) -> tuple[PathPattern, ...]:
    return tuple(parse_pattern(path, places) for path in DEVICES)


def is_device(path: str, places: Places) -> bool:
    """Whether it is a device that stores nothing and leads nowhere."""
    return path.startswith("/dev/") and any(pattern.fits(path) for pattern in _devices(places))


def is_own(path: str, places: Places, *, tree: bool = False) -> bool:
    """Whether a path is a file of ours, or lies in a folder of ours; with `tree` also what holds one."""
    return is_under(path, places.own) or (tree and any(is_under(one, (path,)) for one in places.own))


def is_under(path: str, folders: tuple[str, ...]) -> bool:
    """Whether a path is one of these or lies below one."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)
