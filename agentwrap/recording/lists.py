"""Long lists of contents, kept as contents themselves: what two lists have in common is stored once. Pure.

The hashes of a body's pieces are cut behind every hash whose first byte is below 16 (and after 64 at the latest): where
a list is cut depends on what is in it, not on where that lies. So a conversation that grows at its end, or was changed
in its middle, shares all other lists with the one before it. The hashes of many lists are cut again, once.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

FLAT = 8
"""So many hashes are named one by one."""
LONGEST = 64
DEEPEST = 2
HASH_BYTES = 32
_ENDS_BELOW = 16


class Folded(NamedTuple):
    """`top`: the hashes to name; `depth`: how many lists lie above a content, 0 to 2; `lists`: each by its hash."""

    top: Sequence[bytes]
    depth: int
    lists: dict[bytes, bytes]


def fold(hashes: Sequence[bytes]) -> Folded:
    """Fold the SHA-256 of contents, in order."""
    lists: dict[bytes, bytes] = {}
    depth = 0
    while len(hashes) > FLAT and depth < DEEPEST:
        level = [b"".join(cut) for cut in _cut(hashes)]
        hashes = [sha256(one).digest() for one in level]
        lists.update(zip(hashes, level, strict=True))
        depth += 1
    return Folded(hashes, depth, lists)


def _cut(hashes: Iterable[bytes]) -> Iterator[list[bytes]]:
    cut: list[bytes] = []
    for one in hashes:
        cut.append(one)
        if one[0] < _ENDS_BELOW or len(cut) == LONGEST:
            yield cut
            cut = []
    if cut:
        yield cut


def role_of(name: str, depth: int) -> str:
    """The role of a part: the field, and behind a slash the depth if there is one."""
    return f"{name}/{depth}" if depth else name


def name_and_depth(role: str) -> tuple[str, int]:
    """A role taken apart. Raises ValueError for a depth that there is not."""
    name, slash, depth = role.partition("/")
    if not slash:
        return name, 0
    if depth not in ("1", "2"):
        raise ValueError(f"there is no role {role}")
    return name, int(depth)


def hashes_in(data: bytes) -> list[bytes]:
    """The hashes that a list holds. Raises ValueError for bytes that are no list."""
    if not data or len(data) % HASH_BYTES or len(data) > LONGEST * HASH_BYTES:
        raise ValueError("not a list of contents")
    return [data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)]
