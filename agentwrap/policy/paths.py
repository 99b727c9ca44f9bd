"""Patterns for paths: `**` for whole folders, `*`, `?` and `[...]` inside a name, `$CWD`, `$TMP` and `~` at the start.

Knows names only: whether a path is a link is for whoever enforces to find out (rules hold for what does not exist
yet). A pattern becomes one regular expression whose work grows with the length of the path, not with its powers.
"""

import posixpath
import re
from functools import lru_cache

import msgspec

_PLACES = ("$CWD", "$TMP", "~")
_WILD = re.compile(r"[*?\[]")
_ROOT_LINK = re.compile(r"/proc/(?:\d+|self|thread-self|\d+/task/\d+|self/task/\d+)/root(?=/|\Z)")
# What these lead to is known to the process alone (proc(5)).
_LEADS_ELSEWHERE = re.compile(
    r"/proc/(?:\d+|self|thread-self)(?:/task/\d+)?/(?:cwd(?:/|\Z)|(?:fd|map_files)/)|/dev/fd/|/dev/(?:stdin|stdout|stderr)\Z"
)
_QUOTED = re.compile(r"\[([*?\[])\]")  # a wildcard that stands for itself
_ODD = re.compile("[*?\\[\ud800-\udfff]")
_PATTERN_MAX, _PATH_MAX = 4096, 65536


class PathError(ValueError):
    """A path or pattern that cannot be judged; the text says why."""


class Places(msgspec.Struct, frozen=True):
    """What `$CWD`, `~` and `$TMP` stand for; absolute.

    `own`: files and folders of ours that no agent may write, `secret`: those it may not read either, `shown`: files of
    ours that it has to read. `sockets`: unix sockets that lead out of the run here, beside the known ones (what
    SSH_AUTH_SOCK names).
    """

    cwd: str
    home: str
    tmp: str = "/tmp"
    own: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()


class PathPattern(msgspec.Struct, frozen=True):
    """One pattern. `literal`: no wildcard in it; `expanded`: with its places filled in; `portable`: without."""

    text: str
    expanded: str
    literal: bool
    portable: str

    def fits(self, path: str) -> bool:
        """Whether a path in normal form fits."""
        return self.expanded == path if self.literal else compiled(self.expanded).match(path) is not None

    def may_lie_below(self, path: str) -> bool:
        """Whether something below `path` could fit for its name: `**/.git/hooks/**` may lie below `/w/.git`."""
        if self.literal:
            return self.expanded.startswith(path.rstrip("/") + "/")
        return any(compiled(holder).match(path) for holder in holders(self.expanded))

    def covers(self, other: "PathPattern") -> bool:
        """Whether everything that `other` fits, this one fits too, wherever the places lie; no where it is not sure."""
        mine, theirs = self.portable, other.portable
        if mine == theirs:
            return True
        if _place(mine) != _place(theirs):
            return False
        if other.literal:
            return self.fits(other.expanded)
        head = mine.removesuffix("**")
        return head != mine and not _WILD.search(head) and theirs.startswith(head)


def _place(text: str) -> str:
    head = text.partition("/")[0]
    return head if head in _PLACES else ""


def parse_pattern(text: str, places: Places) -> PathPattern:
    """Read a pattern. Raises PathError with the reason."""
    if len(text) > _PATTERN_MAX:
        raise PathError(f"a pattern has at most {_PATTERN_MAX} characters")
    if "\0" in text:
        raise PathError("a NUL byte has no place in a path")
    head, slash, rest = text.partition("/")
    if head in _PLACES:
        base = {"$CWD": places.cwd, "$TMP": places.tmp, "~": places.home}[head].rstrip("/")
    elif text.startswith("/"):
        head, base = "", ""
    elif head == "**" and slash:
        head, base, rest = "", "", text
    else:
        raise PathError("a path begins with `/`, `~/`, `$CWD/`, `$TMP/` or `**/`")
    tail = "".join("/" + segment for segment in _segments(rest))
    literal = not _WILD.search(_QUOTED.sub("", tail))
    # A folder called `[x]` is meant as it is written.
    expanded = (base + _QUOTED.sub(r"\1", tail) if literal else _escaped(base) + tail) or "/"
    if "[" in tail and not literal:  # the only thing in a pattern that may be wrong
        compiled(expanded)
    return PathPattern(text, expanded, literal, head + tail)


def _segments(rest: str) -> list[str]:
    """The names of a pattern, without what says nothing (`.`, doubled slashes, `**` after `**`)."""
    tidy: list[str] = []
    for segment in rest.split("/"):
        if segment == "..":
            raise PathError("`..` has no place in a pattern; write where it leads")
        if "**" in segment and segment != "**":
            raise PathError(f"`**` stands alone between slashes, not in `{segment}`")
        if segment not in ("", ".") and not (segment == "**" and tidy[-1:] == ["**"]):
            tidy.append(segment)
    return tidy


