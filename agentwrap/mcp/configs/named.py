"""Servers that a command line names by itself: an agent's `--mcp-config` and `-c mcp_servers...`, our own `mcp`. Pure.

Sources: the help texts of Claude Code (`--mcp-config <configs...>`) and Codex (`-c key=value`, the value as TOML).
"""

from collections.abc import Callable, Iterable

import msgspec

from agentwrap.mcp.configs.formats import Found, Source, of_tables, read
from agentwrap.mcp.configs.texts import UnreadableError, to_bytes, toml
from agentwrap.mcp.declared import Declared

_MAX_WORDS = 512
_MCP_CONFIG = b"--mcp-config"
_OVERRIDE = b"mcp_servers."
VALUED = frozenset(
    {
        *("-o", "--output", "-e", "--env", "-C", "--directory", "--timeout", "--policy", "--allow", "--deny", "--ro"),
        *("--rw", "--config", "--network", "--tier", "-p", "--publish", "--ask-timeout", "--intercept", "--require"),
        *("--follow", "--keep-fd", "--max-content", "--max-hash", "--redact-name", "--redact-pattern", "--redact-key"),
        *("--otlp", "--name", "--mcp-arguments"),
    }
)
"""Options of `agentwrap mcp` that take a value (a test compares)."""


class Reference(msgspec.Struct, frozen=True):
    """A configuration that a command line names: a file (as written there), or the text itself."""

    file: bytes = b""
    text: bytes = b""


def references(argv: tuple[bytes, ...]) -> tuple[Reference, ...]:
    """What `--mcp-config` names: any number of files and JSON texts, up to the next option."""
    words = argv[:_MAX_WORDS]
    found: list[Reference] = []
    open_list = False
    for word in words[1:]:
        if word == _MCP_CONFIG:
            open_list = True
        elif word.startswith(_MCP_CONFIG + b"="):
            found.append(_reference(word.partition(b"=")[2]))
            open_list = True
        elif word.startswith(b"-"):
            open_list = False
        elif open_list:
            found.append(_reference(word))
    return tuple(found)


def _reference(word: bytes) -> Reference:
    return Reference(text=word) if word.lstrip().startswith(b"{") else Reference(file=word)


def names_servers(argv: tuple[bytes, ...]) -> bool:
    """Whether there is anything to read in a command line; quick, for it is asked of every program."""
    text = b"\0".join(argv[1:_MAX_WORDS])
    return _MCP_CONFIG in text or _OVERRIDE in text


def overrides(argv: tuple[bytes, ...], known: Iterable[Declared]) -> Found:
    """The servers of `-c mcp_servers.NAME.KEY=VALUE`, each on top of what the configuration says of that name."""
    tables: dict[str, dict[str, object]] = {}
    problems: list[str] = []
    for key, value in _settings(argv):
        name, _, field = key.partition(".")
        if field:
            _put(tables.setdefault(name, {}), field, value)
        elif isinstance(value, dict):
            tables[name] = value
        else:
            problems.append(f"{name}: no table")
    if not tables:
        return Found((), tuple(problems))
    before = {one.name: one for one in known if one.client == "codex"}
    source = Source("codex", b"-c mcp_servers", "command")
    servers: list[Declared] = []
    whole = {name: {**_as_table(before.get(to_bytes(name))), **table} for name, table in tables.items()}
    for entry in of_tables(whole, source):
        if isinstance(entry, str):
            problems.append(entry)
        else:
            servers.append(entry)
    return Found(tuple(servers), tuple(problems))


def _settings(argv: tuple[bytes, ...]) -> Iterable[tuple[str, object]]:
    """What follows `mcp_servers.`, and its value: TOML, or else the text as it is."""
    words = argv[:_MAX_WORDS]
    for before, word in zip((b"", *words), words, strict=False):
        given = word
        for prefix in (b"--config=", b"-c"):
            if word.startswith(prefix + _OVERRIDE):
                given = word.removeprefix(prefix)
                break
        else:
            if before not in (b"-c", b"--config") or not word.startswith(_OVERRIDE):
                continue
        key, equals, raw = given.removeprefix(_OVERRIDE).partition(b"=")
        if equals:
            yield key.strip().decode("utf-8", "replace"), _toml_value(raw)


def _toml_value(raw: bytes) -> object:
    try:
        return toml(b"x = " + raw.strip() + b"\n").get("x")
    except UnreadableError:
        return raw.strip().strip(b"\"'").decode("utf-8", "replace")


def _put(table: dict[str, object], field: str, value: object) -> None:
    """A value under a name with points: `env.KEY`."""
    *outer, last = field.split(".")
    for name in outer:
        inner = table.get(name)
        if not isinstance(inner, dict):
            inner = table[name] = {}
        table = inner
    table[last] = value


def _as_table(declared: Declared | None) -> dict[str, object]:
    if declared is None:
        return {}
    texts = [one.decode("utf-8", "replace") for one in (declared.command, declared.url, declared.cwd)]
    words = [one.decode("utf-8", "replace") for one in declared.arguments]
    table: dict[str, object] = {"args": words}
    return table | {key: text for key, text in zip(("command", "url", "cwd"), texts, strict=True) if text}


def observed(
    argv: tuple[bytes, ...], known: Iterable[Declared], fetch: Callable[[bytes], bytes | None]
) -> Found:
    """All servers that a command line names. `fetch` gives a file's bytes, by its name there; None: it cannot be read.

    None of it raises.
    """
    servers: list[Declared] = []
    problems: list[str] = []
    for reference in references(argv):
        data = fetch(reference.file) if reference.file else reference.text
        if data is None:
            continue  # the agent cannot read it either
        config = reference.file or _MCP_CONFIG
        found = read("servers", data, Source("claude-code", config, "command"))
        servers += found.servers
        problems += [f"{config.decode('utf-8', 'replace')}: {one}" for one in found.problems]
    overridden = overrides(argv, known)
    return Found((*servers, *overridden.servers), (*problems, *overridden.problems))


def by_hand(argv: tuple[bytes, ...]) -> bytes | None:
    """The server's name, if this is our own `mcp` command (with its interpreter before it, as the kernel has it)."""
    early = argv[:8]
    if b"mcp" not in early:
        return None
    at = early.index(b"mcp")
    if at == 0 or early[at - 1].rpartition(b"/")[2] != b"agentwrap":
        return None
    first = early[0].rpartition(b"/")[2]
    if at > 1 and not first.startswith((b"python", b"pypy", b"env", b"sh", b"bash", b"dash")):
        return None
    return _name_of(argv[at + 1 :])


def _name_of(words: tuple[bytes, ...]) -> bytes | None:
    """`--name N`, or the last part of the command's name; None where there is no command."""
    name = b""
    at = 0
    while at < len(words) and words[at].startswith(b"-") and words[at] != b"--":
        option, equals, value = words[at].partition(b"=")
        taken = option.decode("utf-8", "replace") in VALUED and not equals
        if option == b"--name":
            name = value if equals else b"".join(words[at + 1 : at + 2])
        at += 2 if taken else 1
    if at < len(words) and words[at] == b"--":
        at += 1
    if at >= len(words):
        return None
    return name or words[at].rpartition(b"/")[2]
