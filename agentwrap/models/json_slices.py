"""Where values lie in a JSON text (RFC 8259): offsets of members and elements, without taking the text apart.

Knows the grammar and nothing else. Never raises on foreign bytes: what is no JSON, has a key twice or is nested too
deep is one slice. A text with lone surrogates or with bytes that are no UTF-8 is read all the same: clients that cut
strings in the middle of a character send such.
"""

import json
import re
from collections.abc import Iterator

import msgspec

Place = tuple[int, int]

# What decoders raise on foreign bytes: msgspec's errors and numbers that are too long are ValueErrors.
FAULTS = (ValueError, RecursionError, OverflowError)

_OPEN = re.compile(rb"[ \t\r\n]*[\[{][ \t\r\n]*")
_KEY = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_NEXT = re.compile(rb"[ \t\r\n]*([,\]}])[ \t\r\n]*")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F](?=[0-9a-fA-F]{2})")
_PLAIN = bytes(range(128)) + b"?" * 128
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_BRACKETS = re.compile(_STRING.pattern + rb"|[\[\]{}]", re.DOTALL)

# Each value costs memory, far more than a text like `[],[],[]` has bytes.
_SMALL_BYTES, _VALUES_MAX = 1 << 20, 1_000_000
_DEPTH_MAX, _TOKENS_MAX = 1000, 2_000_000

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_elements = msgspec.json.Decoder(list[msgspec.Raw])
_any = msgspec.json.Decoder()


def read(text: bytes, *, held: bool = False) -> object:
    """The value. Raises one of FAULTS where there is none, and where there are too many to hold.

    `held`: it is part of a text that was sliced before, and so known not to be too much.
    """
    if not held and _too_many(text):
        raise ValueError("too many values")
    try:
        return _any.decode(text)
    except FAULTS:
        return json.loads(text.decode("utf-8", "replace"))


def members(body: bytes, start: int = 0, end: int | None = None) -> dict[str, Place] | None:
    """Where the values of an object's members lie in `body`, in order; None where there is no plain object.

    With `start`: of a value within `body`, which was sliced itself before.
    """
    text = body if start == 0 and end in (None, len(body)) else body[start:end]
    if start == 0 and _too_many(text):
        return None
    try:
        values = _members.decode(text)
    except FAULTS:
        try:
            text = _tamed(text)
            values = _members.decode(text)
        except FAULTS:
            return None
    found = {}
    at = _past(_OPEN, text, 0)
    for name, value in values.items():
        key = _KEY.match(text, at)
        raw = bytes(value)
        # A key that comes twice is one entry here, with the last value: the walk is only right where all of it agrees.
        if not key or not text.startswith(raw, key.end()) or not _same(key[1], name):
            return None
        found[name] = (start + key.end(), start + key.end() + len(raw))
        at = _past(_NEXT, text, key.end() + len(raw))
    return found if at == len(text) or not values else None


def elements(body: bytes, start: int = 0, end: int | None = None) -> list[Place] | None:
    """Where the elements of an array lie in `body`, as for members; None where there is no array."""
    text = body if start == 0 and end in (None, len(body)) else body[start:end]
    if start == 0 and _too_many(text):
        return None
    try:
        values = _elements.decode(text)
    except FAULTS:
        try:
            text = _tamed(text)
            values = _elements.decode(text)
        except FAULTS:
            return None
    found = []
    at = _past(_OPEN, text, 0)
    for value in values:
        size = memoryview(value).nbytes
        found.append((start + at, start + at + size))
        at = _past(_NEXT, text, at + size)
    return found


def elements_of_a_cut_array(body: bytes) -> Iterator[Place]:
    """Where those elements of an array lie that are objects, as far as they came whole."""
    depth, start = 0, -1
    for count, token in enumerate(_BRACKETS.finditer(body)):
        if depth > _DEPTH_MAX or count > _TOKENS_MAX:
            return
        first = token[0][:1]
        if first in b"[{":
            depth += 1
            if depth == 2 and first == b"{":
                start = token.start()
        elif first in b"]}":
            depth -= 1
            if depth == 1 and start >= 0:
                yield start, token.end()
                start = -1


def inside(text: bytes, key: bytes, value: str, at: int = 0) -> Place | None:
    """Where the characters of a member's string lie in a JSON text, without their quotes.

    The member is the first one behind `at`, at any depth, that has this name and this value.
    """
    pattern = _patterns.get(key) or _pattern(key)
    found = pattern.search(text, at)
    while found:
        raw = found[1]
        try:
            if (raw.decode() if b"\\" not in raw else read(b'"' + raw + b'"')) == value:
                return found.span(1)
        except FAULTS:
            pass
        found = pattern.search(text, found.end())
    return None


_patterns: dict[bytes, re.Pattern[bytes]] = {}


def _pattern(key: bytes) -> re.Pattern[bytes]:
    # A quote behind a bracket, a comma or a space opens a string: within one it would have a backslash before it.
    name = b'"' + re.escape(key) + b'"'
    made = re.compile(name + rb"(?<=[{,\s]" + name + rb')\s*:\s*"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
    if len(_patterns) < 100:
        _patterns[key] = made
    return made


def _past(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else -1


def _same(raw: bytes, name: str) -> bool:
    return raw[1:-1] == name.encode() or (b"\\" in raw and _any.decode(raw) == name)


def _too_many(text: bytes) -> bool:
    if len(text) <= _SMALL_BYTES:
        return False
    return _values(text) > _VALUES_MAX and _values(_STRING.sub(b"", text)) > _VALUES_MAX


def _values(text: bytes) -> int:
    return sum(map(text.count, (b",", b"[", b"{")))


def _tamed(text: bytes) -> bytes:
    """The same text, byte for byte as long, with plain characters where strict readers would stop."""
    return _SURROGATE.sub(rb"\\u00", text).translate(_PLAIN)
