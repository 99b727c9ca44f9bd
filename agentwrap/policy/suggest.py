"""The narrowest policy that would have allowed what was asked, as text: the same acts give the same text.

Every entry is there because something needed it, and says what. Names that change from run to run (temporary files,
caches, an agent's own state, the inside of version control) are allowed as the folder they lie in; work is allowed by
its own name, or by its folder where many files of one folder were written.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from agentwrap.errors import AgentwrapError
from agentwrap.policy import defaults
from agentwrap.policy.hosts import Host, HostError, parse_host, special
from agentwrap.policy.mcp_rules import NOTIFICATIONS, PLUMBING, TOOL_CALL
from agentwrap.policy.paths import PathError, Places, as_pattern, compiled, normal, parse_pattern, portable
from agentwrap.policy.questions import Call, Connect, Exec, Family, Lookup, Question, Unix, Write

MANY_IN_A_FOLDER = 20
MAX_ENTRIES = 2_000
_MAX_NOTES = 200
_CHANGING = ("temporary", "cache", "agent-state", "version-control")
_CACHE = re.compile(
    r".*?/(?:node_modules|__pycache__|\.[a-z]+_cache|\.hypothesis|\.tox|\.nox|\.venv|site-packages|\.eslintcache"
    r"|\.parcel-cache|\.turbo|\.gradle|\.git|\.hg|\.svn|\.jj)(?=/|\Z)"
)
_PROGRAMS = 3
_SURROGATE = re.compile("[\ud800-\udfff]")
_SANDBOX_ROOTS = ("/newroot", "/oldroot")  # where bubblewrap builds the root of a sandbox
# After `.tmp` any number or hexadecimal; elsewhere only what nobody types: eight digits and more.
_RANDOM_TAIL = re.compile(r"(?<=[^/])(?:(?<=\.tmp)(?:\.[0-9a-f]+)+|(?:\.[0-9]{8,}|\.(?=[a-f]*[0-9])[0-9a-f]{12,})+)\Z")


class Asked(msgspec.Struct, frozen=True):
    """One act of a recording: the question, the event it comes from, which program, which class of file."""

    question: Question
    seq: int = 0
    who: str = ""
    klass: str = "work"


class Entry(msgspec.Struct):
    """One line of the suggestion and who needed it."""

    text: str
    programs: dict[str, int] = {}

    def need(self, who: str) -> None:
        """Count one more act of a program."""
        self.programs[who] = self.programs.get(who, 0) + 1

    def comment(self) -> str:
        """The programs that needed it most, by count and then by name."""
        ranked = sorted(self.programs.items(), key=lambda item: (-item[1], item[0]))
        told = ", ".join(name or "?" for name, _ in ranked[:_PROGRAMS])
        return told + (f" and {len(ranked) - _PROGRAMS} more" if len(ranked) > _PROGRAMS else "")


def suggest(asked: Iterable[Asked], places: Places, *, name: str, source: str = "") -> str:
    """The policy as TOML text. `source` says what it was made from.

    Raises AgentwrapError `refused` where so many different things were done that nobody could read it.
    """
    lists: dict[str, dict[str, Entry]] = {key: {} for key in ("network", "unix", "write", "exec")}
    notes: dict[str, str] = {}
    once = {(act.question, act.who, act.klass): act for act in asked}.values()
    acts = sorted(once, key=lambda act: (str(act.question), act.who, act.klass))
    names = _names(acts)
    writes: list[tuple[str, Asked]] = []
    servers: dict[str, dict[str, dict[str, Entry]]] = {}
    for act in acts:
        question = act.question
        if isinstance(question, Call):
            _call(question, act, servers, notes)
        elif isinstance(question, Write):
            _collect_write(act, question, places, writes, notes)
        elif isinstance(question, Exec):
            _program(question, act, places, lists["exec"], notes)
        elif isinstance(question, Unix):
            _socket(question, act, places, lists["unix"])
        elif isinstance(question, Family):
            if question.family not in defaults.FAMILIES:
                notes.setdefault(f"no policy allows {question}", act.who)
        elif isinstance(question, Connect | Lookup):
            _host(question, act, names, lists["network"], notes)
    lists["write"] = _write_entries(writes, places)
    by_server = {f"mcp {server} {key}": entries for server, own in servers.items() for key, entries in own.items()}
    for key, entries in (lists | by_server).items():
        if len(entries) > MAX_ENTRIES:
            raise AgentwrapError(
                "refused",
                "too much was done for a policy that a person could read",
                evidence=f"{len(entries):,} entries for {key}, {MAX_ENTRIES:,} are the limit",
                hint="name blocks, suffixes or folders by hand; policies/ has some to begin with",
            )
    return _text(lists, notes, name, source) + "".join(f"{line}\n" for line in _mcp(servers))


def _need(entries: dict[str, Entry], text: str, who: str) -> None:
    entries.setdefault(text, Entry(text, {})).need(who)


# Hosts


def _names(acts: list[Asked]) -> dict[str, set[int]]:
    """Names that were looked up; ports are those that addresses without a name were connected to.

    A name that was connected to has its entry already.
    """
    connects = [act.question for act in acts if isinstance(act.question, Connect)]
    ports = {question.port for question in connects if question.nameless and _public(question)}
    reached = {_normal_name(question.host) for question in connects if not question.nameless}
    found: dict[str, set[int]] = {}
    for act in acts:
        if isinstance(act.question, Lookup):
            try:
                host = parse_host(act.question.name)
            except HostError:
                continue
            if host.name and special(host) != "loopback" and host.name not in reached:
                found[host.name] = ports
    return found


def _normal_name(text: str) -> str:
    try:
        return parse_host(text).name
    except HostError:
        return ""


def _public(question: Connect) -> bool:
    try:
        return question.transport == "tcp" and not special(parse_host(question.host))
    except HostError:
        return False


def _host(
    question: Connect | Lookup,
    act: Asked,
    names: Mapping[str, set[int]],
    entries: dict[str, Entry],
    notes: dict[str, str],
) -> None:
    text = question.name if isinstance(question, Lookup) else question.host
    try:
        host = parse_host(text)
    except HostError as error:
        notes.setdefault(f"no policy allows {question}: {error}", act.who)
        return
    kind = special(host)
    if isinstance(question, Lookup):
        if host.name in names:
            ports = names[host.name]
            # What was only looked up needs some port of it: the one that is asked for most.
            port = next(iter(ports)) if ports else 443
            _need(entries, str(host) if len(ports) > 1 else f"{host}:{port}", act.who)
        return
    if kind == "loopback" and question.inner:
        return
    if question.transport == "udp":
        notes.setdefault(f"no policy allows {question}: datagrams other than DNS", act.who)
    elif kind == "loopback":
        _need(entries, f"host.loopback:{question.port}", act.who)
        _where_it_leads(host, question, act, entries)
    elif question.nameless and names and not kind:
        notes.setdefault(f"{question}: the name behind it is not known; one of the names above, it is assumed", act.who)
    else:
        _need(entries, f"[{host}]:{question.port}" if ":" in str(host) else f"{host}:{question.port}", act.who)
        _where_it_leads(host, question, act, entries)


def _where_it_leads(host: Host, question: Connect, act: Asked, entries: dict[str, Entry]) -> None:
    """A name that leads to an address nobody reaches by accident needs that address in the list, too."""
    try:
        dialled = parse_host(question.address) if question.address else host
    except HostError:
        return
    kind = special(dialled)
    if kind and dialled != host:
        entry = f"[{dialled}]:{question.port}" if ":" in str(dialled) else f"{dialled}:{question.port}"
        _need(entries, f"host.loopback:{question.port}" if kind == "loopback" else entry, act.who)


def _socket(question: Unix, act: Asked, places: Places, entries: dict[str, Entry]) -> None:
    if question.inner:
        return
    if question.path.startswith("@"):
        _need(entries, question.path, act.who)
        return
    try:
        path = normal(question.path, places)
    except PathError:
        return
    if defaults.protected_socket(path, places):
        _need(entries, portable(path, places), act.who)


# Files


def _program(question: Exec, act: Asked, places: Places, entries: dict[str, Entry], notes: dict[str, str]) -> None:
    try:
        _need(entries, portable(normal(question.path, places), places), act.who)
    except PathError as error:
        notes.setdefault(f"no policy allows {question}: {error}", act.who)


def _collect_write(
    act: Asked, question: Write, places: Places, writes: list[tuple[str, Asked]], notes: dict[str, str]
) -> None:
    try:
        path = normal(question.path, places)
    except PathError as error:
        notes.setdefault(f"no policy allows {question}: {error}", act.who)
        return
    if defaults.is_own(path, places, tree=question.tree):
        notes.setdefault(f"no policy allows {question}: it is agentwrap's own", act.who)
    elif not defaults.is_device(path, places):
        writes.append((path, act))


def _write_entries(writes: list[tuple[str, Asked]], places: Places) -> dict[str, Entry]:
    """Folders for what changes, names for what is protected, names or folders for the rest; nothing said twice."""
    entries: dict[str, Entry] = {}
    folders: dict[str, Entry] = {}
    single: list[tuple[str, Asked]] = []
    named = {path for path, act in writes if _protected(path, act.question, places)}
    for path, act in writes:
        folder = "" if path in named else _changing_folder(path, act.klass, places)
        if path in named:
            _need(entries, portable(path, places), act.who)
        elif folder:
            _need(folders, folder, act.who)
        else:
            single.append((path, act))
    _crowds(single, folders, places)
    # A folder inside another one adds nothing.
    wide: dict[str, str] = {}
    for folder in sorted(folders, key=lambda text: (len(parse_pattern(text, places).expanded), text)):
        expanded = parse_pattern(folder, places).expanded
        outer = next((one for one, of in wide.items() if of.endswith("/**") and expanded.startswith(of[:-2])), folder)
        wide.setdefault(outer, expanded)
        for who, count in folders[folder].programs.items():
            programs = entries.setdefault(outer, Entry(outer, {})).programs
            programs[who] = programs.get(who, 0) + count
    patterns = {text: compiled(expanded) for text, expanded in wide.items()}
    _random_names(single, patterns, places)
    for path, act in single:
        inside = next((text for text, pattern in patterns.items() if pattern.match(path)), None)
        _need(entries, inside or portable(path, places), act.who)
    return entries


def _random_names(single: list[tuple[str, Asked]], patterns: dict[str, re.Pattern[str]], places: Places) -> None:
    """Patterns for names that end in a number of a process or in chance (`hello.py.tmp.4121.9f3a`), shortest first."""
    found = {path: _RANDOM_TAIL.sub("", path) for path, _ in single if _RANDOM_TAIL.search(path)}
    for path, stem in sorted(found.items(), key=lambda pair: (len(pair[1]), pair)):
        if not any(pattern.match(path) for pattern in patterns.values()):
            text = portable(stem, places) + ".*"
            patterns[text] = compiled(parse_pattern(text, places).expanded)


def _protected(path: str, question: Question, places: Places) -> bool:
    """Whether a change needs the very name in the list."""
    if not isinstance(question, Write) or question.folder:
        return False
    own = question.own_repository
    return defaults.protected_write(path, places, tree=question.tree, own_repository=own) is not None


def _crowds(single: list[tuple[str, Asked]], folders: dict[str, Entry], places: Places) -> None:
    """Folders with many written files of their own are allowed as `FOLDER/*`, and what is in them is dropped."""
    by_folder: dict[str, set[str]] = {}
    for path, _ in single:
        by_folder.setdefault(path.rpartition("/")[0], set()).add(path)
    crowded = {folder for folder, paths in by_folder.items() if folder and len(paths) > MANY_IN_A_FOLDER}
    if not crowded:
        return
    kept: list[tuple[str, Asked]] = []
    for path, act in single:
        folder = path.rpartition("/")[0]
        if folder in crowded:
            _need(folders, portable(folder + "/x", places)[:-1] + "*", act.who)
        else:
            kept.append((path, act))
    single[:] = kept


def _changing_folder(path: str, klass: str, places: Places) -> str:
    """`FOLDER/**` for a path of a class whose names differ from run to run; empty where it has no such folder."""
    for root in _SANDBOX_ROOTS:
        if path.startswith(root + "/"):
            return root + "/**"
    inside_tmp = path.startswith(places.tmp + "/") and not path.startswith((places.cwd + "/", places.home + "/"))
    if klass == "temporary" or inside_tmp:
        for base in (places.tmp, "/tmp", "/var/tmp", "/dev/shm"):
            if path.startswith(base + "/"):
                return "$TMP/**" if base == places.tmp else f"{base}/**"
        return ""
    if klass not in _CHANGING:
        return ""
    inside = _CACHE.match(path)
    if inside is not None:
        return portable(inside[0] + "/x", places)[:-1] + "**"
    return _home_folder(path, places)


def _home_folder(path: str, places: Places) -> str:
    """`~/.claude/**` for an agent's state, `~/.cache/pip/**` where the first name only sorts others."""
    if not path.startswith(places.home + "/"):
        return ""
    parts = path[len(places.home) + 1 :].split("/")
    depth = 2 if parts[0] in (".cache", ".config") else 3 if parts[:1] == [".local"] else 1
    if len(parts) <= depth:
        return ""
    return "~/" + as_pattern("/".join(parts[:depth])) + "/**"


