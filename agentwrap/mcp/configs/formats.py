"""The formats in which MCP clients keep their servers: bytes of a file in, servers and problems out. Pure and total.

Knows where in a document each client looks, and by which names it calls command, arguments and URL. Refuses to know
where the files are. A server that makes no sense is a problem in words, and those beside it are read all the same.
Sources: the clients' documentation of their configuration files.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Literal

import msgspec

from agentwrap.mcp.configs.texts import UnreadableError, members, to_bytes, toml, value
from agentwrap.mcp.declared import Client, Declared, Scope

Format = Literal["servers", "plugin", "claude-code", "vscode", "gemini", "opencode", "codex"]
MAX_SERVERS, MAX_PROBLEMS = 1000, 20
_NUMBER_BITS = 4096  # Python spells no number of more than 4300 digits, and no client makes a word of one
_TRANSPORTS: Mapping[str, Literal["stdio", "http", "sse"]] = {
    "http": "http", "streamable-http": "http", "streamable_http": "http", "streamableHttp": "http", "remote": "http",
    "sse": "sse",
}  # fmt: skip


class Source(msgspec.Struct, frozen=True):
    """Whose file it is. `config`: its name, `folder`: the project that it is in, if it is in one."""

    client: Client
    config: bytes = b""
    scope: Scope = "user"
    folder: bytes = b""


class Found(msgspec.Struct, frozen=True):
    """What a file declares, and what of it could not be read."""

    servers: tuple[Declared, ...] = ()
    problems: tuple[str, ...] = ()


def read(form: Format, data: bytes, source: Source) -> Found:
    """The servers in the bytes of a file. Never raises for what is in them."""
    servers: list[Declared] = []
    problems: list[str] = []
    try:
        for found in _READERS[form](data, source):
            if isinstance(found, str):
                problems.append(found)
                if len(problems) >= MAX_PROBLEMS:
                    break
            elif len(servers) < MAX_SERVERS:
                servers.append(found)
            else:
                problems.append(f"more than {MAX_SERVERS} servers")
                break
    except UnreadableError as error:
        problems.append(str(error))
    return Found(tuple(servers), tuple(problems))


_Entries = Iterator[Declared | str]


def _servers(data: bytes, source: Source) -> _Entries:
    """`mcpServers`, as most clients have it."""
    yield from _of_json(members(data).get("mcpServers", b""), source)


def _plugin(data: bytes, source: Source) -> _Entries:
    """A plugin's `.mcp.json` may have its servers at the top; its `plugin.json` may name files instead of them."""
    top = members(data)
    inner = top.get("mcpServers", b"")
    if inner:
        yield from _of_json(inner if inner.startswith(b"{") else b"", source)
        return
    for name, raw in top.items():
        if _is_server(raw):
            yield _server(name, _object(raw), source)


def plugin_folders(data: bytes) -> tuple[bytes, ...]:
    """The folders that an `installed_plugins.json` of Claude Code names; none of what cannot be read."""
    found: dict[bytes, None] = {}
    try:
        for raw in members(members(data).get("plugins", b"")).values():
            entry = _object(raw)
            for one in entry if isinstance(entry, list) else [entry]:
                folder = one.get("installPath") if isinstance(one, Mapping) else None
                if isinstance(folder, str) and len(found) < MAX_SERVERS:
                    found[to_bytes(folder)] = None
    except UnreadableError:
        pass  # then Claude Code finds none either
    return tuple(found)


class _Project(msgspec.Struct):
    servers: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict, name="mcpServers")


class _ClaudeCode(_Project):
    projects: dict[str, _Project] = msgspec.field(default_factory=dict)


@cache
def _claude_code_decoder() -> "msgspec.json.Decoder[_ClaudeCode]":
    return msgspec.json.Decoder(_ClaudeCode)


def _claude_code(data: bytes, source: Source) -> _Entries:
    """`~/.claude.json`: servers of the user's, and of each project, by its folder.

    The client writes its history there, too, so that it is large and changes often: read in one go where it is well
    formed, which takes a fifth of the time.
    """
    try:
        whole = _claude_code_decoder().decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        yield from _claude_code_in_parts(data, source)
        return
    parts = [(source, whole.servers)]
    for folder, project in whole.projects.items():
        parts.append((_of_project(source, folder), project.servers))
    for of, servers in parts:
        for name, raw in servers.items():
            yield _server(name, _object(bytes(raw)), of)


def _of_project(source: Source, folder: str) -> Source:
    return msgspec.structs.replace(source, scope="project", folder=to_bytes(folder))


def _claude_code_in_parts(data: bytes, source: Source) -> _Entries:
    top = members(data)
    yield from _of_json(top.get("mcpServers", b""), source)
    for folder, project in members(top.get("projects", b"")).items():
        try:
            inner = members(project).get("mcpServers", b"")
            if inner:
                yield from _of_json(inner, _of_project(source, folder))
        except UnreadableError as error:
            yield f"projects.{folder}: {error}"


