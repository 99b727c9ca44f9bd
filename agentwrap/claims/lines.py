"""One line of the claims protocol as an event. Pure. The protocol is told in docs/reference/claims.md.

Nothing a line says is trusted: it becomes a claim of whoever the kernel says is at the other end.
"""

from typing import Any, Literal, get_args

import msgspec

from agentwrap.events import Claim

LINE_BYTES = 64 << 10
DATA_BYTES = 16 << 10
_WORD_BYTES = 1024

Said = Literal["span.start", "span.end", "decision", "message", "tool.call", "tool.result", "retry", "error", "log"]
SAID: tuple[str, ...] = get_args(Said)


class LineError(ValueError):
    """Why a line is no claim, in a few words of ours."""


class _Line(msgspec.Struct):
    event: Said
    name: str = ""
    id: str | int = ""
    parent: str | int = ""
    status: str = ""
    time: int | float = 0
    data: msgspec.Raw = msgspec.Raw(b"")


_decode = msgspec.json.Decoder(_Line).decode


def claim(line: bytes, at_ns: int, span: str, pid: int) -> Claim:
    """The claim in one line, without its line end. `time` in it is in seconds of the UNIX epoch. Raises LineError."""
    if len(line) > LINE_BYTES:
        raise LineError(f"longer than {LINE_BYTES} bytes")
    try:
        told = _decode(line)
        data = bytes(told.data)
        if data:
            msgspec.json.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise LineError(_why(error)) from error
    return Claim(
        at_ns=at_ns,
        span=span,
        pid=pid,
        said=told.event,
        name=_word(told.name),
        id=_word(told.id),
        parent=_word(told.parent),
        status=_word(told.status),
        told_ns=_nanoseconds(told.time),
        data=data[:DATA_BYTES],
        omitted_bytes=max(0, len(data) - DATA_BYTES),
    )


def _word(value: str | int) -> bytes:
    return str(value).encode("utf-8", "surrogatepass")[:_WORD_BYTES]


def _nanoseconds(seconds: float) -> int:
    # What fits in the file's integers; anything else is no time.
    return int(seconds * 1_000_000_000) if 0 < seconds < 9_000_000_000 else 0


def _why(error: Any) -> str:
    if isinstance(error, msgspec.ValidationError):
        return f"not as the protocol says: {str(error).partition(' - at ')[2] or 'its fields'}"
    return "not JSON"
