"""Patterns for names that are no paths and no hosts: of MCP servers, tools, methods, of command lines.

`*` stands for any number of characters, `?` for one, `[abc]` and `[!abc]` for one of these. Names are compared code
point by code point: two that look the same are two.
"""

import fnmatch
import re
from functools import lru_cache

import msgspec

_WILD = re.compile(r"[*?\[]")


@lru_cache(maxsize=4096)
def compiled(text: str) -> re.Pattern[str]:
    """The expression of a pattern (fnmatch(3) without its rules for slashes and leading dots)."""
    return re.compile(fnmatch.translate(text))


class Glob(msgspec.Struct, frozen=True):
    """One pattern, as it is written."""

    text: str

    @property
    def literal(self) -> bool:
        """Whether it has no wildcard, so that it fits one name alone."""
        return not _WILD.search(self.text)

    def fits(self, name: str) -> bool:
        """Whether a name fits."""
        return compiled(self.text).match(name) is not None if not self.literal else self.text == name

    def covers(self, other: "Glob") -> bool:
        """Whether every name that `other` fits, this one fits too; no where it is not sure."""
        if self.text == other.text or self.text == "*":
            return True
        if other.literal:
            return self.fits(other.text)
        head = self.text.removesuffix("*")
        return head != self.text and not _WILD.search(head) and other.text.startswith(head)

    def may_meet(self, other: "Glob") -> bool:
        """Whether there may be a name that both fit; yes where it is not sure."""
        if self.literal:
            return other.fits(self.text)
        if other.literal:
            return self.fits(other.text)
        mine, theirs = _WILD.split(self.text)[0], _WILD.split(other.text)[0]
        return mine.startswith(theirs) or theirs.startswith(mine)


def first_fitting(globs: "tuple[Glob, ...]", name: str) -> Glob | None:
    """The first pattern that fits a name."""
    return next((one for one in globs if one.fits(name)), None)