def _vscode(data: bytes, source: Source) -> _Entries:
    """`mcp.json` has `servers`; `settings.json` has the same in `mcp`."""
    top = members(data)
    yield from _of_json(top.get("servers", b""), source)
    yield from _of_json(top.get("mcpServers", b""), source)
    if "mcp" in top:
        yield from _of_json(members(top["mcp"]).get("servers", b""), source)


def _gemini(data: bytes, source: Source) -> _Entries:
    """`settings.json` and `gemini-extension.json`: a `url` alone is the older transport, `httpUrl` the newer one."""
    for name, raw in members(members(data).get("mcpServers", b"")).items():
        entry = _object(raw)
        if isinstance(entry, dict) and "url" in entry and not entry.keys() & {"httpUrl", "type", "command"}:
            entry["type"] = "sse"
        yield _server(name, entry, source)


def _opencode(data: bytes, source: Source) -> _Entries:
    """`opencode.json`: servers in `mcp`, or in its `servers`; `command` is the whole command line."""
    inner = members(members(data).get("mcp", b""))
    if "servers" in inner and not _is_server(inner["servers"]):
        yield from _of_json(inner["servers"], source)
    for name, raw in inner.items():
        if _is_server(raw):  # an entry may only switch on or off what is declared elsewhere
            yield _server(name, _object(raw), source)


def _codex(data: bytes, source: Source) -> _Entries:
    """`config.toml`: tables `[mcp_servers.NAME]`."""
    yield from of_tables(toml(data).get("mcp_servers", {}), source)


_READERS: Mapping[Format, Callable[[bytes, Source], _Entries]] = {
    "servers": _servers,
    "plugin": _plugin,
    "claude-code": _claude_code,
    "vscode": _vscode,
    "gemini": _gemini,
    "opencode": _opencode,
    "codex": _codex,
}


def of_tables(tables: object, source: Source) -> _Entries:
    """Servers by their names, as values."""
    if not isinstance(tables, Mapping):
        yield "the servers are no table"
        return
    for name, entry in tables.items():
        yield _server(str(name), entry, source)


def _of_json(data: bytes, source: Source) -> _Entries:
    for name, raw in members(data).items():
        yield _server(name, _object(raw), source)


def _object(raw: bytes) -> object:
    try:
        return value(raw)
    except UnreadableError as error:
        return str(error)


def _is_server(raw: bytes) -> bool:
    entry = _object(raw)
    return isinstance(entry, Mapping) and any(key in entry for key in ("command", "url", "httpUrl", "serverUrl"))


def _server(name: str, entry: object, source: Source) -> Declared | str:
    """One server, or what is wrong with it."""
    if not isinstance(entry, Mapping):
        return f"{name}: {entry}" if isinstance(entry, str) else f"{name}: no object"
    line, url = _command_line(entry), _url(entry)
    kind = entry.get("type", entry.get("transport"))
    transport = _TRANSPORTS.get(kind, "stdio") if isinstance(kind, str) else "stdio"
    if not line and not url:
        return f"{name}: neither a command nor a URL"
    if transport == "stdio" and not line:
        transport = "http"
    if transport != "stdio" and not url:
        transport = "stdio"
    stdio = transport == "stdio"
    cwd = entry.get("cwd")
    return Declared(
        name=to_bytes(name),
        client=source.client,
        config=source.config,
        scope=source.scope,
        command=line[0] if stdio else b"",
        arguments=tuple(line[1:]) if stdio else (),
        environment=_pairs(entry.get("env", entry.get("environment"))),
        cwd=to_bytes(cwd) if isinstance(cwd, str) else b"",
        url=b"" if stdio else to_bytes(url),
        transport=transport,
        folder=source.folder,
    )


def _url(entry: Mapping[str, object]) -> str:
    for key in ("httpUrl", "url", "serverUrl"):
        given = entry.get(key)
        if isinstance(given, str) and given:
            return given
    return ""


def _command_line(entry: Mapping[str, object]) -> list[bytes]:
    """`command` (a text, or all words) and `args`; numbers and truth values are what a client makes a word of."""
    command, arguments = entry.get("command"), entry.get("args")
    words = list(command) if isinstance(command, list) else [command] if isinstance(command, str) and command else []
    if words and isinstance(arguments, list):
        words += arguments
    return [_word(one) for one in words if isinstance(one, str | int | float)]


def _word(one: str | float) -> bytes:
    if isinstance(one, bool):
        return b"true" if one else b"false"
    if isinstance(one, int):
        return b"%d" % one if one.bit_length() <= _NUMBER_BITS else b"%#x" % one
    return to_bytes(one) if isinstance(one, str) else b"%a" % one


def _pairs(environment: object) -> tuple[tuple[bytes, bytes], ...]:
    if not isinstance(environment, Mapping):
        return ()
    return tuple(
        (to_bytes(str(name)), _word(one)) for name, one in environment.items() if isinstance(one, str | int | float)
    )
