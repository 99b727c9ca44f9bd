"""Where MCP clients keep their configurations: paths for an environment and for the folders that they run in. Pure.

Sources: the documentation of each client. More is listed than one client reads at a time (every profile, every
channel): a server that is declared and never started costs nothing.
"""

import posixpath
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from agentwrap.mcp.configs.formats import Format, Source
from agentwrap.mcp.declared import Client

Environment = Mapping[bytes, bytes]

VARIABLES = frozenset((
    b"HOME", b"CLAUDE_CONFIG_DIR", b"CODEX_HOME", b"COPILOT_HOME", b"XDG_CONFIG_HOME", b"OPENCODE_CONFIG",
    b"OPENCODE_CONFIG_DIR", b"OPENCODE_CONFIG_CONTENT", b"GEMINI_CLI_SYSTEM_SETTINGS_PATH",
    b"GEMINI_CLI_SYSTEM_DEFAULTS_PATH",
))  # fmt: skip
"""What of an environment says where configurations are, or is one."""

_VS_CODES = (b"Code", b"Code - Insiders", b"VSCodium")
_PROJECT: tuple[tuple[bytes, Format, Client], ...] = (
    (b".mcp.json", "servers", "mcp.json"),
    (b".cursor/mcp.json", "servers", "cursor"),
    (b".vscode/mcp.json", "vscode", "vscode"),
    (b".vscode/settings.json", "vscode", "vscode"),
    (b".codex/config.toml", "codex", "codex"),
    (b".gemini/settings.json", "gemini", "gemini"),
    (b"opencode.json", "opencode", "opencode"),
    (b"opencode.jsonc", "opencode", "opencode"),
    (b".opencode/opencode.json", "opencode", "opencode"),
    (b".opencode/opencode.jsonc", "opencode", "opencode"),
)


class Place(msgspec.Struct, frozen=True):
    """One file that may be there. `source.config` is its path."""

    form: Format
    source: Source


class Listing(msgspec.Struct, frozen=True):
    """A folder in which each entry, or a file in each of its folders (`below`), is a configuration.

    `suffix`: how an entry's name ends, for one that is a file itself.
    """

    folder: bytes
    form: Format
    client: Client
    suffix: bytes = b""
    below: bytes = b""

    def places(self, names: Iterable[bytes]) -> Iterator[Place]:
        """The files that its entries, by these names, may be or hold."""
        for name in names:
            path = posixpath.join(self.folder, name)
            if self.below:
                yield Place(self.form, Source(self.client, posixpath.join(path, self.below)))
            elif name.endswith(self.suffix):
                yield Place(self.form, Source(self.client, path))


def _home(environment: Environment, name: bytes, *otherwise: bytes) -> bytes:
    """A variable that names a folder, or that folder under HOME; empty if there is neither."""
    given = environment.get(name, b"")
    home = environment.get(b"HOME", b"")
    return given or (posixpath.join(home, *otherwise) if home else b"")


def _user(environment: Environment) -> Iterator[tuple[Format, Client, bytes]]:
    home = environment.get(b"HOME", b"")
    claude = environment.get(b"CLAUDE_CONFIG_DIR", b"")
    configs = _home(environment, b"XDG_CONFIG_HOME", b".config")
    for folder in filter(None, (claude, home)):
        yield "claude-code", "claude-code", folder + b"/.claude.json"
    if claude or home:
        yield "claude-code", "claude-code", (claude or home + b"/.claude") + b"/.config.json"
    if codex := _home(environment, b"CODEX_HOME", b".codex"):
        yield "codex", "codex", codex + b"/config.toml"
    if copilot := _home(environment, b"COPILOT_HOME", b".copilot"):
        yield "servers", "copilot", copilot + b"/mcp-config.json"
    if home:
        yield "servers", "cursor", home + b"/.cursor/mcp.json"
        yield "gemini", "gemini", home + b"/.gemini/settings.json"
        yield "servers", "windsurf", home + b"/.codeium/windsurf/mcp_config.json"
        yield "vscode", "vscode", home + b"/.vscode-server/data/User/mcp.json"
        yield "opencode", "opencode", home + b"/.opencode/opencode.json"
        yield "opencode", "opencode", home + b"/.opencode/opencode.jsonc"
    if configs:
        yield "servers", "claude-desktop", configs + b"/Claude/claude_desktop_config.json"
        for code in _VS_CODES:
            yield "vscode", "vscode", b"%b/%b/User/mcp.json" % (configs, code)
            yield "vscode", "vscode", b"%b/%b/User/settings.json" % (configs, code)
        for name in (b"opencode.json", b"opencode.jsonc", b"config.json"):
            yield "opencode", "opencode", b"%b/opencode/%b" % (configs, name)
    if named := environment.get(b"OPENCODE_CONFIG"):
        yield "opencode", "opencode", named
    if own := environment.get(b"OPENCODE_CONFIG_DIR"):
        yield "opencode", "opencode", own + b"/opencode.json"
        yield "opencode", "opencode", own + b"/opencode.jsonc"


