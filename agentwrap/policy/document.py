"""TOML text in, a `Policy` out, or every reason why not with its line. Strict: what has no effect is an error too.

A policy is read by people who rely on it. A misspelled key, a list that cannot apply, a pattern that is wider than it
looks are refused here, because later nobody would see that they do nothing.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from agentwrap.errors import AgentwrapError
from agentwrap.policy import keys, mcp_document, names, paths
from agentwrap.policy.coverage import GATEWAY_KINDS, Requirement, parse_requirements
from agentwrap.policy.hosts import Host, HostError, special
from agentwrap.policy.paths import PathError, PathPattern, Places
from agentwrap.policy.positions import Path, positions
from agentwrap.policy.rules import (
    MODES,
    Default,
    HostRule,
    HostRules,
    Mode,
    ModelRules,
    PathList,
    PathRule,
    PathRules,
    Policy,
    Rule,
)

MAX_BYTES = 1 << 20
MAX_RULES = 5_000
_SHOWN = 20


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong. `line` from 1, 0 where it is about the whole file."""

    line: int
    message: str
    hint: str = ""


def load(data: bytes, file: str, places: Places, configs: Mapping[str, tuple[str, ...]]) -> Policy:
    """Read a policy. `file` names it in rules and errors; `configs` is what `config:NAME` stands for here.

    Raises AgentwrapError `usage` with every problem and its line.
    """
    text = _text(data, file)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _refused(file, text, [Problem(_line_of(str(error), text), f"not TOML: {error}")]) from error
    except RecursionError as error:
        raise _refused(file, text, [Problem(0, "nested too deeply")]) from error
    loader = _Loader(file, positions(text), places, configs)
    policy = loader.policy(document)
    if loader.problems:
        raise _refused(file, text, loader.problems)
    return msgspec.structs.replace(policy, source=text)


def _text(data: bytes, file: str) -> str:
    if len(data) > MAX_BYTES:
        raise _refused(file, "", [Problem(0, f"larger than {MAX_BYTES >> 20} MiB: no policy that a person can read")])
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        told = f"byte 0x{data[error.start]:02x} is not UTF-8, which TOML is written in"
        raise _refused(file, "", [Problem(line, told)]) from error


def _line_of(message: str, text: str) -> int:
    if "(at end of document)" in message:
        return text.rstrip().count("\n") + 1
    _, _, rest = message.partition("(at line ")
    number = rest.partition(",")[0]
    return int(number) if number.isdigit() else 0


def _refused(file: str, text: str, problems: Sequence[Problem]) -> AgentwrapError:
    """All problems as one error: where, the line itself, what is wrong."""
    lines = text.split("\n")
    told: list[str] = []
    for problem in sorted(problems, key=lambda one: one.line)[:_SHOWN]:
        place = f"{file}:{problem.line}" if problem.line else file
        told.append(f"{place}: {problem.message}")
        if 0 < problem.line <= len(lines):
            told.append(f"    {lines[problem.line - 1].strip()[:160]}")
        if problem.hint:
            told.append(f"    {problem.hint}")
    if len(problems) > _SHOWN:
        told.append(f"and {len(problems) - _SHOWN} more")
    count = "one problem" if len(problems) == 1 else f"{len(problems)} problems"
    return AgentwrapError(
        "usage",
        f"the policy is refused: {count}",
        evidence="\n".join(told),
        hint="docs/reference/policy.md has every key",
    )


