"""Answers as servers write them, for the tests of the readers."""

import json
from typing import Any


def sse(*messages: dict[str, Any] | str, named: bool = False) -> bytes:
    """A stream of events; `named`: with the `event` field that says their type."""
    text = ""
    for message in messages:
        if isinstance(message, dict) and named:
            text += f"event: {message['type']}\n"
        text += f"data: {message if isinstance(message, str) else json.dumps(message)}\n\n"
    return text.encode()


def scattered_texts(body: bytes, scattered: tuple[tuple[int, ...], ...]) -> list[str]:
    """What the places say, put together and taken out of JSON."""
    texts = []
    for places in scattered:
        raw = b"".join(body[start:end] for start, end in zip(places[::2], places[1::2], strict=True))
        texts.append(json.loads(b'"' + raw + b'"'))
    return texts


def covered(body: bytes, pieces: tuple[tuple[int, int], ...]) -> bool:
    """Whether slices are the whole body, in order, and none is empty."""
    return b"".join(body[start:end] for start, end in pieces) == body and all(start < end for start, end in pieces)


def new_bytes(bodies: list[bytes], pieces: list[tuple[tuple[int, int], ...]]) -> list[int]:
    """How many bytes of each body are in no slice of an earlier one."""
    seen: set[bytes] = set()
    found = []
    for body, places in zip(bodies, pieces, strict=True):
        slices = {body[start:end] for start, end in places}
        found.append(sum(map(len, slices - seen)))
        seen |= slices
    return found
