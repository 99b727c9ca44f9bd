"""`[[mcp]]`, `[[mcp_pin]]` and `[record]` of a policy out of TOML values. As strict as the rest of the language.

Refused besides what is misspelled: a rule that another one leaves nothing to decide, a permission from which nothing
is taken, a condition that cannot hold.
"""

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from agentwrap.policy import mcp_rules, names, paths
from agentwrap.policy.conditions import hold
from agentwrap.policy.exact_json import Ambiguous
from agentwrap.policy.expressions import endless_within_endless
from agentwrap.policy.globs import Glob
from agentwrap.policy.hosts import HostError
from agentwrap.policy.mcp_rules import Condition, McpPin, McpRule, McpRules
from agentwrap.policy.paths import PathError, PathPattern, Places
from agentwrap.policy.positions import Path
from agentwrap.policy.rule import Rule

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_EXACT = 1 << 53
_TESTS: tuple[mcp_rules.Test, ...] = ("equals", "in", "matches", "path_within", "host_within", "max_bytes")
_WILD = re.compile(r"[*?\[]")
_SHOWN = 60


class Loader(Protocol):
    """What walks the document: where it is told what is wrong, and where lines come from."""

    file: str
    places: Places
    configs: Mapping[str, tuple[str, ...]]

    def wrong(self, path: Path, message: str, hint: str = "") -> None:
        """Tell a problem."""

    def line(self, path: Path) -> int:
        """The line of a key."""

    def table(self, given: Any, path: Path) -> dict[str, Any]:
        """The known keys of a table that have the right type; the others are told."""

    def items(self, given: Mapping[str, Any], path: Path) -> list[tuple[int, str]]:
        """The entries of a list; told and left out if there are none."""


def rules(loader: Loader, given: Sequence[Any], pinned: Sequence[Any]) -> McpRules:
    """Every rule and pin that is well written; what is not is told."""
    _not_empty(loader, given, ("mcp",))
    _not_empty(loader, pinned, ("mcp_pin",))
    found = [one for index, table in enumerate(given) if (one := _rule(loader, table, ("mcp", index))) is not None]
    if len(found) == len(given):
        _idle(loader, found)
    return McpRules(tuple(found), tuple(_pins(loader, pinned)))


def stdio(loader: Loader, given: Any) -> tuple[Glob, ...]:
    """`record.mcp_stdio`."""
    if given is None:
        return ()
    good = loader.table(given, ("record",))
    return _globs(loader, good, ("record", "mcp_stdio"))


def _not_empty(loader: Loader, given: Sequence[Any], path: Path) -> None:
    if not given and loader.line(path):
        loader.wrong(path, f"`{path[0]}` is empty and has no effect", "remove it")


def _rule(loader: Loader, given: Any, path: Path) -> McpRule | None:
    good = loader.table(given, path)
    if not _required(loader, given, path, {"server": '"github"', "decision": '"deny"'}):
        return None
    if "server" not in good or "decision" not in good:
        return None
    tools, methods = _globs(loader, good, (*path, "tools")), _globs(loader, good, (*path, "methods"))
    if tools and methods:
        loader.wrong((*path, "methods"), "`tools` is about calls of tools alone", "write two rules")
    _methods(loader, methods, path)
    server: str = good["server"]
    word: mcp_rules.McpWord = good["decision"]
    text = " ".join([server, *(one.text for one in (*tools, *methods))])
    text = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    when = _conditions(loader, good.get("when"), (*path, "when"))
    rule = Rule(f"mcp.{word}", text, loader.file, loader.line(path))
    found = McpRule(rule, Glob(server), word, tools, methods, when, good.get("reason", ""))
    _can_hold(loader, found, path)
    return found


def _required(loader: Loader, given: Mapping[str, Any], path: Path, examples: Mapping[str, str]) -> bool:
    missing = [name for name in examples if name not in given]
    for name in missing:
        loader.wrong(path, f"`{path[0]}.{name}` is missing", f"add: {name} = {examples[name]}")
    return not missing


def _globs(loader: Loader, given: Mapping[str, Any], path: Path) -> tuple[Glob, ...]:
    found: list[Glob] = []
    for index, text in loader.items(given, path):
        one = Glob(text)
        by = next((earlier for earlier in found if earlier.covers(one)), None)
        wider = next((earlier for earlier in found if by is None and one.covers(earlier)), None)
        if not text.strip():
            loader.wrong((*path, index), "an empty name fits nothing", "remove it")
        elif by is not None or wider is not None:
            idle, wide = (one, by) if by is not None else (wider or one, one)
            told = f"`{idle.text}` has no effect: `{wide.text}` beside it has all of it"
            loader.wrong((*path, index), told, "remove one of them")
        found.append(one)
    return tuple(found)


