"""Searching for many known literals at once: a filter on aligned groups of four bytes, then a search for the few left.

An occurrence of a literal of 19 bytes or more covers a whole group of four bytes at an offset divisible by 16. So data
is read as every fourth 32-bit number, and those are compared with a set of the sixteen groups such a literal can show:
0.2 ms for 76 KB however many secrets are known. Shorter literals are searched one by one, or, when they are many, in
the same way with every 32-bit number and four groups.
"""

import sys
from collections.abc import Iterable
from typing import NamedTuple

from agentwrap.recording.redact.forms import MIN_FORM_BYTES, base64_forms, plain_forms

_STRIDE_BYTES = 16
_LONG_FORM_BYTES = _STRIDE_BYTES + 3
_FEW = 16


class Secret(NamedTuple):
    """A known secret and the word for it in marks."""

    value: bytes
    kind: str


class _Literal(NamedTuple):
    """One form of a secret. `loose`: base64, where the letters beside it still hold some of its bits."""

    secret: Secret
    loose: bool


class _Groups:
    """Literals by the groups of four bytes of which an occurrence must show one at a multiple of `stride` bytes."""

    def __init__(self, stride: int) -> None:
        self._stride = stride
        self._step = stride // 4
        self._literals: dict[int, set[bytes]] = {}
        self._wanted: set[int] = set()

    def add(self, literal: bytes) -> None:
        """Index one literal of at least `stride + 3` bytes."""
        for start in range(self._stride):
            group = int.from_bytes(literal[start : start + 4], sys.byteorder)
            self._literals.setdefault(group, set()).add(literal)
            self._wanted.add(group)

    def absent(self, data: bytes) -> bool:
        """True if none of the literals is in `data`; false if one may be."""
        wanted = self._wanted
        return not wanted or wanted.isdisjoint(memoryview(data)[: len(data) & ~3].cast("I")[:: self._step])

    def candidates(self, data: bytes) -> set[bytes]:
        """The literals that may be in `data`."""
        if not self._wanted:
            return set()
        groups = self._wanted.intersection(memoryview(data)[: len(data) & ~3].cast("I")[:: self._step])
        return {literal for group in groups for literal in self._literals[group]}


class ExactSet:
    """Known secrets in all their forms. `longest`: bytes of the longest; `several_lines`: one goes over lines."""

    def __init__(self) -> None:
        self.longest = 0
        self.several_lines = False
        self._secrets: set[bytes] = set()
        self._literals: dict[bytes, _Literal] = {}
        self._long = _Groups(_STRIDE_BYTES)
        self._short = _Groups(4)
        self._short_literals: list[bytes] = []
        self._short_texts: list[str] = []  # the same; to look for a text takes a third of the time

    def __len__(self) -> int:
        return len(self._secrets)

    def __contains__(self, value: bytes) -> bool:
        return value in self._secrets

    def add(self, value: bytes, kind: str) -> bool:
        """Know `value` from now on; false if it was known."""
        if value in self._secrets:
            return False
        self._secrets.add(value)
        secret = Secret(value, kind)
        for loose, forms in ((False, plain_forms(value)), (True, base64_forms(value))):
            for form in forms:
                if len(form) >= MIN_FORM_BYTES and form not in self._literals:
                    self._literals[form] = _Literal(secret, loose)
                    self._index(form)
        return True

    def _index(self, form: bytes) -> None:
        self.longest = max(self.longest, len(form))
        self.several_lines = self.several_lines or b"\n" in form
        if len(form) >= _LONG_FORM_BYTES:
            self._long.add(form)
        else:
            self._short.add(form)
            self._short_literals.append(form)
            self._short_texts.append(form.decode("latin-1"))

    def suspects(self, data: bytes) -> bool:
        """Whether any literal may be in `data` (rarely wrong, and only towards yes)."""
        if not self._literals:
            return False
        if not self._long.absent(data):
            return True
        if len(self._short_literals) > _FEW:
            return not self._short.absent(data)
        if self._short_texts:
            text = data.decode("latin-1")
            for literal in self._short_texts:  # a loop: any() with a generator takes twice as long here
                if literal in text:
                    return True
        return False

    def find(self, data: bytes) -> list[tuple[int, int, Secret]]:
        """Every occurrence, as (start, end, secret)."""
        if not self.suspects(data):
            return []
        few = len(self._short_literals) <= _FEW
        short: Iterable[bytes] = self._short_literals if few else self._short.candidates(data)
        found: list[tuple[int, int, Secret]] = []
        for form in (*self._long.candidates(data), *short):
            at = data.find(form)
            while at >= 0:
                end = at + len(form)
                found.append(self._span(data, at, end, self._literals[form]))
                at = data.find(form, end)
        return found

    def begun(self, data: bytes) -> int:
        """Where at the end of `data` a literal begins that does not end in it; the length of `data` if none does."""
        first = len(data)
        for literal in self._literals:
            at = data.find(literal[:4], max(0, len(data) - len(literal) + 1))
            while 0 <= at < first:
                if literal.startswith(data[at:]):
                    first = at
                at = data.find(literal[:4], at + 1)
        return first

    def _span(self, data: bytes, at: int, end: int, literal: _Literal) -> tuple[int, int, Secret]:
        if literal.loose:
            at -= data[at - 1 : at] in _BASE64
            end += data[end : end + 1] in _BASE64
        return at, end, literal.secret


_BASE64 = {bytes([c]) for c in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"}
