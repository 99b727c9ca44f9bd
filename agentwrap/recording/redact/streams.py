"""Texts that lie in pieces in a stream nobody knows the meaning of: strings of one name, event after event. Pure.

Reads server-sent events and lines of JSON by their signs alone. It may join what does not belong together, and then at
most hides too much; whoever knows the stream tells its texts better.
"""

import re

_STRING = re.compile(rb'"((?:[^"\\\n]|\\.)*+)"(\s*:)?')
_NUMBER = re.compile(rb'"(?:[a-z_]*index|[a-z_]*id)"\s*:\s*(\d{1,9}|"[^"\\]{0,128}")')
_LINES = re.compile(rb"^(?:data:[ \t]*)?(?=[{\[])", re.MULTILINE)
_FEWEST = 2
_LONGEST_LINE_BYTES = 4096
"""What comes in pieces comes in small ones; the lines of a log are longer, and say each for itself what they say."""


def texts_of(data: bytes) -> tuple[tuple[int, ...], ...]:
    """start, end, start, end, ... of the pieces of each text in `data`; nothing where it is no such stream."""
    if data.count(b"\n") < _FEWEST - 1 or (data[:1] not in b"{[" and data.find(b"data:") < 0):
        return ()
    begins = [match.end() for match in _LINES.finditer(data)]
    if len(begins) < _FEWEST:
        return ()
    texts: dict[tuple[bytes, ...], list[int]] = {}
    for begin in begins:
        end = data.find(b"\n", begin)
        end = len(data) if end < 0 else end
        if end - begin > _LONGEST_LINE_BYTES:
            continue
        # Parallel answers and tool calls are told apart by their numbers.
        which = tuple(found for found in _NUMBER.findall(data, begin, end) if found[:1] != b'"')
        name = b""
        at = data.find(b'"', begin, end)
        while at >= 0:
            match = _STRING.match(data, at, end)
            if match is None:
                break  # a string without an end: looking on from each of its quotes would take forever
            if match[2] is not None:
                name = match[1]
            else:
                texts.setdefault((name, *which), []).extend(match.span(1))
            at = data.find(b'"', match.end(), end)
    return tuple(tuple(places) for places in texts.values() if len(places) > 2)
