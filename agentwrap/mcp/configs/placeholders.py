"""What stands for something else in a configuration: variables of the environment, folders, answers of a user. Pure.

Forms of all clients alike: `${VAR}`, `${VAR:-text}`, `${env:VAR}`, `{env:VAR}`, `$VAR`, `~`, `${workspaceFolder}`,
`${userHome}`, `${input:id}`. What is not known here (a variable that nobody set, an answer) stands for any text.
"""

import re
from collections.abc import Mapping

import msgspec

_PLACEHOLDER = rb"\$\{([^${}]*+)\}|\{(?:env|file):([^{}]*+)\}|\$([A-Za-z_][A-Za-z0-9_]*+)"
_FOLDERS = frozenset({b"workspaceFolder", b"workspaceRoot", b"workspacePath", b"cwd", b"CLAUDE_PROJECT_DIR"})
_SLASHES = frozenset({b"/", b"pathSeparator"})


class Known(msgspec.Struct, frozen=True):
    """What placeholders stand for. `folder`: of the project, empty if it is not known."""

    environment: Mapping[bytes, bytes] = {}
    home: bytes = b""
    folder: bytes = b""


def expand(text: bytes, known: Known) -> tuple[bytes, ...]:
    """The text in pieces, with what is known put in; between two pieces there may be anything.

    One piece: all of it is known. All forms are taken for placeholders, also where a client knows them not.
    """
    if b"$" not in text and b"{" not in text:
        return (_from_home(text, known),)
    pieces = [b""]
    at = 0
    for match in re.finditer(_PLACEHOLDER, text):
        pieces[-1] += text[at : match.start()]
        at = match.end()
        meant = _meant(match, known)
        if meant is None:
            pieces.append(b"")
        else:
            pieces[-1] += meant
    pieces[-1] += text[at:]
    pieces[0] = _from_home(pieces[0], known)
    return tuple(pieces)


def _from_home(text: bytes, known: Known) -> bytes:
    return known.home + text[1:] if known.home and (text == b"~" or text.startswith(b"~/")) else text


def _meant(match: re.Match[bytes], known: Known) -> bytes | None:
    if match[3] is not None:
        return known.environment.get(match[3])
    if match[2] is not None:
        return known.environment.get(match[2].strip()) if match[0].startswith(b"{env:") else None
    word: bytes = match[1].strip()
    if word in _FOLDERS and known.folder:
        return known.folder
    if word == b"workspaceFolderBasename" and known.folder:
        return known.folder.rpartition(b"/")[2]
    if word == b"userHome":
        return known.home or None
    if word in _SLASHES:
        return b"/"
    name, default, otherwise = word.removeprefix(b"env:").partition(b":-")
    return known.environment.get(name) or (otherwise if default else None)