def _escaped(path: str) -> str:
    return _WILD.sub(lambda found: f"[{found[0]}]", path)


@lru_cache(maxsize=4096)
def compiled(expanded: str) -> re.Pattern[str]:
    """The expression of a pattern. `X/**` fits X itself as well: who may change all that is in it, may make it.

    All but the last `**` are matched in atomic groups, as fnmatch does for stars: the first place where the fixed
    names between two of them fit is as good as any later one, so nothing has to be tried twice.
    """
    segments = expanded.strip("/").split("/") if expanded != "/" else []
    runs: list[list[str]] = [[]]
    for segment in segments:
        if segment == "**":
            runs.append([])
        else:
            runs[-1].append(_segment(segment))
    source = "".join("/" + one for one in runs[0])
    for run in runs[1:-1]:
        source += "(?>(?:/[^/]+)*?" + "".join("/" + one for one in run) + "(?=/|\\Z))"
    if len(runs) > 1:
        source += "(?:/[^/]+)*" + "".join("/" + one for one in runs[-1])
    if not runs[0] and len(runs) > 1 and not runs[-1]:
        source += "/?"
    try:
        return re.compile(source + r"\Z", re.DOTALL)
    except re.error as error:
        raise PathError(f"`{expanded}` cannot be read: {error}") from error


@lru_cache(maxsize=4096)
def holders(expanded: str) -> tuple[str, ...]:
    """The patterns of the folders in which what fits lies, as far as they say a name: all but the root and `/**`."""
    segments = expanded.strip("/").split("/")
    found = ("/" + "/".join(segments[:length]) for length in range(1, len(segments)))
    return tuple(one for one in found if one != "/**")


def _segment(segment: str) -> str:
    """One name of a pattern as an expression that never crosses a slash."""
    parts: list[str] = [""]
    at = 0
    while at < len(segment):
        character = segment[at]
        at += 1
        if character == "*":
            parts.append("")
        elif character == "?":
            parts[-1] += "[^/]"
        elif character == "[":
            group, at = _group(segment, at)
            parts[-1] += group
        else:
            parts[-1] += re.escape(character)
    if len(parts) == 1:
        return parts[0]
    middle = "".join(f"(?>[^/]*?{part})" for part in parts[1:-1] if part)
    whole = parts[0] + middle + "[^/]*" + parts[-1]
    return "[^/]+" if whole == "[^/]*" else whole


def _group(segment: str, at: int) -> tuple[str, int]:
    """A `[...]` that begins before `at`, as an expression, and where it ends."""
    negated = segment[at : at + 1] in ("!", "^")
    begin = at + negated
    end = segment.find("]", begin + 1)
    if end < 0:
        raise PathError(f"`[` has no `]` in `{segment}`")
    inner = segment[begin:end].replace("\\", "\\\\").replace("]", "\\]").replace("[", "\\[").replace("^", "\\^")
    inner = inner.replace("&", "\\&").replace("~", "\\~").replace("|", "\\|")
    return f"(?!/)[{'^' if negated else ''}{inner}]", end + 1


def normal(path: str, places: Places) -> str:
    """The normal form of a path that is asked about. Raises PathError where its name does not say where it leads."""
    if not path:
        raise PathError("an empty path")
    if "\0" in path:
        raise PathError("a NUL byte has no place in a path")
    if len(path) > _PATH_MAX:
        raise PathError("longer than any path")
    if path[0] != "/":
        for name, base in (("$CWD", places.cwd), ("$TMP", places.tmp), ("~", places.home)):
            if path == name or path.startswith(name + "/"):
                path = base + path[len(name) :]
                break
        path = posixpath.join(places.cwd, path)
    # POSIX keeps two leading slashes apart; Linux does not.
    found = posixpath.normpath(path)
    found = "/" + found.lstrip("/")
    while (link := _ROOT_LINK.match(found)) is not None:
        found = found[link.end() :] or "/"
    if _LEADS_ELSEWHERE.match(found):
        raise PathError("what this leads to is known to the process alone")
    return found


def portable(path: str, places: Places) -> str:
    """A path in normal form as a pattern that fits it alone, with the places that differ between machines left open."""
    best, word = "", ""
    for base, name in ((places.cwd, "$CWD"), (places.tmp, "$TMP"), (places.home, "~")):
        if len(base) > max(1, len(best)) and path.startswith(base + "/"):
            best, word = base, name
    return word + as_pattern(path[len(best) :])


def as_pattern(path: str) -> str:
    """A path as a pattern that fits itself. Bytes that are no UTF-8 have no name in TOML: `?` fits any one of them."""
    return _ODD.sub(lambda found: f"[{found[0]}]" if found[0] in "*?[" else "?", path)
