"""An answer's body as the JSON messages that it is made of: events, lines, an array or one document. Pure."""

from collections.abc import Iterator
from typing import Literal

from agentwrap.models.json_slices import elements, elements_of_a_cut_array
from agentwrap.models.sse import Event, events

LINES = b"application/x-ndjson"
"""The media type of the messages of a WebSocket, one a line."""

EVENTS_MAX = 250_000

Form = Literal["events", "lines", "array", "document", "nothing"]

_SPACE = b" \t\r\n"


def form(body: bytes, media: bytes) -> Form:
    """How a body is made. What it begins with counts for more than `media`: errors come as streams in name only."""
    first = body[:64].lstrip(_SPACE)[:1] or body.lstrip(_SPACE)[:1]
    if not first:
        return "nothing"
    if media.strip().lower().startswith(LINES):
        return "lines"
    if first == b"{":
        return "document"
    return "array" if first == b"[" else "events"


def messages(body: bytes, media: bytes) -> Iterator[Event]:
    """The messages of a body in order, as far as they came; after EVENTS_MAX one that says that there are more."""
    for count, event in enumerate(_messages(body, form(body, media))):
        if count == EVENTS_MAX:
            yield Event(b"", b'{"type":"too many events"}', event.start, (event.start, event.start))
            return
        yield event


def _messages(body: bytes, made: Form) -> Iterator[Event]:
    if made == "lines":
        yield from _lines(body)
    elif made == "array":
        for start, end in elements(body) or elements_of_a_cut_array(body):
            yield Event(b"", body[start:end], start, (start, end))
    elif made == "document":
        yield Event(b"", body, 0, (0, len(body)))
    elif made == "events":
        yield from events(body)


def _lines(body: bytes) -> Iterator[Event]:
    at = 0
    while at < len(body):
        end = body.find(b"\n", at)
        end = len(body) if end < 0 else end
        line = body[at:end]
        if line.strip(_SPACE):
            yield Event(b"", line, at, (at, end))
        at = end + 1