def _methods(loader: Loader, methods: Sequence[Glob], path: Path) -> None:
    known = [*mcp_rules.CLIENT_METHODS, *mcp_rules.SERVER_METHODS, *mcp_rules.PLUMBING]
    for index, one in enumerate(methods):
        where = (*path, "methods", index)
        if one.text.startswith(mcp_rules.NOTIFICATIONS):
            loader.wrong(where, f"`{one.text}`: a notification asks for nothing, and no rule is about one", "remove it")
        elif one.literal and one.text not in known:
            from difflib import get_close_matches

            # Extensions have requests of their own; what is almost a known one is a slip.
            if near := get_close_matches(one.text, known, n=1, cutoff=0.8):
                loader.wrong(where, f"MCP has no request `{one.text}`", f"did you mean `{near[0]}`?")


# Conditions


def _conditions(loader: Loader, given: Any, path: Path) -> tuple[Condition, ...]:
    if given is None:
        return ()
    tables = [(path, given)] if isinstance(given, dict) else [((*path, index), one) for index, one in enumerate(given)]
    found: list[Condition] = []
    for where, table in tables:
        for one in _table(loader, table, where):
            if one in found:
                loader.wrong(where, f"`{one.text}` is asked twice", "remove one of them")
            found.append(one)
    if not tables:
        loader.wrong(path, "`mcp.when` is empty: it asks for nothing", "remove it")
    return tuple(found)


def _table(loader: Loader, given: Any, path: Path) -> list[Condition]:
    good = loader.table(given, path)
    tests = [name for name in _TESTS if name in good]
    if not [name for name in _TESTS if name in given]:
        loader.wrong(path, "`mcp.when` has no test", f"there are {', '.join(_TESTS)}")
    arg = good.get("arg", "")
    if not arg and tests not in ([], ["max_bytes"]):
        loader.wrong(path, "`mcp.when.arg` is missing", 'add: arg = "branch"')
        return []
    steps = _steps(arg)
    if steps is None:
        loader.wrong((*path, "arg"), f"`{arg}` names no argument", "write `a.b`, `files.*.path` or `/a/b`")
        return []
    found = [_condition(loader, test, good[test], arg, steps, (*path, test)) for test in tests]
    return [one for one in found if one is not None]


def _steps(arg: str) -> tuple[str, ...] | None:
    """The steps of a dotted path, or of a JSON pointer (RFC 6901)."""
    if not arg:
        return ()
    if arg.startswith("/"):
        return tuple(step.replace("~1", "/").replace("~0", "~") for step in arg[1:].split("/"))
    steps = tuple(arg.split("."))
    return steps if all(steps) else None


def _condition(
    loader: Loader, test: mcp_rules.Test, given: Any, arg: str, steps: tuple[str, ...], path: Path
) -> Condition | None:
    try:
        shown = str(given)
    except ValueError:  # Python spells no number of more than 4300 digits; TOML's have 64 bits (1.0, Integer)
        loader.wrong(path, "a number in it is beyond 64 bits")
        return None
    text = f"{arg or 'arguments'} {test} {shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + '...'}"
    try:
        return _PARSERS[test](loader, given, text, steps)
    except (HostError, PathError, ValueError) as error:
        loader.wrong(path, str(error))
        return None


def _equals(_loader: Loader, given: Any, text: str, steps: tuple[str, ...]) -> Condition:
    return Condition(text, steps, "equals", (_json(given),))


def _in(_loader: Loader, given: Any, text: str, steps: tuple[str, ...]) -> Condition:
    if not given:
        raise ValueError("`in` of nothing never holds")
    return Condition(text, steps, "in", tuple(_json(one) for one in given))


def _json(value: Any) -> Any:
    """A TOML value that JSON has, too. Raises ValueError."""
    if isinstance(value, dict):
        return {name: _json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_json(one) for one in value]
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int | float) and math.isfinite(value) and abs(value) <= _EXACT:
        return value
    raise ValueError(f"`{value}` is no value that JSON has for every reader (RFC 8259, 6)")


def _matches(_loader: Loader, given: str, text: str, steps: tuple[str, ...]) -> Condition:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what means something else in a later Python
            found = re.compile(given)
    except (re.error, RecursionError, OverflowError, Warning) as error:
        raise ValueError(f"`{given}` is no regular expression: {error}") from error
    if not given or found.pattern in (".*", "^", "$", "^.*$"):
        raise ValueError(f"`{given}` is found in every text: it asks for nothing")
    if endless_within_endless(given):
        raise ValueError(f"`{given}` repeats a repetition: on a text that an agent chooses it may take for ever")
    return Condition(text, steps, "matches", expression=given)


def _path_within(loader: Loader, given: Any, text: str, steps: tuple[str, ...]) -> Condition:
    found = [_folder(one, loader.places) for one in _some(given)]
    return Condition(text, steps, "path_within", paths=tuple(found))


def _folder(text: str, places: Places) -> PathPattern:
    """Without wildcards, the folder and what is in it."""
    pattern = paths.parse_pattern(text, places)
    return paths.parse_pattern(text.rstrip("/") + "/**", places) if pattern.literal else pattern


def _host_within(loader: Loader, given: Any, text: str, steps: tuple[str, ...]) -> Condition:
    found = [pattern for one in _some(given) for pattern in names.parse_pattern(one, loader.configs)]
    return Condition(text, steps, "host_within", hosts=tuple(found))


