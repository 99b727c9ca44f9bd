"""Lines made of pieces with a role: what a view returns and `cli.output` prints.

Knows role words, not colours: whether and how a role is coloured is the printer's business, and colour never carries
meaning alone.
"""

from collections.abc import Iterable
from typing import Literal

Role = Literal[
    "",
    "add",  # an added line, a created file
    "bad",  # a failure of the program (a non-zero exit, a signal)
    "deny",  # a denial
    "dim",  # beside the point
    "gap",  # what could not be seen
    "good",  # as it should be
    "hunk",  # position in a diff
    "name",  # what the line is about
    "remove",  # a removed line, a deleted file
    "title",  # a heading
    "who",  # a process
]

Piece = tuple[str, Role]
Line = list[Piece]


def line(*pieces: Piece | str) -> Line:
    """A line out of pieces; a bare string has no role."""
    return [(piece, "") if isinstance(piece, str) else piece for piece in pieces]


def plain(pieces: Iterable[Piece]) -> str:
    """The text of a line without roles."""
    return "".join([piece[0] for piece in pieces])
