"""The normal form of a tool, and its digest (docs/format.md, `mcp.tool`). Pure; raises nothing for foreign bytes.

Two listings that mean the same to every reader have the same form: order of keys, spaces and ways to write a character
do not count, everything else does.
"""

import json
from hashlib import sha256
from typing import Any

DEPTH_MAX = 200
_MEMBERS = ("description", "inputSchema", "name")


class _Number(str):
    """A number, as it was written."""

    __slots__ = ()


class _Pairs(list[tuple[str, Any]]):
    """An object's members, in order, none left out."""


def _no_constant(word: str) -> object:
    raise ValueError(word)


def normal_form(definition: bytes) -> bytes:
    """The form of a tool's JSON; its bytes where they cannot be read."""
    try:
        value = json.loads(
            definition.decode(),
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_no_constant,
            object_pairs_hook=_Pairs,
        )
        if not isinstance(value, _Pairs):
            return definition
        told: list[str] = []
        _write(_Pairs(pair for pair in value if pair[0] in _MEMBERS), told, 0)
        return "".join(told).encode()
    except (ValueError, RecursionError):
        return definition


def tool_digest(definition: bytes) -> str:
    """SHA-256 of the normal form, hex."""
    return sha256(normal_form(definition)).hexdigest()


def _write(value: object, told: list[str], depth: int) -> None:
    if depth > DEPTH_MAX:
        raise ValueError("nested too deep")
    if isinstance(value, _Pairs):
        told.append("{")
        for at, (key, member) in enumerate(sorted(value, key=_key)):
            told.append(("," if at else "") + _text(key) + ":")
            _write(member, told, depth + 1)
        told.append("}")
    elif isinstance(value, list):
        told.append("[")
        for at, one in enumerate(value):
            if at:
                told.append(",")
            _write(one, told, depth + 1)
        told.append("]")
    elif isinstance(value, _Number):
        told.append(value)
    elif isinstance(value, str):
        told.append(_text(value))
    else:
        told.append({True: "true", False: "false"}[value] if isinstance(value, bool) else "null")


def _key(pair: tuple[str, Any]) -> str:
    return pair[0]


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
