"""Bodies cut into contents. Pure."""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

from agentwrap.events import Body, Content

Emit = Callable[[Content], None]


def whole(data: bytes, emit: Emit, scattered: tuple[tuple[int, ...], ...] = ()) -> Body:
    """A body in one piece."""
    if not data:
        return Body()
    digest = sha256(data).digest()
    emit(Content(digest, data, "body", scattered))
    return Body(len(data), (digest,))


def in_pieces(data: bytes, pieces: Sequence[tuple[int, int]], emit: Emit) -> Body:
    """A body in the given slices; in one piece where they do not cover it."""
    if not covers(pieces, len(data)):
        return whole(data, emit)
    digests: list[bytes] = []
    for start, end in pieces:
        piece = data[start:end]
        digest = sha256(piece).digest()
        digests.append(digest)
        emit(Content(digest, piece, "body"))
    return Body(len(data), tuple(digests))


def covers(pieces: Iterable[tuple[int, int]], size: int) -> bool:
    """Whether slices lie one behind the other from 0 to `size`."""
    at = 0
    for start, end in pieces:
        if start != at or end < start:
            return False
        at = end
    return at == size