# Requests over MCP


def _call(
    question: Call, act: Asked, servers: dict[str, dict[str, dict[str, Entry]]], notes: dict[str, str]
) -> None:
    named = question.tool if question.method == TOOL_CALL else question.method
    if not all(name.strip() and not _SURROGATE.search(name) for name in (question.server, named)):
        notes.setdefault(f"no rule names {question}: it has no name that a policy could have", act.who)
        return
    own = servers.setdefault(as_pattern(question.server), {})
    if question.method == TOOL_CALL:
        _need(own.setdefault("tools", {}), as_pattern(question.tool), act.who)
    elif question.method not in PLUMBING and not question.method.startswith(NOTIFICATIONS):
        _need(own.setdefault("methods", {}), as_pattern(question.method), act.who)


def _mcp(servers: Mapping[str, Mapping[str, dict[str, Entry]]]) -> Iterable[str]:
    """What was used of each server, whatever the arguments were, and no more; nothing where MCP was not spoken."""
    if not servers:
        return
    for server in sorted(servers):
        for key in sorted(servers[server], reverse=True):
            yield from ("", "[[mcp]]", f"server = {quoted(server)}", *_list(key, servers[server][key]))
            yield 'decision = "allow"'
    yield from ("", "[[mcp]]", 'server = "*"', 'decision = "deny"')


