"""The filter language: one for `show`, `tail` and `export`.

Words are joined by *and*; `-` before a word negates it; commas inside a value mean *or*. Knows the keys, how each
compares, and how to say which place of a filter is wrong. Knows nothing of files or of how rows look.
"""

import re
from collections.abc import Iterator

import msgspec

from agentwrap.errors import AgentwrapError
from agentwrap.rows import Row
from agentwrap.views.filter_keys import KEYS, Spans, Test, kinds_named


class FilterError(AgentwrapError):
    """A filter that cannot be read; `start` and `end` mark the place in its text."""

    def __init__(self, source: str, start: int, end: int, problem: str) -> None:
        marked = f"{source}\n{' ' * start}{'^' * max(1, end - start)}\n{problem}"
        super().__init__(
            "usage", "cannot read the filter", evidence=marked, hint="`agentwrap help filters` tells the language"
        )
        self.problem, self.start, self.end = problem, start, end


class Term(msgspec.Struct, frozen=True):
    """One word of a filter. `key` is empty for plain text; `start`, `end`: its place in the source."""

    key: str
    value: str
    negated: bool
    start: int
    end: int

    def __str__(self) -> str:
        sign = "-" if self.negated else ""
        if self.key == "%":
            return f"{sign}%{self.value}"
        return sign + (f"{self.key}:" if self.key else "") + quote(self.value, plain=not self.key)


class Filter(msgspec.Struct, frozen=True):
    """A parsed filter: callable on a row. Without terms it lets everything through."""

    terms: tuple[Term, ...]
    tests: tuple[tuple[Test, bool], ...]

    def __call__(self, row: Row, spans: Spans) -> bool:
        """Whether `row` passes; `spans` finds a span by its id."""
        return all(test(row, spans) is not negated for test, negated in self.tests)

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __str__(self) -> str:
        return " ".join(map(str, self.terms))

    def kinds(self) -> frozenset[str] | None:
        """The kinds of events that can pass, as far as the `kind:` words say; None for all."""
        chosen: set[str] | None = None
        for term in self.terms:
            if term.key in ("kind", "%") and not term.negated:
                named = set(kinds_named(term.key, term.value))
                chosen = named if chosen is None else chosen & named
        return None if chosen is None else frozenset(chosen)


def parse(*words: str) -> Filter:
    """Read a filter from the words of a command line (each may hold several terms). Raises FilterError."""
    terms: list[Term] = []
    tests: list[tuple[Test, bool]] = []
    for word in words:
        for term in _terms(word):
            try:
                test = KEYS[term.key or "text"](term.value)
            except ValueError as problem:
                raise FilterError(word, term.start, term.end, str(problem)) from None
            terms.append(term)
            tests.append((test, term.negated))
    return Filter(tuple(terms), tuple(tests))


def is_filter(word: str) -> bool:
    """Whether a word of the command line is meant as a filter, not as a file."""
    return re.match(r'-?(?:[a-z]+:|%|")', word) is not None


def quote(value: str, *, plain: bool = False) -> str:
    """A value as the language writes it; quoted only where it must be."""
    if value and not re.search(r'[\s"\\]', value) and not (plain and re.match(r"-|%|[^:]*:", value)):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _terms(source: str) -> Iterator[Term]:
    """The terms of one source text."""
    at = 0
    while at < len(source):
        if source[at].isspace():
            at += 1
            continue
        start = at
        negated = source[at] == "-"
        at += negated
        key = ""
        if source[at : at + 1] == "%":
            key, at = "%", at + 1
        elif head := re.compile(r"([^\s:\"]*):").match(source, at):
            key, at = head[1], head.end()
            if key not in KEYS:
                raise FilterError(source, start + negated, head.end() - 1, _unknown(key))
        value, at = _value(source, at)
        if not value and not (source[at - 1 : at] == '"' and key):
            raise FilterError(source, start, at, f"`{source[start:at]}` has nothing to look for")
        yield Term(key, value, negated, start, at)


def _unknown(key: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key, KEYS, n=1)
    return f"there is no key `{key}`" + (f"; did you mean `{near[0]}`?" if near else "; quote text that has a colon")


def _value(source: str, at: int) -> tuple[str, int]:
    """A bare or quoted value from `at`, and where it ends."""
    if source[at : at + 1] != '"':
        end = at
        while end < len(source) and not source[end].isspace():
            end += 1
        return source[at:end], end
    taken: list[str] = []
    end = at + 1
    while end < len(source) and source[end] != '"':
        end += source[end] == "\\"
        taken.append(source[end : end + 1])
        end += 1
    if end >= len(source):
        raise FilterError(source, at, len(source), "the quote is not closed")
    end += 1
    if end < len(source) and not source[end].isspace():
        raise FilterError(source, at, end + 1, "a space is needed after the closing quote")
    return "".join(taken), end