def _some(given: Any) -> list[str]:
    texts = [given] if isinstance(given, str) else list(given)
    if not texts:
        raise ValueError("an empty list never holds")
    return texts


def _max_bytes(_loader: Loader, given: int, text: str, steps: tuple[str, ...]) -> Condition:
    if given < (0 if steps else 2):
        raise ValueError(f"nothing has at most {given} bytes")
    return Condition(text, steps, "max_bytes", max_bytes=given)


_Parser = Callable[[Loader, Any, str, tuple[str, ...]], Condition]
_PARSERS: dict[mcp_rules.Test, _Parser] = {
    "equals": _equals, "in": _in, "matches": _matches, "path_within": _path_within, "host_within": _host_within,
    "max_bytes": _max_bytes,
}  # fmt: skip


# What has no effect


def _can_hold(loader: Loader, rule: McpRule, path: Path) -> None:
    asked = [one for one in rule.when if one.path]
    if asked and rule.methods and all(one.text in mcp_rules.WITHOUT_ARGUMENTS for one in rule.methods):
        loader.wrong((*path, "when"), f"`{rule.methods[0].text}` has no arguments: it never holds", "remove `when`")
    for fixed in asked:
        if fixed.test != "equals" or "*" in fixed.path:
            continue
        value: Any = fixed.values[0]
        for step in reversed(fixed.path):
            value = {step: value}
        alone = [one for one in asked if one.path == fixed.path]
        for other in alone:
            only = McpRule(rule.rule, rule.server, "allow", when=(other,))
            try:
                fine = hold(only, value, 0, loader.places)
            except Ambiguous:
                fine = True
            if not fine:
                loader.wrong((*path, "when"), f"`{fixed.text}` and `{other.text}` never hold together", "remove one")
                return


def _idle(loader: Loader, found: Sequence[McpRule]) -> None:
    """Rules that decide nothing: behind a wider one, or permissions from which no later rule takes anything."""
    for index, one in enumerate(found):
        by = next((earlier for earlier in found[:index] if earlier.covers(one)), None)
        if by is not None:
            told = f"`{one.rule.text}` is reached by nothing: line {by.rule.line}, `{by.rule.text}`, has all of it"
            loader.wrong(("mcp", index), told, "remove it, or put it first")
        elif one.decision == "allow":
            later = [other for other in found[index + 1 :] if other.decision != "allow"]
            if not any(one.may_meet(other) for other in later):
                told = f"`{one.rule.text}` has no effect: it takes nothing back that a later rule closes"
                hint = 'remove it, or end with a rule: server = "*", decision = "deny"'
                loader.wrong(("mcp", index), told, hint)


# Pins


def _pins(loader: Loader, given: Sequence[Any]) -> list[McpPin]:
    found: dict[tuple[str, str], McpPin] = {}
    for index, table in enumerate(given):
        path: Path = ("mcp_pin", index)
        good = loader.table(table, path)
        if not _required(loader, table, path, {"server": '"github"', "tools": '{ merge = "<digest>" }'}):
            continue
        server = good.get("server", "")
        if _WILD.search(server):
            loader.wrong((*path, "server"), f"`{server}`: a pin is about one server, by its name")
        for tool, digest in good.get("tools", {}).items():
            where = (*path, "tools", tool)
            if (server, tool) in found:
                loader.wrong(where, f"`{tool}` of `{server}` is pinned twice", "remove one of them")
            if not _DIGEST.match(digest):
                loader.wrong(where, f"`{digest}` is no SHA-256", "64 digits, 0-9 and a-f: `mcp.tool` has them")
            line = loader.line(where)
            found[server, tool] = McpPin(Rule("mcp_pin", f"{server} {tool}", loader.file, line), server, tool, digest)
        if "tools" in good and not good["tools"]:
            loader.wrong((*path, "tools"), "`mcp_pin.tools` is empty: it pins nothing", "remove it")
    return list(found.values())


# Types


def type_problem(kind: str, value: Any) -> str | None:
    """What is wrong with a value's type, or None."""
    fine, told = TYPES[kind]
    return None if fine(value) else told


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "tables": (_tables, "is a list of tables, each under its own `[[...]]`"),
    "globs": (_texts, "is a list of texts"),
    "word": (lambda value: value in mcp_rules.MCP_WORDS, "is `allow`, `deny` or `approve`"),
    "conditions": (lambda value: isinstance(value, dict) or _tables(value), "is a table, or a list of tables"),
    "value": (lambda _value: True, ""),
    "values": (lambda value: isinstance(value, list), "is a list of values"),
    "expression": (lambda value: isinstance(value, str), "is a regular expression"),
    "some paths": (lambda value: isinstance(value, str) or _texts(value), "is a path, or a list of paths"),
    "some hosts": (lambda value: isinstance(value, str) or _texts(value), "is a host, or a list of hosts"),
    "bytes": (lambda value: isinstance(value, int) and not isinstance(value, bool), "is a number of bytes"),
    "digests": (lambda value: isinstance(value, dict) and all(isinstance(one, str) for one in value.values()),
                "is a table of digests by tool"),
}  # fmt: skip
