"""JSON as configurations have it (comments, commas at the end) and TOML, as values. Pure.

Knows no client. Whatever cannot be read raises `UnreadableError` with a few words, and nothing else does.
"""

import re
from collections.abc import Mapping

import msgspec

_STRING = r'"(?:[^"\\]|\\.)*+(?:"|\Z)'
# A text that does not end is one to the end of the file: tried once, not once for each quote in it.
_COMMENT = rf"({_STRING})|//[^\n]*|/\*.*?(?:\*/|\Z)"
_LAST_COMMA = rf"({_STRING})|,(?=\s*+[\]}}])"
_BOM = b"\xef\xbb\xbf"

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_value = msgspec.json.Decoder().decode


class UnreadableError(Exception):
    """The text is not what its format says. The message tells why, in a few words."""


def plain_json(data: bytes) -> bytes:
    """JSON with comments and commas at the end (`jsonc`) as JSON. Texts are left alone."""
    text = data.removeprefix(_BOM).decode("utf-8", "surrogateescape")
    for pattern in (_COMMENT, _LAST_COMMA):
        text = re.sub(pattern, lambda match: match[1] or " ", text, flags=re.DOTALL)
    return text.encode("utf-8", "surrogateescape")


def members(data: bytes) -> Mapping[str, bytes]:
    """The members of a JSON object, each as JSON: what nobody asks for is not taken apart. Raises UnreadableError.

    What is empty or `null` has none. Of a name that comes twice the last one counts.
    """
    data = data.removeprefix(_BOM)
    if data.strip() in (b"", b"null"):
        return {}
    try:
        found = _members(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        try:
            found = _members(plain_json(data))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise UnreadableError(_words(error)) from error
    return {name: bytes(raw) for name, raw in found.items()}


def value(data: bytes) -> object:
    """Any JSON value. Raises UnreadableError."""
    try:
        return _value(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        try:
            return _value(plain_json(data))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise UnreadableError(_words(error)) from error


def toml(data: bytes) -> Mapping[str, object]:
    """A TOML document. Raises UnreadableError."""
    import tomllib  # most runs read no TOML

    try:
        return tomllib.loads(data.removeprefix(_BOM).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(_words(error)) from error


def to_bytes(text: str) -> bytes:
    """A text of a configuration as bytes, whatever is in it."""
    return text.encode("utf-8", "surrogatepass")


def _words(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)