class _Loader:
    """Walks one document and collects what is wrong with it."""

    def __init__(
        self, file: str, lines: Mapping[Path, int], places: Places, configs: Mapping[str, tuple[str, ...]]
    ) -> None:
        self.file, self.lines, self.places, self.configs = file, lines, places, configs
        self.problems: list[Problem] = []

    def wrong(self, path: Path, message: str, hint: str = "") -> None:
        self.problems.append(Problem(self.line(path), message, hint))

    def line(self, path: Path) -> int:
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)

    def policy(self, document: dict[str, Any]) -> Policy:
        top = self.table(document, ())
        for key in keys.keys_of("").values():
            if key.required and key.name not in document:
                example = {"1": "1", "mode": '"enforce"'}.get(key.type, '"ci"')
                self.wrong((), f"`{key.name}` is missing", f"add: {key.name} = {example}")
        mode: Mode = top.get("mode", "enforce")
        closed: Default = "allow" if mode == "observe" else "deny"
        network = top.get("network")
        files = self.table(top["files"], ("files",)) if "files" in top else {}
        stated = [name for name in ("network", "exec") if name in top] + [f"files.{name}" for name in files]
        return Policy(
            file=self.file,
            name=top.get("name", ""),
            mode=mode,
            places=self.places,
            network=self.hosts(network, closed),
            unix=self.sockets(network),
            model=self.model(top.get("model")),
            write=self.section(files.get("write"), ("files", "write"), closed),
            read=self.section(files.get("read"), ("files", "read"), "allow"),
            exec=self.section(top.get("exec"), ("exec",), "allow"),
            agent=top.get("agent", ""),
            on_behalf_of=top.get("on_behalf_of", ""),
            mcp=mcp_document.rules(self, top.get("mcp", []), top.get("mcp_pin", [])),
            mcp_stdio=mcp_document.stdio(self, top.get("record")),
            self_approval=self.self_approval(top.get("approvals")),
            require=self.requirements(top.get("require", [])),
            stated=frozenset(stated),
        )

    def table(self, given: Any, path: Path) -> dict[str, Any]:
        """The keys of a table that are known and have the right type; the others are told."""
        where = ".".join(name for name in path if isinstance(name, str))
        known = keys.keys_of(where)
        if not given and path:
            example = 'default = "deny"' if "default" in known else f"{next(iter(known))} = ..."
            self.wrong(path, f"`{where}` is empty: it says nothing", f"add: {example}")
        good: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                self.unknown(name, (*path, name), known)
            elif (problem := type_problem(known[name].type, value)) is not None:
                self.wrong((*path, name), f"`{known[name].path}` {problem}")
            else:
                good[name] = value
        return good

    def unknown(self, name: str, path: Path, known: Mapping[str, Any]) -> None:
        if len(path) == 1 and name in keys.PLANNED:
            self.wrong(path, f"`{name}` has no effect in this version: {keys.PLANNED[name]}", "remove it")
            return
        from difflib import get_close_matches

        near = get_close_matches(name.lower(), known, n=1)
        where = [key.path for key in keys.KEYS if key.name == name]
        hint = f"there are {', '.join(known)}" if known else ""
        if near:
            hint = f"did you mean `{near[0]}`?"
        elif where:
            own = next((one for one in where if one.startswith(f"{path[0]}.")), where[0])
            hint = f"did you mean `{own}`?"
        named = ".".join(name for name in path if isinstance(name, str))
        self.wrong(path, f"there is no key `{named}`", hint)

    def self_approval(self, given: Any) -> Default:
        found: Default = self.table(given, ("approvals",)).get("self", "allow") if given is not None else "allow"
        return found

    def requirements(self, words: list[str]) -> tuple[Requirement, ...]:
        for index, word in enumerate(words):
            try:
                parse_requirements(word)
            except AgentwrapError as error:
                self.wrong(("require", index), f"`{word}` is nothing that can be required", error.hint)
                return ()
        return parse_requirements(",".join(words), GATEWAY_KINDS) if words else ()

    def default(self, given: Mapping[str, Any], path: Path) -> tuple[Default, Rule]:
        value: Default = given.get("default", "deny")
        where = ".".join(map(str, path))
        line = self.line((*path, "default"))
        return value, Rule(f"{where}.default", value, self.file, line)

    def left_out(self, path: Path, default: Default) -> Rule:
        return Rule(f"{'.'.join(map(str, path))}.default", f"{default}, as the section is not there", self.file)

    # Hosts

    def hosts(self, given: Any, closed: Default) -> HostRules:
        if given is None:
            return HostRules(closed, self.left_out(("network",), closed))
        path: Path = ("network",)
        good = self.table(given, path)
        default, rule = self.default(good, path)
        allow = self.host_list(good, (*path, "allow"), for_deny=False)
        deny = self.host_list(good, (*path, "deny"), for_deny=True)
        if default == "allow":
            for one in allow:
                if not any(_lifts(pattern) for pattern in one.patterns):
                    self.no_effect(one.rule)
        self.shadowed(allow, deny, _host_covers, lambda one: not all(p.exact for p in one.patterns))
        return HostRules(default, rule, tuple(allow), tuple(deny))

    def host_list(self, given: Mapping[str, Any], path: Path, *, for_deny: bool) -> list[HostRule]:
        found: list[HostRule] = []
        for index, text in self.items(given, path):
            rule = Rule(".".join(map(str, path)), text, self.file, self.line((*path, index)))
            try:
                found.append(HostRule(rule, names.parse_pattern(text, self.configs, for_deny=for_deny)))
            except HostError as error:
                self.wrong((*path, index), f"`{text}`: {error}")
        return found

    def model(self, given: Any) -> ModelRules:
        if given is None:
            return ModelRules()
        good = self.table(given, ("model",))
        intercept = self.host_list(good, ("model", "intercept"), for_deny=False)
        passing = self.host_list(good, ("model", "pass"), for_deny=True)
        self.shadowed(intercept, passing, _host_covers, lambda one: not all(p.exact for p in one.patterns))
        return ModelRules(tuple(intercept), tuple(passing))

    # Paths

    def section(self, given: Any, path: Path, closed: Default) -> PathRules:
        if given is None:
            return PathRules(closed, self.left_out(path, closed))
        good = self.table(given, path)
        default, rule = self.default(good, path)
        allow = self.path_list(good, (*path, "allow"))
        deny = self.path_list(good, (*path, "deny"))
        if default == "allow":
            for one in allow:
                # A name without wildcards may lift what is refused by default.
                if path != ("files", "write") or not _names_protected(one, self.places):
                    self.no_effect(one.rule)
        self.shadowed(allow, deny, _path_covers, lambda one: not one.pattern.literal)
        return PathRules(default, rule, PathList.of(allow), PathList.of(deny))

    def path_list(self, given: Mapping[str, Any], path: Path) -> list[PathRule]:
        found: list[PathRule] = []
        for index, text in self.items(given, path):
            rule = Rule(".".join(map(str, path)), text, self.file, self.line((*path, index)))
            try:
                found.append(PathRule(rule, paths.parse_pattern(text, self.places)))
            except PathError as error:
                self.wrong((*path, index), f"`{text}`: {error}")
        return found

    def sockets(self, given: Any) -> PathList:
        path: Path = ("network", "unix")
        found: list[PathRule] = []
        if not isinstance(given, dict) or type_problem("paths", given.get("unix", [])):
            return PathList()
        for index, text in self.items(given, path):
            rule = Rule("network.unix", text, self.file, self.line((*path, index)))
            try:
                pattern = (
                    PathPattern(text, text, literal=True, portable=text)
                    if text[:1] == "@"
                    else paths.parse_pattern(text, self.places)
                )
            except PathError as error:
                self.wrong((*path, index), f"`{text}`: {error}")
                continue
            found.append(PathRule(rule, pattern))
        self.shadowed(found, [], _path_covers, lambda one: not one.pattern.literal)
        return PathList.of(found)

    # Lists

    def items(self, given: Mapping[str, Any], path: Path) -> list[tuple[int, str]]:
        """The entries of a list; told and left out if there are none or too many."""
        name = str(path[-1])
        items: list[str] = given.get(name, [])
        if name in given and not items:
            hint = "an empty list allows nothing, as no list does" if name != "deny" else "it refuses nothing"
            self.wrong(path, f"`{'.'.join(map(str, path))}` is empty and has no effect", f"{hint}; remove the line")
        if len(items) > MAX_RULES:
            self.wrong(path, f"more than {MAX_RULES:,} entries", "name folders or suffixes")
            return []
        return list(enumerate(items))

    def no_effect(self, rule: Rule) -> None:
        told = f'`{rule.text}` has no effect: default is "allow"'
        self.problems.append(Problem(rule.line, told, 'remove it, or say default = "deny"'))

    def shadowed(
        self, allow: list[Any], deny: list[Any], covers: Callable[[Any, Any], bool], is_broad: Callable[[Any], bool]
    ) -> None:
        """Tell duplicates, and entries that another one of the same list, or a denial, makes idle."""
        for entries in (allow, deny):
            self.duplicates(entries)
            broad = [one for one in entries if is_broad(one)]
            for one in entries:
                by = next((b for b in broad if b is not one and covers(b, one) and not covers(one, b)), None)
                # What lifts a default denial needs its own name, whatever else fits it.
                if by is not None and not (entries is allow and _names_protected(one, self.places)):
                    told = (
                        f"`{one.rule.text}` is reached by nothing: line {by.rule.line}, `{by.rule.text}`, has all of it"
                    )
                    self.problems.append(Problem(one.rule.line, told, "remove one of them"))
        broad = [one for one in deny if is_broad(one)]
        same = {one.rule.text: one for one in deny}
        for one in allow:
            by = same.get(one.rule.text) or next((b for b in broad if covers(b, one)), None)
            if by is not None:
                told = (
                    f"`{one.rule.text}` is never allowed: deny, line {by.rule.line}, is asked first and has all of it"
                )
                self.problems.append(Problem(one.rule.line, told, "remove one of them"))

    def duplicates(self, entries: list[Any]) -> None:
        first: dict[Any, Rule] = {}
        for one in entries:
            key = one.patterns if isinstance(one, HostRule) else one.pattern.portable
            earlier = first.setdefault(key, one.rule)
            if earlier is not one.rule:
                told = f"`{one.rule.text}` is line {earlier.line}'s `{earlier.text}` again"
                self.problems.append(Problem(one.rule.line, told, "remove one of them"))