# Text


def _text(lists: Mapping[str, dict[str, Entry]], notes: Mapping[str, str], name: str, source: str) -> str:
    lines = [
        f"# What {_comment(source) or 'a recording'} needed, and no more. Made by `agentwrap policy suggest`.",
        "# Read it before you use it: each entry names the programs that needed it.",
        "",
        "version = 1",
        f"name = {quoted(name)}",
        'mode = "enforce"',
        "",
        "[network]",
        'default = "deny"',
        *_list("allow", lists["network"]),
        *_list("unix", lists["unix"]),
    ]
    told = sorted(notes.items())
    lines += [f"# {_comment(note)}" + (f" ({_comment(who)})" if who else "") for note, who in told[:_MAX_NOTES]]
    if len(told) > _MAX_NOTES:
        lines.append(f"# and {len(told) - _MAX_NOTES:,} more of this kind")
    lines += ["", "[files.write]", 'default = "deny"', *_list("allow", lists["write"])]
    lines += ["", "# Reads are let through: list them to close them.", "[files.read]", 'default = "allow"']
    lines += ["", "[exec]", 'default = "deny"', *_list("allow", lists["exec"])]
    return "\n".join(lines) + "\n"


def _list(key: str, entries: Mapping[str, Entry]) -> list[str]:
    if not entries:
        return []
    rows = [f"  {quoted(text)},  # {_comment(entries[text].comment())}" for text in sorted(entries)]
    return [f"{key} = [", *rows, "]"]


def quoted(text: str) -> str:
    """A TOML basic string (TOML 1.0, String)."""
    out = []
    for character in text:
        if character in '"\\':
            out.append("\\" + character)
        elif character < " " or character == "\x7f":
            out.append(f"\\u{ord(character):04x}")
        else:
            out.append(character)
    return '"' + "".join(out) + '"'


def _comment(text: str) -> str:
    """Foreign text on one line, without what could end a comment or lie to a reader."""
    from agentwrap.text import escape

    return escape(text)
