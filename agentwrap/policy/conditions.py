"""Whether the arguments of a call are what a rule's `when` asks for. Pure.

Of an argument with several values all must hold for a rule that allows, and one suffices for a rule that denies or
holds. A value of which it cannot be told keeps a rule from allowing and not from denying. What is absent, or null, does
not hold.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from agentwrap.policy.exact_json import Ambiguous
from agentwrap.policy.hosts import Host, HostError, parse_host
from agentwrap.policy.mcp_rules import Condition, McpRule, Test
from agentwrap.policy.paths import PathError, Places, normal

_LONGEST_TEXT = 5_000  # what an expression is tried on: its work may grow with the square of that, and more
_EXACT = 1 << 53  # beyond it readers that keep numbers as doubles see another one (RFC 8259, 6)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*\Z")
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21, "ssh": 22, "git": 9418}
_ODD_PATH = re.compile(r"%2[eEfF]|[\x00-\x1f\x7f]")
_ODD_URL = re.compile(r"[\x00-\x20\x7f\\]")
_encode = msgspec.json.Encoder().encode

_Told = bool | None  # None: it cannot be told


def hold(rule: McpRule, arguments: Any, size: int, places: Places) -> bool:
    """Whether all conditions of a rule hold. `size`: bytes of the arguments as they came.

    Raises Ambiguous where another reader could see another value.
    """
    all_must = rule.decision == "allow"
    return all(_holds(one, all_must, arguments, size, places) for one in rule.when)


def _holds(condition: Condition, all_must: bool, arguments: Any, size: int, places: Places) -> bool:
    if not condition.path and condition.test == "max_bytes":
        return size <= condition.max_bytes
    try:
        values = list(_found(arguments, condition.path))
    except RecursionError:
        raise Ambiguous("deep", "the arguments are nested too deeply") from None
    if condition.test not in ("equals", "max_bytes"):
        values = [one for value in values for one in _spread(value)]
    test = _TESTS[condition.test]
    told = [test(condition, value, places) for value in values if value is not None]
    if not told:
        return False
    return all(one is True for one in told) if all_must else any(one is not False for one in told)


def _found(value: Any, path: tuple[str, ...]) -> Iterable[Any]:
    """Every value at a path. A step by name goes into each member of a list."""
    if not path:
        return (value,)
    step, rest = path[0], path[1:]
    if isinstance(value, dict):
        if step == "*":
            return (one for member in value.values() for one in _found(member, rest))
        folded = step.casefold()
        for name in value:
            if name != step and name.casefold() == folded:
                raise Ambiguous("repeated-name", f"some readers take the argument `{name}` for `{step}`")
        return _found(value[step], rest) if step in value else ()
    if isinstance(value, list):
        if step.isdecimal() and step.isascii():
            return _found(value[int(step)], rest) if len(step) < 10 and int(step) < len(value) else ()
        below = rest if step == "*" else path
        return (one for member in value for one in _found(member, below))
    return ()


def _spread(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# Tests: True, False, None where it cannot be told


def same(given: Any, wanted: Any) -> _Told:
    """Whether two JSON values are equal; numbers by their value, and a truth value is no number."""
    if isinstance(given, bool) or isinstance(wanted, bool):
        return isinstance(given, bool) and isinstance(wanted, bool) and given == wanted
    if isinstance(given, int | float) and isinstance(wanted, int | float):
        return None if abs(given) > _EXACT else given == wanted
    if isinstance(given, list) and isinstance(wanted, list):
        return _all(same(*pair) for pair in zip(given, wanted, strict=True)) if len(given) == len(wanted) else False
    if isinstance(given, dict) and isinstance(wanted, dict):
        return _all(same(given[name], wanted[name]) for name in given) if given.keys() == wanted.keys() else False
    return type(given) is type(wanted) and bool(given == wanted)


def _all(told: Iterable[_Told]) -> _Told:
    every = list(told)
    return False if False in every else None if None in every else True


def _any(told: Iterable[_Told]) -> _Told:
    every = list(told)
    return True if True in every else None if None in every else False


def _among(condition: Condition, value: Any, _places: Places) -> _Told:
    return _any(same(value, wanted) for wanted in condition.values)


def _matches(condition: Condition, value: Any, _places: Places) -> _Told:
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        return None
    return re.search(condition.expression, value) is not None


def _path_within(condition: Condition, value: Any, places: Places) -> _Told:
    if not isinstance(value, str):
        return None
    try:
        paths = meant_paths(value, places)
    except PathError:
        return None
    fitting = [any(pattern.fits(path) for pattern in condition.paths) for path in paths]
    return fitting[0] if len(set(fitting)) == 1 else None


def meant_paths(text: str, places: Places) -> list[str]:
    """The paths, in normal form, that a server may understand. Raises PathError where nobody can say.

    A relative one counts from the run's working directory. `~/x` is at home or, taken as it stands, below that
    directory. A `file:` URL (RFC 8089) is the path in it.
    """
    if text[:5].casefold() == "file:":
        head, slashes, rest = text[5:].partition("//")
        host, slash, path = rest.partition("/")
        if head or not slashes or not slash or host not in ("", "localhost") or "?" in path or "#" in path:
            raise PathError("no URL of a file on this machine")
        text = "/" + unquote_to_bytes(path).decode("utf-8", "surrogateescape")
    if text != text.strip() or _ODD_PATH.search(text) or text.startswith("$"):
        raise PathError("some programs take it for another path")
    if text.startswith("~"):
        if text != "~" and not text.startswith("~/"):
            raise PathError("whose home folder that is is not known")
        return [normal(text, places), normal("./" + text, places)]
    return [normal(text, places)]


def _host_within(condition: Condition, value: Any, _places: Places) -> _Told:
    if not isinstance(value, str):
        return None
    try:
        host, port = meant_host(value)
    except HostError:
        return None
    return any(pattern.fits(host, port) for pattern in condition.hosts)


def meant_host(text: str) -> tuple[Host, int | None]:
    """Host and port of a URL, of `HOST:PORT` or of a host alone (then without a port). Raises HostError."""
    if _ODD_URL.search(text):
        raise HostError("some programs take it for another URL")
    scheme, slashes, rest = text.partition("://")
    authority, known = text, None
    if slashes:
        if not _SCHEME.match(scheme):
            raise HostError("it begins with no scheme (RFC 3986, 3.1)")
        authority, known = re.split(r"[/?#]", rest, maxsplit=1)[0], _PORTS.get(scheme.lower())
    if authority.startswith("["):
        host, bracket, tail = authority.partition("]")
        host, tail = host + bracket, tail.removeprefix(":") if tail.startswith(":") else tail and "x"
    elif authority.count(":") > 1:
        host, tail = authority, ""
    else:
        host, _, tail = authority.partition(":")
    if tail and not (tail.isascii() and tail.isdecimal() and len(tail) <= 5):
        raise HostError(f"`{tail}` is no port")
    return parse_host(host), int(tail) if tail else known


def _max_bytes(condition: Condition, value: Any, _places: Places) -> _Told:
    try:
        size = len(value.encode("utf-8")) if isinstance(value, str) else len(_encode(value))
    except (RecursionError, UnicodeError, ValueError):
        return None
    return size <= condition.max_bytes


_TESTS: dict[Test, Callable[[Condition, Any, Places], _Told]] = {
    "equals": _among, "in": _among, "matches": _matches, "path_within": _path_within, "host_within": _host_within,
    "max_bytes": _max_bytes,
}  # fmt: skip
