"""What makes a message the same when it is sent again: what it says, however that is written. Pure."""

import json
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import msgspec

from agentwrap.models.json_slices import FAULTS

_SIZE = 16
_encode = msgspec.json.Encoder(order="deterministic").encode


def identity(said: object, raw: bytes) -> bytes:
    """A digest of a value in one spelling; of the bytes themselves where it has none."""
    try:
        spelled = _encode(said)
    except FAULTS:
        try:
            spelled = json.dumps(said, sort_keys=True).encode()
        except FAULTS:
            spelled = raw
    return blake2b(spelled, digest_size=_SIZE).digest()


def without(value: Any, names: Iterable[str]) -> Any:
    """An object without some members, and without those that are null."""
    if not isinstance(value, dict):
        return value
    return {name: held for name, held in value.items() if name not in names and held is not None}


def content(value: Any, kind: str = "text", levels: int = 2) -> Any:
    """What a message holds: a string is the same as one text part, and marks for caches say nothing.

    So is it with what a part holds, a tool's result; `levels`: how deep such things may be.
    """
    if isinstance(value, str):
        return [{"type": kind, "text": value}]
    if not isinstance(value, list):
        return value
    return [_part(part, kind, levels - 1) for part in value]


def _part(part: Any, kind: str, levels: int) -> Any:
    said = without(part, ("cache_control",))
    if levels and isinstance(said, dict) and "content" in said:
        said["content"] = content(said["content"], kind, levels)
    return said
