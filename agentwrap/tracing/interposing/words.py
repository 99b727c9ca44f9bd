"""What the words of an exec say: how a script was called, and whether they speak of MCP at all. Pure."""

import re
from collections.abc import Iterator
from os.path import basename

_INTERPRETER_WORDS = 8
_SPEAKS = re.compile(rb"(?i)(?:^|[^a-z])mcp(?:$|[^a-z])|modelcontextprotocol")
# Programs that say nothing themselves: which server it is, is said by a word behind. For an interpreter that is the
# first one, a script or a module; for who runs packages or images it may come later.
_INTERPRETER = re.compile(rb"(?:node|nodejs|bun|deno|python[\d.]*|java|ruby|php|dotnet)")
_RUNNER = re.compile(rb"(?:uv|uvx|npx|bunx|npm|pnpm|yarn|pipx|docker|podman|go)")
_RUN = frozenset((b"run", b"x", b"exec"))
_SETTINGS = re.compile(rb"(?i)\.(?:json|jsonc|toml|ya?ml|env|md|txt|log)$")
# Names that are the same in every package; the folder above says which one it is.
_NAMELESS = frozenset(
    (
        *(b"index", b"main", b"__main__", b"server", b"cli", b"app", b"start", b"run", b"stdio"),
        *(b"dist", b"build", b"src", b"lib", b"bin", b"out", b"cjs", b"esm"),
    )
)


def as_called(path: bytes, cwd: bytes, argv: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The words that execve(2) was given for a script at `path`, from those of the program that runs it.

    The kernel has put in front of the script's path, as it was given: an interpreter, its argument if there is one, and
    for an interpreter that is a script itself another one. The first word is lost; the path is in its place.
    """
    for i, word in enumerate(argv[1:_INTERPRETER_WORDS], 1):
        if word and path in (word, cwd + b"/" + word):
            return argv[i:]
    return argv


def speaks_of_mcp(argv: tuple[bytes, ...]) -> bool:
    """Whether a command line looks like that of an MCP server: by its program's name, or what a launcher is to run.

    A guess, for telling that something may have been missed.
    """
    return any(_SPEAKS.search(name) for name in _names(argv))


def name_of(argv: tuple[bytes, ...]) -> bytes:
    """What to call a server that has no name: what speaks of MCP in its command line, else its program's name."""
    names = tuple(_names(argv))
    return next((name for name in names if _SPEAKS.search(name)), names[0] if names else b"")


def _names(argv: tuple[bytes, ...]) -> Iterator[bytes]:
    """The program's name, and, where it says nothing itself, those of what it is to run."""
    if not argv:
        return
    program = basename(argv[0])
    yield program
    words = [word for word in argv[1:] if word[:1] != b"-" and not re.search(rb"\s", word) and word not in _RUN]
    if _INTERPRETER.fullmatch(program):
        words = words[:1]
    elif not _RUNNER.fullmatch(program):
        return
    yield from (_package(word) for word in words if not _SETTINGS.search(word))


def _package(word: bytes) -> bytes:
    """What of a word names a package: of a path the file, or the folder that it is called after."""
    parts = word.split(b"/")
    if b"node_modules" in parts:
        return b"/".join(parts[len(parts) - parts[::-1].index(b"node_modules") :][:2])
    if not word.startswith((b"/", b".")):
        return word  # @scope/package, image/name, module.name
    while len(parts) > 1 and parts[-1].partition(b".")[0] in _NAMELESS:
        parts.pop()
    return parts[-1]
