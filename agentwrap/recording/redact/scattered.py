"""Texts that lie in pieces in a longer one, as the deltas of a stream do: a secret in them is hidden in all. Pure.

The pieces are inner parts of JSON strings (RFC 8259, section 7). They are joined and their escapes undone, as a reader
of the stream does; secrets are looked for in that, and what is found is told as places in the whole.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable

Span = tuple[int, int, str, bytes]
"""(start, end, kind, secret); without kind: what is there goes, and no mark comes."""

_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)


def find_scattered(
    data: bytes, texts: Iterable[tuple[int, ...]], find: Callable[[bytes], list[Span]]
) -> list[Span]:
    """Every secret of `texts` in `data`: `find` is asked about each text as a whole.

    A text is start, end, start, end, ... of its pieces in order; one that does not fit `data` is left out. The mark of
    a secret stands where it begins.
    """
    spans: list[Span] = []
    for text in texts:
        places = list(zip(text[::2], text[1::2], strict=False))
        if not places or not _fits(places, len(data)):
            continue
        joined = b"".join([data[start:end] for start, end in places])
        plain = _decoded(joined)
        found = find(joined if plain is None else plain)
        if found and plain is not None:
            found = _escaped(joined, found)
        if found:
            spans += _back(places, found)
    return spans


def _fits(places: list[tuple[int, int]], size: int) -> bool:
    at = 0
    for start, end in places:
        if start < at or end < start:
            return False
        at = end
    return at <= size


def _decoded(text: bytes) -> bytes | None:
    """The inner part of a JSON string with its escapes undone; None if it has none, or is none."""
    if text.find(b"\\") < 0:
        return None
    try:
        decoded = json.loads(b'"%b"' % text, strict=False)
    except ValueError:
        return None
    return decoded.encode(errors="surrogatepass") if isinstance(decoded, str) else None


def _escaped(text: bytes, found: list[Span]) -> list[Span]:
    """Places in the decoded text as places in `text`; an escape is hidden whole."""
    plain_at: list[int] = []
    parts: list[tuple[int, int, int]] = []  # raw start, raw bytes, plain bytes

    def add(start: int, size: int, plain_size: int) -> None:
        plain_at.append(plain_at[-1] + parts[-1][2] if parts else 0)
        parts.append((start, size, plain_size))

    at = 0
    for match in _ESCAPE.finditer(text):
        if match.start() > at:
            add(at, match.start() - at, match.start() - at)
        add(match.start(), len(match[0]), _plain_bytes(match[0]))
        at = match.end()
    add(at, len(text) - at, len(text) - at)

    def place(offset: int, *, end: bool) -> int:
        number = bisect_right(plain_at, offset - end) - 1
        start, size, plain_size = parts[number]
        inside = offset - plain_at[number]
        if size == plain_size:
            return start + inside
        return start + (size if end else 0)

    return [(place(start, end=False), place(end, end=True), kind, secret) for start, end, kind, secret in found]


def _plain_bytes(escape: bytes) -> int:
    """Bytes in UTF-8 of what an escape stands for."""
    if escape[1:2] != b"u":
        return 1
    if len(escape) == 12:
        return 4
    code = int(escape[2:6], 16)
    return 1 if code < 0x80 else 2 if code < 0x800 else 3


def _back(places: list[tuple[int, int]], found: list[Span]) -> list[Span]:
    """Places in the joined text as places in the whole."""
    begins: list[int] = []
    at = 0
    for start, end in places:
        begins.append(at)
        at += end - start
    spans: list[Span] = []
    for start, end, kind, secret in found:
        number, told = bisect_right(begins, start) - 1, (kind, secret)
        while number < len(places) and begins[number] < end:
            first, last = places[number]
            offset = first - begins[number]
            here = (max(start + offset, first), min(end + offset, last))
            if here[1] > here[0]:
                spans.append((*here, *told))
                told = ("", b"")
            number += 1
    return spans
