"""Whether a program's start is that of one declared command line. Pure.

The kernel puts the interpreter in front of a script (execve(2), "Interpreter scripts"), the client a folder of PATH in
front of a bare name; neither makes it another command. What only begins alike is another one.
"""

import posixpath
import re
from functools import lru_cache

import msgspec

from agentwrap.mcp.configs.placeholders import Known, expand
from agentwrap.mcp.declared import Declared

_MAX_BEFORE = 6
_INTERPRETERS = (
    rb"(?:env|sh|[a-z]{0,3}sh|busybox|node(?:js)?|bun|deno|tsx|ts-node|(?:python|pypy|ruby|perl|php|lua)[0-9.]*|uv|"
    rb"java|dotnet|Rscript|tclsh|guile|pwsh)"
)


class Between(msgspec.Struct, frozen=True):
    """A text with unknown parts: `pieces` in this order, anything between them. `literal`: that text fits as well."""

    pieces: tuple[bytes, ...]
    literal: bytes | None = None

    def fits(self, given: bytes) -> bool:
        """Whether a text is one of these; in linear time, for the pieces may be the agent's choice."""
        if given == self.literal:
            return True
        if len(self.pieces) == 1:
            return given == self.pieces[0]
        first, *middle, last = self.pieces
        at, end = len(first), len(given) - len(last)
        if at > end or not given.startswith(first) or not given.endswith(last):
            return False
        for piece in middle:
            found = given.find(piece, at, end)
            if found < 0:
                return False
            at = found + len(piece)
        return True


Word = bytes | Between


class Start(msgspec.Struct, frozen=True):
    """A program that begins. `path`: the file that was asked for, `argv`: its words as the kernel gives them."""

    path: bytes
    argv: tuple[bytes, ...]
    cwd: bytes


class Line(msgspec.Struct, frozen=True):
    """One declared command line, ready to be compared.

    `base`: the last part of the command's name, if it is known. `folder`: where relative names begin, if the
    configuration says it. `literal`: no argument stands for something else.
    """

    declared: Declared
    command: Word
    arguments: tuple[Word, ...]
    base: bytes
    folder: bytes
    literal: bool

    def fits(self, start: Start, script: int, given: tuple[bytes, ...]) -> bool:
        """Whether it is this one. `script`: which word of argv is the script that the command names; 0: none.

        `given`: what follows in argv, as many words as there are `arguments`.
        """
        if self.literal:
            if self.arguments != given:
                return False
        elif not all(_fits(word, one) for word, one in zip(self.arguments, given, strict=True)):
            return False
        named = (start.argv[script],) if script else (start.argv[0], start.path)
        return any(self._is_command(one, start.cwd) for one in named)

    def _is_command(self, given: bytes, cwd: bytes) -> bool:
        if not isinstance(self.command, bytes):
            return self.command.fits(given)
        if given == self.command:
            return True
        if b"/" not in self.command:
            return given.rpartition(b"/")[2] == self.command
        here = posixpath.normpath(posixpath.join(cwd, given))
        folders = {cwd, self.folder} - {b""}
        return any(here == posixpath.normpath(posixpath.join(one, self.command)) for one in folders)


def lines_of(declared: Declared, known: Known) -> tuple[Line, ...]:
    """How the server's command may look when it is started; none for one that is not started here.

    A command with blanks and no arguments is also taken as a line of words: some clients split it, a shell does.
    """
    if not declared.command or _is_of_windows(declared):
        return ()
    whole = _line(declared, declared.command, declared.arguments, known)
    lines = [whole] if whole is not None else []
    words = declared.command.split()
    if not declared.arguments and len(words) > 1:
        split = _line(declared, words[0], tuple(words[1:]), known)
        lines += [split] if split is not None else []
    return tuple(lines)


def _is_of_windows(declared: Declared) -> bool:
    base = declared.command.lower().rpartition(b"\\")[2].removesuffix(b".exe")
    return base == b"cmd" and declared.arguments[:1] in ((b"/c",), (b"/C",))


def _line(declared: Declared, command: bytes, arguments: tuple[bytes, ...], known: Known) -> Line | None:
    pieces = expand(command, known)
    word: Word = pieces[0] if len(pieces) == 1 else Between(pieces)
    _, slash, base = pieces[-1].rpartition(b"/")
    if len(pieces) > 1 and not slash:
        base = b""
    if not base and not any(len(one) > 1 and expand(one, known) == (one,) for one in arguments):
        return None  # it would be any program
    cwd = b"".join(expand(declared.cwd, known))
    rest = tuple(_word(one, known) for one in arguments)
    folder = posixpath.join(declared.folder, cwd) if declared.folder or cwd else b""
    return Line(declared, word, rest, base, folder, all(isinstance(one, bytes) for one in rest))


def _word(text: bytes, known: Known) -> Word:
    """An argument. A client that knows no placeholders of that form passes the text as it stands."""
    pieces = expand(text, known)
    return text if pieces == (text,) else Between(pieces, text)


def _fits(word: Word, given: bytes) -> bool:
    return word == given if isinstance(word, bytes) else word.fits(given)


@lru_cache(maxsize=1024)
def _is_interpreter(base: bytes) -> bool:
    return re.fullmatch(_INTERPRETERS, base) is not None


def scripts(start: Start) -> tuple[int, ...]:
    """Which word of argv may be the script that was asked for: with its interpreter, and that one's options, before.

    Where the kernel says which file was asked for (AT_EXECFN), it is that word; else, behind a known interpreter, its
    first word that is no option, if that is a path. Those after it are the script's own: a client may be given the
    command of a server.
    """
    early = start.argv[1:_MAX_BEFORE]
    if start.path and start.path in early and start.path != start.argv[0]:
        return (early.index(start.path) + 1,)
    base = start.argv[0].rpartition(b"/")[2]
    if not _is_interpreter(base):
        return ()
    for number, word in enumerate(early, 1):
        between = base == b"env" and (b"=" in word or _is_interpreter(word))
        if not between and not word.startswith(b"-"):
            return (number,) if b"/" in word else ()
    return ()
