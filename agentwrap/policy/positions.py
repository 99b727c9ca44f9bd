"""On which line, and where in it, each key and each item of a TOML document stands: `tomllib` does not tell.

Reads only documents that `tomllib` has accepted, so it may be simple: it finds where values begin and end, and leaves
what they mean to the parser.
"""

import re
import tomllib
from typing import NamedTuple

Path = tuple[str | int, ...]

_SKIP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BLANK = re.compile(r"[ \t]*")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:""|")?'
    r"|'''.*?'''(?:''|')?"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = re.compile(r"[^,\]}\n#]*")


def positions(text: str) -> dict[Path, int]:
    """Lines (from 1) by path: `("network", "allow", 2)` is the third item of `allow` in `[network]`."""
    return _Scan(text).run()


class Spans(NamedTuple):
    """Offsets in a text. `values`: begin and end of each value, `headers`: the end of each table's header."""

    values: dict[Path, tuple[int, int]]
    headers: dict[Path, int]


def spans(text: str) -> Spans:
    """Offsets by path, as `positions` has lines."""
    scan = _Scan(text)
    scan.run()
    return Spans(scan.values, scan.headers)


class _Scan:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.seen = 0
        self.found: dict[Path, int] = {}
        self.values: dict[Path, tuple[int, int]] = {}
        self.headers: dict[Path, int] = {}

    def run(self) -> dict[Path, int]:
        table: Path = ()
        counts: dict[Path, int] = {}
        while True:
            self._skip()
            if self.at >= len(self.text):
                return self.found
            if self.text.startswith("[[", self.at):
                self.at += 2
                keys = self._keys()
                self.at += 2
                counts[keys] = counts.get(keys, -1) + 1
                self._note(keys)
                table = (*keys, counts[keys])
            elif self.text[self.at] == "[":
                self.at += 1
                table = self._inside_arrays(self._keys(), counts)
                self.at += 1
            else:
                self._pair(table)
                continue
            self._note(table)
            self.headers[table] = self.at

    @staticmethod
    def _inside_arrays(keys: Path, counts: dict[Path, int]) -> Path:
        """`[a.b]` after `[[a]]` means b of a's last table."""
        full: Path = ()
        for key in keys:
            full = (*full, key)
            if full in counts:
                full = (*full, counts[full])
        return full

    def _here(self) -> int:
        self.line += self.text.count("\n", self.seen, self.at)
        self.seen = self.at
        return self.line

    def _note(self, path: Path) -> None:
        line = self._here()
        for length in range(1, len(path) + 1):
            self.found.setdefault(path[:length], line)

    def _skip(self) -> None:
        match = _SKIP.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            return ""
        self.at = match.end()
        return match[0]

    def _keys(self) -> Path:
        keys: list[str | int] = []
        while True:
            self._take(_BLANK)
            quoted = self._take(_STRING)
            keys.append(next(iter(tomllib.loads(f"{quoted}=0"))) if quoted else self._take(_BARE))
            self._take(_BLANK)
            if not self.text.startswith(".", self.at):
                return tuple(keys)
            self.at += 1

    def _pair(self, table: Path) -> None:
        path = (*table, *self._keys())
        self._note(path)
        self.at += 1  # the equals sign
        self._take(_BLANK)
        self._value(path)

    def _value(self, path: Path) -> None:
        start = self.at
        if self.text.startswith("[", self.at):
            self._array(path)
        elif self.text.startswith("{", self.at):
            self._inline(path)
        elif not self._take(_STRING):
            self._take(_PLAIN)
        self.values[path] = (start, self.at)

    def _array(self, path: Path) -> None:
        self.at += 1
        index = 0
        while True:
            self._skip()
            if self.at >= len(self.text) or self.text[self.at] == "]":
                self.at += 1
                return
            if self.text[self.at] == ",":
                self.at += 1
                continue
            self._note((*path, index))
            self._value((*path, index))
            index += 1

    def _inline(self, path: Path) -> None:
        self.at += 1
        while True:
            self._skip()
            if self.at >= len(self.text) or self.text[self.at] == "}":
                self.at += 1
                return
            if self.text[self.at] == ",":
                self.at += 1
                continue
            self._pair(path)
