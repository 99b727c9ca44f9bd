"""JSON that means one thing: read strictly, or refused with the reason. For texts that are judged and not changed.

Parsers differ on what RFC 8259 leaves open: which of two equal names counts (section 4), numbers beyond a double
(section 6), other encodings than UTF-8 and byte order marks (8.1), halves of surrogate pairs (8.2). Where another
reader could understand something else than we do, nothing can be judged.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

Kind = Literal["malformed", "repeated-name", "number", "deep"]

_decode = msgspec.json.Decoder().decode
_HOLDING = (dict, list)
_SPACED = re.compile(rb'"[ \t\r\n]+:')


class Ambiguous(ValueError):  # noqa: N818 - what it means is for the caller to say
    """A text that has no single meaning; its message says why. `kind`: sorts the reasons."""

    def __init__(self, kind: Kind, why: str) -> None:
        super().__init__(why)
        self.kind = kind


def parse(text: bytes, *, huge: bool = False) -> Any:
    """The value. Raises Ambiguous, and nothing else, for whatever bytes.

    `huge`: numbers beyond a double are let through as infinities, for who does not look at them.
    """
    try:
        value = _decode(text)
    except RecursionError:
        raise Ambiguous("deep", "it is nested too deeply") from None
    except msgspec.ValidationError:
        if huge and b"\\u" not in text:  # the other parser takes halves of surrogate pairs
            return _read_once(text)
        raise Ambiguous("number", "a number in it is beyond what a double holds (RFC 8259, 6)") from None
    except (msgspec.DecodeError, UnicodeError, ValueError) as error:
        raise Ambiguous("malformed", _malformed(text, str(error))) from None
    # Every name is followed by a colon, next to it or after white space. Where the first kind is as frequent as names
    # in the value, and there is none of the second, no name was there twice; texts that hold `":` only raise the count.
    if text.count(b'":') != _names(value) or _SPACED.search(text):
        _read_once(text)
    return value


def _malformed(text: bytes, error: str) -> str:
    if text.startswith(b"\xef\xbb\xbf"):
        return "it begins with a byte order mark (RFC 8259, 8.1)"
    if b"\0" in text:
        return "it is not UTF-8: it has zero bytes (RFC 8259, 8.1)"
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return "it is not UTF-8 (RFC 8259, 8.1)"
    return f"it is not JSON: {error}"


def _names(value: Any) -> int:
    """How many members all objects in a value have."""
    count = 0
    waiting = [value]
    while waiting:
        one = waiting.pop()
        within: Iterable[Any] = one
        if type(one) is dict:
            count += len(one)
            within = one.values()
        elif type(one) is not list:
            continue
        for each in within:
            if type(each) in _HOLDING:
                waiting.append(each)  # noqa: PERF401 - few values: a list made for them takes longer
    return count


def _read_once(text: bytes) -> Any:
    """The value, by a parser that sees every name."""
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError:
        raise Ambiguous("deep", "it is nested too deeply") from None
    except Ambiguous:
        raise
    except ValueError as error:  # two parsers that disagree are reason enough
        raise Ambiguous("malformed", f"it is not JSON: {error}") from None


def _no_constant(word: str) -> None:
    raise ValueError(f"`{word}` is no JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Ambiguous("repeated-name", f"the name `{_repeated(pairs)}` is in one object twice (RFC 8259, 4)")
    return found


def _repeated(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    return ""


def no_twin(members: Mapping[str, Any], known: Mapping[str, str]) -> None:
    """Raise Ambiguous where a member is called like a known one but for the case of its letters.

    `known`: names by their folded form, which most of them are themselves. Some readers take one for the other (Go's
    encoding/json folds case, the long s and the Kelvin sign as well).
    """
    for name in members:
        if name in known:
            continue
        meant = known.get(name.casefold())
        if meant is not None and meant != name:
            raise Ambiguous("repeated-name", f"some readers take `{name}` for `{meant}`")