def _lifts(pattern: names.HostPattern) -> bool:
    """Whether a pattern opens what an open default leaves closed: loopback, private and metadata addresses."""
    if pattern.kind in ("host-loopback", "unresolved"):
        return True
    if pattern.network is not None:
        return any(special(Host(address=edge)) for edge in (pattern.network[0], pattern.network[-1]))
    return pattern.kind == "name" and special(Host(name=pattern.name)) != ""


def _names_protected(one: Any, places: Places) -> bool:
    from agentwrap.policy.defaults import protected_write

    if isinstance(one, PathRule):
        return one.pattern.literal and protected_write(one.pattern.expanded, places, tree=True) is not None
    # An address of the machine's own cloud is only reached by its own name, not as part of a block.
    return any(pattern.exact and _lifts(pattern) for pattern in one.patterns)


def _host_covers(wide: HostRule, narrow: HostRule) -> bool:
    return all(any(one.covers(other) for one in wide.patterns) for other in narrow.patterns)


def _path_covers(wide: PathRule, narrow: PathRule) -> bool:
    return wide.pattern.covers(narrow.pattern)


def type_problem(kind: keys.Type, value: Any) -> str | None:
    """What is wrong with a value's type, or None."""
    if kind == "1":
        return None if value == 1 and type(value) is int else "is 1 in this version"
    if kind == "mode":
        return None if value in MODES else f"is one of {', '.join(MODES)}"
    if kind == "default":
        return None if value in ("allow", "deny") else "is `allow` or `deny`"
    if kind == "text":
        return None if isinstance(value, str) and value.strip() else "is a text"
    if kind == "table":
        return None if isinstance(value, dict) else "is a table"
    if kind in mcp_document.TYPES:
        return mcp_document.type_problem(kind, value)
    fine = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return None if fine else "is a list of texts"