def _system(environment: Environment) -> Iterator[tuple[Format, Client, bytes]]:
    yield "servers", "claude-code", b"/etc/claude-code/managed-mcp.json"
    yield "codex", "codex", b"/etc/codex/config.toml"
    yield "codex", "codex", b"/etc/codex/managed_config.toml"
    for name, file in ((b"SETTINGS", b"settings.json"), (b"DEFAULTS", b"system-defaults.json")):
        stated = environment.get(b"GEMINI_CLI_SYSTEM_%b_PATH" % name)
        yield "gemini", "gemini", stated or b"/etc/gemini-cli/" + file
    yield "opencode", "opencode", b"/etc/opencode/opencode.json"
    yield "opencode", "opencode", b"/etc/opencode/opencode.jsonc"


def of_user_and_system(environment: Environment) -> tuple[Place, ...]:
    """Files that hold in every folder."""
    user = [Place(form, Source(client, path)) for form, client, path in _user(environment)]
    system = [Place(form, Source(client, path, "system")) for form, client, path in _system(environment)]
    return (*user, *system)


def listings(environment: Environment) -> tuple[Listing, ...]:
    """Folders of configurations: profiles and extensions."""
    found = []
    if codex := _home(environment, b"CODEX_HOME", b".codex"):
        found.append(Listing(codex, "codex", "codex", suffix=b".config.toml"))
    if home := environment.get(b"HOME"):
        extension = b"gemini-extension.json"
        found.append(Listing(home + b"/.gemini/extensions", "gemini", "gemini", below=extension))
    if configs := _home(environment, b"XDG_CONFIG_HOME", b".config"):
        for code in _VS_CODES:
            profiles = b"%b/%b/User/profiles" % (configs, code)
            found.append(Listing(profiles, "vscode", "vscode", below=b"mcp.json"))
    return tuple(found)


def plugins_file(environment: Environment) -> bytes:
    """Where Claude Code says which plugins there are, and in which folders."""
    folder = _home(environment, b"CLAUDE_CONFIG_DIR", b".claude")
    return folder + b"/plugins/installed_plugins.json" if folder else b""


def of_plugin(folder: bytes) -> tuple[Place, ...]:
    """The files of one plugin of Claude Code."""
    names = (b".mcp.json", b".claude-plugin/plugin.json")
    return tuple(Place("plugin", Source("claude-code", posixpath.join(folder, name))) for name in names)


def of_project(folder: bytes) -> tuple[Place, ...]:
    """Files of the project in `folder`."""
    return tuple(
        Place(form, Source(client, posixpath.join(folder, name), "project", folder)) for name, form, client in _PROJECT
    )


def project_folders(folder: bytes, has_repository: Iterable[bytes], home: bytes) -> tuple[bytes, ...]:
    """The folder and those above it in which its project files may be.

    Up to the repository's (of `has_repository`, those with a `.git`); without one, to below HOME; else itself alone.
    """
    above = parents(folder)
    repositories = set(has_repository)
    for number, one in enumerate(above):
        if one in repositories:
            return above[: number + 1]
    if home and folder.startswith(home.rstrip(b"/") + b"/"):
        return tuple(one for one in above if len(one) > len(home.rstrip(b"/")))
    return (folder,)


def parents(folder: bytes, *, most: int = 32) -> tuple[bytes, ...]:
    """An absolute folder and those above it, nearest first; none for a name that is not absolute."""
    if not folder.startswith(b"/"):
        return ()
    found = [folder]
    while len(found) < most and found[-1] != b"/":
        found.append(posixpath.dirname(found[-1]))
    return tuple(found)
